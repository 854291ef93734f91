-- Charging in one statement (dataplane/billing/ledger/ledger.ts): rows come as values of a type, which Postgres reads in a fifth of
-- the time that JSON takes, and neither the data plane nor the wire spells each of their columns out.

-- A charged row on its way to `usage`, in the order of its words (billing/ledger/charge-text.ts).
create type charge as (
  -- Of the form: 1.
  v smallint,
  -- Unix milliseconds.
  accepted_ms bigint,
  id text,
  organization_id text,
  project_id text,
  key_id text,
  model text,
  context_tokens bigint,
  service_tier text,
  endpoint text,
  batch_id text,
  status text,
  iterations integer,
  upstream text,
  estimated boolean,
  provisional boolean,
  input_tokens bigint,
  cache_read_tokens bigint,
  cache_write_5m_tokens bigint,
  cache_write_1h_tokens bigint,
  output_tokens bigint,
  reasoning_tokens bigint,
  web_searches bigint,
  web_fetches bigint,
  x_searches bigint,
  x_posts bigint,
  x_profiles bigint,
  input_micros bigint,
  cache_read_micros bigint,
  cache_write_5m_micros bigint,
  cache_write_1h_micros bigint,
  output_micros bigint,
  web_search_micros bigint,
  web_fetch_micros bigint,
  x_search_micros bigint,
  implausible boolean,
  tags text
);

create function from_unix_ms(ms bigint) returns timestamptz language sql stable as $$
  select timestamptz 'epoch' + ms * interval '1 millisecond'
$$;

create function charge_of(stored usage) returns charge language sql stable as $$
  select row(
    1, (extract(epoch from stored.accepted_at) * 1000)::bigint, stored.id, stored.organization_id, stored.project_id,
    stored.key_id, stored.model, stored.context_tokens, stored.service_tier, stored.endpoint, stored.batch_id, stored.status,
    stored.iterations, stored.upstream, stored.estimated, stored.provisional,
    stored.input_tokens, stored.cache_read_tokens, stored.cache_write_5m_tokens, stored.cache_write_1h_tokens,
    stored.output_tokens, stored.reasoning_tokens, stored.web_searches, stored.web_fetches, stored.x_searches,
    stored.x_posts, stored.x_profiles, stored.input_micros, stored.cache_read_micros, stored.cache_write_5m_micros,
    stored.cache_write_1h_micros, stored.output_micros, stored.web_search_micros, stored.web_fetch_micros,
    stored.x_search_micros, stored.implausible, stored.tags
  )::charge
$$;

-- Inserts rows of which none is there.
create function store_charges(came charge[]) returns void language plpgsql as $$
begin
  insert into usage (
    accepted_at, id, organization_id, project_id, key_id, model, context_tokens, service_tier, endpoint, batch_id,
    status, iterations, upstream, estimated, provisional, input_tokens, cache_read_tokens, cache_write_5m_tokens,
    cache_write_1h_tokens, output_tokens, reasoning_tokens, web_searches, web_fetches, x_searches, x_posts, x_profiles,
    input_micros, cache_read_micros, cache_write_5m_micros, cache_write_1h_micros, output_micros, web_search_micros,
    web_fetch_micros, x_search_micros, cost_micros, implausible, tags
  )
  select from_unix_ms(accepted_ms), id, organization_id, project_id, key_id, model,
    context_tokens, service_tier, endpoint, batch_id, status, iterations, upstream, estimated, provisional,
    input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
    web_searches, web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros, cache_write_5m_micros,
    cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros,
    input_micros + cache_read_micros + cache_write_5m_micros + cache_write_1h_micros + output_micros + web_search_micros
    + web_fetch_micros + x_search_micros,
    implausible, tags
  from unnest(came);
end
$$;

