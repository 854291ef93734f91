/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import type { Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";

/** null when Postgres answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/** Before it, a server that has replicas keeps scripts over a restart (docs/decisions/redis-durability.md). */
const OLDEST_WITH_REPLICAS = 7;

/**
 * null when Redis answers, forgets nothing by itself (design.md §5: money needs `noeviction`) and is new enough for its
 * replicas. Read from INFO, because hosted services forbid CONFIG. @throws when Redis does not answer.
 */
export async function checkRedis(redis: Redis): Promise<string | null> {
  const sections = await Promise.all(["server", "memory", "replication"].map((name) => redis.info(name)));
  return faultOfRedis(sections.join(""));
}

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
