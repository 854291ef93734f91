/**
 * What a request costs each part as data planes and Redis masters become more: 1, 2 and 4 data planes before 1 and 3 masters, with
 * the CPU of every process. `npm run bench -- scale` (`--quick`: shorter rounds). On two cores the throughput says nothing; CPU a
 * request does, and from it docs/decisions/scale.md goes on to what no machine here can run.
 *
 * Sixteen organizations, one of each shard, ask through each data plane: `dense` with four requests at once each, so that
 * operations gather, `sparse` with one, so that each goes by itself, as with many pods.
 */
import { mkdtemp } from "node:fs/promises";
import { loadavg } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import pg from "pg";
import { SHARDS, shardOf, shardTag } from "../../dataplane/billing/holds/shard.ts";
import { allServers, type RedisStore } from "../../dataplane/store/redis-servers.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import { startRedisCluster } from "../integration/redis-cluster.ts";
import { renderTable } from "./figures.ts";
import { load } from "./load.ts";
import { requestFor } from "./payloads.ts";
import { treeCpuMicros } from "./proc.ts";
import { demandOf, fitLine, ROUNDS_PER_SECOND, type Costs, type Point } from "./scale-model.ts";
import { Snapshots, type Tenant } from "./snapshots.ts";
import { waitFor } from "./wait-for.ts";
import { World, type GapuraProcess } from "./world.ts";

const { values } = parseArgs({ options: { quick: { type: "boolean", default: false } } });
const ROUND_MS = values.quick ? 1_500 : 4_000;
const WARM_UP_MS = values.quick ? 2_000 : 6_000;
const IDLE_MS = values.quick ? 2_000 : 5_000;
const DENSE = 4;
const SPARSE = 1;
const PLANES = [1, 2, 4];

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);
const tenants = tenantsOfShards();
const rows: string[][] = [];
const idleRows: string[][] = [];
const drainRows: string[][] = [];

/** One organization for each shard. */
function tenantsOfShards(): Tenant[] {
  const found = new Map<number, Tenant>();
  for (let n = 0; found.size < SHARDS; n += 1) {
    const id = `org_scale_${n}`;
    const shard = shardOf(id);
    if (!found.has(shard)) found.set(shard, { id, key: `sk-svc-${`scale${n}x`.repeat(40).slice(0, 40)}` });
  }
  return [...found.values()];
}

async function measureAll(
  world: World,
  masters: number,
  redisUrl: string,
  disposal: AsyncDisposableStack,
): Promise<Costs> {
  const databaseUrl = await world.openDatabase();
  const folder = await mkdtemp(join(world.folder, "scale-"));
  await new Snapshots(folder, world.upstreamPort, tenants).write(0, "first");
  const redis = disposal.adopt(openRedis(redisUrl, { onError: () => {} }), (open) => open.disconnect());
  await redisReady(redis, 5_000);
  const postgres = disposal.adopt(new pg.Client({ connectionString: databaseUrl }), (open) => open.end());
  await postgres.connect();
  const planes: GapuraProcess[] = [];
  const meter = new Meter(planes, redis, postgres, world.postgresPid);
  const idle: Figures[] = [];
  let [dense, sparse] = [none, none];
  for (const count of PLANES) {
    while (planes.length < count) {
      const plane = await world.gapura({
        stores: { databaseUrl, redisUrl },
        configuration: folder,
        podUid: `bench-${planes.length}`,
      });
      disposal.defer(() => plane.stop());
      planes.push(plane);
    }
    say(`${count} data planes, ${masters} masters`);
    await meter.load(count, DENSE, WARM_UP_MS, none);
    await balanced(redis, count);
    const rest = await meter.measure(none, async () => {
      await sleep(IDLE_MS);
      return { units: IDLE_MS / 1_000, seconds: IDLE_MS / 1_000 };
    });
    idle.push(rest);
    idleRows.push([
      `${count}, ${masters}`,
      ...[rest.planes / count, rest.redis, rest.postgres, rest.commands].map((value) => value.toFixed(0)),
    ]);
    dense = await meter.load(count, DENSE, ROUND_MS, rest);
    rows.push(rowOf(`${count}, ${masters} dense`, dense));
    sparse = await meter.load(count, SPARSE, ROUND_MS, rest);
    rows.push(rowOf(`${count}, ${masters} sparse`, sparse));
  }
  const [first, last] = [idle.at(0) ?? none, idle.at(-1) ?? none];
  const most = PLANES.at(-1) ?? 1;
  drainRows.push([`${most}, ${masters}`, (await drainMicros(meter, planes, last.planes / most)).toFixed(1)]);
  const perPlane = (of: (figures: Figures) => number) => Math.max(0, (of(last) - of(first)) / (most - 1));
  return {
    planeMicros: sparse.planes,
    redis: fitLine(callsOf(dense), callsOf(sparse)),
    postgres: fitLine(roundsOf(dense), roundsOf(sparse)),
    walBytes: sparse.wal,
    idle: {
      planeMicros: last.planes / most,
      redisMicros: perPlane(({ redis: micros }) => micros),
      postgresMicros: perPlane(({ postgres: micros }) => micros),
    },
  };
}

