import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { openPostgres } from "../store/postgres.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { RequestRecord } from "../telemetry/request-record.ts";
import type { PageAsked } from "../store/list-page.ts";
import { findRequest, listRequests, type RequestFilter } from "./read-records.ts";
import { RequestRecorder, type RecorderOptions } from "./recorder.ts";

const DAY_MS = 86_400_000;
const log = pino({ level: "silent" });
let database: TestDatabase;
let pool: DatabasePool;
let now: number;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(async () => {
  now = Date.now();
  await pool.query(sql.unsafe`truncate request_records`);
});

async function recorder(more: Partial<RecorderOptions> = {}): Promise<RequestRecorder> {
  const made = new RequestRecorder({
    pool,
    clock: { now: () => now },
    log,
    retentionMs: 7 * DAY_MS,
    ...more,
  });
  await made.keepPartitions();
  return made;
}

const asked = { upstream: "primary", status: 200, fault: null, reason: null, words: null, ms: 12.5 };
const record = (id: string, more: Partial<RequestRecord> = {}): RequestRecord => ({
  id,
  acceptedAt: now,
  organizationId: "org_a",
  projectId: "proj_1",
  keyId: "apikey_1",
  method: "POST",
  url: "/v1/messages",
  dialect: "messages",
  path: "relay",
  model: "alpha",
  upstream: "primary",
  status: 200,
  error: null,
  errorCode: null,
  streamed: false,
  firstByteMs: 12.4,
  durationMs: 20.6,
  tries: [asked],
  inputTokens: 11,
  outputTokens: 7,
  micros: 1_500_000n,
  toolCalls: null,
  batchId: null,
  traceId: null,
  tags: null,
  ...more,
});

const anything: RequestFilter = {
  organizationId: "org_a",
  keyId: null,
  projectId: null,
  model: null,
  status: null,
  code: null,
  from: 0,
  to: null,
};
async function ids(filter: Partial<RequestFilter> = {}, page: Partial<PageAsked> = {}) {
  const found = await listRequests(
    pool,
    { ...anything, ...filter },
    { limit: 10, order: "desc", cursor: null, ...page },
  );
  return found === null ? null : [...found.items.map(({ id }) => id), ...(found.hasMore ? ["more"] : [])];
}
const droppedFor = async (reason: string) =>
  (await metrics.recordsDropped.get()).values.find(({ labels }) => labels.reason === reason)?.value ?? 0;

test("what was told of a request is found by its id, whatever others wrote into it", async () => {
  const records = await recorder();
  const failed = { ...asked, status: 500, fault: "server_error", reason: "a\0b", words: "\ud800 no", ms: 3 };
  const told = record("req_1", { tries: [failed, asked], toolCalls: { "web_search ok": 2 }, traceId: "abc" });
  records.add(told);
  await records.store();
  expect(await findRequest(pool, "req_1")).toEqual({
    ...told,
    // Where inference is asked for is known by its dialect.
    method: null,
    url: null,
    firstByteMs: 12,
    durationMs: 21,
    tries: [{ ...failed, reason: "ab", words: "\ufffd no" }, asked],
  });
  expect(await findRequest(pool, "req_1", "org_b")).toBe(null);
  expect(await findRequest(pool, "req_2")).toBe(null);
  // Statements are counted with what they took.
  const { values } = await metrics.storeSeconds.get();
  const counted = values.filter(
    ({ metricName, value }) => metricName?.endsWith("_count") === true && value > 0,
  );
  const selects = counted.find(({ labels }) => labels.operation === "select");
  // One stores, two look for it.
  expect(selects?.value).toBeGreaterThanOrEqual(3);
});

test("a list is filtered, cut into pages, and read both ways", async () => {
  const records = await recorder();
  const some: RequestRecord[] = [
    record("req_a", { acceptedAt: now - 4000 }),
    record("req_b", { acceptedAt: now - 3000, keyId: "apikey_2", model: "beta" }),
    // Two of one moment stand in the order of their ids.
    record("req_c", {
      acceptedAt: now - 2000,
      status: 502,
      error: "upstream_error",
      errorCode: "upstream_error",
    }),
    record("req_d", { acceptedAt: now - 2000, projectId: "proj_2" }),
    record("req_e", { acceptedAt: now - 1000, organizationId: "org_b" }),
    // Found by its id alone.
    record("req_f", { dialect: null, tries: [] }),
  ];
  for (const one of some) records.add(one);
  await records.store();
  expect(await ids()).toEqual(["req_d", "req_c", "req_b", "req_a"]);
  expect(await ids({}, { order: "asc" })).toEqual(["req_a", "req_b", "req_c", "req_d"]);
  expect(await ids({ keyId: "apikey_2" })).toEqual(["req_b"]);
  expect(await ids({ projectId: "proj_2" })).toEqual(["req_d"]);
  expect(await ids({ model: "beta" })).toEqual(["req_b"]);
  expect(await ids({ status: 502 })).toEqual(["req_c"]);
  expect(await ids({ code: "upstream_error" })).toEqual(["req_c"]);
  expect(await ids({ from: now - 3000, to: now - 2000 })).toEqual(["req_b"]);
  expect(await ids({}, { limit: 3 })).toEqual(["req_d", "req_c", "req_b", "more"]);
  const from = (side: "after" | "before", id: string) => ({ cursor: { side, id } });
  expect(await ids({}, { limit: 1, ...from("after", "req_d") })).toEqual(["req_c", "more"]);
  expect(await ids({}, { limit: 2, ...from("before", "req_a") })).toEqual(["req_c", "req_b", "more"]);
  expect(await ids({}, { order: "asc", ...from("after", "req_c") })).toEqual(["req_d"]);
  // Another organization's is no cursor.
  expect(await ids({}, from("after", "req_e"))).toBe(null);
  expect((await findRequest(pool, "req_f"))?.dialect).toBe(null);
});

