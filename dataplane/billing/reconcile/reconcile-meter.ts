/**
 * Compares Redis with itself, books with holds and waiting charges, each shard as of one moment; and with the ledger, balances
 * of the same version (design.md §5). The ledger by itself: reconcile-ledger.ts.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import type { RedisStore } from "../../store/redis-servers.ts";
import { loadScript } from "../../store/redis.ts";
import { foreignText, ledgerOf, readLedgerId } from "../ledger/ledger-identity.ts";
import { BETWEEN_LOOKS_MS, LOOKS, wrongScopes } from "./reconcile-scopes.ts";
import { firstLines } from "./report-lines.ts";
import { scanOrganizations, scanScopes } from "../holds/scan-organizations.ts";
import { MAX_GROUP, SHARDS, epochKeys, shardOf, shardTag } from "../holds/shard.ts";

/** Rule 1.9. */
const OLDEST_HOLD_MS = 90_000;
const OLDEST_ENTRY_MS = 60_000;

/**
 * Organizations and scopes whose books one script call reads, in addition to all holds and charges of the shard: some
 * milliseconds.
 */
const NAMES_AT_ONCE = 1_000;
/**
 * Most waiting charges that a script sums: with more, everybody else's calls would wait for it. So many wait only when the
 * ledger has been away.
 */
const MOST_SUMMED = 20_000;

interface Books {
  readonly organizationId: string;
  /** Empty: the account was not loaded. */
  readonly base: string;
  readonly version: string;
  readonly undrained: string;
  readonly held: string;
  readonly live: string;
  readonly entrySum: string;
  readonly holdSum: string;
  readonly holdCount: string;
  readonly short: string;
  readonly shortSum: string;
}

const readShard = loadScript(
  ["shard", "scopes", "requests", "reconcile"].map(
    (part) => new URL(`../../store/meter-${part}.lua`, import.meta.url),
  ),
  (reply) => z.array(z.array(z.string())).parse(reply),
);

/** @returns what is wrong, a line each, and the number of holds. */
export async function checkMeter(
  pool: DatabasePool,
  redis: RedisStore,
): Promise<{ broken: string[]; holds: number }> {
  const names = await scanOrganizations(redis);
  const scopes = await scanScopes(redis);
  const broken = await foreignShards(pool, redis);
  let holds = 0;
  const books: Books[] = [];
  const spends: Books[] = [];
  for (let shard = 0; shard < SHARDS; shard += 1) {
    const all = [...(names[shard] ?? []), ...(scopes[shard] ?? [])];
    const crowd = await waitingCrowd(redis, shard);
    if (crowd !== null) {
      broken.push(
        `shard ${shard}: ${crowd} charges wait for the ledger, too many to be compared: look again later`,
      );
      continue;
    }
    let summary: readonly string[] = [];
    // In portions, as live requests wait behind each.
    for (let at = 0; at === 0 || at < all.length; at += NAMES_AT_ONCE) {
      const rows = await readShard(redis, [shardTag(shard)], all.slice(at, at + NAMES_AT_ONCE));
      const last = rows.pop() ?? [];
      if (at === 0) summary = last;
      for (const one of rows.map(readBooks)) (one.organizationId.startsWith("/") ? spends : books).push(one);
    }
    const [
      beatAge = "0",
      hold = "",
      entryAge = "0",
      holdCount = "0",
      charges = "0",
      hollow = "0",
      waiting = "0",
    ] = summary;
    holds += Number(holdCount);
    const seconds = (ms: string) => `${Math.round(Number(ms) / 1000)} s`;
    if (Number(beatAge) > OLDEST_HOLD_MS)
      broken.push(`hold ${hold} outlives its owner by ${seconds(beatAge)}`);
    if (Number(entryAge) > OLDEST_ENTRY_MS) {
      broken.push(`shard ${shard}: a charge waits for the ledger since ${seconds(entryAge)}`);
    }
    if (hollow !== "0") broken.push(`shard ${shard}: ${hollow} heartbeats belong to no hold`);
    // `waiting` does not count entries that no script of ours made.
    if (Number(waiting) > Number(charges))
      broken.push(`shard ${shard}: ${waiting} charges are said to wait for the ledger, there are ${charges}`);
  }
  broken.push(...[...books, ...spends].flatMap(wrongBooks));
  broken.push(...(await wrongBases(pool, redis, books)));
  broken.push(...(await wrongScopes(pool, redis)));
  return { broken, holds };
}

