-- The ledger (design.md §5, §6): who may call, what they were granted, what each request used and what it cost.
-- Amounts are micro-credits (10^-6 credit). balance = grants − usage; the account row is only its running sum.

create table organizations (
  id text primary key,
  display_name text not null,
  suspended boolean not null default false,
  -- Grows whenever a key of the organization stops being valid; a hold under an older epoch is refused.
  key_epoch bigint not null default 1,
  -- Digest of the declaration this row was copied from, so that an unchanged one is not copied again.
  declaration text not null,
  created_at timestamptz not null default now(),
  -- Set while no Organization resource declares it: its keys answer 401, its data and balance stay (rule 1.16).
  deleted_at timestamptz
);

create table projects (
  id text primary key,
  organization_id text not null references organizations (id),
  name text not null,
  -- The project that `default` stands for, and that keys made at organization level belong to (rule 5.1).
  is_default boolean not null default false,
  created_at timestamptz not null default now(),
  -- Set while the Organization resource no longer lists it.
  archived_at timestamptz,
  unique (organization_id, name)
);
create unique index projects_default on projects (organization_id) where is_default;

create table api_keys (
  id text primary key,
  organization_id text not null references organizations (id),
  -- Admin keys belong to the organization alone.
  project_id text references projects (id),
  kind text not null check (kind in ('inference', 'admin')),
  name text not null,
  -- SHA-256 of the whole key, hex; null once the key can never be valid again.
  sha256 text unique,
  -- What may be shown of the key: its prefix and at most 16 characters of the secret.
  hint text not null,
  status text not null default 'active' check (status in ('active', 'inactive')),
  -- `declared` in an Organization resource, or `created` through the admin API.
  source text not null check (source in ('declared', 'created')),
  -- Order of creation, total and stable, for lists (rule 5.6).
  position bigint generated always as identity,
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  -- Deleted through the admin API: not listed, never active again; its usage stays (rule 5.7).
  deleted_at timestamptz,
  check ((kind = 'admin') = (project_id is null))
);
create index api_keys_organization on api_keys (organization_id, position desc);
-- A declared key is known by its name: a new secret under the same name is the same key.
create unique index api_keys_declared on api_keys (organization_id, kind, name) where source = 'declared';

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
  -- Grows with every change of the balance or of the key epoch; Redis takes only newer versions.
  version bigint not null default 1,
  changed_at timestamptz not null default clock_timestamp()
);
-- What changed lately is copied to Redis again (design.md §5, lagging versions).
create index accounts_changed on accounts (changed_at);

-- The highest snapshot serials whose copying was begun, and ended (design.md §2). Nothing below the first is ever
-- copied again, even when its copying broke off in the middle.
create table directory_state (
  singleton boolean primary key default true check (singleton),
  begun_serial bigint not null,
  copied_serial bigint not null
);
insert into directory_state (begun_serial, copied_serial) values (0, 0);

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
  service_tier text not null default 'standard',
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
  stored_at timestamptz not null default clock_timestamp(),
  primary key (accepted_at, id)
) partition by range (accepted_at);
create table usage_default partition of usage default;

-- Sums of usage by UTC hour of acceptance, moved in the transaction that stores the rows. Reports read this and
-- never multiply tokens by a price. A daily report over 31 days reads at most 744 rows for each
-- combination of the other columns, however many requests there were.
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
  primary key (organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch)
) with (fillfactor = 70);

-- Makes the partitions of this month and the two after it. Called by the migration and by every data plane now and
-- then. When the default partition already holds rows of a month, that month stays there.
create function make_usage_partitions() returns void language plpgsql as $$
declare
  month timestamp;
  name text;
begin
  for ahead in 0..2 loop
    month := date_trunc('month', now() at time zone 'utc') + make_interval(months => ahead);
    name := 'usage_' || to_char(month, 'YYYY_MM');
    if to_regclass(name) is null then
      begin
        execute format(
          'create table %I partition of usage for values from (%L) to (%L)',
          name,
          to_char(month, 'YYYY-MM-DD') || ' 00:00:00+00',
          to_char(month + interval '1 month', 'YYYY-MM-DD') || ' 00:00:00+00'
        );
      exception when check_violation or duplicate_table or unique_violation then
        null;
      end;
    end if;
  end loop;
end
$$;
select make_usage_partitions();
