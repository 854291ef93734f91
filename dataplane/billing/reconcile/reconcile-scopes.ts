/** Compares the spend of limits in Redis with the usage rows (rule 9.2), while data planes run. */
import type { RedisStore } from "../../store/redis-servers.ts";
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { creditsText } from "../credits.ts";
import { firstLines } from "./report-lines.ts";
import { scanOrganizations, scanScopes } from "../holds/scan-organizations.ts";
import { readScopeSpend } from "../holds/scope-spend.ts";
import { scopeNamed, type CreditScope } from "../scopes.ts";
import { SHARDS, shardTag } from "../holds/shard.ts";

/**
 * Looks at values that running data planes may be changing: an account of which Redis has an old version is read again within
 * 10 s (design.md §5).
 */
export const LOOKS = 8;
export const BETWEEN_LOOKS_MS = 2_000;
/** Scopes read at once: an organization may have a hundred thousand people with limits. */
const SCOPES_AT_ONCE = 500;

/**
 * A line for each scope whose spend in Redis is not the sum of its rows. Left out: scopes with charges on their way, scopes
 * whose spend is read from the ledger before its next use, and scopes of an older key epoch, whose limits may be gone.
 * Differences that charges make meanwhile are looked at again.
 */
export async function wrongScopes(pool: DatabasePool, redis: RedisStore): Promise<string[]> {
  let wrong = new Map<string, string>();
  for (let look = 1; look <= LOOKS; look += 1) {
    const found = await differingScopes(pool, redis);
    // A lasting difference is not the work of running requests.
    wrong = look === 1 ? found : new Map([...found].filter(([name, line]) => wrong.get(name) === line));
    if (wrong.size === 0) return [];
    await sleep(BETWEEN_LOOKS_MS);
  }
  return firstLines([...wrong.values()], (line) => line);
}

/** Lines for the scopes whose spend differs now, by name. */
async function differingScopes(pool: DatabasePool, redis: RedisStore): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const [names, organizations] = [await scanScopes(redis), await scanOrganizations(redis)];
  for (let shard = 0; shard < SHARDS; shard += 1) {
    const scopes = (names[shard] ?? []).flatMap((name) => scopeNamed(name) ?? []);
    if (scopes.length === 0) continue;
    const tag = shardTag(shard);
    const epoch = await redis.get(`${tag}:epoch`);
    const current = new Map<string, string>();
    for (const id of organizations[shard] ?? []) {
      const [reading, keyEpoch] = await redis.hmget(`${tag}:o:${id}`, "reading", "keyEpoch");
      current.set(id, `${epoch} ${reading ?? ""} ${keyEpoch ?? ""}`);
    }
    for (let at = 0; at < scopes.length; at += SCOPES_AT_ONCE) {
      const some = scopes.slice(at, at + SCOPES_AT_ONCE);
      for (const [name, line] of await differingOf(some, { pool, redis, tag, current }))
        found.set(name, line);
    }
  }
  return found;
}

interface ComparedShard {
  readonly pool: DatabasePool;
  readonly redis: RedisStore;
  readonly tag: string;
  /** By organization, the epochs under which a spend must have been stored to count. */
  readonly current: ReadonlyMap<string, string>;
}

/** Lines for those of a shard's scopes whose spend differs now, by name. */
async function differingOf(
  scopes: readonly CreditScope[],
  { pool, redis, tag, current }: ComparedShard,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const owners = await ownersOf(
    pool,
    scopes.map(({ id }) => id),
  );
  const asked = scopes.flatMap((scope) => {
    const organizationId = owners.get(scope.id);
    return organizationId === undefined ? [] : [{ organizationId, scope }];
  });
  const told = await Promise.all(
    asked.map(({ scope }) =>
      redis.hmget(`${tag}:s:${scope.name}`, "base", "undrained", "reading", "keyEpoch"),
    ),
  );
  const spends = new Map((await readScopeSpend(pool, asked)).map(({ name, spent }) => [name, spent]));
  for (const [index, { organizationId, scope }] of asked.entries()) {
    const [base, undrained, reading, keyEpoch] = told[index] ?? [];
    if (typeof base !== "string" || `${reading} ${keyEpoch}` !== current.get(organizationId)) continue;
    const spent = spends.get(scope.name) ?? 0n;
    // With charges on their way the two are of different moments.
    if (-BigInt(base) !== spent && (undrained ?? "0") === "0")
      found.set(
        scope.name,
        `${organizationId}: Redis has ${creditsText(-BigInt(base))} spent in ${scope.name}, its rows cost ${creditsText(spent)}`,
      );
  }
  return found;
}

async function ownersOf(pool: DatabasePool, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const rows = await pool.any(
    sql.type(z.object({ id: z.string(), organizationId: z.string() }))`
      select distinct scope_id as id, organization_id as "organizationId" from usage_daily
      where scope_id = any(${sql.array([...new Set(ids)], "text")})
    `,
  );
  return new Map(rows.map(({ id, organizationId }) => [id, organizationId]));
}
