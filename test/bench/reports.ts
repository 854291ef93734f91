/**
 * How long the reports take over a month of a busy organization: `node hack/ensure.mjs test/bench/reports.ts [REQUESTS]`
 * (default 10,000,000). The reports read the hourly sums, so it is those that are generated, as they would stand
 * after that many requests of 20 keys to 10 models, live and in batches, beside another organization as busy.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { costReport } from "../../dataplane/reports/cost-report.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { DAY_MS } from "../../dataplane/lib/clock.ts";
import { readFilters } from "../../dataplane/reports/filters.ts";
import { statement } from "../../dataplane/reports/sums.ts";
import { migrate } from "../../dataplane/store/migrate.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { startPostgres } from "../../hack/postgres.ts";

const requests = Number(process.argv[2] ?? 10_000_000);
const REPEATS = 15;
const start = "2026-03-01";
const now = Date.parse("2026-04-01T00:00:00Z");
const organizationId = "org_0";

const folder = await mkdtemp(join(tmpdir(), "gapura-bench-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say: () => {} });
try {
  await migrate(postgres.url());
  const pool = await openPostgres(postgres.url(), { onError: () => {}, statementTimeoutMs: 600_000 });
  console.log(`${await generate(pool)} hourly rows stand for ${2 * requests} requests of two organizations`);
  const daily = { starting_at: start, start_time: start, limit: "31", group_by: "model" };
  await time("usage by day and model", () => messagesUsage(pool, organizationId, daily, now));
  await time("usage by hour and model", () =>
    messagesUsage(pool, organizationId, { ...daily, bucket_width: "1h", limit: "744" }, now),
  );
  await time("usage by day and key", () =>
    completionsUsage(pool, organizationId, { ...daily, group_by: "api_key_id" }, now),
  );
  await time("costs by description", () =>
    costReport(pool, organizationId, { ...daily, group_by: "description" }, now),
  );
  const plan = await pool.anyFirst(sql.type(z.object({ "QUERY PLAN": z.string() }))`
    explain (analyze, costs off) ${statement({
      organizationId,
      range: { from: Date.parse(start), to: now, widthMs: DAY_MS },
      groupBy: ["model"],
      filters: readFilters({}, []),
      columns: ["input_tokens", "cache_read_tokens", "output_tokens", "web_searches"],
    })}
  `);
  console.log(plan.join("\n"));
  await pool.end();
} finally {
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

async function generate(pool: DatabasePool): Promise<number> {
  const { rowCount } = await pool.query(sql.unsafe`
    insert into usage_hourly
    select 'org_' || organization, hour, 'proj_' || key % 2, 'apikey_' || key, 'model-' || model, 200000, 'standard',
      batch = 1, ${requests} / (744 * 400), 1000 + key, 500, 20, 10, 300 + model, 0, 1, 1, 0, 0, 0, 96000 + key, 4800,
      2400, 1920, 144000 + model, 320, 0, 0, 249440 + key + model
    from generate_series(0, 1) organization, generate_series(0, 19) key, generate_series(0, 9) model,
      generate_series(0, 1) batch,
      generate_series('2026-03-01T00:00Z'::timestamptz, '2026-03-31T23:00Z'::timestamptz, '1 hour') hour
    order by hour, random()
  `);
  await pool.query(sql.unsafe`vacuum analyze usage_hourly`);
  return rowCount;
}

async function time(name: string, report: () => Promise<unknown>): Promise<void> {
  const times: number[] = [];
  for (let n = 0; n < REPEATS; n += 1) {
    const started = performance.now();
    JSON.stringify(await report());
    times.push(performance.now() - started);
  }
  times.sort((one, other) => one - other);
  const at = (share: number) => (times[Math.floor((times.length - 1) * share)] ?? 0).toFixed(0).padStart(5);
  console.log(`${name.padEnd(24)} p50 ${at(0.5)} ms   worst ${at(1)} ms`);
}
