-- Months of usage that are closed (dataplane/billing/ledger/usage-retention.ts; rule 12.5): what is older than RETENTION_USAGE
-- is kept as sums by day, and its rows stand apart in a table of their own, `usage_2026_03`, or are gone.
-- Each step is one call of close_usage in a transaction of its own; what it does next stands in these tables, so that
-- any data plane goes on where another one stopped.

-- Sums of closed days, by all that reports by the day show: the columns of usage_hourly, in their order.
create table usage_closed (like usage_hourly including defaults);
alter table usage_closed rename column hour to day;
alter table usage_closed
  add primary key (organization_id, day, project_id, key_id, model, context_tokens, service_tier, batch, tags);

-- What the closed rows of each batch sum to, for reconciliation: of those that are there, and for as long as they are.
create table usage_closed_batches (
  batch_id text not null,
  day timestamptz not null,
  requests bigint not null,
  -- As in `batches`.
  input_tokens numeric not null,
  cached_tokens numeric not null,
  output_tokens numeric not null,
  reasoning_tokens numeric not null,
  primary key (batch_id, day)
);

-- The months of which something was closed, by their first moment.
create table usage_closings (
  month timestamptz primary key,
  closed_at timestamptz not null default clock_timestamp()
);

-- How far it is. Sums of days from closed_until on are being made and count for nothing yet.
create table usage_retention (
  singleton boolean primary key default true check (singleton),
  -- What was accepted before it is closed.
  closed_until timestamptz not null default '-infinity',
  -- What was accepted before it is summed, and what was found to agree with the sums by the hour.
  summed_until timestamptz not null default '-infinity',
  checked_until timestamptz not null default '-infinity',
  -- Changes of old rows, ever, and as of the first of these sums: when they differ the sums are made again.
  late_changes bigint not null default 0,
  summed_changes bigint not null default 0
);
insert into usage_retention default values;

-- What reports by the day read. A closed day stands at its first hour.
create view usage_sums as
select * from usage_hourly
union all
select * from usage_closed where day < (select closed_until from usage_retention);

create function usage_month(moment timestamptz) returns timestamptz language sql stable as $$
  select date_trunc('month', moment at time zone 'utc') at time zone 'utc'
$$;

create function month_after(month timestamptz) returns timestamptz language sql stable as $$
  select (month at time zone 'utc' + interval '1 month') at time zone 'utc'
$$;

-- `usage_2026_03`, and of sums by the hour `usage_hourly_2026_03`.
create function partition_name(parent text, month timestamptz) returns text language sql stable as $$
  select parent || '_' || to_char(month at time zone 'utc', 'YYYY_MM')
$$;

create function is_partition_of(parent text, name text) returns boolean language sql stable as $$
  select exists (select from pg_inherits where inhrelid = to_regclass(name) and inhparent = to_regclass(parent))
$$;

-- Whether the row of a request stands in the table of a closed month.
create function stands_apart(at timestamptz, request text) returns boolean language plpgsql as $$
declare
  name text := partition_name('usage', usage_month(at));
  found boolean := false;
begin
  if at < (select closed_until from usage_retention) and to_regclass(name) is not null then
    execute format('select exists (select from %I where accepted_at = $1 and id = $2)', name) into found using at, request;
  end if;
  return found;
end
$$;

-- Called for charges of which some are so old that their month may be closed, or be summed just now; returns those that
-- are new as far as closed months know. Where the rows of a month are gone nobody can tell a repeat from a late charge:
-- it is refused (P0C01), unless `refused` says that it was a dead letter before the month was closed.
create function late_charges(given charge[], refused timestamptz) returns charge[] language plpgsql as $$
declare
  until timestamptz;
  month_of timestamptz;
