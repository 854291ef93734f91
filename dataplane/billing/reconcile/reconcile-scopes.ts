/** Compares what Redis believes of limits with the rows (rule 9.2), beside running data planes. */
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
 * How often that is looked at which running data planes may be changing: an account that Redis has an old version of is read
 * again within 10 s (design.md §5).
 */
export const LOOKS = 8;
export const BETWEEN_LOOKS_MS = 2_000;
/** An organization's people may be a hundred thousand, each with limits. */
const SCOPES_AT_ONCE = 500;

/**
 * What Redis believes that each scope of limits has spent is the sum of its rows, with those on their way. A scope whose spend
 * will be read from the ledger before it is used again says nothing, nor one that was asked for under older keys: its limit may
 * be gone. What charges change meanwhile is looked at again.
 */
export async function wrongScopes(pool: DatabasePool, redis: RedisStore): Promise<string[]> {
  let wrong = new Map<string, string>();
  for (let look = 1; look <= LOOKS; look += 1) {
    const found = await differingScopes(pool, redis);
    // Still the same after a while: nobody is at it.
    wrong = look === 1 ? found : new Map([...found].filter(([name, line]) => wrong.get(name) === line));
    if (wrong.size === 0) return [];
    await sleep(BETWEEN_LOOKS_MS);
  }
  return firstLines([...wrong.values()], (line) => line);
}

/** By their names, those whose spend differs now. */
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
    for (let at = 0; at < scopes.length; at += SCOPES_AT_ONCE)
      await addDiffering(pool, redis, tag, current, scopes.slice(at, at + SCOPES_AT_ONCE), found);
  }
  return found;
}

/** `current`: by organization, what a spend must have been told under to count. */
async function addDiffering(
  pool: DatabasePool,
  redis: RedisStore,
  tag: string,
  current: ReadonlyMap<string, string>,
  scopes: readonly CreditScope[],
  found: Map<string, string>,
): Promise<void> {
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