test("a later run of a batch item takes the place of the one before", async () => {
  const records = await recorder();
  records.add(record("req_i", { status: 502, errorCode: "upstream_error", batchId: "batch_1" }));
  await records.store();
  // Also within one statement.
  records.add(record("req_i", { status: 429, batchId: "batch_1" }));
  records.add(record("req_i", { batchId: "batch_1" }));
  await records.store();
  expect(await findRequest(pool, "req_i")).toMatchObject({ status: 200, errorCode: null });
  expect(await ids()).toEqual(["req_i"]);
});

test("records that the store took without saying so are stored once", async () => {
  const [first, again] = [await recorder(), await recorder()];
  for (const records of [first, again]) for (const id of ["req_1", "req_2", "req_3"]) records.add(record(id));
  again.add(record("req_4"));
  await first.store();
  await again.store();
  expect((await ids())?.toSorted()).toEqual(["req_1", "req_2", "req_3", "req_4"]);
});

test("days that are too old are dropped as a whole, and a record of theirs takes no other with it", async () => {
  const records = await recorder();
  const old = now - 30 * DAY_MS;
  const name = `request_records_${new Date(old).toISOString().slice(0, 10).replaceAll("-", "_")}`;
  const day = new Date(old).toISOString().slice(0, 10);
  const next = new Date(old + DAY_MS).toISOString().slice(0, 10);
  await pool.query(
    sql.unsafe`create table ${sql.identifier([name])} partition of request_records
      for values from (${sql.literalValue(`${day} 00:00:00+00`)}) to (${sql.literalValue(`${next} 00:00:00+00`)})`,
  );
  const partitions = async () =>
    await pool.anyFirst(sql.type(z.object({ name: z.string() }))`
      select inhrelid::regclass::text as name from pg_inherits where inhparent = 'request_records'::regclass
    `);
  expect(await partitions()).toContain(name);
  await records.keepPartitions();
  expect(await partitions()).not.toContain(name);
  // Two days back, today, two ahead.
  expect(await partitions()).toHaveLength(5);
  const refused = await droppedFor("refused");
  for (const one of [record("req_1"), record("req_old", { acceptedAt: old }), record("req_2")])
    records.add(one);
  await records.store();
  expect(await ids()).toEqual(["req_2", "req_1"]);
  expect((await droppedFor("refused")) - refused).toBe(1);
  // Kept for six hours: only what has ended before is dropped.
  const short = await recorder({ retentionMs: 6 * 3_600_000 });
  await short.keepPartitions();
  expect((await partitions()).length).toBeGreaterThanOrEqual(3);
  expect(await ids()).toEqual(["req_2", "req_1"]);
});

test("what the store does not take in time is counted and forgotten, and the rest is kept", async () => {
  const records = await recorder({ maxWaiting: 3 });
  const full = await droppedFor("full");
  // A store that is away takes nothing: these wait.
  for (const id of ["req_1", "req_2", "req_3", "req_4", "req_5"]) records.add(record(id));
  expect((await droppedFor("full")) - full).toBe(2);
  await records.store();
  expect(await ids()).toEqual(["req_3", "req_2", "req_1"]);
  records.add(record("req_6"));
  await records.store();
  expect(await ids()).toContain("req_6");
});

test("refusals that cost nothing do not fill the disk, and leave other organizations theirs", async () => {
  const records = await recorder();
  const before = await droppedFor("rate");
  for (let at = 0; at < 1_500; at += 1) records.add(record(`req_${at}`, { status: 429, tries: [] }));
  records.add(record("req_other", { organizationId: "org_b", status: 429, tries: [] }));
  // What an upstream served is always kept.
  records.add(record("req_asked"));
  const dropped = (await droppedFor("rate")) - before;
  expect(dropped).toBeGreaterThan(300);
  expect(dropped).toBeLessThanOrEqual(500);
  await records.store();
  expect(await findRequest(pool, "req_other")).not.toBe(null);
  expect(await findRequest(pool, "req_asked")).not.toBe(null);
});

