/** A database with as many rows as a large installation has, its traffic through our own code, and who waits for whom meanwhile. */
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { storeEnds } from "../../dataplane/batches/worker/store-ends.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { listRequests } from "../../dataplane/requests/read-records.ts";
import { RequestRecorder } from "../../dataplane/requests/recorder.ts";
import { readMigrations, type Migration } from "../../dataplane/store/migrate.ts";
import { answer, claim, engineOf, insertBatch, organizationId } from "./batch-rows.ts";
import { makeOrganization, request, usage, type Plane } from "./money-world.ts";

const MONTHS = 3;
/** Of each insert: what one transaction makes. */
const PORTION = 500_000;

/** Usage of three months and items of batches, as many rows of each, and a fifth as many records of requests. */
export async function fill(pool: DatabasePool, rows: number): Promise<void> {
  for (const parent of ["usage", "usage_hourly"])
    for (let back = 1; back <= MONTHS; back += 1) {
      const [from, to] = [back, back - 1].map((months) => monthStart(months));
      const name = sql.identifier([`${parent}_${from?.slice(0, 7).replace("-", "_") ?? ""}`]);
      await pool.query(sql.unsafe`
        create table ${name} partition of ${sql.identifier([parent])}
        for values from (${sql.literalValue(`${from} 00:00:00+00`)}) to (${sql.literalValue(`${to} 00:00:00+00`)})
      `);
    }
  const first = Date.parse(`${monthStart(MONTHS)}T00:00:00Z`) / 1_000;
  const seconds = Date.now() / 1_000 - first - 86_400;
  await inPortions(
    rows,
    (from, to) => sql.unsafe`
      insert into usage
      select date_trunc('milliseconds', to_timestamp(${first} + n * ${seconds}::float8 / ${rows})), 'req_' || md5(n::text), 'org_' || n % 50,
        'proj_' || n % 100, 'apikey_' || n % 1000, 'model-' || n % 4, 200000, 'standard',
        case when n % 10 = 0 then 'batch' else 'messages' end, null, 'ok', 1, 'upstream', false, false,
        3000, 200, 0, 0, 500, 0, 0, 0, 0, 0, 0, 300000, 2000, 0, 0, 750000, 0, 0, 0, 1052000, false, null
      from generate_series(${from}::bigint, ${to - 1}::bigint) n
    `,
    pool,
  );
  await pool.query(sql.unsafe`
    insert into usage_hourly
    select organization_id, date_trunc('hour', accepted_at, 'UTC'), project_id, key_id, model, context_tokens,
      service_tier, endpoint = 'batch', count(*), sum(input_tokens), sum(cache_read_tokens), 0, 0, sum(output_tokens), 0,
      0, 0, 0, 0, 0, sum(input_micros), sum(cache_read_micros), 0, 0, sum(output_micros), 0, 0, 0, sum(cost_micros), ''
    from usage where accepted_at > now() - interval '10 days' group by 1, 2, 3, 4, 5, 6, 7, 8
  `);
  // Of batches that are over; their check against `batches`, row by row, would take most of the time.
  await pool.query(sql.unsafe`alter table batch_items disable trigger all`);
  await inPortions(
    rows,
    (from, to) => sql.unsafe`
      insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, model, state, line)
      select 'msgbatch_' || n / 10000, n % 10000, '"item-' || n || '"', 'req_' || md5(n::text), now(), 'model-' || n % 4,
        'succeeded', '{"custom_id": "item"}'::bytea
      from generate_series(${from}::bigint, ${to - 1}::bigint) n
    `,
    pool,
  );
  await pool.query(sql.unsafe`alter table batch_items enable trigger all`);
  await pool.query(sql.unsafe`select make_request_partitions(now() - interval '3 days')`);
  await inPortions(
    Math.ceil(rows / 5),
    (from, to) => sql.unsafe`
      insert into request_records (id, accepted_at, organization_id, project_id, key_id, dialect, path, model, upstream,
        status, duration_ms, trace_id)
      select 'req_' || md5(n::text), date_trunc('day', now(), 'UTC') - n % 48 * interval '1 hour', 'org_' || n % 50, 'proj_' || n % 100,
        'apikey_' || n % 1000, 'chat', 'relay', 'model-' || n % 4, 'upstream', 200, 900, md5(n::text)
      from generate_series(${from}::bigint, ${to - 1}::bigint) n
    `,
    pool,
  );
  await pool.query(sql.unsafe`analyze usage, usage_hourly, batch_items, request_records`);
}

const monthStart = (monthsAgo: number): string => {
  const now = new Date();
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - monthsAgo)).toISOString().slice(0, 10);
};

async function inPortions(
  rows: number,
  portion: (from: number, to: number) => ReturnType<typeof sql.unsafe>,
  pool: DatabasePool,
): Promise<void> {
  for (let from = 0; from < rows; from += PORTION)
    await pool.query(portion(from, Math.min(rows, from + PORTION)));
}