-- Moves the hourly sums and the accounts by rows that came into `usage` and rows that went out of it.
create function charge_books(came charge[], went charge[]) returns void language plpgsql as $$
begin
  with sums as materialized (
    select organization_id, accepted_ms / 3600000 as hours, project_id, key_id, model, context_tokens, service_tier,
      endpoint = 'batch' as batch, coalesce(tags, '') as tags, sum(sign) as requests,
      sum(sign * input_tokens) as input_tokens, sum(sign * cache_read_tokens) as cache_read_tokens,
      sum(sign * cache_write_5m_tokens) as cache_write_5m_tokens,
      sum(sign * cache_write_1h_tokens) as cache_write_1h_tokens, sum(sign * output_tokens) as output_tokens,
      sum(sign * reasoning_tokens) as reasoning_tokens, sum(sign * web_searches) as web_searches,
      sum(sign * web_fetches) as web_fetches, sum(sign * x_searches) as x_searches, sum(sign * x_posts) as x_posts,
      sum(sign * x_profiles) as x_profiles, sum(sign * input_micros) as input_micros,
      sum(sign * cache_read_micros) as cache_read_micros, sum(sign * cache_write_5m_micros) as cache_write_5m_micros,
      sum(sign * cache_write_1h_micros) as cache_write_1h_micros, sum(sign * output_micros) as output_micros,
      sum(sign * web_search_micros) as web_search_micros, sum(sign * web_fetch_micros) as web_fetch_micros,
      sum(sign * x_search_micros) as x_search_micros
    from (select 1 as sign, * from unnest(came) union all select -1, * from unnest(went)) moved
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9
  ), hourly as (
    insert into usage_hourly as known (
      organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch, tags, requests,
      input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
      web_searches, web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros,
      cache_write_5m_micros, cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros,
      cost_micros
    )
    select organization_id, from_unix_ms(hours * 3600000), project_id, key_id, model, context_tokens, service_tier, batch,
      tags, requests,
      input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
      web_searches, web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros,
      cache_write_5m_micros, cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros,
      input_micros + cache_read_micros + cache_write_5m_micros + cache_write_1h_micros + output_micros
      + web_search_micros + web_fetch_micros + x_search_micros
    from sums
    on conflict (organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch, tags) do update set
      requests = known.requests + excluded.requests,
      input_tokens = known.input_tokens + excluded.input_tokens,
      cache_read_tokens = known.cache_read_tokens + excluded.cache_read_tokens,
      cache_write_5m_tokens = known.cache_write_5m_tokens + excluded.cache_write_5m_tokens,
      cache_write_1h_tokens = known.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
      output_tokens = known.output_tokens + excluded.output_tokens,
      reasoning_tokens = known.reasoning_tokens + excluded.reasoning_tokens,
      web_searches = known.web_searches + excluded.web_searches,
      web_fetches = known.web_fetches + excluded.web_fetches,
      x_searches = known.x_searches + excluded.x_searches,
      x_posts = known.x_posts + excluded.x_posts,
      x_profiles = known.x_profiles + excluded.x_profiles,
      input_micros = known.input_micros + excluded.input_micros,
      cache_read_micros = known.cache_read_micros + excluded.cache_read_micros,
      cache_write_5m_micros = known.cache_write_5m_micros + excluded.cache_write_5m_micros,
      cache_write_1h_micros = known.cache_write_1h_micros + excluded.cache_write_1h_micros,
      output_micros = known.output_micros + excluded.output_micros,
      web_search_micros = known.web_search_micros + excluded.web_search_micros,
      web_fetch_micros = known.web_fetch_micros + excluded.web_fetch_micros,
      x_search_micros = known.x_search_micros + excluded.x_search_micros,
      cost_micros = known.cost_micros + excluded.cost_micros
  ), daily as (
    insert into usage_daily as known (organization_id, scope_id, day, micros)
    select organization_id, scope_id, hours / 24,
      sum(input_micros + cache_read_micros + cache_write_5m_micros + cache_write_1h_micros
        + output_micros + web_search_micros + web_fetch_micros + x_search_micros)
    from sums cross join lateral (values (key_id), (project_id)) scope (scope_id)
    group by 1, 2, 3
    on conflict (organization_id, scope_id, day) do update set micros = known.micros + excluded.micros
  )
  update accounts account
  set balance_micros = account.balance_micros - charge.micros, version = account.version + 1,
    changed_at = clock_timestamp()
  from (
    select organization_id,
      sum(input_micros + cache_read_micros + cache_write_5m_micros + cache_write_1h_micros
        + output_micros + web_search_micros + web_fetch_micros + x_search_micros) as micros
    from sums group by 1
  ) charge
  where account.organization_id = charge.organization_id;
  perform note_thresholds(came);
