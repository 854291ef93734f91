/**
 * What a million requests take in Postgres, before and after their month is closed (rule 12.5), and how long charges wait
 * meanwhile: `node hack/ensure.mjs test/bench/retention.ts [REQUESTS]` (default 1,000,000). 50 organizations of 20 keys ask 4
 * models by day and night, every tenth request in a batch; rows and sums are made as charges make them, by statements.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { UsageRetention } from "../../dataplane/billing/ledger/usage-retention.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { DAY_MS } from "../../dataplane/lib/clock.ts";
import { migrate } from "../../dataplane/store/migrate.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { makeOrganization, request, usage } from "../integration/money-world.ts";

const requests = Number(process.argv[2] ?? 1_000_000);
const WRITERS = 4;
/** Long over. */
const month = "2025-03";
const next = Date.parse("2025-04-01");

const folder = await mkdtemp(join(tmpdir(), "gapura-bench-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say: () => {} });
try {
  await migrate(postgres.url());
  const pool = await openPostgres(postgres.url(), { onError: () => {}, statementTimeoutMs: 1_800_000 });
  await generate(pool);
  const before = await sizes(pool);
  console.log(`${requests} requests, ${await rowsOf(pool, "usage_hourly")} sums by the hour`);
  for (const [name, bytes] of before) console.log(`  ${name.padEnd(28)} ${perRequest(bytes)}`);
  await makeOrganization(pool, "org_live", 1_000_000_000n);
  const quiet = await chargeFor(pool, () => new Promise((done) => setTimeout(done, 5_000)));
  console.log(`charges without it: ${quiet}`);
  const retention = new UsageRetention({
    pool: await openPostgres(postgres.url(), { maxConnections: 1, onError: () => {} }),
    clock: { now: () => next + 35 * DAY_MS },
    log: pino({ level: "silent" }),
    retentionMs: 35 * DAY_MS,
    dropRows: false,
  });
  const steps = new Map<string, number[]>();
  const beside = await chargeFor(pool, async () => {
    for (let step = ""; step !== "done";) {
      const began = performance.now();
      step = await retention.step();
      steps.set(step, [...(steps.get(step) ?? []), performance.now() - began]);
    }
  });
  for (const [step, times] of steps)
    console.log(
      `${step.padEnd(8)} ${times.length} times, ${sum(times).toFixed(0)} ms, longest ${Math.max(...times).toFixed(0)} ms`,
    );
  console.log(`charges beside it: ${beside}`);
  console.log(`closings: ${await rowsOf(pool, "usage_closed")} sums by the day`);
  for (const [name, bytes] of await sizes(pool)) console.log(`  ${name.padEnd(28)} ${perRequest(bytes)}`);
  await pool.end();
} finally {
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);

/** Charges of one row each while the work goes on: how many, and the longest wait. */
async function chargeFor(pool: DatabasePool, work: () => Promise<unknown>): Promise<string> {
  const waits: number[] = [];
  const ended = new AbortController();
  const writers = Array.from({ length: WRITERS }, async (_, at) => {
    while (!ended.signal.aborted) {
      const began = performance.now();
      const row = usageRow(request("org_live", { keyId: `apikey_${at}` }), usage(1));
      await pool.transaction((transaction) => chargeRows(transaction, [row]));
      waits.push(performance.now() - began);
    }
  });
  await work();
  ended.abort();
  await Promise.all(writers);
  waits.sort((a, b) => a - b);
  const at = (share: number) => (waits[Math.floor((waits.length - 1) * share)] ?? 0).toFixed(1);
  return `${waits.length}, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, longest ${at(1)} ms`;
}

async function generate(pool: DatabasePool): Promise<void> {
  const [from, to] = [`${month}-01T00:00:00Z`, new Date(next).toISOString()];
  for (const parent of ["usage", "usage_hourly"]) {
    const name = sql.identifier([`${parent}_${month.replace("-", "_")}`]);
    await pool.query(sql.unsafe`
      create table ${name} partition of ${sql.identifier([parent])}
      for values from (${sql.literalValue(from)}) to (${sql.literalValue(to)})
    `);
  }
  await pool.query(sql.unsafe`
    insert into usage
    select to_timestamp(1740787200 + floor(n * 2678399999.0 / ${requests}) / 1000), 'req_' || md5(n::text),
      'org_' || md5((n % 50)::text), 'proj_' || md5((n % 100)::text), 'apikey_' || md5((n % 1000)::text),
      'model-number-' || (random() * 3)::integer, 200000, 'standard',
      case when n % 10 = 0 then 'batch' else 'messages' end,
      case when n % 10 = 0 then 'msgbatch_' || md5((n / 10000)::text) end, 'ok', 1, 'upstream', false, false,
      3000, 200, 0, 0, 500, 0, 0, 0, 0, 0, 0, 300000, 2000, 0, 0, 750000, 0, 0, 0, 1052000, false, null
    from generate_series(0, ${requests - 1}) n
  `);
  await pool.query(sql.unsafe`
    insert into usage_hourly
    select organization_id, date_trunc('hour', accepted_at, 'UTC'), project_id, key_id, model, context_tokens,
      service_tier, endpoint = 'batch', count(*), sum(input_tokens), sum(cache_read_tokens), 0, 0, sum(output_tokens), 0,
      0, 0, 0, 0, 0, sum(input_micros), sum(cache_read_micros), 0, 0, sum(output_micros), 0, 0, 0, sum(cost_micros), ''
    from usage group by 1, 2, 3, 4, 5, 6, 7, 8
  `);
  await pool.query(sql.unsafe`
    insert into usage_daily
    select organization_id, scope_id, floor(extract(epoch from accepted_at) / 86400)::integer, sum(cost_micros)
    from usage cross join lateral (values (key_id), (project_id)) scope (scope_id) group by 1, 2, 3
  `);
  await pool.query(sql.unsafe`vacuum analyze`);
}

function rowsOf(pool: DatabasePool, table: string): Promise<bigint> {
  return pool.oneFirst(
    sql.type(z.object({ count: z.bigint() }))`select count(*) from ${sql.identifier([table])}`,
  );
}

/** Bytes of each table of usage, and of its indexes. */
async function sizes(pool: DatabasePool): Promise<readonly (readonly [string, number])[]> {
  const schema = z.object({ name: z.string(), heap: z.bigint(), indexes: z.bigint() });
  const rows = await pool.any(sql.type(schema)`
    select relname as name, pg_table_size(oid) as heap, pg_indexes_size(oid) as indexes
    from pg_class where relkind = 'r' and relname like 'usage%' and pg_table_size(oid) > 100000 order by relname
  `);
  return rows.flatMap(({ name, heap, indexes }) => [
    [name, Number(heap)] as const,
    [`${name}: indexes`, Number(indexes)] as const,
  ]);
}

function perRequest(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1).padStart(8)} MB, ${(bytes / requests).toFixed(1)} MB per million requests`;
}

function sum(times: readonly number[]): number {
  return times.reduce((all, time) => all + time, 0);
}
