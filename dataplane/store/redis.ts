/** The connection to Redis (holds, limits, wake-ups; design.md §5) and typed Lua scripts. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { countScript } from "../telemetry/metrics.ts";
import { readRedisAddress, reconnectDelayMs } from "./redis-address.ts";

export interface RedisOptions {
  /** A command without an answer within this time fails. Default 1 s: then settled rows go straight to the ledger. */
  readonly commandTimeoutMs?: number;
  /** Hears of every broken connection; reconnecting goes on by itself. */
  readonly onError: (error: Error) => void;
}

/**
 * Connects to what `readRedisAddress` reads. While the connection is down, commands fail at once instead of queueing:
 * a request must not wait for credit that nobody can look up, and a command that its caller gave up on must not
 * run minutes later. `duplicate()` it for blocking reads and subscriptions.
 */
export function openRedis(url: string, options: RedisOptions): Redis {
  const manner = {
    connectTimeout: 2_000,
    commandTimeout: options.commandTimeoutMs ?? 1_000,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: reconnectDelayMs,
    // After a failover an old address may answer as a replica: connect anew.
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  };
  const place = readRedisAddress(url);
  const redis = place === null ? new Redis(url, manner) : new Redis({ ...place, ...manner });
  redis.on("error", options.onError);
  return redis;
}

/** Resolves when commands can be sent. @throws Error after `timeoutMs`. */
export async function redisReady(redis: Redis, timeoutMs: number): Promise<void> {
  if (redis.status === "ready") return;
  await new Promise<void>((done, fail) => {
    const ready = () => {
      clearTimeout(timer);
      done();
    };
    const timer = setTimeout(() => {
      redis.off("ready", ready);
      fail(new Error(`Redis is not reachable (waited ${timeoutMs} ms)`));
    }, timeoutMs);
    redis.once("ready", ready);
  });
}

/**
 * Sends one Lua script: atomic on the server, whose keys must all lie in one slot. A server that does not know it (it is
 * new, or was restarted) is sent its text, after `unknown` is done.
 */
export type Script<Reply> = (
  redis: Redis,
  keys: readonly string[],
  args: readonly (string | number | Buffer)[],
  unknown?: () => Promise<void>,
) => Promise<Reply>;

const databaseOf = (redis: Redis): number => redis.options.db ?? 0;

/** Under which a server knows a script. */
export const scriptDigest = (source: string): string => createHash("sha1").update(source).digest("hex");

/** A script of this database alone: whether the server knows it says nothing of its other databases. */
export const textFor = (redis: Redis, source: string): string =>
  `-- database ${databaseOf(redis)}\n${source}`;

/**
 * Loads a script from a `.lua` file beside the caller, such as `new URL("./hold.lua", import.meta.url)`; several
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
  /** By database. */
  const known = new Map<number, { readonly source: string; readonly digest: string }>();
  return async (redis, keys, args, unknown) => {
    let script = known.get(databaseOf(redis));
    if (script === undefined) {
      const source = textFor(redis, text);
      script = { source, digest: scriptDigest(source) };
      known.set(databaseOf(redis), script);
    }
    const { source, digest } = script;
    try {
      const startedAt = performance.now();
      const reply = await redis.evalsha(digest, keys.length, ...keys, ...args);
      countScript((performance.now() - startedAt) / 1000);
      return read(reply);
    } catch (error) {
      if (!(error instanceof Error) || !error.message.startsWith("NOSCRIPT")) throw error;
      await unknown?.();
      // Which also stores it.
      return read(await redis.eval(source, keys.length, ...keys, ...args));
    }
  };
}
