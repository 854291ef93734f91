/**
 * What pods cost the stores that have nothing to do: commands in Redis and statements in Postgres a second, and CPU of
 * both, with 10,000 organizations that are charged all the time by one pod. A plain script:
 *   node hack/ensure.mjs test/bench/idle-pods.ts [--seconds 15] [--organizations 10000] [--pods 1,10,100]
 * The pods are meters with their upkeep in this one process, on connections of their own; real stores are started.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { sql } from "slonik";
import { z } from "zod";
import { migrate } from "../../dataplane/store/migrate.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import { Plane, request, usage } from "../integration/money-world.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "15" },
    organizations: { type: "string", default: "10000" },
    pods: { type: "string", default: "1,10,100" },
  },
});
const seconds = Number(values.seconds);
const organizations = Number(values.organizations);

const say = (line: string) => process.stderr.write(`${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-bench-idle-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: false, say });
const redis = await startRedis({ folder: join(folder, "redis"), durable: false, say });
await migrate(postgres.url());
const open = () =>
  Plane.open(
    { redisUrl: redis.url, postgresUrl: postgres.url() },
    { maxConnections: 1, rhythm: { heartbeatMs: 3_600_000 } },
  );
const planes = [await open()];
const [first] = planes;
try {
  if (first === undefined) throw new Error("there is no pod");
  await first.pool.query(sql.unsafe`
    insert into organizations (id, display_name, declaration)
    select 'org_' || n, 'n', '' from generate_series(1, ${organizations}) n
  `);
  await first.pool.query(sql.unsafe`
    insert into grants (organization_id, name, amount_micros, source)
    select id, 'first', 1000000000, 'declared' from organizations
  `);
  await first.pool.query(sql.unsafe`
    insert into accounts (organization_id, balance_micros) select id, 1000000000 from organizations
  `);
  for (const count of values.pods.split(",").map(Number)) {
    while (planes.length < count) planes.push(await open());
    await sleep(6_000);
    await measure(first, count);
  }
} finally {
  for (const plane of planes) await plane.vanish();
  await redis.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

async function measure(busy: Plane, pods: number): Promise<void> {
  const before = await counters(busy);
  const begun = performance.now();
  let asked = 0;
  // Each organization is charged once in ten seconds, so all of them are active.
  while (performance.now() < begun + seconds * 1_000) {
    const some = Array.from({ length: organizations / 100 }, () => (asked += 1));
    await Promise.all(
      some.map(async (n) => {
        const bill = await busy.holds.open(request(`org_${1 + (n % organizations)}`), 1_000n);
        await bill.settle(usage(3));
      }),
    );
    await sleep(Math.max(0, begun + (asked * 10_000) / organizations - performance.now()));
  }
  const after = await counters(busy);
  const rate = (name: keyof typeof before) =>
    ((after[name] - before[name]) / seconds).toFixed(name.endsWith("Cpu") ? 3 : 0);
  console.log(
    `${pods} pods, ${organizations} active organizations, ${Math.round(asked / seconds)} requests/s: ` +
      `Redis ${rate("redisCommands")} commands/s, ${rate("redisCpu")} of a core; ` +
      `Postgres ${rate("transactions")} transactions/s, ${rate("rowsRead")} rows read/s, ` +
      `${rate("accountUpdates")} account updates/s of which ${rate("hotUpdates")} without an index`,
  );
}

async function counters({ redis: connection, pool }: Plane) {
  const info = await connection.info("everything");
  const read = (field: string) => Number(new RegExp(`${field}:([\\d.]+)`).exec(info)?.[1] ?? 0);
  // Statistics of other sessions arrive within a second.
  await sleep(1_100);
  const row = await pool.one(
    sql.type(z.object({ transactions: z.bigint(), rows: z.bigint(), updates: z.bigint(), hot: z.bigint() }))`
      select xact_commit as transactions, tup_returned as rows,
        (select n_tup_upd from pg_stat_user_tables where relname = 'accounts') as updates,
        (select n_tup_hot_upd from pg_stat_user_tables where relname = 'accounts') as hot
      from pg_stat_database where datname = current_database()
    `,
  );
  return {
    redisCommands: read("total_commands_processed"),
    redisCpu: read("used_cpu_user") + read("used_cpu_sys"),
    transactions: Number(row.transactions),
    rowsRead: Number(row.rows),
    accountUpdates: Number(row.updates),
    hotUpdates: Number(row.hot),
  };
}
