/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import { Cluster, type Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { mastersOf, type RedisStore } from "./redis-servers.ts";

/** null when Postgres answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/** Before it, a server that has replicas keeps scripts over a restart (docs/decisions/redis-durability.md). */
const OLDEST_WITH_REPLICAS = 7;

/** Well enough for requests, though something is amiss: in a few words. */
export interface Degraded {
  readonly degraded: string;
}

/**
 * null when Redis answers, forgets nothing by itself (design.md §5: money needs `noeviction`) and is new enough for its
 * replicas; of a cluster each master. Those of its masters that do not answer are named while others do: they have requests to
 * answer. Read from INFO, because hosted services forbid CONFIG. @throws when no server answers.
 */
export async function checkRedis(redis: RedisStore): Promise<string | Degraded | null> {
  if (!(redis instanceof Cluster)) return faultOfRedis(await readInfo(redis));
  // While it is not connected the slots are those of before.
  const masters = redis.status === "ready" ? [...mastersOf(redis)] : [];
  const infos = await Promise.allSettled(
    masters.map(async ([name, server]) => {
      if (server === null) throw new Error(`${name} is away`);
      return await inTime(readInfo(server));
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

async function inTime<Value>(work: Promise<Value>): Promise<Value> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("no answer in time")), MASTER_MS);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

const readInfo = async (server: Redis): Promise<string> =>
  (await Promise.all(["server", "memory", "replication"].map((name) => server.info(name)))).join("");

/** `info`: the sections `server`, `memory` and `replication`. */
export function faultOfRedis(info: string): string | null {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy !== undefined && policy !== "noeviction")
    return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
  // Valkey tells the version of Redis that it is like.
  const version = /^redis_version:(\S+)/m.exec(info)?.[1];
  if (version === undefined || Number.parseInt(version, 10) >= OLDEST_WITH_REPLICAS) return null;
  if (!/^repl_backlog_active:1/m.test(info)) return null;
  return `this is Redis ${version} with replicas; it must be ${OLDEST_WITH_REPLICAS}.0 or newer, or a restart could leave credit held`;
}
