-- Batches in both forms (design.md §6; service.md "Message batch", "Batch"): one engine, two views.

create sequence batches_position;

-- Every process that works on batches, kept fresh by a heartbeat. What belongs to a silent one is taken from it.
create table batch_workers (
  id text primary key,
  seen_at timestamptz not null default clock_timestamp()
);

create table batches (
  id text primary key,
  organization_id text not null,
  -- Of the key that made the batch: its usage belongs there (rule 5.9). A deleted key stops nothing (rule 4.5).
  project_id text not null,
  key_id text not null,
  form text not null check (form in ('messages', 'openai')),
  dialect text not null check (dialect in ('messages', 'chat', 'responses')),
  -- `creating`: the requests of a message batch are coming in; nobody sees it. `validating`: the input file waits to
  -- be read. `in_progress`: items run. `finalizing`: every item is over, files are written. `ended`: see `outcome`.
  state text not null check (state in ('creating', 'validating', 'in_progress', 'finalizing', 'ended')),
  outcome text check (outcome in ('completed', 'failed', 'expired', 'cancelled')),
  -- Order of creation, total and stable, for lists.
  position bigint not null default nextval('batches_position'),
  -- The client's headers that go with every item, as JSON.
  headers text not null default '{}',
  -- What the client attached, as JSON text: `text` and `jsonb` refuse NUL, the escapes of JSON do not.
  metadata text,
  -- Model of the first request.
  model text,
  -- Of all requests, where they are few (batches/create/items.ts): workers need not look at its requests while none of these is
  -- asked. null: there are more, or some request names none.
  models text[],
  input_file_id text,
  output_file_id text,
  error_file_id text,
  -- Lifetime of the output files; null: the retention of results.
  output_seconds integer,
  -- Why the input was refused, as a JSON array.
  errors text,
  total integer not null default 0,
  succeeded integer not null default 0,
  errored integer not null default 0,
  canceled integer not null default 0,
  expired integer not null default 0,
  input_tokens bigint not null default 0,
  cached_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  reasoning_tokens bigint not null default 0,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  in_progress_at timestamptz,
  finalizing_at timestamptz,
  cancel_initiated_at timestamptz,
  -- Set when `expires_at` had passed with requests that never ran.
  overdue boolean not null default false,
  ended_at timestamptz,
  archived_at timestamptz,
  deleted_at timestamptz,
  -- Its items are gone.
  emptied boolean not null default false,
  -- Room that it takes: its requests until it ends, then (of a message batch) its results, until it is emptied; what its
  -- client attached to it and what is wrong with its input for as long as its row is there.
  stored_bytes bigint not null default 0,
  -- Who creates, validates or finalizes it at the moment.
  worker text,
  -- Of this work, as `batch_items.claim`.
  claim uuid,
  check ((state = 'ended') = (ended_at is not null) and (state = 'ended') = (outcome is not null))
);
create index batches_list on batches (organization_id, form, position desc)
  where state <> 'creating' and deleted_at is null;
-- What runs, for workers that look for something to do: an organization may have any number of them.
create index batches_in_line on batches (organization_id, position) where state = 'in_progress';
create index batches_open on batches (state, position) where state <> 'ended';
-- Of one organization, for its limit.
create index batches_open_of on batches (organization_id) where state <> 'ended';
-- What the sweep looks for: results that may be too old, items that nobody can read any more, batches that are shown no longer.
create index batches_kept on batches (ended_at) where state = 'ended' and not emptied;
create index batches_unreadable on batches (ended_at)
  where state = 'ended' and not emptied and (form = 'openai' or archived_at is not null or deleted_at is not null);
create index batches_emptied on batches (ended_at) where emptied;

create table batch_items (
  batch_id text not null references batches (id),
  -- Order of the input, from 0.
  number integer not null,
  -- As a JSON string literal, which holds what `text` refuses (rule 4.12).
  custom_id text not null,
  -- The request's id and time of acceptance, fixed here: whoever runs the item, it is charged once.
  request_id text not null,
  accepted_at timestamptz not null,
  -- The model as the request names it, for the limits of workers; null when it names none.
  model text,
  -- The request's body as it came; null once it is over.
  body bytea,
  state text not null default 'waiting'
    check (state in ('waiting', 'running', 'succeeded', 'errored', 'canceled', 'expired')),
  -- Who runs it.
  worker text,
  -- Whose result counts: of the worker's last taking, kept once the item is over. A worker that was cut off may find that
  -- an item of it ran elsewhere, or a second time here: so what a run stores is compared with the taking that it belongs
  -- to, not with the worker. Random, not counted up: a Postgres that lost its last transactions must not give the same
  -- token twice.
  claim uuid,
  -- Runs that ended in a fault of the upstream, and when the first of them was.
  faults integer not null default 0,
  first_fault_at timestamptz,
  -- What of them speaks against the item itself, as others of its model succeeded meanwhile, or it took all of its time.
  own_faults integer not null default 0,
  -- The claims whose worker died while it ran, as far as is known, and their number: it may be the reason.
  lost_claims uuid[] not null default '{}',
  losses integer not null generated always as (cardinality(lost_claims)) stored,
  not_before timestamptz,
  -- Its line in the results, with the line feed; null when it never ran.
  line bytea,
  primary key (batch_id, number)
);
-- With what says whether one may run now: every pod looks for such once a second, and must not fetch each of the thousands that
-- wait for their next try, or for a model that refuses more.
create index batch_items_waiting on batch_items (batch_id, number) include (model, not_before, losses) where state = 'waiting';
create index batch_items_running on batch_items (worker) where state = 'running';
-- Claimed and finished rows are rewritten where they stand.
alter table batch_items set (fillfactor = 80);
alter table batch_items alter column body set storage external;
alter table batch_items alter column line set storage external;