const callsOf = ({ calls, redis: micros }: Figures): Point => ({ shared: calls, micros });
const roundsOf = ({ perSecond, postgres: micros }: Figures): Point => ({
  shared: ROUNDS_PER_SECOND / perSecond,
  micros,
});

/** The last data plane gets no request, and drains its part of the others' charges. `idleMicros`: what it takes at rest, a second. */
async function drainMicros(
  meter: Meter,
  planes: readonly GapuraProcess[],
  idleMicros: number,
): Promise<number> {
  const drainer = planes.at(-1);
  if (drainer === undefined) return Number.NaN;
  await balanced(meter.redis, planes.length);
  const cpu = treeCpuMicros(drainer.pid);
  const began = performance.now();
  const { units } = await meter.load(planes.length - 1, DENSE, ROUND_MS, none);
  const idle = (idleMicros * (performance.now() - began)) / 1_000;
  return ((treeCpuMicros(drainer.pid) - cpu - idle) * planes.length) / units;
}

/** Until each data plane drains as many shards as the others. */
function balanced(redis: RedisStore, planes: number): Promise<void> {
  return waitFor("shards that are shared evenly", async () => {
    const leaders = await Promise.all(
      Array.from({ length: SHARDS }, (_, shard) => redis.get(`${shardTag(shard)}:leader`)),
    );
    const counts = Map.groupBy(leaders, (word) => word?.split(" ")[0] ?? "");
    return counts.size === planes && [...counts.values()].every(({ length }) => length === SHARDS / planes);
  });
}

/** A request's, or a second's. Microseconds of CPU. */
interface Figures {
  readonly units: number;
  readonly perSecond: number;
  readonly planes: number;
  readonly redis: number;
  readonly dearestMaster: number;
  readonly postgres: number;
  readonly calls: number;
  readonly commands: number;
  /** Bytes. */
  readonly wal: number;
}
const none: Figures = {
  units: 0,
  perSecond: 0,
  planes: 0,
  redis: 0,
  dearestMaster: 0,
  postgres: 0,
  calls: 0,
  commands: 0,
  wal: 0,
};

const rowOf = (name: string, figures: Figures): string[] => [
  name,
  figures.perSecond.toFixed(0),
  figures.planes.toFixed(0),
  figures.redis.toFixed(1),
  figures.dearestMaster.toFixed(1),
  figures.postgres.toFixed(1),
  figures.calls.toFixed(2),
  figures.wal.toFixed(0),
];

interface Counters {
  readonly planes: number;
  readonly masters: readonly number[];
  readonly postgres: number;
  readonly calls: number;
  readonly commands: number;
  readonly wal: number;
}

