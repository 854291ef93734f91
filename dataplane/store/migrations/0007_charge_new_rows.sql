-- Charging in fewer steps: nearly always each row of a call is new, so what only a repeat needs is looked for only when
-- a row was not taken.

-- Stores and charges rows (billing/usage-row.ts, encodeRow), given as an array of `expected` objects; returns every
-- account that they name, as it is then. A row that is stored or parked already changes nothing, except that a final
-- row replaces a provisional one and moves the books by the difference. Anything that is no such row, and any value
-- that `usage` or a sum refuses, is an error, and nothing is done.
create or replace function charge_usage(texts json, expected integer)
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
#variable_conflict use_column
declare
  number bigint;
  unreadable bigint;
  some_provisional boolean;
  given usage[];
  organizations text[];
  stored usage[];
  dropped usage[];
begin
  select
    count(*),
    -- Other nulls are refused by the table.
    count(*) filter (where (
      v = 1 and id is not null and cardinality(tokens) = 6 and cardinality(tools) = 5 and cardinality(parts) = 8
      and 0 <= all (tokens) and 0 <= all (tools) and 0 <= all (parts)
    ) is not true),
    bool_or(provisional),
    array_agg(row(
      timestamptz 'epoch' + accepted_ms * interval '1 millisecond', id, organization_id, project_id, key_id, model,
      context_tokens, 'standard', endpoint, batch_id, status, iterations, upstream, estimated, provisional,
      tokens[1], tokens[2], tokens[3], tokens[4], tokens[5], tokens[6], tools[1], tools[2], tools[3], tools[4],
      tools[5], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8],
      parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7] + parts[8], clock_timestamp()
    )::usage)
  into number, unreadable, some_provisional, given
  from rows from (json_to_recordset(texts) as (
    v integer, id text, "acceptedAt" bigint, "organizationId" text, "projectId" text, "keyId" text, model text,
    "contextTokens" bigint, endpoint text, "batchId" text, status text, iterations integer, upstream text,
    estimated boolean, provisional boolean, tokens bigint[], tools bigint[], parts bigint[]
  )) as charge (
    v, id, accepted_ms, organization_id, project_id, key_id, model, context_tokens, endpoint, batch_id, status,
    iterations, upstream, estimated, provisional, tokens, tools, parts
  );
  if number <> expected then
    raise exception 'a charge is not one JSON object' using errcode = '22023';
  end if;
  if unreadable > 0 then
    raise exception 'a charge is no row of this release' using errcode = '22023';
  end if;

  -- In the order of their ids, so that two transactions never wait for each other.
  organizations := array(select distinct organization_id from unnest(given) order by 1);
  perform from accounts where organization_id = any (organizations) order by organization_id for update;
  if (select count(*) from accounts where organization_id = any (organizations)) < cardinality(organizations) then
    insert into accounts (organization_id) select unnest(organizations) order by 1 on conflict do nothing;
    perform from accounts where organization_id = any (organizations) order by organization_id for update;
  end if;

  if exists (select from parked_charges parked join unnest(given) charge on parked.id = charge.id) then
    with freed as (
      delete from parked_charges parked using unnest(given) charge
      where parked.id = charge.id and parked.provisional and not charge.provisional
      returning parked.organization_id, parked.charged_micros
    )
    update accounts account
    set balance_micros = account.balance_micros + freed.micros, version = account.version + 1,
      changed_at = clock_timestamp()
    from (select organization_id, sum(charged_micros) as micros from freed group by 1) freed
    where account.organization_id = freed.organization_id;
    given := array(
      select charge from unnest(given) charge
      where not exists (select from parked_charges parked where parked.id = (charge).id)
    );
  end if;

  if not some_provisional then
    begin
      insert into usage select charge.* from unnest(given) charge;
      perform move_usage_books(given, null);
      return query
        select account.organization_id, account.balance_micros, account.version
        from accounts account where account.organization_id = any (organizations);
      return;
    exception when unique_violation then
      null;
    end;
  end if;

  -- Within one call a final row beats a provisional one of the same request, and the first beats its repeats.
  given := array(
    select given[place] from (
      select distinct on (id) ordinality as place from unnest(given) with ordinality order by id, provisional, ordinality
    ) firsts
  );
  with gone as (
    delete from usage using unnest(given) charge
    where usage.accepted_at = charge.accepted_at and usage.id = charge.id
      and usage.provisional and not charge.provisional
    returning usage.*
  )
  select array_agg(row(gone.*)::usage) into dropped from gone;
  with added as (
    insert into usage select charge.* from unnest(given) charge on conflict (accepted_at, id) do nothing returning *
  )
  select array_agg(row(added.*)::usage) into stored from added;
  if stored is not null or dropped is not null then
    perform move_usage_books(stored, dropped);
  end if;
  return query
    select account.organization_id, account.balance_micros, account.version
    from accounts account where account.organization_id = any (organizations);
end
$$;