test("a console that asks for reports all the time takes no place of refused inference", async () => {
  const records = await recorder();
  for (let at = 0; at < 1_500; at += 1)
    records.add(
      record(`req_${at}`, { method: "GET", url: "/v1/organization/costs", dialect: null, tries: [] }),
    );
  records.add(record("req_refused", { status: 402, tries: [] }));
  await records.store();
  expect(await ids()).toEqual(["req_refused"]);
});

test("nor do requests that upstreams refuse, of which more are kept; what was served is kept all the same", async () => {
  const records = await recorder({ maxWaiting: 30_000 });
  const before = await droppedFor("rate");
  const refused = {
    status: 400,
    tries: [{ ...asked, status: 400, fault: "refused" as const }],
    inputTokens: 0,
    outputTokens: 0,
    micros: 0n,
  };
  for (let at = 0; at < 22_000; at += 1) records.add(record(`req_${at}`, refused));
  const dropped = (await droppedFor("rate")) - before;
  expect(dropped).toBeGreaterThan(1_500);
  expect(dropped).toBeLessThanOrEqual(2_000);
  records.add(record("req_other", { ...refused, organizationId: "org_b" }));
  records.add(record("req_without_price", { micros: 0n }));
  records.add(record("req_refused", { status: 429, tries: [] }));
  expect(await droppedFor("rate")).toBe(before + dropped);
});

test("whatever a page is filtered by, it is read from an index in its order", async () => {
  await recorder();
  await pool.query(sql.unsafe`
    insert into request_records (id, accepted_at, organization_id, project_id, key_id, method, url, dialect, model,
      status, error_code, duration_ms)
    select 'req_' || n, now() - n * interval '2 seconds', 'org_a', 'proj_' || n % 3, 'apikey_' || n % 50, 'POST', '/', 'chat',
      'm' || n % 20, case when n % 500 = 0 then 502 else 200 end, case when n % 500 = 0 then 'upstream_error' end, 1
    from generate_series(1, 60000) as n
  `);
  await pool.query(sql.unsafe`analyze request_records`);
  for (const filter of [
    {},
    { keyId: "apikey_7" },
    { projectId: "proj_1" },
    { model: "m3" },
    { status: 502 },
    { status: 200 },
    { code: "upstream_error" },
    { keyId: "apikey_nobody" },
  ]) {
    const plan = await planOf({ ...anything, ...filter });
    expect(plan, JSON.stringify(filter)).toContain("Index");
    // No more than a page of each day is read, and hardly anything in vain: an empty day costs nothing either way.
    const [read, vain] = [/Scan.*actual rows=(\d+)/g, /Rows Removed by Filter: (\d+)/g].map((pattern) =>
      Array.from(plan.matchAll(pattern), ([, rows]) => Number(rows)).reduce((sum, rows) => sum + rows, 0),
    );
    expect([filter, read ?? 0, vain ?? 0]).toEqual([
      filter,
      expect.toSatisfy(isSmall),
      expect.toSatisfy(isSmall),
    ]);
  }
});

const isSmall = (rows: number) => rows <= 150;

/** How the database reads the first page. */
async function planOf(filter: RequestFilter): Promise<string> {
  const lines: string[] = [];
  const explaining = {
    ...pool,
    any: async (query: { readonly sql: string; readonly values: readonly unknown[] }) => {
      const explained = {
        ...sql.unsafe`select 1`,
        values: query.values,
        sql: `explain (analyze, costs off, timing off) ${query.sql}`,
      };
      const shown = await pool.query(explained as never);
      for (const row of shown.rows) lines.push(String(Object.values(row as object)[0]));
      return [];
    },
  };
  await listRequests(explaining as never, filter, { limit: 20, order: "desc", cursor: null });
  return lines.join("\n");
}

test("a retention of 0 keeps none, forgets those that were kept, and still tells the debug log", async () => {
  const before = await recorder();
  before.add(record("req_before"));
  await before.store();
  expect(await findRequest(pool, "req_before")).not.toBe(null);
  const lines: string[] = [];
  const debugLog = pino({ level: "debug" }, { write: (line: string) => void lines.push(line) });
  const none = await recorder({ retentionMs: 0, log: debugLog });
  expect(await findRequest(pool, "req_before")).toBe(null);
  none.add(record("req_told"));
  await none.store();
  expect(await findRequest(pool, "req_told")).toBe(null);
  expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([{ request_id: "req_told" }]);
  // Kept again from the next look on.
  await recorder();
});
