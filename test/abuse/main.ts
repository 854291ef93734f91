/**
 * `npm run abuse [-- PART OF A NAME, ...]`: every attack of the corpus against a real data plane, for some seconds each, with
 * a neighbour who asks every 50 ms; prints what he saw and what was resident, and ends with 1 if the law was broken, with 2 if
 * there is no such attack.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { setPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { migrate } from "../../dataplane/store/migrate.ts";
import { flagsOrEnd } from "../../hack/flags-or-end.ts";
import { startPostgres } from "../../hack/postgres.ts";
import { startRedis } from "../../hack/redis.ts";
import { attacks } from "./attacks.ts";
import { judge, observe, type Figures } from "./judge.ts";
import { AbuseWorld, MEMORY_LIMIT_MB } from "./world.ts";

const ATTACK_MS = 5_000;
const QUIET_MS = 10_000;
/** Between attacks, until what one has left is gone. */
const REST_MS = 1_500;
const FLOOR_MS = 50;
const NICENESS = 15;

const USAGE = "usage: npm run abuse -- [PART OF A NAME, ...]";
const { positionals } = flagsOrEnd(USAGE, { allowPositionals: true, options: {} });
const parts = positionals
  .join(" ")
  .split(",")
  .map((part) => part.trim());
const say = (line: string) => process.stderr.write(`abuse: ${line}\n`);

const chosen = attacks.filter(({ name }) => parts.some((part) => name.includes(part)));
if (chosen.length === 0) {
  console.error(`no attack's name holds ${parts.join(" or ")}\n${USAGE}`);
  process.exit(2);
}
await using disposal = new AsyncDisposableStack();
const folder = await mkdtemp(join(tmpdir(), "gapura-abuse-stores-"));
disposal.defer(() => rm(folder, { recursive: true, force: true }));
const postgres = await startPostgres({ folder: join(folder, "postgres"), durable: true, say });
disposal.defer(() => postgres.stop());
const redis = await startRedis({ folder: join(folder, "redis"), durable: true, say });
disposal.defer(() => redis.stop());
await migrate(postgres.url());
const world = disposal.use(await AbuseWorld.open({ postgresUrl: postgres.url(), redisUrl: redis.url }));

// The attacker, who is this process, has a machine of his own: here he takes what the others leave of the cores.
setPriority(NICENESS);
await observe(world, 2_000);
const before = await observe(world, QUIET_MS);
print("nothing", before, "", []);
let broken = 0;
for (const attack of chosen) {
  const { outcomes, neighbour, residentMb, busy, starved, breaches } = await judge(world, attack, {
    ms: ATTACK_MS,
    before,
    floorMs: FLOOR_MS,
    residentMb: MEMORY_LIMIT_MB,
  });
  const told = Object.entries(outcomes).map(([outcome, times]) => `${times} × ${outcome}`);
  const core = `${percent(busy)} busy, ${percent(starved)} starved`;
  print(attack.name, neighbour, `${residentMb.toFixed(0)} MB; ${core}; ${told.join(", ")}`, breaches);
  broken += breaches.length;
  if (!world.alive) break;
  await observe(world, REST_MS);
}
console.log(broken === 0 ? "the law held" : `${broken} breaches`);
process.exitCode = broken === 0 ? 0 : 1;

function percent(share: number): string {
  return `${(100 * share).toFixed(0)}%`;
}

function print(name: string, { p50Ms, p99Ms, worstMs }: Figures, more: string, breaches: readonly string[]) {
  const times = [p50Ms, p99Ms, worstMs].map((ms) => ms.toFixed(1).padStart(8)).join("");
  console.log(`${times} ms  ${name}  ${more}`);
  for (const breach of breaches) console.log(`${" ".repeat(28)}BREACH: ${breach}`);
}
