-- Charging in one statement (billing/ledger.ts): rows come as the JSON texts that stand in Redis, and neither the data
-- plane nor the wire spells each of their columns out.

-- Moves hourly sums and accounts by rows that came and rows that went. The accounts are locked by the caller.
create function move_usage_books(came usage[], went usage[]) returns void language plpgsql as $$
begin
  insert into usage_hourly as known (
    organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch, requests, input_tokens,
    cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, web_searches,
    web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros, cache_write_5m_micros,
    cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros, cost_micros
  )
  select organization_id, date_trunc('hour', accepted_at, 'UTC'), project_id, key_id, model, context_tokens,
    service_tier, endpoint = 'batch', sum(sign), sum(sign * input_tokens), sum(sign * cache_read_tokens),
    sum(sign * cache_write_5m_tokens), sum(sign * cache_write_1h_tokens), sum(sign * output_tokens),
    sum(sign * reasoning_tokens), sum(sign * web_searches), sum(sign * web_fetches), sum(sign * x_searches),
    sum(sign * x_posts), sum(sign * x_profiles), sum(sign * input_micros), sum(sign * cache_read_micros),
    sum(sign * cache_write_5m_micros), sum(sign * cache_write_1h_micros), sum(sign * output_micros),
    sum(sign * web_search_micros), sum(sign * web_fetch_micros), sum(sign * x_search_micros), sum(sign * cost_micros)
  from (select 1 as sign, * from unnest(came) union all select -1, * from unnest(went)) moved
  group by 1, 2, 3, 4, 5, 6, 7, 8
  on conflict (organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch) do update set
    requests = known.requests + excluded.requests,
    input_tokens = known.input_tokens + excluded.input_tokens,
    cache_read_tokens = known.cache_read_tokens + excluded.cache_read_tokens,
    cache_write_5m_tokens = known.cache_write_5m_tokens + excluded.cache_write_5m_tokens,
    cache_write_1h_tokens = known.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
    output_tokens = known.output_tokens + excluded.output_tokens,
    reasoning_tokens = known.reasoning_tokens + excluded.reasoning_tokens,
    web_searches = known.web_searches + excluded.web_searches,
    web_fetches = known.web_fetches + excluded.web_fetches,
    x_searches = known.x_searches + excluded.x_searches,
    x_posts = known.x_posts + excluded.x_posts,
    x_profiles = known.x_profiles + excluded.x_profiles,
    input_micros = known.input_micros + excluded.input_micros,
    cache_read_micros = known.cache_read_micros + excluded.cache_read_micros,
    cache_write_5m_micros = known.cache_write_5m_micros + excluded.cache_write_5m_micros,
    cache_write_1h_micros = known.cache_write_1h_micros + excluded.cache_write_1h_micros,
    output_micros = known.output_micros + excluded.output_micros,
    web_search_micros = known.web_search_micros + excluded.web_search_micros,
    web_fetch_micros = known.web_fetch_micros + excluded.web_fetch_micros,
    x_search_micros = known.x_search_micros + excluded.x_search_micros,
    cost_micros = known.cost_micros + excluded.cost_micros;

  update accounts account
  set balance_micros = account.balance_micros - charge.micros, version = account.version + 1,
    changed_at = clock_timestamp()
  from (
    select organization_id, sum(sign * cost_micros) as micros
    from (select 1 as sign, * from unnest(came) union all select -1, * from unnest(went)) moved
    group by 1
  ) charge
  where account.organization_id = charge.organization_id;
end
$$;

-- Takes the provisional row of a request out, as if it had never been charged. Its account is locked by the caller.
create function drop_provisional_usage(at timestamptz, request text) returns void language plpgsql as $$
declare
  dropped usage[];
begin
  with gone as (delete from usage where accepted_at = at and id = request and provisional returning *)
  select array_agg(row(gone.*)::usage) into dropped from gone;
  if dropped is not null then
    perform move_usage_books(null, dropped);
  end if;
end
$$;

-- Stores and charges rows (billing/usage-row.ts, encodeRow), given as an array of `expected` objects; returns every
-- account that they name, as it is then. A row that is stored or parked already changes nothing, except that a final
-- row replaces a provisional one and moves the books by the difference. Anything that is no such row, and any value
-- that `usage` or a sum refuses, is an error, and nothing is done.
create function charge_usage(texts json, expected integer)
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
#variable_conflict use_column
declare
  unreadable bigint;
  given usage[];
  organizations text[];
  stored usage[];
  dropped usage[];
begin
  if json_array_length(texts) <> expected then
    raise exception 'a charge is not one JSON object' using errcode = '22023';
  end if;

  with charge as materialized (
    select * from rows from (json_to_recordset(texts) as (
      v integer, id text, "acceptedAt" bigint, "organizationId" text, "projectId" text, "keyId" text, model text,
      "contextTokens" bigint, endpoint text, "batchId" text, status text, iterations integer, upstream text,
      estimated boolean, provisional boolean, tokens bigint[], tools bigint[], parts bigint[]
    )) with ordinality as charge (
      v, id, accepted_ms, organization_id, project_id, key_id, model, context_tokens, endpoint, batch_id, status,
      iterations, upstream, estimated, provisional, tokens, tools, parts, place
    )
  )
  select
    -- Other nulls are refused by the table.
    (select count(*) from charge where (
      v = 1 and id is not null and cardinality(tokens) = 6 and cardinality(tools) = 5 and cardinality(parts) = 8
      and 0 <= all (tokens) and 0 <= all (tools) and 0 <= all (parts)
    ) is not true),
    (select array_agg(row(
      timestamptz 'epoch' + accepted_ms * interval '1 millisecond', id, organization_id, project_id, key_id, model,
      context_tokens, 'standard', endpoint, batch_id, status, iterations, upstream, estimated, provisional,
      tokens[1], tokens[2], tokens[3], tokens[4], tokens[5], tokens[6], tools[1], tools[2], tools[3], tools[4],
      tools[5], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6], parts[7], parts[8],
      parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7] + parts[8], clock_timestamp()
    )::usage) from (
      -- Within one call a final row beats a provisional one of the same request, and the first beats its repeats.
      select distinct on (id) * from charge order by id, provisional, place
    ) charge)
  into unreadable, given;
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

  with gone as (
    delete from usage using unnest(given) charge
    where usage.accepted_at = charge.accepted_at and usage.id = charge.id
      and usage.provisional and not charge.provisional
    returning usage.*
  )
  select array_agg(row(gone.*)::usage) into dropped from gone;
  with added as (
    insert into usage select (unnest(given)).* on conflict (accepted_at, id) do nothing returning *
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
