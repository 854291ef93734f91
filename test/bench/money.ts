/**
 * Holds and charges a second through one Redis, and how fast the ledger takes them. A plain script:
 *   node hack/ensure.mjs test/bench/money.ts [--seconds 5] [--organizations 100000] [--width 512]
 * Real stores are started for it and thrown away. The meter runs in this one process, so the figures are what one
 * data plane's core can do.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { sql } from "slonik";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { migrate } from "../../dataplane/store/migrate.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import { Plane, request, usage } from "../integration/money-world.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "5" },
    organizations: { type: "string", default: "100000" },
    width: { type: "string", default: "512" },
  },
});
const seconds = Number(values.seconds);
const organizations = Number(values.organizations);
const width = Number(values.width);

const say = (line: string) => process.stderr.write(`${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-bench-money-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say });
const redis = await startRedis({ folder: join(folder, "redis"), durable: false, say });
await migrate(postgres.url());
const plane = await Plane.open({ redisUrl: redis.url, postgresUrl: postgres.url() }, { running: false });
try {
  await plane.pool.query(sql.unsafe`
    insert into organizations (id, display_name, declaration)
    select 'org_' || n, 'n', '' from generate_series(1, ${organizations}) n
  `);
  await plane.pool.query(sql.unsafe`
    insert into grants (organization_id, name, amount_micros, source)
    select id, 'first', 1000000000, 'declared' from organizations
  `);
  await plane.pool.query(sql.unsafe`
    insert into accounts (organization_id, balance_micros) select id, 1000000000 from organizations
  `);
  await run("one organization", () => "org_1", forSeconds());
  await run("16 organizations", (n) => `org_${1 + (n % 16)}`, forSeconds());
  await drained();
  // The first request of an organization reads its account from Postgres.
  const first = { requests: organizations, untilMs: Infinity };
  await run(`${organizations} organizations, the first request of each`, (n) => `org_${n}`, first);
  await run(`${organizations} organizations`, (n) => `org_${1 + ((n * 7919) % organizations)}`, forSeconds());
  await drained();
} finally {
  await plane.close();
  await redis.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

interface Limit {
  readonly requests: number;
  /** `performance.now()` milliseconds. */
  readonly untilMs: number;
}

function forSeconds(): Limit {
  return { requests: Infinity, untilMs: performance.now() + seconds * 1_000 };
}

async function run(name: string, organizationOf: (n: number) => string, limit: Limit): Promise<void> {
  let [begun, done, refused] = [0, 0, 0];
  const started = performance.now();
  const cpuBefore = process.cpuUsage();
  const redisBefore = await redisCpuSeconds();
  const latencies: number[] = [];
  const worker = async () => {
    while (performance.now() < limit.untilMs && begun < limit.requests) {
      const at = performance.now();
      try {
        const bill = await plane.holds.open(request(organizationOf((begun += 1))), 1_000n);
        await bill.settle(usage(3));
      } catch (error) {
        // On a machine that others use Redis may keep a call waiting for longer than a second.
        if (!(error instanceof ApiError)) throw error;
        refused += 1;
        continue;
      }
      latencies.push(performance.now() - at);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  const tookMs = performance.now() - started;
  const cpu = process.cpuUsage(cpuBefore);
  latencies.sort((one, other) => one - other);
  const at = (share: number) => (latencies[Math.floor(latencies.length * share)] ?? 0).toFixed(1);
  const own = ((cpu.user + cpu.system) / done).toFixed(1);
  const server = (((await redisCpuSeconds()) - redisBefore) * 1e6) / done;
  console.log(
    `${name}: ${Math.round((done * 1_000) / tookMs)} holds+settles/s (${width} at once, ${cpus().length} cores); ` +
      `CPU each: ${own} µs here, ${server.toFixed(1)} µs in Redis; both calls p50 ${at(0.5)} ms, p99 ${at(0.99)} ms` +
      (refused > 0 ? `; ${refused} refused` : ""),
  );
}

async function drained(): Promise<void> {
  const started = performance.now();
  const rows = await plane.upkeep.drain();
  const tookMs = performance.now() - started;
  console.log(
    `ledger: ${rows} rows in ${Math.round(tookMs)} ms, ${Math.round((rows * 1_000) / tookMs)} rows/s`,
  );
}

async function redisCpuSeconds(): Promise<number> {
  const info = await plane.redis.info("cpu");
  const read = (field: string) => Number(new RegExp(`${field}:([\\d.]+)`).exec(info)?.[1] ?? 0);
  return read("used_cpu_user") + read("used_cpu_sys");
}
