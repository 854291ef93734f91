/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import { Cluster } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { inTime } from "../lib/in-time.ts";
import { connectionFault } from "./redis.ts";
import { mastersOf, type RedisStore } from "./redis-servers.ts";

/** Asks Postgres; null when it answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/** What is wrong, in a few words, with a store that is well enough for requests. */
export interface Degraded {
  readonly degraded: string;
}

/**
 * Checks Redis, or each master of a cluster: null when it answers and evicts nothing (design.md §5: money needs `noeviction`),
 * else what is wrong. Masters that do not answer make a cluster degraded while others do, which have requests to answer. Read
 * from INFO, because hosted services forbid CONFIG. @throws when a single server does not answer.
 */
export async function checkRedis(redis: RedisStore): Promise<string | Degraded | null> {
  if (!(redis instanceof Cluster)) {
    try {
      return faultOfRedis(await redis.info("memory"));
    } catch (error) {
      const fault = connectionFault(redis);
      if (fault === null) throw error;
      throw new Error(`not connected: ${fault}`, { cause: error });
    }
  }
  // While the cluster is not connected, its slots may be outdated.
  const masters = redis.status === "ready" ? [...mastersOf(redis)] : [];
  const infos = await Promise.allSettled(
    masters.map(async ([name, server]) => {
      if (server === null) throw new Error(`${name} is away`);
      return await inTime(MASTER_MS, server.info("memory"), () => new Error("no answer in time"));
    }),
  );
  const lost = masters.flatMap(([name], index) => (infos[index]?.status === "rejected" ? [name] : []));
  if (lost.length === masters.length) return "no master of the cluster answers";
  for (const [index, info] of infos.entries()) {
    const fault = info.status === "fulfilled" ? faultOfRedis(info.value) : null;
    if (fault !== null) return `${masters[index]?.[0]}: ${fault}`;
  }
  if (lost.length === 0) return null;
  return {
    degraded: `of ${masters.length} masters ${lost.join(", ")} ${lost.length === 1 ? "does" : "do"} not answer; requests of its shards get 503`,
  };
}

/** Time for a master to answer: one that hangs must not delay the check until that counts as failed. */
const MASTER_MS = 700;

/** Returns what is wrong with the eviction policy; null: nothing. `info`: the section `memory`. */
export function faultOfRedis(info: string): string | null {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy === undefined || policy === "noeviction") return null;
  return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
}
