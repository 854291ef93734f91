/** Does the harm of a fault to the world, undoes it, and notes for how long which failures are explained by it. */
import { spawnSync } from "node:child_process";
import { rmSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import pg from "pg";
import { hasEnded } from "../../hack/processes.ts";
import { stepClock } from "../integration/redis-clock.ts";
import type { Failure } from "./log.ts";
import { harmText, planeIndexes, type Fault, type Harm, type PlaneIndex, type StoreName } from "./plan.ts";
import { askInside } from "./probe.ts";
import type { Life, SoakWorld } from "./world.ts";

type Of<Kind extends Harm["kind"]> = Extract<Harm, { kind: Kind }>;

/** A store that is away, and what clients are told then: not now (503, or its like inside a stream), or later (429). */
const AWAY: readonly Failure[] = ["unavailable", "limited"];
/** After a store is back: connections are made anew with growing pauses, and what waited is done. */
const STORE_BACK_MS = 10_000;
const PLANE_BACK_MS = 2_000;
/** Upstreams that failed are ejected for ten seconds at first. */
const UPSTREAM_BACK_MS = 12_000;
const READY_WITHIN_MS = 150_000;

/** @returns once all is as it was and the failures that it explains are over. @throws Error when something does not come back. */
export async function strike(world: SoakWorld, { number, forMs, harm }: Fault): Promise<void> {
  const text = `${number}: ${harmText(harm)}`;
  switch (harm.kind) {
    case "plane":
      return strikePlane(world, text, harm, forMs);
    case "operator":
      return strikeOperator(world, harm, forMs);
    case "store":
      return during(world, text, planeIndexes, AWAY, STORE_BACK_MS, () => hurtStore(world, harm, forMs));
    case "network":
      return during(world, text, [harm.plane], AWAY, STORE_BACK_MS, () => hurtNetwork(world, harm, forMs));
    case "upstream":
      return strikeUpstream(world, text, harm, forMs);
    case "engine":
      world.provider.engineMode = harm.how;
      await sleep(forMs);
      world.provider.engineMode = "works";
      return;
    case "clock":
      return strikeClock(world, text, harm, forMs);
  }
}

async function during(
  world: SoakWorld,
  text: string,
  planes: readonly PlaneIndex[],
  failures: readonly Failure[],
  afterMs: number,
  harm: () => Promise<void>,
): Promise<void> {
  const window = world.open(text, planes, failures);
  await harm();
  // What began just before this is still explained: an exchange is compared with its whole duration.
  window.to = world.now() + afterMs;
  await sleep(afterMs);
}

async function strikePlane(world: SoakWorld, text: string, { plane, how }: Of<"plane">, forMs: number) {
  const life = world.planes[plane];
  if (life === undefined) throw new Error("it was never started");
  if (how === "freeze") {
    const failures = ["broken", "late", "unavailable", "limited", "upstream"] as const;
    return during(world, text, [plane], failures, STORE_BACK_MS, () => freeze(life, forMs));
  }
  await during(world, text, [plane], ["broken", "unavailable"], PLANE_BACK_MS, async () => {
    await world.end(life, how === "kill" ? "SIGKILL" : "SIGTERM");
    await sleep(Math.min(forMs, 5_000));
    await world.startPlane(plane);
    await becomesReady(world, plane);
  });
}

/** Longer than `ready` waits: a store may be away meanwhile. */
async function becomesReady(world: SoakWorld, plane: PlaneIndex): Promise<void> {
  const until = world.now() + READY_WITHIN_MS;
  while ((await world.plane(plane).readiness())?.ok !== true) {
    if (hasEnded(world.plane(plane).process))
      throw new Error(`data plane ${"ab"[plane]} ended while it started`);
    if (world.now() > until) throw new Error(`data plane ${"ab"[plane]} does not get ready`);
    await sleep(50);
  }
}

async function freeze({ process: child }: Life, forMs: number): Promise<void> {
  child.kill("SIGSTOP");
  await sleep(forMs);
  child.kill("SIGCONT");
}

async function strikeOperator(world: SoakWorld, { how }: Of<"operator">, forMs: number): Promise<void> {
  const life = world.operator;
  if (life === null) throw new Error("it was never started");
  if (how === "freeze") return freeze(life, forMs);
  await world.end(life, how === "kill" ? "SIGKILL" : "SIGTERM");
  await sleep(forMs);
  world.startOperator();
}

async function hurtStore(world: SoakWorld, { store: name, how }: Of<"store">, forMs: number): Promise<void> {
  const store = world.stores[name];
  switch (how) {
    case "kill":
      await store.kill();
      await sleep(forMs);
      return store.start();
    case "restart":
      await store.stop();
      await sleep(forMs);
      return store.start();
    case "freeze":
      store.freeze();
      await sleep(forMs);
      return store.resume();
    case "sessions":
      return endSessions(world, name);
    case "full":
      await takeWrites(world, name, false);
      await sleep(forMs);
      return takeWrites(world, name, true);
    case "disk":
      return fillDisk(world, name, forMs);
  }
}

const withPostgres = async <T>(world: SoakWorld, use: (client: pg.Client) => Promise<T>): Promise<T> => {
  const client = new pg.Client({
    connectionString: world.stores.postgres.url,
    connectionTimeoutMillis: 10_000,
  });
  client.on("error", () => {});
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
};

const withRedis = async <T>(world: SoakWorld, use: (redis: Redis) => Promise<T>): Promise<T> => {
  const redis = new Redis(world.stores.redis.url, { maxRetriesPerRequest: 3 });
  redis.on("error", () => {});
  try {
    return await use(redis);
  } finally {
    redis.disconnect();
  }
};

async function endSessions(world: SoakWorld, name: StoreName): Promise<void> {
  if (name === "redis")
    await withRedis(world, async (redis) => {
      await redis.call("client", "kill", "type", "pubsub");
      await redis.call("client", "kill", "type", "normal");
    });
  else
    await withPostgres(world, (client) =>
      client.query("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"),
    );
}

/** Redis without memory for what is new (`noeviction`); Postgres as a standby that was not promoted. */
async function takeWrites(world: SoakWorld, name: StoreName, takes: boolean): Promise<void> {
  if (name === "redis")
    await withRedis(world, (redis) => redis.config("SET", "maxmemory", takes ? "0" : "1"));
  else
    await withPostgres(world, async (client) => {
      await client.query(`alter system set default_transaction_read_only = ${takes ? "off" : "on"}`);
      await client.query("select pg_reload_conf()");
    });
}

/** Not a byte is left; Postgres may end over it, and cannot come back before there is room again. */
async function fillDisk(world: SoakWorld, name: StoreName, forMs: number): Promise<void> {
  const point = world.mounted.find((path) => path.endsWith(name));
  if (point === undefined) throw new Error("it has no file system of its own");
  const { bavail, bsize } = statfsSync(point);
  const ballast = join(point, "ballast");
  const { status, stderr } = spawnSync("fallocate", ["-l", String(bavail * bsize), ballast], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`the disk could not be filled: ${stderr}`);
  await sleep(forMs);
  rmSync(ballast);
  if (await answers(world, name)) return;
  await world.stores[name].kill();
  await world.stores[name].start();
}

async function answers(world: SoakWorld, name: StoreName): Promise<boolean> {
  try {
    await (name === "redis"
      ? withRedis(world, (redis) => redis.ping())
      : withPostgres(world, (client) => client.query("select 1")));
    return true;
  } catch {
    return false;
  }
}

async function hurtNetwork(world: SoakWorld, { plane, store, how, delayMs }: Of<"network">, forMs: number) {
  const proxy = world.proxies[plane]?.[store];
  if (proxy === undefined) throw new Error("no such proxy");
  switch (how) {
    case "cut":
      proxy.cut();
      break;
    case "hole":
      proxy.hole();
      break;
    case "no answers":
      proxy.hole("answers");
      break;
    case "slow":
      proxy.delayMs = delayMs;
      break;
    case "no commits":
      proxy.unanswered = /subscribe|commit/i;
      break;
  }
  await sleep(forMs);
  proxy.delayMs = 0;
  proxy.unanswered = null;
  proxy.reconnect();
}

async function strikeUpstream(world: SoakWorld, text: string, { how }: Of<"upstream">, forMs: number) {
  const { provider } = world;
  if (how !== "first is gone" && how !== "all are gone") {
    // What a call's own fault explains needs no window; what is refused because of those before it does.
    return during(world, text, planeIndexes, ["upstream"], UPSTREAM_BACK_MS, async () => {
      provider.storm = how;
      await sleep(forMs);
      provider.storm = null;
    });
  }
  const gone = how === "all are gone" ? provider.upstreams : provider.upstreams.slice(0, 1);
  // A connection that breaks in the middle of an answer fails it, another upstream or not.
  await during(world, text, planeIndexes, ["upstream"], UPSTREAM_BACK_MS, async () => {
    for (const upstream of gone) await upstream.pause();
    await sleep(forMs);
    for (const upstream of gone) await upstream.resume();
  });
}

async function strikeClock(world: SoakWorld, text: string, { of, how, byMs }: Of<"clock">, forMs: number) {
  if (of === "redis") return withRedis(world, (redis) => stepClock(redis, byMs));
  const life = of === "operator" ? world.operator : world.planes[of];
  if (life === undefined || life === null) throw new Error("it was never started");
  if (how === "time of day") {
    await askInside(life, { wallMs: byMs });
    await sleep(forMs);
    await askInside(life, { wallMs: 0 });
    return;
  }
  // Whatever waits for something has waited too long all at once.
  await during(world, text, of === "operator" ? [] : [of], [...AWAY, "upstream"], STORE_BACK_MS, async () => {
    await askInside(life, { passMs: byMs });
  });
}
