/**
 * The two designs of docs/decisions/where-a-charge-lives.md beside each other, in turns: settling in Redis, and in Postgres by
 * group commit. Both stores sync to their disks, as in production. A plain script:
 *   node hack/ensure.mjs test/bench/settle.ts [--seconds 4] [--rounds 3] [--organizations 16]
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Meter } from "../../dataplane/billing/meter.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import type { UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { migrate } from "../../dataplane/store/migrate.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import { makeOrganization, Plane, request, usage } from "../integration/money-world.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "4" },
    rounds: { type: "string", default: "3" },
    organizations: { type: "string", default: "16" },
  },
});
const organizations = Number(values.organizations);
const WIDTHS = [512, 64, 1];
/** As many rows as the batch engine and the drainer write in one transaction. */
const ROWS_AT_ONCE = 500;

const say = (line: string) => process.stderr.write(`${line}\n`);
const folder = await mkdtemp(join(tmpdir(), "gapura-bench-settle-"));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: true, say });
const redis = await startRedis({ folder: join(folder, "redis"), durable: true, say });
await migrate(postgres.url());
const plane = await Plane.open({ redisUrl: redis.url, postgresUrl: postgres.url() });
try {
  for (let n = 0; n < organizations; n += 1) await makeOrganization(plane.pool, `org_${n}`, 10n ** 12n);
  const designs = { "in Redis": inRedis, "in Postgres": groupCommit() };
  for (const width of WIDTHS)
    for (let round = 0; round < Number(values.rounds); round += 1)
      for (const [name, answer] of Object.entries(designs))
        await run(`${name}, ${width} at once`, width, answer);
} finally {
  await plane.close();
  await redis.stop();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

/** One answer's money, from its hold until its charge is durable. */
type Answer = (organization: string) => Promise<void>;

async function inRedis(organization: string): Promise<void> {
  const bill = await plane.holds.open(request(organization), 1_000n);
  await bill.settle(usage(3));
}

/** Each transaction takes the rows that gathered during the one before, then gives their holds back in Redis. */
function groupCommit(): Answer {
  const gathered: { readonly row: UsageRow; readonly done: () => void }[] = [];
  let busy = false;
  const commit = async () => {
    if (busy) return;
    busy = true;
    while (gathered.length > 0) {
      const group = gathered.splice(0, ROWS_AT_ONCE);
      const rows = group.map(({ row }) => row);
      const accounts = await plane.pool.transaction((transaction) => chargeRows(transaction, rows));
      plane.holds.charges.ledgerCharged(rows, accounts);
      for (const { done } of group) done();
    }
    busy = false;
  };
  return async (organization) => {
    let stored: Promise<void> | undefined;
    const meter: Meter = plane.holds.forItem("claim", (row) => {
      stored = new Promise((done) => gathered.push({ row, done }));
      void commit();
    });
    const bill = await meter.open(request(organization), 1_000n);
    await bill.settle(usage(3));
    await stored;
  };
}

async function run(name: string, width: number, answer: Answer): Promise<void> {
  const latencies: number[] = [];
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  const until = started + Number(values.seconds) * 1_000;
  let begun = 0;
  const worker = async () => {
    while (performance.now() < until) {
      const at = performance.now();
      await answer(`org_${(begun += 1) % organizations}`);
      latencies.push(performance.now() - at);
    }
  };
  await Promise.all(Array.from({ length: width }, worker));
  const perSecond = (latencies.length * 1_000) / (performance.now() - started);
  const cpu = process.cpuUsage(cpuBefore);
  latencies.sort((one, other) => one - other);
  const at = (share: number) => (latencies[Math.floor(latencies.length * share)] ?? 0).toFixed(1);
  const own = ((cpu.user + cpu.system) / latencies.length).toFixed(0);
  console.log(
    `settle ${name}: ${Math.round(perSecond)} holds+settles/s, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, ${own} µs of CPU here`,
  );
}