class Meter {
  readonly #planes: readonly GapuraProcess[];
  readonly redis: RedisStore;
  readonly #postgres: pg.Client;
  readonly #postgresPid: number;

  constructor(planes: readonly GapuraProcess[], redis: RedisStore, postgres: pg.Client, postgresPid: number) {
    this.#planes = planes;
    this.redis = redis;
    this.#postgres = postgres;
    this.#postgresPid = postgresPid;
  }

  /** Requests of every tenant through the first `count` data planes, `width` at once of each, until all are in the ledger. */
  load(count: number, width: number, ms: number, idle: Figures): Promise<Figures> {
    return this.measure(idle, async () => {
      const results = await Promise.all(
        this.#planes.slice(0, count).map((plane) => {
          const path = plane.path("json");
          const of = ({ key }: Tenant) => requestFor({ path, model: "json", stream: false, key });
          const [first, ...others] = tenants;
          if (first === undefined) throw new Error("nobody asks");
          const asked = { request: of(first), others: others.map(of) };
          return load({ ...asked, port: plane.port, width: width * tenants.length, ms });
        }),
      );
      await this.#drained();
      const sum = (of: (result: (typeof results)[number]) => number) =>
        results.reduce((all, result) => all + of(result), 0);
      const shed = sum((result) => result.shed);
      if (shed > 0) say(`${shed} requests were refused as too many`);
      return { units: sum(({ requests }) => requests), seconds: ms / 1_000 };
    });
  }

  /** Of each unit of the work, beside what all take in that time when they are `idle` (figures of a second). */
  async measure(
    idle: Figures,
    work: () => Promise<{ readonly units: number; readonly seconds: number }>,
  ): Promise<Figures> {
    const before = await this.#counters();
    const began = performance.now();
    const { units, seconds } = await work();
    const passed = (performance.now() - began) / 1_000;
    const after = await this.#counters();
    const each = (of: (counters: Counters) => number, rest = 0) =>
      (of(after) - of(before) - rest * passed) / units;
    const masters = after.masters.map((_, n) => each((counters) => counters.masters[n] ?? 0));
    return {
      units,
      perSecond: units / seconds,
      planes: each(({ planes }) => planes, idle.planes),
      redis: masters.reduce((all, micros) => all + micros, 0) - (idle.redis * passed) / units,
      dearestMaster: Math.max(...masters) - (idle.dearestMaster * passed) / units,
      postgres: each(({ postgres }) => postgres, idle.postgres),
      calls: each(({ calls }) => calls, idle.calls),
      commands: each(({ commands }) => commands, idle.commands),
      wal: each(({ wal }) => wal, idle.wal),
    };
  }

  async #counters(): Promise<Counters> {
    // In one order at each look.
    const servers = allServers(this.redis).toSorted(
      (one, other) => (one.options.port ?? 0) - (other.options.port ?? 0),
    );
    const infos = await Promise.all(servers.map((server) => server.info("everything")));
    const read = (info: string, pattern: RegExp) => Number(pattern.exec(info)?.[1] ?? 0);
    const { rows: lines } = await this.#postgres.query<{ wal: string }>(
      "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') as wal",
    );
    const sum = (pattern: RegExp) => infos.reduce((all, info) => all + read(info, pattern), 0);
    return {
      planes: this.#planes.reduce((all, { pid }) => all + treeCpuMicros(pid), 0),
      masters: infos.map(
        (info) => (read(info, /used_cpu_user:([\d.]+)/) + read(info, /used_cpu_sys:([\d.]+)/)) * 1e6,
      ),
      postgres: treeCpuMicros(this.#postgresPid),
      calls: sum(/cmdstat_evalsha:calls=(\d+)/),
      commands: sum(/total_commands_processed:(\d+)/),
      wal: Number(lines[0]?.wal ?? Number.NaN),
    };
  }

  #drained(): Promise<void> {
    return waitFor("all charges to be in the ledger", async () => {
      const lengths = await Promise.all(
        Array.from({ length: SHARDS }, (_, shard) => this.redis.xlen(`${shardTag(shard)}:usage`)),
      );
      if (lengths.every((length) => length === 0)) return true;
      await sleep(50);
      return false;
    });
  }
}