end
$$;

-- The window of a limit in which a day lies, as windowOf in billing/scopes.ts; to_day null: it has no end.
create function limit_window(per text, day integer, out from_day integer, out to_day integer)
language plpgsql immutable as $$
begin
  case per
    when 'day' then
      from_day := day;
      to_day := day + 1;
    when 'week' then
      -- 1970 began on a Thursday.
      from_day := day - (day + 3) % 7;
      to_day := from_day + 7;
    when 'month' then
      from_day := date_trunc('month', date '1970-01-01' + day)::date - date '1970-01-01';
      to_day := (date_trunc('month', date '1970-01-01' + day) + interval '1 month')::date - date '1970-01-01';
    else
      from_day := 0;
  end case;
end
$$;

-- Notes which thresholds were crossed by rows that came into `usage`, for the organizations that want to be told of them. A
-- window that ended more than 60 days ago is told of no more: what was told of it may be forgotten, 62 days after its end by
-- the clock of any data plane (FORGOTTEN_DAYS in dataplane/notifications/deliveries.ts), and would be told again.
create function note_thresholds(came charge[]) returns void language plpgsql as $$
declare
  told text[];
begin
  select array_agg(id) into told from organizations
  where id in (select organization_id from unnest(came)) and notifications is not null;
  if told is null then
    return;
  end if;
  with charged as (
    select distinct organization_id, scope_id, (accepted_ms / 86400000)::integer as day
    from unnest(came) cross join lateral (values (key_id), (project_id)) scope (scope_id)
    where organization_id = any (told)
  ), limits as (
    select distinct charged.organization_id, limited.kind as scope, limited.id as scope_id,
      limited.credits ->> 'per' as per, bounds.from_day, bounds.to_day,
      (limited.credits ->> 'amountMicros')::bigint as amount
    from charged
    join limited_scopes limited on limited.organization_id = charged.organization_id and limited.id = charged.scope_id
    cross join lateral limit_window(limited.credits ->> 'per', charged.day) bounds
    where limited.credits is not null
      and (bounds.to_day is null or bounds.to_day >= (now() at time zone 'utc')::date - date '1970-01-01' - 60)
  ), standings as (
    select limits.*, (
      select sum(micros) from usage_daily daily
      where daily.organization_id = limits.organization_id and daily.scope_id = limits.scope_id
        and (daily.day >= limits.from_day or limits.to_day is null) and (daily.day < limits.to_day or limits.to_day is null)
    )::bigint as spent
    from limits
    union all
    select organization_id, 'organization', organization_id, null, fillings, null, full_micros, full_micros - balance_micros
    from accounts where organization_id = any (told)
  ), crossed as (
    insert into threshold_messages (
      organization_id, scope, scope_id, per, from_day, to_day, threshold, amount_micros, spent_micros
    )
    select standing.organization_id, scope, scope_id, per, from_day, to_day, threshold, amount, spent
    from standings standing cross join lateral (
      select distinct percent::integer as threshold
      from organizations organization, jsonb_array_elements(organization.notifications) notification,
        jsonb_array_elements_text(notification -> 'thresholds') percent
      where organization.id = standing.organization_id
    ) thresholds
    where amount > 0 and spent >= amount / 100.0 * threshold
    on conflict do nothing
    returning id, organization_id, threshold
  )
  insert into webhook_deliveries (message_id, organization_id, url)
  select distinct crossed.id, organization_id, notification ->> 'url'
  from crossed join organizations organization on organization.id = crossed.organization_id,
    jsonb_array_elements(organization.notifications) notification
  where notification -> 'thresholds' @> to_jsonb(crossed.threshold);
end
$$;

-- Takes the provisional row of a request out, as if it had never been charged. Its account is locked by the caller.
create function drop_provisional_usage(at timestamptz, request text) returns void language plpgsql as $$
declare
  dropped charge[];
begin
  if at < now() - interval '30 days' then
    perform late_charges(null, null);
  end if;
  with gone as (
    delete from usage where accepted_at = at and id = request and provisional returning charge_of(usage) as charge
  )
  select array_agg(charge) into dropped from gone;
  if dropped is not null then
    perform charge_books(null, dropped);
  end if;
end
$$;

