/** The connection to Redis (holds, limits, wake-ups; design.md §5) and typed Lua scripts. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Cluster, Redis } from "ioredis";
import type connectors from "ioredis/built/connectors/StandaloneConnector.js";
import { wordsOf } from "../lib/words-of.ts";
import { countScript } from "../telemetry/counts.ts";
import { readClusterAddress, readRedisAddress, reconnectDelayMs, type RedisPlace } from "./redis-address.ts";
import { SentinelConnector } from "./sentinel-connector.ts";
import { connectAtOnce, mastersOf, serverOf, type RedisStore } from "./redis-servers.ts";

export interface RedisOptions {
  /** A command without an answer within this time fails. Default 1 s: then settled rows go straight to the ledger. */
  readonly commandTimeoutMs?: number;
  /** Called for every broken connection; the client reconnects by itself. */
  readonly onError: (error: Error) => void;
}

// The library's index does not export it. By `require`, as tools differ in what `import` makes of such a module's default.
const { default: StandaloneConnector } = createRequire(import.meta.url)(
  "ioredis/built/connectors/StandaloneConnector.js",
) as typeof connectors;

/**
 * Listens for a second error. A node that does not answer in time is left while TLS begins, and then emits another error, for
 * which the library listens no more: it would end the process (ioredis 6.0.0, `stream.once("error")` in Redis.js).
 */
class NodeConnector extends StandaloneConnector {
  // The library's type of a connector's class has no narrower type for its options.
  constructor(options: unknown) {
    super(options as ConstructorParameters<typeof StandaloneConnector>[0]);
  }

  override async connect(tell: Parameters<InstanceType<typeof StandaloneConnector>["connect"]>[0]) {
    const stream = await super.connect(tell);
    stream.on("error", () => {});
    return stream;
  }
}

/** How long one node is asked for the slots before the next one is: it may hang. */
const SLOTS_MS = 500;
/** Pause between tries of a script while its slot moves, as its keys are at two servers then, until the command fails. */
const MOVING_PAUSE_MS = 100;

/**
 * Connects to what `readRedisAddress` and `readClusterAddress` read. While the connection is down, commands fail at once instead of
 * queueing: a request must not wait for credit that nobody can look up, and a command that its caller gave up on must not
 * run minutes later.
 */
export function openRedis(url: string, options: RedisOptions): RedisStore {
  const manner = {
    connectTimeout: 2_000,
    commandTimeout: options.commandTimeoutMs ?? 1_000,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
  };
  const cluster = readClusterAddress(url);
  if (cluster !== null) {
    const redis = new Cluster(cluster.nodes, {
      redisOptions: { ...manner, ...cluster.login, Connector: NodeConnector },
      enableOfflineQueue: false,
      clusterRetryStrategy: reconnectDelayMs,
      slotsRefreshTimeout: SLOTS_MS,
      // A command whose master is lost fails at once; upkeep.ts has the slots looked up anew until there is another.
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
      retryDelayOnTryAgain: MOVING_PAUSE_MS,
      // A certificate is checked against the name, so the name is kept to connect with.
      dnsLookup: (name, done) => done(null, name),
    });
    rememberFaults(redis);
    redis.on("error", options.onError);
    redis.on("node error", options.onError);
    connectAtOnce(redis);
    return redis;
  }
  const single = {
    ...manner,
    enableOfflineQueue: false,
    retryStrategy: reconnectDelayMs,
    // After a failover an old address may answer as a replica: connect anew.
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  };
  const place = readRedisAddress(url);
  const redis = place === null ? new Redis(url, single) : new Redis({ ...place, ...single, ...wayTo(place) });
  rememberFaults(redis);
  redis.on("error", options.onError);
  return redis;
}

/** Why there is no connection to a Redis: errors of the library's commands say only that they cannot be sent. */
const faults = new WeakMap<RedisStore, Error>();

function rememberFaults(redis: RedisStore): void {
  redis.on("error", (error: Error) => faults.set(redis, error));
  redis.on("ready", () => faults.delete(redis));
}

/** Returns the error of the last attempt to connect, in words; null: it is connected, or there was none yet. */
export function connectionFault(redis: RedisStore): string | null {
  const fault = faults.get(redis);
  return fault === undefined || redis.status === "ready" ? null : wordsOf(fault);
}

