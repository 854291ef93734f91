-- Why requests failed, and who spends (dataplane/requests; rule 14.1): one row for each request, kept for RETENTION_REQUESTS.
-- Nothing about money reads it. A day's rows leave with their partition.

create table request_records (
  -- In the order of bytes, in which ids of requests stand by their time (lib/ids.ts), whatever the database's language is.
  id text collate "C" not null,
  accepted_at timestamptz not null,
  -- Null: no valid key came with it.
  organization_id text,
  project_id text,
  key_id text,
  -- Null where the dialect says it.
  method text,
  url text,
  -- Null: it asked for no inference; found by its id, not listed.
  dialect text,
  -- relay, convert, tools; null: it was not served.
  path text,
  model text,
  upstream text,
  -- HTTP; 499: the client left before the end.
  status integer not null,
  -- Of our own table of errors, and as OpenAI-style answers name it.
  error text,
  error_code text,
  streamed boolean,
  first_byte_ms integer,
  duration_ms integer not null,
  -- [{upstream, status, fault, reason, words, ms}]; null: no upstream was asked.
  tries jsonb,
  input_tokens bigint,
  output_tokens bigint,
  credit_micros bigint,
  -- {"web_search ok": 2}
  tool_calls jsonb,
  batch_id text,
  trace_id text,
  -- The tenant's own marks, as in `usage`; null: none.
  tags text,
  -- Another run of a batch item takes the place of the one before. Grows at its end.
  primary key (id, accepted_at)
) partition by range (accepted_at);

-- One for each way to look: a page is read in the order of an index, whatever it is filtered by. Each of them costs every request some
-- 3 µs of Postgres, so none has the id: requests of one millisecond are sorted by it when they are read.
create index request_records_time on request_records (organization_id, accepted_at) where dialect is not null;
create index request_records_key on request_records (organization_id, key_id, accepted_at) where dialect is not null;
create index request_records_project on request_records (organization_id, project_id, accepted_at) where dialect is not null;
create index request_records_model on request_records (organization_id, model, accepted_at) where dialect is not null;
create index request_records_status on request_records (organization_id, status, accepted_at) where dialect is not null;
create index request_records_code on request_records (organization_id, error_code, accepted_at)
  where dialect is not null and error_code is not null;

-- Records as they come: a JSON array with an array for each, its values in this order (requests/stored-form.ts).
create function request_records_of(records jsonb) returns setof request_records language sql stable as $$
  select
    row ->> 0, to_timestamp((row ->> 1)::bigint / 1000.0), row ->> 2, row ->> 3, row ->> 4, row ->> 5,
    row ->> 6, row ->> 7, row ->> 8, row ->> 9, row ->> 10, (row ->> 11)::int4, row ->> 12, row ->> 13,
    (row ->> 14)::bool, (row ->> 15)::int4, (row ->> 16)::int4, nullif(row -> 17, 'null'::jsonb),
    (row ->> 18)::int8, (row ->> 19)::int8, (row ->> 20)::int8, nullif(row -> 21, 'null'::jsonb), row ->> 22,
    row ->> 23, row ->> 24
  from jsonb_array_elements(records) as given (row)
$$;

-- Stores records, in the order of their ids, so that two calls with the same ones do not wait for each other. Of two runs of a batch
-- item the later one stays, also within one call; what was stored already, by a call whose answer was lost, is stored once. That is
-- rare, so it is looked for only where an id is there: to look for each costs a fifth more.
create function store_request_records(records jsonb) returns void language plpgsql as $$
begin
  insert into request_records select * from request_records_of(records) order by id;
exception when unique_violation then
  insert into request_records
  select * from request_records_of((
    select jsonb_agg(row) from (
      select distinct on ((row ->> 0) collate "C") row
      from jsonb_array_elements(records) with ordinality as given (row, place)
      order by (row ->> 0) collate "C", place desc
    ) last
  ))
  on conflict (id, accepted_at) do update set
    organization_id = excluded.organization_id, project_id = excluded.project_id, key_id = excluded.key_id,
    method = excluded.method, url = excluded.url, dialect = excluded.dialect, path = excluded.path,
    model = excluded.model, upstream = excluded.upstream, status = excluded.status, error = excluded.error,
    error_code = excluded.error_code, streamed = excluded.streamed, first_byte_ms = excluded.first_byte_ms,
    duration_ms = excluded.duration_ms, tries = excluded.tries, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, credit_micros = excluded.credit_micros,
    tool_calls = excluded.tool_calls, batch_id = excluded.batch_id, trace_id = excluded.trace_id,
    tags = excluded.tags;
end
$$;

-- Makes the partitions of the days from two ago (items of batches are a day old when they run) to two ahead, as far as they are
-- not older than what is kept. They are attached, which lets others read and write meanwhile.
create function make_request_partitions(oldest timestamptz) returns void language plpgsql as $$
declare
  today timestamp := date_trunc('day', now() at time zone 'utc');
  day timestamp;
  name text;
begin
  perform pg_advisory_xact_lock(7104202);
  perform set_config('lock_timeout', '2s', true);
  for ahead in -2..2 loop
    day := today + make_interval(days => ahead);
    name := 'request_records_' || to_char(day, 'YYYY_MM_DD');
    if day + interval '1 day' > oldest at time zone 'utc' and to_regclass(name) is null then
      execute format('create table %I (like request_records including defaults)', name);
      execute format(
        'alter table request_records attach partition %I for values from (%L) to (%L)',
        name,
        to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00',
        to_char(day + interval '1 day', 'YYYY-MM-DD') || ' 00:00:00+00'
      );
    end if;
  end loop;
end
$$;

-- Drops the partitions of whole days before this moment, and says how many. Whoever reads at that moment is waited for two
-- seconds; the next round tries again.
create function drop_request_partitions(oldest timestamptz) returns integer language plpgsql as $$
declare
  part regclass;
  dropped integer := 0;
begin
  perform pg_advisory_xact_lock(7104202);
  perform set_config('lock_timeout', '2s', true);
  for part in
    select inhrelid::regclass from pg_inherits
    where inhparent = 'request_records'::regclass
      and to_date(right(inhrelid::regclass::text, 10), 'YYYY_MM_DD') + 1 <= (oldest at time zone 'utc')
  loop
    execute format('drop table %s', part);
    dropped := dropped + 1;
  end loop;
  return dropped;
end
$$;