-- Stores and charges rows; returns every account that they name, as it is then. A row that is stored, or a dead letter, already
-- changes nothing, except that a final row replaces a provisional one and moves the books by the difference. Anything
-- that is no such row, and any value that `usage` or a sum refuses, is an error, and nothing is done. Nearly always
-- each row of a call is new and final, so what only others need is looked for only then. `refused`: since when the only
-- row of a call was a dead letter.
create function charge_usage(given charge[], refused timestamptz default null)
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
#variable_conflict use_column
declare
  readable boolean;
  some_provisional boolean;
  some_old boolean;
  organizations text[];
  replaced charge[];
begin
  select
    -- Nulls are refused by the table.
    bool_and((v = 1 and 0 <= least(
      input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
      web_searches, web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros,
      cache_write_5m_micros, cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros
    )) is true),
    bool_or(provisional), from_unix_ms(min(accepted_ms)) < now() - interval '30 days',
    array_agg(distinct organization_id order by organization_id)
  into readable, some_provisional, some_old, organizations
  from unnest(given);
  if not readable then
    raise exception 'a charge is no row of this release' using errcode = '22023';
  end if;

  -- In the order of their ids, so that two transactions never wait for each other. What is locked here, nobody else
  -- inserts a row for.
  perform from accounts where organization_id = any (organizations) order by organization_id for update;
  if (select count(*) from accounts where organization_id = any (organizations)) < cardinality(organizations) then
    insert into accounts (organization_id) select unnest(organizations) order by 1 on conflict do nothing;
    perform from accounts where organization_id = any (organizations) order by organization_id for update;
  end if;

  if exists (select from dead_letters) then
    with freed as (
      delete from dead_letters letter using unnest(given) charge
      where letter.id = charge.id and letter.provisional and not charge.provisional
      returning letter.organization_id, letter.charged_micros
    )
    update accounts account
    set balance_micros = account.balance_micros + freed.micros, version = account.version + 1,
      changed_at = clock_timestamp()
    from (select organization_id, sum(charged_micros) as micros from freed group by 1) freed
    where account.organization_id = freed.organization_id;
    given := array(
      select charge from unnest(given) charge
      where not exists (select from dead_letters letter where letter.id = charge.id)
    );
  end if;

  -- Their month may be closed (0007_closings.sql): none is before 35 days.
  if some_old then
    given := late_charges(given, refused);
  end if;

  if not some_provisional then
    begin
      perform store_charges(given);
      perform charge_books(given, null);
      return query
        select account.organization_id, account.balance_micros, account.version
        from accounts account where account.organization_id = any (organizations);
      return;
    exception when unique_violation then
      null;
    end;
  end if;

  -- Within one call a final row beats a provisional one of the same request, and the first beats its repeats.
  given := array(
    select given[place] from (
      select distinct on (id) ordinality as place from unnest(given) with ordinality
      order by id, provisional, ordinality
    ) firsts
  );
  with gone as (
    delete from usage using unnest(given) charge
    where usage.accepted_at = from_unix_ms(charge.accepted_ms) and usage.id = charge.id
      and usage.provisional and not charge.provisional
    returning charge_of(usage) as charge
  )
  select array_agg(charge) into replaced from gone;
  given := array(
    select charge from unnest(given) charge where not exists (
      select from usage where usage.accepted_at = from_unix_ms(charge.accepted_ms) and usage.id = charge.id
    )
  );
  perform store_charges(given);
  perform charge_books(given, replaced);
  return query
    select account.organization_id, account.balance_micros, account.version
    from accounts account where account.organization_id = any (organizations);
end
$$;

-- A drainer's round in one statement: the accounts are locked while Postgres works, and not while it waits for the
-- drainer's next word. As charge_usage, of the server that is known alone: what another one took back must be known before
-- it is charged. No row when another drainer is at this shard (`lock` and `shard` are the halves of the advisory
-- lock's key).
create function drain_charges(word text, lock integer, shard integer, given charge[])
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
begin
  if ledger_word() <> word then
    raise exception 'another Postgres answers than the one that is known' using errcode = 'GL001';
  end if;
  if pg_try_advisory_xact_lock(lock, shard) then
    return query select * from charge_usage(given);
  end if;
end
$$;
