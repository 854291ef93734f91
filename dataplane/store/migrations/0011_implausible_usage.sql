-- Usage that an upstream reports beyond what is possible is charged only so far, and its row says so.
alter table usage add column implausible boolean not null default false;
alter type charge add attribute implausible boolean;

create or replace function charge_of(stored usage) returns charge language sql stable as $$
  select row(
    2, (extract(epoch from stored.accepted_at) * 1000)::bigint, stored.id, stored.organization_id, stored.project_id,
    stored.key_id, stored.model, stored.context_tokens, stored.endpoint, stored.batch_id, stored.status,
    stored.iterations, stored.upstream, stored.estimated, stored.provisional,
    stored.input_tokens, stored.cache_read_tokens, stored.cache_write_5m_tokens, stored.cache_write_1h_tokens,
    stored.output_tokens, stored.reasoning_tokens, stored.web_searches, stored.web_fetches, stored.x_searches,
    stored.x_posts, stored.x_profiles, stored.input_micros, stored.cache_read_micros, stored.cache_write_5m_micros,
    stored.cache_write_1h_micros, stored.output_micros, stored.web_search_micros, stored.web_fetch_micros,
    stored.x_search_micros, stored.implausible
  )::charge
$$;

-- Inserts rows of which none is there.
create or replace function store_charges(came charge[]) returns void language plpgsql as $$
begin
  insert into usage
  select from_unix_ms(accepted_ms), id, organization_id, project_id, key_id, model,
    context_tokens, 'standard', endpoint, batch_id, status, iterations, upstream, estimated, provisional,
    input_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
    web_searches, web_fetches, x_searches, x_posts, x_profiles, input_micros, cache_read_micros, cache_write_5m_micros,
    cache_write_1h_micros, output_micros, web_search_micros, web_fetch_micros, x_search_micros,
    input_micros + cache_read_micros + cache_write_5m_micros + cache_write_1h_micros + output_micros + web_search_micros
    + web_fetch_micros + x_search_micros,
    clock_timestamp(), implausible
  from unnest(came);
end
$$;

-- Rows in JSON (0007_charge_new_rows.sql) become the values above: one way to charge.
create or replace function charge_usage(texts json, expected integer)
returns table (organization_id text, balance_micros bigint, version bigint) language plpgsql as $$
#variable_conflict use_column
declare
  readable bigint;
  given charge[];
begin
  select
    count(*) filter (where v = 1 and id is not null and cardinality(tokens) = 6 and cardinality(tools) = 5
      and cardinality(parts) = 8),
    array_agg(row(
      2, accepted_ms, id, organization_id, project_id, key_id, model, context_tokens, endpoint, batch_id, status,
      iterations, upstream, estimated, provisional, tokens[1], tokens[2], tokens[3], tokens[4], tokens[5], tokens[6],
      tools[1], tools[2], tools[3], tools[4], tools[5], parts[1], parts[2], parts[3], parts[4], parts[5], parts[6],
      parts[7], parts[8], false
    )::charge)
  into readable, given
  from rows from (json_to_recordset(texts) as (
    v integer, id text, "acceptedAt" bigint, "organizationId" text, "projectId" text, "keyId" text, model text,
    "contextTokens" bigint, endpoint text, "batchId" text, status text, iterations integer, upstream text,
    estimated boolean, provisional boolean, tokens bigint[], tools bigint[], parts bigint[]
  )) as charge (
    v, id, accepted_ms, organization_id, project_id, key_id, model, context_tokens, endpoint, batch_id, status,
    iterations, upstream, estimated, provisional, tokens, tools, parts
  );
  if readable <> expected or cardinality(given) <> expected then
    raise exception 'a charge is no row of this release' using errcode = '22023';
  end if;
  return query select * from charge_usage(given);
end
$$;
drop function move_usage_books(usage[], usage[]);