begin
  -- Whoever closes a month holds the table: what is read here stays so until this transaction's rows are in.
  lock table only usage in row exclusive mode;
  update usage_retention set late_changes = late_changes + 1 returning closed_until into until;
  for month_of in
    select distinct usage_month(from_unix_ms(accepted_ms)) from unnest(given) where from_unix_ms(accepted_ms) < until
  loop
    if to_regclass(partition_name('usage', month_of)) is null
      and exists (
        select from usage_closings closing
        where closing.month = month_of and (refused is null or refused >= closing.closed_at)
      )
      and exists (
        select from unnest(given) charge
        where usage_month(from_unix_ms(charge.accepted_ms)) = month_of and not exists (
          select from usage where usage.accepted_at = from_unix_ms(charge.accepted_ms) and usage.id = charge.id
        )
      )
    then
      raise exception 'its month is closed and the rows are gone: whether it was charged already cannot be told'
        using errcode = 'P0C01';
    end if;
  end loop;
  return array(select charge from unnest(given) charge where not stands_apart(from_unix_ms(charge.accepted_ms), charge.id));
end
$$;

-- The names of usage_closed's sums, each put into a template: $1 stands for it.
create function each_sum(template text) returns text language sql stable as $$
  select string_agg(replace(template, '$1', attname), ', ' order by attnum) from pg_attribute
  where attrelid = 'usage_closed'::regclass and attnum > 0 and not attisdropped
    and atttypid = 'bigint'::regtype and attname not in ('context_tokens', 'requests')
$$;

-- Adds rows to the sums of their days: those of `source`, the end of a select from `usage`, or of `$1`.
create function add_to_closing(source text, given usage[]) returns void language plpgsql as $$
begin
  execute format(
    $sql$
      insert into usage_closed as known (
        organization_id, day, project_id, key_id, model, context_tokens, service_tier, batch, tags, requests, %s
      )
      select organization_id, date_bin('1 day', accepted_at, '2000-01-01T00:00:00Z'), project_id, key_id, model,
        context_tokens, service_tier, endpoint = 'batch', coalesce(tags, ''), count(*), %s
      from %s group by 1, 2, 3, 4, 5, 6, 7, 8, 9
      on conflict (organization_id, day, project_id, key_id, model, context_tokens, service_tier, batch, tags)
      do update set requests = known.requests + excluded.requests, %s
    $sql$,
    each_sum('$1'), each_sum('sum($1)'), source, each_sum('$1 = known.$1 + excluded.$1')
  ) using given;
  execute format(
    $sql$
      insert into usage_closed_batches as known
      select batch_id, date_bin('1 day', accepted_at, '2000-01-01T00:00:00Z'), count(*),
        sum(input_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens), sum(cache_read_tokens),
        sum(output_tokens), sum(reasoning_tokens)
      from (select * from %s) closed where batch_id in (select id from batches) group by 1, 2
      on conflict (batch_id, day) do update set requests = known.requests + excluded.requests,
        input_tokens = known.input_tokens + excluded.input_tokens,
        cached_tokens = known.cached_tokens + excluded.cached_tokens,
        output_tokens = known.output_tokens + excluded.output_tokens,
        reasoning_tokens = known.reasoning_tokens + excluded.reasoning_tokens
    $sql$,
    source
  ) using given;
end
$$;

-- The oldest month that is over before this moment and not closed; null: none. It has rows, or an empty partition.
create function month_to_close(oldest timestamptz, until timestamptz) returns timestamptz language plpgsql as $$
declare
  month timestamptz;
begin
  select usage_month(least(
    (select accepted_at from usage where accepted_at >= until and accepted_at < oldest order by accepted_at limit 1),
    (
      select min(to_date(right(inhrelid::regclass::text, 7), 'YYYY_MM')::timestamp at time zone 'utc') from pg_inherits
      where inhparent = 'usage'::regclass and inhrelid::regclass::text ~ '^usage_\d{4}_\d{2}$'
        and to_date(right(inhrelid::regclass::text, 7), 'YYYY_MM')::timestamp at time zone 'utc' >= until
    )
  )) into month;
  return case when month_after(month) <= oldest then month end;
end
$$;

