/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import type { Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";

/** null when Postgres answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/** Before it, a server may keep scripts over a restart (docs/decisions/redis-durability.md). */
const OLDEST_REDIS = 7;

/**
 * null when Redis answers, forgets nothing by itself (design.md §5: money needs `noeviction`) and is not too old. Read
 * from INFO, because hosted services forbid CONFIG. @throws when Redis does not answer.
 */
export async function checkRedis(redis: Redis): Promise<string | null> {
  return faultOfRedis((await redis.info("server")) + (await redis.info("memory")));
}

/** `info`: the sections `server` and `memory`. */
export function faultOfRedis(info: string): string | null {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy !== undefined && policy !== "noeviction")
    return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
  // Valkey tells the version of Redis that it is like.
  const version = /^redis_version:(\S+)/m.exec(info)?.[1];
  if (version !== undefined && Number.parseInt(version, 10) < OLDEST_REDIS)
    return `this is Redis ${version}; it must be ${OLDEST_REDIS}.0 or newer, or a restart could leave credit held`;
  return null;
}
