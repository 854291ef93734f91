-- Who may call: organizations, projects and keys (dataplane/identity), copied from the snapshot or made through the admin
-- API, and the log of who changed what.

create table organizations (
  id text primary key,
  display_name text not null,
  suspended boolean not null default false,
  -- Grows whenever a key of the organization stops being valid; a hold under an older epoch is refused.
  key_epoch bigint not null default 1,
  -- Digest of the declaration this row was copied from, so that an unchanged one is not copied again.
  declaration text not null,
  -- Limits of inference keys that name none themselves (config/schema.ts, limitsSchema); null: none.
  key_limits jsonb,
  -- Who is told of spent credit: [{"url": …, "thresholds": [50, …]}], in per cent (rule 9.8); null: nobody.
  notifications jsonb,
  created_at timestamptz not null default now(),
  -- The namespace that declared the id first owns it for ever (rule 8.3): another one that declares it is not copied. Null:
  -- the platform released it, and the next one that declares it has it.
  namespace text,
  -- Set while no Organization resource declares it: its keys answer 401, its data and balance stay (rule 1.16).
  deleted_at timestamptz
);
-- Those that are declared, to be compared with a snapshot; and those that are not, with whom the id belongs to.
create index organizations_declared on organizations (id) where deleted_at is null;
create index organizations_namespace on organizations (namespace);
create index organizations_owned on organizations (deleted_at, id) where deleted_at is not null and namespace is not null;

create table projects (
  id text primary key,
  organization_id text not null references organizations (id),
  name text not null,
  -- The project that `default` stands for, and that keys made at organization level belong to (rule 5.1).
  is_default boolean not null default false,
  created_at timestamptz not null default now(),
  -- Set while the Organization resource no longer lists it.
  archived_at timestamptz,
  -- Shared by its keys (config/schema.ts, limitsSchema); null: none. Declared: the Organization resource says them.
  limits jsonb,
  -- As of api_keys.
  limits_bytes integer not null generated always as (coalesce(octet_length(limits::text), 0)) stored,
  limits_declared boolean not null default false,
  unique (organization_id, name)
);
create unique index projects_default on projects (organization_id) where is_default;

-- Keys, and people with tokens (dataplane/identity/person.ts): whoever may call.
create table api_keys (
  id text primary key,
  organization_id text not null references organizations (id),
  -- Who has the admin API belongs to the organization alone.
  project_id text references projects (id),
  -- A viewer reads the admin API.
  kind text not null check (kind in ('inference', 'admin', 'viewer')),
  name text not null,
  -- SHA-256 of the whole key, hex; null once the key can never be valid again. Of a person a digest of who it is.
  sha256 text unique,
  -- What may be shown of the key: its prefix and at most 16 characters of the secret.
  hint text not null,
  status text not null default 'active' check (status in ('active', 'inactive')),
  -- `declared` in an Organization resource, or `created` through the admin API; `identity`: it came with a token.
  source text not null check (source in ('declared', 'created', 'identity')),
  -- Order of creation, total and stable, for lists (rule 5.6).
  position bigint generated always as identity,
  -- Of the moment of `position`; a transaction's beginning may have waited for others.
  created_at timestamptz not null default clock_timestamp(),
  -- The admin key that made it; null for declared ones.
  created_by text,
  last_used_at timestamptz,
  -- From then on it answers 401; null: never.
  expires_at timestamptz,
  -- Of its own (config/schema.ts, limitsSchema); null: none.
  limits jsonb,
  -- How large they are, known without reading them: a page of a list holds as many as it may.
  limits_bytes integer not null generated always as (coalesce(octet_length(limits::text), 0)) stored,
  -- Deleted through the admin API: not listed, never active again; its usage stays (rule 5.7).
  deleted_at timestamptz,
  -- Deleted long ago, and its usage names it: it stays, and is not looked at again (dataplane/identity/key-retention.ts).
  has_usage boolean not null default false,
  check ((kind = 'inference') = (project_id is not null))
);
-- Without those that were deleted: an organization may make and delete keys for every job of its.
create index api_keys_organization on api_keys (organization_id, position desc)
where source <> 'identity' and deleted_at is null;
create index api_keys_people on api_keys (organization_id, position desc) where source = 'identity';
create index api_keys_project on api_keys (project_id, position desc)
where source <> 'identity' and deleted_at is null;
create index api_keys_deleted on api_keys (deleted_at) where source = 'created' and not has_usage and deleted_at is not null;
-- A declared key is known by its name: a new secret under the same name is the same key.
create unique index api_keys_declared on api_keys (organization_id, kind, name) where source = 'declared';

-- Whatever may have a limit of credit, by the id that stands in usage rows, and the limit that holds for it; null: none.
create view limited_scopes as
  select key.organization_id, 'key' as kind, key.id, coalesce(key.limits -> 'credits', organization.key_limits -> 'credits') as credits
  from api_keys key join organizations organization on organization.id = key.organization_id
  where key.kind = 'inference'
  union all
  select organization_id, 'project', id, limits -> 'credits' from projects;

-- The highest snapshot serials whose copying was begun, and ended (design.md §2). Nothing below the first is ever
-- copied again, even when its copying broke off in the middle.
create table directory_state (
  singleton boolean primary key default true check (singleton),
  begun_serial bigint not null,
  copied_serial bigint not null
);
insert into directory_state (begun_serial, copied_serial) values (0, 0);

-- Who made, changed and deleted which key through the admin API, when and from where. Rows are only ever added, and leave after
-- RETENTION_AUDIT.
create table audit_log (
  position bigint generated always as identity primary key,
  organization_id text not null references organizations (id),
  at timestamptz not null default clock_timestamp(),
  -- The admin key that asked for it.
  actor_key_id text not null,
  action text not null check (action in ('key.created', 'key.updated', 'key.deleted', 'project.updated')),
  -- Or a project's.
  key_id text not null,
  -- What changed, field by field: {"name": {"from": …, "to": …}}; never a secret.
  changes jsonb not null,
  -- How large that is, known without reading it.
  changes_bytes integer not null generated always as (octet_length(changes::text)) stored,
  -- Lines that its organization has written until here, with this one, and their bytes: what it wrote in a day is a difference,
  -- however many lines it has.
  lines_so_far bigint not null,
  bytes_so_far bigint not null,
  -- The peer of the connection, and what it said about whom it speaks for (unchecked).
  address text not null,
  forwarded_for text,
  request_id text not null
);
create index audit_log_organization on audit_log (organization_id, position desc);
create index audit_log_days on audit_log (organization_id, at desc, position desc);
