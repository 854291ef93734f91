-- Charges that `usage` refuses (a sum out of range, text that Postgres cannot hold), and rows in a form that the
-- release at hand cannot read. They are charged to their account all the same: balance = grants − usage − parked.
-- Data planes try them again (billing/parked.ts); `npm run audit` names each.
create table parked_charges (
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
  parked_at timestamptz not null default clock_timestamp()
);
