/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import { Cluster } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { inTime } from "../lib/in-time.ts";
import { connectionFault } from "./redis.ts";
import { mastersOf, type RedisStore } from "./redis-servers.ts";

/** null when Postgres answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/** Well enough for requests, though something is amiss: in a few words. */
export interface Degraded {
  readonly degraded: string;
}

/**
 * null when Redis answers and forgets nothing by itself (design.md §5: money needs `noeviction`); of a cluster each master. Those
 * of its masters that do not answer are named while others do: they have requests to answer. Read from INFO, because hosted
 * services forbid CONFIG. @throws when no server answers.
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
  // While it is not connected the slots are those of before.
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

/** A master that hangs must not keep the check until it is taken for failed. */
const MASTER_MS = 700;

/** `info`: the section `memory`. */
export function faultOfRedis(info: string): string | null {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy === undefined || policy === "noeviction") return null;
  return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
}