/** A migration of each sort, as CONTRIBUTING says to write them, after those of the release. */
export function sampleMigrations(): readonly Migration[] {
  const last = readMigrations().at(-1)?.version ?? 0;
  const files: readonly (readonly [string, string])[] = [
    ["a column of usage", "alter table usage add column region text not null default 'unknown'"],
    ["a column of items", "alter table batch_items add column region text not null default 'unknown'"],
    [
      "an index of usage",
      "-- migrate: concurrently\ncreate index concurrently usage_by_model on usage (organization_id, model, accepted_at)",
    ],
    [
      "an index of items",
      "-- migrate: concurrently\ncreate index concurrently batch_items_by_request on batch_items (request_id)",
    ],
    [
      "an index of records",
      "-- migrate: concurrently\ncreate index concurrently by_trace on request_records (trace_id) where trace_id is not null",
    ],
    [
      "a backfill of usage",
      `-- migrate: steps
       with few as (
         select accepted_at, id from usage
         where (accepted_at, id) > (coalesce(($1::jsonb ->> 'at')::timestamptz, '-infinity'), coalesce($1::jsonb ->> 'id', ''))
         order by accepted_at, id limit $2::int
       ), filled as (
         update usage set region = 'batch' from few
         where usage.accepted_at = few.accepted_at and usage.id = few.id and usage.endpoint = 'batch'
       )
       select jsonb_build_object('at', accepted_at, 'id', id) as next from few order by accepted_at desc, id desc limit 1`,
    ],
    ["a check", "alter table usage add constraint usage_cost check (cost_micros >= 0) not valid"],
    ["a check, validated", "-- migrate: concurrently\nalter table usage validate constraint usage_cost"],
  ];
  return files.map(([name, text], at) => ({ version: last + 1 + at, name, sql: text, sha256: text }));
}

/** Undoes them, so that a filled database can be migrated again. */
export const UNDO_SAMPLES = `
  delete from schema_migrations where version > ${readMigrations().at(-1)?.version ?? 0};
  alter table usage drop constraint if exists usage_cost, drop column if exists region;
  alter table batch_items drop column if exists region;
  drop index if exists usage_by_model, batch_items_by_request, by_trace;
`;
/** Takes out what traffic left. */
export const FORGET_TRAFFIC = `
  delete from usage where accepted_at > now() - interval '23 hours';
  update batches set state = 'ended', outcome = 'cancelled', ended_at = now() where state <> 'ended';
`;

/** How long each kind of work took, milliseconds, and what failed. */
export class Traffic {
  readonly #plane: Plane;
  readonly #ended = new AbortController();
  readonly #loops: Promise<void>[] = [];
  #times = new Map<string, number[]>();
  charged = 0;

  private constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Charges through Redis and straight to the ledger, items of a batch, reports, records of requests and lists of them. */
  static async start(plane: Plane): Promise<Traffic> {
    const { pool } = plane;
    for (let n = 0; n < 50; n += 1) await makeOrganization(pool, `org_${n}`, 1_000_000_000_000n);
    await makeOrganization(pool, organizationId, 1_000_000_000_000n);
    const traffic = new Traffic(plane);
    const charge = async (n: number) => {
      const bill = await plane.holds.open(request(`org_${n % 50}`), 1_000n);
      await bill.settle(usage(3));
      traffic.charged += 1;
    };
    for (let n = 0; n < 4; n += 1) traffic.#loop("charge", 20, charge);
    const engine = engineOf(pool, newId("req"));
    let batch = await insertBatch(pool, 1_000);
    traffic.#loop("items of a batch", 50, async () => {
      const items = await claim(engine, batch, 10);
      if (items.length === 0) batch = await insertBatch(pool, 1_000);
      const ends = items.map((item) => ({ item, end: answer(item, 1) }));
      await pool.transaction((transaction) => storeEnds(transaction, ends, Date.now()));
      traffic.charged += items.length;
    });
    const month = { starting_at: monthStart(0), start_time: monthStart(0), limit: "31" };
    traffic.#loop("usage report", 100, (n) =>
      messagesUsage(pool, `org_${n % 50}`, { ...month, group_by: "model" }, Date.now()),
    );
    traffic.#loop("cost report", 100, (n) =>
      costReport(pool, `org_${n % 50}`, { ...month, group_by: "description" }, Date.now()),
    );
    const log = pino({ level: "silent" });
    const records = new RequestRecorder({ pool, clock: systemClock, log, retentionMs: 3 * 86_400_000 });
    traffic.#loop("records of requests", 50, async () => {
      for (let n = 0; n < 10; n += 1) records.add(recordOf(n));
      await records.store();
    });
    const filter = {
      projectId: null,
      keyId: null,
      model: null,
      status: null,
      code: null,
      from: Date.now() - 86_400_000,
      to: null,
    };
    traffic.#loop("list of requests", 50, (n) =>
      listRequests(
        pool,
        { ...filter, organizationId: `org_${n % 50}` },
        { limit: 100, order: "desc", cursor: null },
      ),
    );
    return traffic;
  }

  #loop(kind: string, pauseMs: number, work: (n: number) => Promise<unknown>): void {
    const { signal } = this.#ended;
    const run = async () => {
      for (let n = this.#loops.length; !signal.aborted; n += 1) {
        const began = performance.now();
        await work(n);
        this.#timesOf(kind).push(performance.now() - began);
        await sleep(pauseMs);
      }
    };
    this.#loops.push(run());
  }

  #timesOf(kind: string): number[] {
    const times = this.#times.get(kind) ?? [];
    this.#times.set(kind, times);
    return times;
  }

  /** What it took since the last call, by kind. */
  take(): ReadonlyMap<string, readonly number[]> {
    const times = this.#times;
    this.#times = new Map();
    return times;
  }

  /** @throws Error of what failed first. */
  async stop(): Promise<void> {
    this.#ended.abort();
    await Promise.all(this.#loops);
    await this.#plane.drained();
  }
}

