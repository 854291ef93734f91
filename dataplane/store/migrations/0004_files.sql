-- Files (design.md §6). A row becomes visible only when its contents are whole; contents stand in file_chunks or
-- in S3-compatible storage.

create sequence files_position;

create table files (
  id text primary key,
  organization_id text not null,
  -- `writing`: contents are coming in. `hidden`: whole, but shown only by the transaction that ends a batch.
  -- `ready`: visible. `removed`: deleted or expired, its contents are being taken away.
  state text not null check (state in ('writing', 'hidden', 'ready', 'removed')),
  -- Order of becoming visible, total and stable, for lists (rule 4.15). One that was deleted or expired keeps its own for a
  -- while: whoever listed it asks for the page behind it.
  position bigint,
  filename text not null,
  mime_type text not null,
  purpose text not null,
  size_bytes bigint not null default 0,
  -- Room that it takes: while it is being written what is reserved for it, then its size. It counts in every state but
  -- `removed`.
  stored_bytes bigint not null default 0,
  storage text not null check (storage in ('postgres', 's3')),
  created_at timestamptz not null,
  expires_at timestamptz,
  -- Last sign of life of whoever writes it; a silent writer's row is swept.
  touched_at timestamptz not null,
  -- Set when it was removed because it expired, so that reading it can say so.
  expired boolean not null default false,
  -- Its contents are gone; only files that lists have shown keep their row after that.
  emptied boolean not null default false,
  check (state <> 'ready' or position is not null)
);
create index files_list on files (organization_id, position desc) where state = 'ready';
create index files_list_by_purpose on files (organization_id, purpose, position desc) where state = 'ready';
-- What the sweep looks for.
create index files_expiry on files (expires_at) where state = 'ready' and expires_at is not null;
create index files_unfinished on files (touched_at) where state <> 'ready' and not emptied;
create index files_gone on files (expired, touched_at) where emptied;
-- What the sums in `storage` are counted again from.
create index files_stored on files (organization_id) where state <> 'removed';

create table file_chunks (
  file_id text not null,
  -- From 0; every chunk but the last holds 1 MiB.
  number integer not null,
  bytes bytea not null,
  primary key (file_id, number)
);
-- Contents are mostly compressed already; trying again costs time.
alter table file_chunks alter column bytes set storage external;

-- What each organization keeps (rule 7.8): files, requests of batches, results; and how many batches it has. The sums
-- move in the statement that makes or takes away what is counted, so that they are exact; `npm run reconcile` counts again.
create table storage (
  organization_id text primary key,
  bytes bigint not null,
  files bigint not null,
  batches bigint not null default 0
);
