-- What a ledger that lost its last transactions, or was restored, owes to its books: charges that Redis knows by their
-- sum alone (billing/ledger-guard.ts). They are charged to their account: balance = grants − usage − parked − lost. A row
-- that a data plane still has takes its part away again. `npm run audit` names each.
create table ledger_losses (
  organization_id text primary key,
  lost_micros bigint not null,
  found_at timestamptz not null default clock_timestamp()
);

-- As drain_charges, of the server that is known alone: what another one took back must be known before it is charged.
create function drain_charges_of(word text, lock integer, shard integer, given charge[])
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
begin
  if ledger_word() <> word then
    raise exception 'another Postgres answers than the one that is known' using errcode = 'GL001';
  end if;
  return query select * from drain_charges(lock, shard, given);
end
$$;

-- Each charge updates its account: without an index on what it changes, and with room on its page, no index is written.
-- One pod looks for changed accounts, every few seconds, and reads them all.
drop index accounts_changed;
alter table accounts set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