/** How many charges still wait after some looks, when they are too many to be summed; null: they are few enough. */
async function waitingCrowd(redis: RedisStore, shard: number): Promise<string | null> {
  const tag = shardTag(shard);
  for (let look = 1; ; look += 1) {
    const waiting = (await redis.get(`${tag}:waiting`)) ?? "0";
    if (Number(waiting) <= MOST_SUMMED) return null;
    // The count may be wrong, or the stream be gone, which is compared and reported. An entry is the charges of one call.
    if ((await redis.xlen(`${tag}:usage`)) * MAX_GROUP <= MOST_SUMMED) return null;
    if (look === LOOKS) return waiting;
    await sleep(BETWEEN_LOOKS_MS);
  }
}

/** A Redis database belongs to one ledger. */
async function foreignShards(pool: DatabasePool, redis: RedisStore): Promise<string[]> {
  const ours = await readLedgerId(pool);
  const epochs = await Promise.all(epochKeys.map((key) => redis.get(key)));
  const theirs = new Set(epochs.map(ledgerOf).filter((ledger) => ledger !== null && ledger !== ours));
  return [...theirs].map((ledger) => foreignText(ledger ?? "", ours));
}

function readBooks(row: readonly string[]): Books {
  const [organizationId = "", base = "", version = "", undrained = "0", held = "0", live = "0"] = row;
  const [entrySum = "0", holdSum = "0", holdCount = "0", short = "0", shortSum = "0"] = row.slice(6);
  const sums = { entrySum, holdSum, holdCount, shortSum };
  return { organizationId, base, version, undrained, held, live, short, ...sums };
}

/** Counters and sums of one moment, which agree exactly at any time. */
function wrongBooks(books: Books): string[] {
  const { organizationId, undrained, held, live, short, entrySum, holdSum, holdCount, shortSum } = books;
  const lines: string[] = [];
  if (undrained !== entrySum) {
    lines.push(`${organizationId}: undrained is ${undrained}, its entries in the stream sum to ${entrySum}`);
  }
  if (held !== holdSum) lines.push(`${organizationId}: held is ${held}, its holds sum to ${holdSum}`);
  if (short !== shortSum) lines.push(`${organizationId}: short is ${short}, its holds lack ${shortSum}`);
  if (live !== holdCount)
    lines.push(`${organizationId}: ${live} requests are said to run, it has ${holdCount} holds`);
  return lines;
}

/**
 * The base in Redis must be the ledger's balance of the same version. Redis may be some versions behind for some seconds; it
 * cannot be ahead, as it was read first.
 */
async function wrongBases(pool: DatabasePool, redis: RedisStore, books: readonly Books[]): Promise<string[]> {
  const lines: string[] = [];
  let behind = books.filter(({ version }) => version !== "");
  for (let look = 1; behind.length > 0; look += 1) {
    const accounts = await readBalances(pool, behind);
    const lagging = behind.filter(({ organizationId, base, version }) => {
      const account = accounts.get(organizationId);
      if (account === undefined)
        lines.push(`${organizationId}: Redis has an account that the ledger has not`);
      else if (account.version < BigInt(version)) {
        lines.push(`${organizationId}: Redis has version ${version}, the ledger only ${account.version}`);
      } else if (account.version === BigInt(version) && account.balance !== BigInt(base)) {
        lines.push(
          `${organizationId}: Redis has a balance of ${base}, the ledger ${account.balance} (version ${version})`,
        );
      }
      return account !== undefined && account.version > BigInt(version);
    });
    if (lagging.length === 0) break;
    await sleep(BETWEEN_LOOKS_MS);
    behind = await stillAt(redis, lagging);
    if (look === LOOKS) {
      lines.push(
        ...firstLines(
          behind,
          ({ organizationId, version }) => `${organizationId}: Redis stays at version ${version}`,
        ),
      );
      break;
    }
  }
  return lines;
}

async function readBalances(pool: DatabasePool, books: readonly Books[]) {
  const rows = await pool.any(
    sql.type(z.object({ id: z.string(), balance: z.bigint(), version: z.bigint() }))`
      select organization_id as id, balance_micros as balance, version from accounts
      where organization_id = any(${sql.array(
        books.map(({ organizationId }) => organizationId),
        "text",
      )})
    `,
  );
  return new Map(rows.map(({ id, ...account }) => [id, account]));
}

/** The accounts that Redis still has the same version of. */
async function stillAt(redis: RedisStore, books: readonly Books[]): Promise<Books[]> {
  const found: Books[] = [];
  for (const one of books) {
    const tag = shardTag(shardOf(one.organizationId));
    const version = await redis.hget(`${tag}:o:${one.organizationId}`, "version");
    if (version === one.version) found.push(one);
  }
  return found;
}