/** Returns the connector for sentinels. The library's type of a connector's class demands more than it uses. */
const wayTo = ({ sentinels }: RedisPlace): Pick<RedisPlace, "Connector"> =>
  sentinels === undefined
    ? {}
    : { Connector: SentinelConnector as unknown as NonNullable<RedisPlace["Connector"]> };

/** Time between two looks whether all masters of a cluster are connected. */
const LOOK_MS = 10;

/** Resolves when commands can be sent, to each master of a cluster. @throws Error after `timeoutMs`. */
export async function redisReady(redis: RedisStore, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  await clientReady(redis, timeoutMs);
  if (!(redis instanceof Cluster)) return;
  for (;;) {
    const masters = [...mastersOf(redis)];
    const lacking = masters.find(([, server]) => server?.status !== "ready");
    if (lacking === undefined && masters.length > 0) return;
    if (performance.now() > deadline)
      throw new Error(`the Redis master ${lacking?.[0] ?? ""} is not reachable (waited ${timeoutMs} ms)`);
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
}

async function clientReady(redis: RedisStore, timeoutMs: number): Promise<void> {
  if (redis.status === "ready") return;
  await new Promise<void>((done, fail) => {
    const ready = () => {
      clearTimeout(timer);
      done();
    };
    const timer = setTimeout(() => {
      redis.off("ready", ready);
      const fault = connectionFault(redis);
      fail(new Error(`Redis is not reachable (waited ${timeoutMs} ms)${fault === null ? "" : `: ${fault}`}`));
    }, timeoutMs);
    redis.once("ready", ready);
  });
}

/** Sends one Lua script: atomic on the server; its keys must all lie in one slot. A server that lacks it is sent its text. */
export type Script<Reply> = (
  redis: RedisStore,
  keys: readonly string[],
  args: readonly (string | number | Buffer)[],
) => Promise<Reply>;

/**
 * Loads a script from a `.lua` file next to the caller, such as `new URL("./call-limit.lua", import.meta.url)`; several
 * files are joined in their order, each a function within the one before. A server makes all functions of a script anew for
 * each call, and Lua searches a list of all captured locals for each that a function takes from the one that runs, whereas
 * what is captured already is only copied: 40 µs of a call of the meter's script became 30.
 * `read` turns the raw reply (strings, numbers, arrays, null) into its type, and throws when it is something else.
 * Amounts travel as decimal strings: Lua's numbers lose digits from 10^14.
 */
export function loadScript<Reply>(
  file: URL | readonly URL[],
  read: (reply: unknown) => Reply,
): Script<Reply> {
  const files = file instanceof URL ? [file] : file;
  const text = files
    .map((part) => readFileSync(part, "utf8"))
    .reduceRight((inner, outer) => `${outer}\nreturn (function()\n${inner}\nend)()`);
  const digest = createHash("sha1").update(text).digest("hex");
  return async (redis, keys, args) => {
    const timed = async (all: readonly string[]) => {
      const startedAt = performance.now();
      const reply = await redis.evalsha(digest, all.length, ...all, ...args);
      countScript((performance.now() - startedAt) / 1000);
      return read(reply);
    };
    if (redis instanceof Cluster) return await inCluster(redis, keys, text, timed);
    try {
      return await timed(keys);
    } catch (error) {
      if (!isUnknown(error)) throw error;
      // EVAL also stores the script.
      return read(await redis.eval(text, keys.length, ...keys, ...args));
    }
  };
}

const isUnknown = (error: unknown): boolean => error instanceof Error && error.message.startsWith("NOSCRIPT");

/** Most servers that a script's slot may come to, one after another, while the script is called. */
const MOST_SERVERS = 4;

/**
 * Calls a script in a cluster, where it must not run while its slot moves: some of its keys, which it does not name, are at the
 * other server then. So the call names one key more, which never exists: while a slot moves, a command is refused unless all of
 * its keys are in one place (`ASK`, then `TRYAGAIN`: cluster specification, "MULTI KEYS operations").
 */
async function inCluster<Reply>(
  redis: Cluster,
  keys: readonly string[],
  text: string,
  call: (keys: readonly string[]) => Promise<Reply>,
): Promise<Reply> {
  const [first = ""] = keys;
  const all = [...keys, `${first}:none`];
  for (let servers = 1; ; servers += 1) {
    try {
      return await call(all);
    } catch (error) {
      const server = serverOf(redis, first);
      if (!isUnknown(error) || server === null || servers === MOST_SERVERS) throw error;
      await server.script("LOAD", text);
    }
  }
}
