-- The ledger (design.md §5, §6): what organizations were granted, what each request used and what it cost.
-- Amounts are micro-credits (10^-6 credit). balance = grants − usage − dead letters − lost; the account row is only its running sum.

-- Which ledger this is, so that a Redis that belongs to another one is told (billing/ledger/ledger-identity.ts). A copy or a
-- restored backup of a ledger has its id; that it is not the one that Redis knows is told by `ledger_word`.
create table ledger (
  singleton boolean primary key default true check (singleton),
  id text not null
);
insert into ledger (id) values (substr(replace(gen_random_uuid()::text, '-', ''), 1, 16));

-- The ledger and the server that answers for it. Whatever can take transactions back brings another server, or the
-- same one started anew: a failover, a restore, a copy of its files. Needs no rights, as `pg_control_checkpoint`
-- (timelines) may where the server is rented.
create function ledger_word() returns text language sql stable as $$
  select id || '.' || (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
    || case when pg_is_in_recovery() then '.standby' else '' end
  from ledger
$$;

-- Each grant is applied once by its name (rule 1.10); a row here is never changed.
create table grants (
  organization_id text not null references organizations (id),
  name text not null,
  amount_micros bigint not null,
  source text not null check (source in ('declared', 'command')),
  applied_at timestamptz not null default now(),
  primary key (organization_id, name)
);

-- The running sum of an organization, and the lock that all its charges take.
create table accounts (
  organization_id text primary key,
  balance_micros bigint not null default 0,
  -- The balance right after the last grant, and how many there were; a negative one only lowers the first.
  full_micros bigint not null default 0,
  fillings integer not null default 0,
  -- Grows with every change of the balance or of the key epoch; Redis takes only newer versions.
  version bigint not null default 1,
  -- One pod looks for changed accounts, every few seconds, and reads them all.
  changed_at timestamptz not null default clock_timestamp()
)
-- Each charge updates its account: without an index on what it changes, and with room on its page, no index is written.
with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- One row for each request that used anything.
create table usage (
  -- Fixed together with the id: a unique key of a partitioned table must hold the partition key.
  accepted_at timestamptz not null,
  id text not null,
  organization_id text not null,
  project_id text not null,
  key_id text not null,
  model text not null,
  context_tokens bigint not null,
  service_tier text not null,
  endpoint text not null check (endpoint in ('messages', 'chat', 'responses', 'batch')),
  batch_id text,
  status text not null check (status in ('ok', 'error', 'cancelled')),
  iterations integer not null,
  upstream text,
  -- Part of it was counted by us instead of reported by the upstream.
  estimated boolean not null,
  -- Settled by the sweeper from what a dead owner had seen; the owner's own row replaces it.
  provisional boolean not null,
  input_tokens bigint not null,
  cache_read_tokens bigint not null,
  cache_write_5m_tokens bigint not null,
  cache_write_1h_tokens bigint not null,
  output_tokens bigint not null,
  reasoning_tokens bigint not null,
  web_searches bigint not null,
  web_fetches bigint not null,
  x_searches bigint not null,
  x_posts bigint not null,
  x_profiles bigint not null,
  input_micros bigint not null,
  cache_read_micros bigint not null,
  cache_write_5m_micros bigint not null,
  cache_write_1h_micros bigint not null,
  output_micros bigint not null,
  web_search_micros bigint not null,
  web_fetch_micros bigint not null,
  x_search_micros bigint not null,
  -- The charge: the sum of the eight parts.
  cost_micros bigint not null,
  -- An upstream reported more than is possible, and was believed only so far (rule 7.9).
  implausible boolean not null default false,
  -- The tenant's own marks, as lib/tags.ts writes them: a=b,c=d, in the order of their names. Null: none.
  tags text,
  primary key (accepted_at, id)
) partition by range (accepted_at);
create table usage_default partition of usage default;

-- Sums of usage by UTC hour of acceptance, moved in the transaction that stores the rows. Reports read this and
-- never multiply tokens by a price. A daily report over 31 days reads at most 744 rows for each
-- combination of the other columns, however many requests there were. Of closed months usage_closed has them by the day
-- (0007_closings.sql).
create table usage_hourly (
  organization_id text not null,
  hour timestamptz not null,
  project_id text not null,
  key_id text not null,
  model text not null,
  context_tokens bigint not null,
  service_tier text not null,
  batch boolean not null,
  requests bigint not null,
  input_tokens bigint not null,
  cache_read_tokens bigint not null,
  cache_write_5m_tokens bigint not null,
  cache_write_1h_tokens bigint not null,
  output_tokens bigint not null,
  reasoning_tokens bigint not null,
  web_searches bigint not null,
  web_fetches bigint not null,
  x_searches bigint not null,
  x_posts bigint not null,
  x_profiles bigint not null,
  input_micros bigint not null,
  cache_read_micros bigint not null,
  cache_write_5m_micros bigint not null,
  cache_write_1h_micros bigint not null,
  output_micros bigint not null,
  web_search_micros bigint not null,
  web_fetch_micros bigint not null,
  x_search_micros bigint not null,
  cost_micros bigint not null,
  -- As in `usage`; empty: none.
  tags text not null default '',
  primary key (organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch, tags)
) partition by range (hour);
create table usage_hourly_default partition of usage_hourly default with (fillfactor = 70);

-- What each key and each project spent on each UTC day (of acceptance; days since 1970): from these limits are summed,
-- whichever window they have (rule 9.2). Moved as usage_hourly is. scope_id is a key's or a project's id.
create table usage_daily (
  organization_id text not null,
  scope_id text not null,
  day integer not null,
  micros bigint not null,
  primary key (organization_id, scope_id, day)
) with (fillfactor = 70);

-- Makes the partitions of this month and the two after it. Called by the migration and by every data plane now and
-- then. When the default partition already holds rows of a month, that month stays there. They are attached, which lets others
-- read and write meanwhile; only the default partition is locked, and whoever reads that for long (pg_dump) is waited for a moment
-- only, as charges wait behind: the next call tries again.
create function make_usage_partitions() returns void language plpgsql as $$
declare
  parent text;
  month timestamp;
  name text;
begin
  perform pg_advisory_xact_lock(7104205);
  perform set_config('lock_timeout', '200ms', true);
  foreach parent in array array['usage', 'usage_hourly'] loop
    for ahead in 0..2 loop
      month := date_trunc('month', now() at time zone 'utc') + make_interval(months => ahead);
      name := parent || '_' || to_char(month, 'YYYY_MM');
      if to_regclass(name) is null then
        begin
          execute format(
            'create table %I (like %I including all)' || case parent when 'usage_hourly' then ' with (fillfactor = 70)' else '' end,
            name,
            parent
          );
          execute format(
            'alter table %I attach partition %I for values from (%L) to (%L)',
            parent,
            name,
            to_char(month, 'YYYY-MM-DD') || ' 00:00:00+00',
            to_char(month + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00'
          );
        exception when check_violation or lock_not_available then
          null;
        end;
      end if;
    end loop;
  end loop;
end
$$;
select make_usage_partitions();

-- Charges that `usage` refuses (a sum out of range, text that Postgres cannot hold), and rows in a form that the
-- release at hand cannot read. They are charged to their account all the same: balance = grants − usage − dead letters.
-- Data planes try them again (billing/ledger/retry-dead-letters.ts); `npm run reconcile` names each.
create table dead_letters (
  -- The request's; of a row that cannot be read or not be told from others, the SHA-256 of its text.
  id text primary key,
  -- Null when not even an account can take the charge; then nothing is charged.
  organization_id text,
  charged_micros bigint not null,
  -- As in `usage`: the owner's own row replaces it.
  provisional boolean not null,
  -- As it stood in the stream; bytes, because it may hold what `text` refuses.
  row_bytes bytea not null,
  -- What Postgres said.
  reason text not null,
  refused_at timestamptz not null default clock_timestamp()
);

-- What a ledger that lost its last transactions, or was restored, owes to its books: charges that Redis knows by their
-- sum alone (billing/holds/ledger-guard.ts). They are charged to their account: balance = grants − usage − dead letters − lost. A row
-- that a data plane still has takes its part away again. `npm run reconcile` names each.
create table ledger_losses (
  organization_id text primary key,
  lost_micros bigint not null
);

-- What a notification tells (rule 9.8): that a scope has spent so many per cent of its amount. Written in the transaction of the
-- charge that crossed the line (note_thresholds in 0003_charging.sql), once for each threshold, scope and window.
create table threshold_messages (
  -- Its receivers know it by this.
  id text primary key default 'msg_' || replace(gen_random_uuid()::text, '-', ''),
  organization_id text not null,
  scope text not null check (scope in ('organization', 'project', 'key')),
  scope_id text not null,
  -- As in limits; null: an organization's balance since its last grant.
  per text,
  -- Its window: the first day, days since 1970; of an organization the number of its last grant.
  from_day integer not null,
  -- The day after its last one; null: it has no end.
  to_day integer,
  -- Per cent.
  threshold integer not null,
  amount_micros bigint not null,
  spent_micros bigint not null,
  crossed_at timestamptz not null default clock_timestamp(),
  unique nulls not distinct (organization_id, scope, scope_id, per, from_day, threshold)
);
create index threshold_messages_ended on threshold_messages (to_day);

-- A message on its way to one of its receivers (dataplane/notifications).
create table webhook_deliveries (
  message_id text not null references threshold_messages (id) on delete cascade,
  organization_id text not null,
  url text not null,
  -- When it is to be tried next; whoever tries it moves this first.
  next_at timestamptz not null default clock_timestamp(),
  tries integer not null default 0,
  -- Taken by its receiver, or given up; null: neither yet.
  ended_at timestamptz,
  -- What became of the last try; null: it was taken.
  failure text,
  primary key (message_id, url)
);
create index webhook_deliveries_due on webhook_deliveries (organization_id, next_at) where ended_at is null;
create index webhook_deliveries_refused on webhook_deliveries (organization_id, url)
where failure = 'refused' and ended_at is null;