/** What the measured costs come to at loads that no machine here can make. */
function modelTable(costs: Costs) {
  const targets = [
    { pods: 10, requestsPerSecond: 1_000, usageRows: 1e8 },
    { pods: 100, requestsPerSecond: 10_000, usageRows: 1e9 },
    { pods: 1_000, requestsPerSecond: 100_000, usageRows: 1e10 },
  ].map((target) => ({ ...target, roundTripMs: 1, bytesPerMillion: 860e6 }));
  const demands = targets.map((target) => demandOf(costs, target));
  const row = (name: string, of: (demand: (typeof demands)[number]) => number, digits = 1) => [
    name,
    ...demands.map((demand) => of(demand).toFixed(digits)),
  ];
  return {
    title:
      `The model: Redis ${costs.redis.ownMicros.toFixed(1)} + ${costs.redis.sharedMicros.toFixed(1)} µs a script call, ` +
      `Postgres ${costs.postgres.ownMicros.toFixed(1)} + ${costs.postgres.sharedMicros.toFixed(0)} µs a round`,
    columns: [
      "pods, requests a second",
      ...targets.map(({ pods, requestsPerSecond }) => `${pods}, ${requestsPerSecond}`),
    ],
    rows: [
      row("script calls a request", ({ callsPerRequest }) => callsPerRequest, 2),
      row("cores of data planes", ({ planeCores }) => planeCores),
      row("pods at least", ({ podsAtLeast }) => podsAtLeast, 0),
      row("cores of Redis", ({ redisCores }) => redisCores, 2),
      row("masters at least", ({ mastersAtLeast }) => mastersAtLeast, 0),
      row("most requests/s of 16 masters", ({ mostRequestsPerSecond }) => mostRequestsPerSecond, 0),
      row("cores of Postgres", ({ postgresCores }) => postgresCores, 2),
      row("WAL, MB/s", ({ walBytesPerSecond }) => walBytesPerSecond / 1e6),
      row("usage, GB", ({ usageBytes }) => usageBytes / 1e9, 0),
      row("days of it", ({ usageDays }) => usageDays, 1),
    ],
  };
}

const conditions = () =>
  `${new Date().toISOString()}; load ${loadavg()
    .map((one) => one.toFixed(1))
    .join(", ")}`;
console.log(conditions());
await using world = await World.open();
/** Of one master and the most data planes, from which the model goes on. */
let measured: Costs | null = null;
for (const masters of [1, 3]) {
  await using disposal = new AsyncDisposableStack();
  const redisUrl =
    masters === 1 ? await world.openRedis({ durable: false }) : disposal.use(await startRedisCluster()).url;
  const costs = await measureAll(world, masters, redisUrl, disposal);
  if (masters === 1) measured = costs;
}
const columns = [
  "planes, masters",
  "requests/s",
  "data planes",
  "Redis",
  "dearest master",
  "Postgres",
  "script calls",
  "WAL, bytes",
];
console.log(`\n${renderTable({ title: "A request of 1 kB: µs of CPU", columns, rows })}`);
const idleColumns = ["planes, masters", "a data plane", "Redis", "Postgres", "Redis commands"];
console.log(
  `\n${renderTable({ title: "Nothing to do: µs of CPU a second", columns: idleColumns, rows: idleRows })}`,
);
const drainColumns = ["planes, masters", "µs a row"];
console.log(
  `\n${renderTable({ title: "Draining alone, in a data plane without requests", columns: drainColumns, rows: drainRows })}`,
);
if (measured !== null) console.log(`\n${renderTable(modelTable(measured))}`);
console.log(`\n${conditions()}`);
