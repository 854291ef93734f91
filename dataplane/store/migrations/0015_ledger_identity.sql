-- Which ledger this is, so that a Redis that belongs to another one is told (billing/ledger-identity.ts). A copy or a
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