const recordOf = (n: number) => ({
  id: newId("req"),
  acceptedAt: Date.now(),
  organizationId: `org_${n}`,
  projectId: "proj_test",
  keyId: "apikey_test",
  method: "POST",
  url: "/v1/messages",
  dialect: "messages",
  path: "relay" as const,
  model: "model",
  upstream: "upstream",
  status: 200,
  error: null,
  errorCode: null,
  streamed: false,
  firstByteMs: 1,
  durationMs: 2,
  tries: [{ upstream: "upstream", status: 200, fault: null, reason: null, words: null, ms: 2 }],
  inputTokens: 3,
  outputTokens: 0,
  micros: 3n,
  toolCalls: null,
  batchId: null,
  traceId: null,
  tags: null,
});

/** Sessions of a migration call themselves so. */
export const MIGRATOR = "migrator";
/** What reads or writes of others wait for. */
const STRONG = ["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"];
const LOOK_MS = 15;

interface Seen {
  readonly key: string;
  readonly ms: number;
  readonly what: string;
}

/** The longest wait for a lock of anybody but the migrations, and the longest lock of theirs that others wait for. */
export class LockWatch {
  readonly #client: pg.Client;
  readonly #ended = new AbortController();
  readonly #watching: Promise<void>;
  /** Strong locks that migrations hold now, by when they were first seen. */
  #held = new Map<string, { readonly since: number; readonly what: string }>();
  #longestWait: Seen = { key: "", ms: 0, what: "none" };
  #longestHold: Seen = { key: "", ms: 0, what: "none" };
  looks = 0;

  private constructor(client: pg.Client) {
    this.#client = client;
    this.#watching = this.#watch();
  }

  static async start(url: string): Promise<LockWatch> {
    const client = new pg.Client({ connectionString: url, application_name: "watch" });
    await client.connect();
    return new LockWatch(client);
  }

  async #watch(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      await this.#look();
      await sleep(LOOK_MS);
    }
  }

  async #look(): Promise<void> {
    const { rows } = await this.#client.query<{
      key: string;
      what: string;
      waits: number | null;
      migrates: boolean;
    }>(
      `select concat_ws(' ', pid, virtualtransaction, locktype, relation, mode) as key, concat_ws(' ', locktype, relation::regclass, mode) as what,
         case when not granted then extract(epoch from clock_timestamp() - waitstart)::float8 * 1000 end as waits,
         application_name = '${MIGRATOR}' as migrates
       from pg_locks join pg_stat_activity using (pid)
       where pid <> pg_backend_pid() and backend_type = 'client backend'
         and (not granted or application_name = '${MIGRATOR}' and locktype = 'relation' and mode = any ($1)
           and exists (select from pg_class where oid = relation and relkind in ('r', 'p') and relnamespace = 'public'::regnamespace))`,
      [STRONG],
    );
    const now = performance.now();
    this.looks += 1;
    const held = new Map<string, { readonly since: number; readonly what: string }>();
    for (const { key, what, waits, migrates } of rows) {
      if (waits !== null && !migrates)
        this.#longestWait = longer(this.#longestWait, { key, ms: waits, what });
      if (waits !== null || !migrates) continue;
      const before = this.#held.get(key) ?? { since: now, what };
      held.set(key, before);
      this.#longestHold = longer(this.#longestHold, { key, ms: now - before.since, what });
    }
    this.#held = held;
  }

  /** Since the last call. */
  take(): { readonly wait: Seen; readonly hold: Seen } {
    const seen = { wait: this.#longestWait, hold: this.#longestHold };
    this.#longestWait = this.#longestHold = { key: "", ms: 0, what: "none" };
    return seen;
  }

  async stop(): Promise<void> {
    this.#ended.abort();
    await this.#watching;
    await this.#client.end();
  }
}

const longer = (one: Seen, other: Seen): Seen => (other.ms > one.ms ? other : one);