-- Sums the next rows of a month, some hundred thousand at most.
create function sum_usage(month timestamptz, state usage_retention, most integer) returns text language plpgsql as $$
declare
  first timestamptz := state.summed_until;
  last timestamptz := month_after(month);
  middle timestamptz;
begin
  -- A step of its own: late charges wait for it, and must not wait for sums.
  if state.summed_until < month then
    delete from usage_closed where day >= state.closed_until;
    delete from usage_closed_batches where day >= state.closed_until;
    update usage_retention set summed_until = month, checked_until = '-infinity', summed_changes = late_changes;
    return 'summed';
  end if;
  execute format(
    'select accepted_at from usage where accepted_at >= %L and accepted_at < %L order by accepted_at offset %s limit 1',
    first, last, most
  ) into middle;
  -- Rows of one millisecond stay together.
  last := greatest(coalesce(middle, last), first + interval '1 millisecond');
  perform add_to_closing(format('usage where accepted_at >= %L and accepted_at < %L', first, last), null);
  update usage_retention set summed_until = last;
  return 'summed';
end
$$;

-- Compares the sums of a month's next day with those by the hour, which moved with each row. A month whose books are
-- wrong stays as it is: reconciliation has to tell what is wrong, and could not any more.
create function check_usage(month timestamptz, state usage_retention) returns text language plpgsql as $$
declare
  day_of timestamptz := greatest(month, state.checked_until);
  agrees boolean;
begin
  execute format(
    $sql$
      with closed as (
        select organization_id, project_id, key_id, model, context_tokens, service_tier, batch, tags,
          requests::numeric as requests, %s
        from usage_closed where day = $1
      ), hourly as (
        select organization_id, project_id, key_id, model, context_tokens, service_tier, batch, tags,
          sum(requests) as requests, %s
        from usage_hourly where hour >= $1 and hour < $1 + interval '24 hours'
        group by 1, 2, 3, 4, 5, 6, 7, 8 having sum(requests) <> 0
      )
      select not exists ((table closed except table hourly) union all (table hourly except table closed))
    $sql$,
    each_sum('$1::numeric as $1'), each_sum('sum($1) as $1')
  ) into agrees using day_of;
  if not agrees then
    raise exception 'the sums of % are not those of its rows: it is not closed; see `main.ts reconcile`',
      to_char(day_of at time zone 'utc', 'YYYY-MM-DD');
  end if;
  update usage_retention set checked_until = day_of + interval '24 hours';
  return 'checked';
end
$$;

-- Closes a month that is summed: all at once, and in a moment, as charges wait meanwhile. Whoever reads is waited for as
-- long as lock_timeout says; the next call tries again.
create function finish_usage(month timestamptz, drop_rows boolean) returns text language plpgsql as $$
declare
  rows_of text := partition_name('usage', month);
  hours_of text := partition_name('usage_hourly', month);
begin
  perform set_config('lock_timeout', '200ms', true);
  if is_partition_of('usage', rows_of) then
    -- Outside of the lock: there may be many, and nobody else looks for them.
    delete from usage_hourly_default where hour >= month and hour < month_after(month);
    lock table only usage in access exclusive mode;
    -- Read after the lock, which waited for those that change rows.
    if (select late_changes <> summed_changes from usage_retention) then
      raise exception 'a late row came' using errcode = 'GL002';
    end if;
    if drop_rows then
      execute format('drop table %I', rows_of);
    else
      execute format('alter table usage detach partition %I', rows_of);
    end if;
    if is_partition_of('usage_hourly', hours_of) then
      execute format('drop table %I', hours_of);
    end if;
  else
    lock table only usage in access exclusive mode;
  end if;
  insert into usage_closings (month) values (month) on conflict do nothing;
  update usage_retention
  set closed_until = month_after(month), summed_until = '-infinity', checked_until = '-infinity';
  return 'closed';
exception
  when lock_not_available then
    return 'waits';
  when sqlstate 'GL002' then
    update usage_retention set summed_until = '-infinity';
    return 'summed';
