-- Who made, changed and deleted which key through the admin API, when and from where. Rows are only ever added.
create table audit_trail (
  position bigint generated always as identity primary key,
  organization_id text not null references organizations (id),
  at timestamptz not null default clock_timestamp(),
  -- The admin key that asked for it.
  actor_key_id text not null,
  action text not null check (action in ('key.created', 'key.updated', 'key.deleted')),
  key_id text not null,
  -- What changed, field by field: {"name": {"from": …, "to": …}}; never a secret.
  changes jsonb not null,
  -- The peer of the connection, and what it said about whom it speaks for (unchecked).
  address text not null,
  forwarded_for text,
  request_id text not null
);
create index audit_trail_organization on audit_trail (organization_id, position desc);

-- The admin key that made the key; null for declared ones.
alter table api_keys add column created_by text;
create index api_keys_project on api_keys (project_id, position desc);
