/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import type { Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";

/** null when Postgres answers. @throws when it does not. */
export async function checkPostgres(pool: DatabasePool): Promise<string | null> {
  await pool.any(sql.type(z.object({ one: z.number() }))`select 1 as one`);
  return null;
}

/**
 * null when Redis answers and forgets nothing by itself (design.md §5: money needs `noeviction`). Read from INFO,
 * because hosted services forbid CONFIG. @throws when Redis does not answer.
 */
export async function checkRedis(redis: Redis): Promise<string | null> {
  const policy = /^maxmemory_policy:(\S+)/m.exec(await redis.info("memory"))?.[1];
  if (policy === undefined || policy === "noeviction") return null;
  return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
}