end
$$;

-- Moves rows of a closed month out of the default partition, in which late ones come, and those of months that never had
-- a partition: a few of the oldest, with their sums. null: there is none.
create function fold_usage(until timestamptz, drop_rows boolean, most integer) returns text language plpgsql as $$
declare
  month_of timestamptz;
  gone usage[];
begin
  select usage_month(accepted_at) into month_of from usage where accepted_at < until order by accepted_at limit 1;
  if month_of is null then
    return null;
  end if;
  with taken as (
    delete from usage where accepted_at >= month_of and accepted_at < month_after(month_of) and (accepted_at, id) in (
      select accepted_at, id from usage
      where accepted_at >= month_of and accepted_at < month_after(month_of) order by accepted_at, id limit most
    ) returning usage
  )
  select array_agg(usage) into gone from taken;
  perform add_to_closing('unnest($1)', gone);
  execute format(
    $sql$
      with moved as (
        select organization_id, date_bin('1 hour', accepted_at, '2000-01-01T00:00:00Z') as hour, project_id, key_id, model,
          context_tokens, service_tier, endpoint = 'batch' as batch, coalesce(tags, '') as tags, count(*) as requests, %s
        from unnest($1) group by 1, 2, 3, 4, 5, 6, 7, 8, 9
      )
      update usage_hourly known set requests = known.requests - moved.requests, %s from moved
      where (known.organization_id, known.hour, known.project_id, known.key_id, known.model, known.context_tokens,
          known.service_tier, known.batch, known.tags)
        = (moved.organization_id, moved.hour, moved.project_id, moved.key_id, moved.model, moved.context_tokens,
          moved.service_tier, moved.batch, moved.tags)
    $sql$,
    each_sum('sum($1) as $1'), each_sum('$1 = known.$1 - moved.$1')
  ) using gone;
  delete from usage_hourly hours using unnest(gone) charged
  where hours.organization_id = charged.organization_id and hours.requests = 0
    and hours.hour = date_bin('1 hour', charged.accepted_at, '2000-01-01T00:00:00Z');
  if not drop_rows then
    execute format(
      'create table if not exists %I (like usage including defaults including constraints including indexes)',
      partition_name('usage', month_of)
    );
    execute format('insert into %I select * from unnest($1)', partition_name('usage', month_of)) using gone;
  end if;
  insert into usage_closings (month) values (month_of) on conflict do nothing;
  return 'moved';
end
$$;

-- One step toward having what was accepted before `oldest` closed, months as wholes, and what it was: `summed`, `checked`,
-- `closed`, `moved`; `waits`: somebody reads the tables, `busy`: another data plane is at it, `done`: nothing is left to do.
create function close_usage(oldest timestamptz, drop_rows boolean, most_summed integer, most_moved integer)
returns text language plpgsql as $$
declare
  state usage_retention;
  month timestamptz;
  moved text;
begin
  if not pg_try_advisory_xact_lock(7104204) then
    return 'busy';
  end if;
  -- Whatever the caller says: younger rows may still change (RETENTION_USAGE), and late_charges counts on it.
  oldest := least(oldest, now() - interval '35 days');
  select * into state from usage_retention;
  moved := fold_usage(state.closed_until, drop_rows, most_moved);
  if moved is not null then
    return moved;
  end if;
  month := month_to_close(oldest, state.closed_until);
  if month is null then
    return 'done';
  end if;
  if is_partition_of('usage', partition_name('usage', month)) then
    if state.summed_changes <> state.late_changes or state.summed_until < month or state.summed_until > month_after(month) then
      state.summed_until := '-infinity';
    end if;
    if state.summed_until < month_after(month) then
      return sum_usage(month, state, most_summed);
    end if;
    if state.checked_until < month_after(month) then
      return check_usage(month, state);
    end if;
  end if;
  return finish_usage(month, drop_rows);
end
$$;
