-- A drainer's round in one statement: the accounts are locked while Postgres works, and not while it waits for the
-- drainer's next word. As charge_usage; no row when another drainer is at this shard (`lock` and `shard` are the
-- halves of the advisory lock's key).
create function drain_charges(lock integer, shard integer, given charge[])
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
begin
  if pg_try_advisory_xact_lock(lock, shard) then
    return query select * from charge_usage(given);
  end if;
end
$$;
