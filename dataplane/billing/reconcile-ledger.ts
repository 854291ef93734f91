/**
 * Recomputes the books from what cannot lie, grants and usage rows, and compares everything that counts along with
 * it: accounts, hourly sums, and Redis (design.md §5). Works beside running data planes: Postgres is read as of one
 * moment, a shard of Redis as of one moment, and what may differ for a moment is looked at again.
 */
import type { RedisStore } from "../store/redis-servers.ts";
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import { loadScript } from "../store/redis.ts";
import { DAY_MS } from "../lib/clock.ts";
import { creditsText } from "./credits.ts";
import { foreignText, ledgerOf, readLedgerId } from "./ledger-identity.ts";
import { readLosses } from "./ledger-losses.ts";
import { firstLines, MOST_LINES } from "./report-lines.ts";
import { chargeColumns, summedColumns } from "./ledger.ts";
import { countDeadLetters, pageDeadLetters } from "./dead-letters.ts";
import { BETWEEN_LOOKS_MS, LOOKS, wrongScopes } from "./reconcile-scopes.ts";
import { scanOrganizations, scanScopes } from "./scan-organizations.ts";
import { MAX_GROUP, SHARDS, epochKeys, shardOf, shardTag } from "./shard.ts";

/** Rule 1.9. */
const OLDEST_HOLD_MS = 90_000;
const OLDEST_ENTRY_MS = 60_000;

export interface LedgerReport {
  /** One line for each broken invariant; none when everything agrees. */
  readonly broken: readonly string[];
  readonly organizations: number;
  readonly usageRows: bigint;
  readonly holds: number;
}

export async function reconcileLedger(pool: DatabasePool, redis: RedisStore): Promise<LedgerReport> {
  const ledger = await checkLedger(pool);
  const meter = await checkMeter(pool, redis);
  return { ...ledger, broken: [...ledger.broken, ...meter.broken], holds: meter.holds };
}

// The ledger by itself.

async function checkLedger(pool: DatabasePool) {
  return await pool.transaction(async (transaction) => {
    await asOfOneMoment(transaction);
    const broken = [
      ...(await wrongBalances(transaction)),
      ...(await wrongCosts(transaction)),
      ...(await wrongClosings(transaction)),
      ...(await wrongHours(transaction)),
      ...(await wrongDays(transaction)),
      ...(await deadLetters(transaction)),
      ...(await lostCharges(transaction)),
    ];
    const { organizations, rows } = await transaction.one(
      sql.type(z.object({ organizations: z.bigint(), rows: z.bigint() }))`
        select (select count(*) from accounts) as organizations,
          (select count(*) from usage) + (select coalesce(sum(requests), 0)::int8 from ${closed}) as rows
      `,
    );
    return { broken, organizations: Number(organizations), usageRows: rows };
  });
}

/**
 * Everything that this transaction reads is of one moment, before or after a month is closed: rows leave their table, and
 * so the tables are taken before anything is read.
 */
export async function asOfOneMoment(transaction: CommonQueryMethods): Promise<void> {
  await transaction.query(sql.unsafe`set transaction isolation level repeatable read, read only`);
  await transaction.query(sql.unsafe`lock table usage, usage_hourly in access share mode`);
}

/** Sums of closed months (rule 12.5), in the place of their rows. */
const closed = sql.fragment`(
  select * from usage_closed where day < (select closed_until from usage_retention)
) as closed`;

/** grants − usage − dead letters − what the ledger lost = balance. */
async function wrongBalances(transaction: CommonQueryMethods): Promise<string[]> {
  const rows = await transaction.any(
    sql.type(
      z.object({ id: z.string(), balance: z.bigint().nullable(), granted: z.bigint(), used: z.bigint() }),
    )`
      select coalesce(account.organization_id, granted.organization_id, used.organization_id) as id,
        account.balance_micros as balance, coalesce(granted.sum, 0)::int8 as granted,
        coalesce(used.sum, 0)::int8 as used
      from accounts account
      full join (select organization_id, sum(amount_micros) from grants group by 1) granted
        on granted.organization_id = account.organization_id
      full join (
        select organization_id, sum(micros) from (
          select organization_id, cost_micros as micros from usage
          union all
          select organization_id, cost_micros from ${closed}
          union all
          select organization_id, charged_micros from dead_letters where organization_id is not null
          union all
          select organization_id, lost_micros from ledger_losses
        ) charges group by 1
      ) used
        on used.organization_id = coalesce(account.organization_id, granted.organization_id)
      where account.balance_micros is distinct from coalesce(granted.sum, 0) - coalesce(used.sum, 0)
      order by 1
    `,
  );
  return firstLines(rows, ({ id, balance, granted, used }) => {
    const kept = balance === null ? "there is no account" : `the account says ${creditsText(balance)}`;
    return `${id}: granted ${creditsText(granted)} less used ${creditsText(used)} is ${creditsText(granted - used)}, ${kept}`;
  });
}

/** The parts of each charge sum to it. */
async function wrongCosts(transaction: CommonQueryMethods): Promise<string[]> {
  const parts = Object.values(chargeColumns).map((column) => sql.identifier([column]));
  const rows = await transaction.any(sql.type(z.object({ id: z.string() }))`
    select id from usage where cost_micros <> ${sql.join(parts, sql.fragment` + `)} order by id
  `);
  return firstLines(rows, ({ id }) => `${id}: the parts of its charge do not sum to it`);
}

/** The parts of each sum of a closed month sum to it. */
async function wrongClosings(transaction: CommonQueryMethods): Promise<string[]> {
  const parts = Object.values(chargeColumns).map((column) => sql.identifier([column]));
  const rows = await transaction.any(sql.type(z.object({ id: z.string(), day: z.number() }))`
    select distinct organization_id as id, day from ${closed}
    where cost_micros <> ${sql.join(parts, sql.fragment` + `)} order by 1, 2
  `);
  return firstLines(
    rows,
    ({ id, day }) =>
      `${id}: the parts of the closed sums of ${new Date(day).toISOString().slice(0, 10)} do not sum to them`,
  );
}

/** Hourly sums are the sums of their rows. */
export async function wrongHours(transaction: CommonQueryMethods): Promise<string[]> {
  const columns = summedColumns.map((column) => sql.identifier([column]));
  const list = sql.join(columns, sql.fragment`, `);
  const sums = sql.join(
    columns.map((column) => sql.fragment`sum(${column})::int8 as ${column}`),
    sql.fragment`, `,
  );
  const keys = sql.fragment`
    organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch, tags
  `;
  const rows = await transaction.any(
    sql.type(z.object({ id: z.string(), hour: z.number(), model: z.string() }))`
      with counted as (
        select organization_id, date_trunc('hour', accepted_at, 'UTC') as hour, project_id, key_id, model,
          context_tokens, service_tier, endpoint = 'batch' as batch, coalesce(tags, '') as tags, count(*) as requests, ${sums}
        from usage group by 1, 2, 3, 4, 5, 6, 7, 8, 9
      ), kept as (
        -- What was moved away leaves a row of zeros.
        select ${keys}, requests, ${list} from usage_hourly where requests <> 0
      )
      select distinct organization_id as id, hour, model from (
        (select ${keys}, requests, ${list} from counted except select ${keys}, requests, ${list} from kept)
        union all
        (select ${keys}, requests, ${list} from kept except select ${keys}, requests, ${list} from counted)
      ) different order by 1, 2, 3
    `,
  );
  return firstLines(
    rows,
    ({ id, hour, model }) =>
      `${id}: the sums of ${new Date(hour).toISOString()} for ${model} are not those of its rows`,
  );
}

/** What each key and each project spent on each day is the sum of their rows, or of its closing. */
async function wrongDays(transaction: CommonQueryMethods): Promise<string[]> {
  const rows = await transaction.any(
    sql.type(
      z.object({ id: z.string(), scope: z.string(), day: z.number(), counted: z.bigint(), kept: z.bigint() }),
    )`
      with counted as (
        select organization_id, scope_id, (extract(epoch from charged.at) / 86400)::numeric as at, cost_micros
        from (
          select organization_id, key_id, project_id, accepted_at as at, cost_micros from usage
          union all
          select organization_id, key_id, project_id, day, cost_micros from ${closed}
        ) charged cross join lateral (values (key_id), (project_id)) scope (scope_id)
      ), sums as (
        select organization_id, scope_id, floor(at)::int as day, sum(cost_micros)::int8 as micros
        from counted group by 1, 2, 3
      )
      select coalesce(sums.organization_id, kept.organization_id) as id, coalesce(sums.scope_id, kept.scope_id) as scope,
        coalesce(sums.day, kept.day) as day, coalesce(sums.micros, 0)::int8 as counted,
        coalesce(kept.micros, 0)::int8 as kept
      from sums full join usage_daily kept
        on kept.organization_id = sums.organization_id and kept.scope_id = sums.scope_id and kept.day = sums.day
      where coalesce(sums.micros, 0) <> coalesce(kept.micros, 0)
      order by 1, 2, 3
    `,
  );
  return firstLines(
    rows,
    ({ id, scope, day, counted, kept }) =>
      `${id}: the rows of ${scope} on ${new Date(day * DAY_MS).toISOString().slice(0, 10)} cost ` +
      `${creditsText(counted)}, kept is ${creditsText(kept)}`,
  );
}

/** Charges that `usage` refuses; data planes try them again, but somebody has to look why. */
async function deadLetters(transaction: CommonQueryMethods): Promise<string[]> {
  const [letter, count] = [
    await pageDeadLetters(transaction, "", MOST_LINES),
    await countDeadLetters(transaction),
  ];
  return firstLines(
    letter,
    ({ id, organizationId, charged, reason, refusedAt }) =>
      `${id}: a charge of ${creditsText(charged)} to ${organizationId ?? "nobody"} is a dead letter since ` +
      `${new Date(refusedAt).toISOString()}, refused by the ledger: ${reason}`,
    count,
  );
}

/** Charges that Redis knew by their sum when the ledger had lost their rows (ledger-guard.ts). */
async function lostCharges(transaction: CommonQueryMethods): Promise<string[]> {
  const losses = await readLosses(transaction);
  return firstLines(
    losses,
    ({ organizationId, lost }) => `${organizationId}: lost ${creditsText(lost)} credits`,
  );
}

// Redis beside it.

/** Organizations and scopes whose books one script call reads, beside all holds and charges of the shard: some milliseconds. */
const NAMES_AT_ONCE = 1_000;
/**
 * Of more charges than these no script makes sums: everybody else's calls would wait for it. So many wait only when the ledger
 * has been away.
 */
const MOST_SUMMED = 20_000;

interface Books {
  readonly organizationId: string;
  /** Empty while the account was not loaded. */
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
    (part) => new URL(`../store/meter-${part}.lua`, import.meta.url),
  ),
  (reply) => z.array(z.array(z.string())).parse(reply),
);

async function checkMeter(
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
    // An entry that no script of ours made is not counted.
    if (Number(waiting) > Number(charges))
      broken.push(`shard ${shard}: ${waiting} charges are said to wait for the ledger, there are ${charges}`);
  }
  broken.push(...[...books, ...spends].flatMap(wrongBooks));
  broken.push(...(await wrongBases(pool, redis, books)));
  broken.push(...(await wrongScopes(pool, redis)));
  return { broken, holds };
}

/** How many charges still wait after a while, where they are too many to be summed; null: they are not. */
async function waitingCrowd(redis: RedisStore, shard: number): Promise<string | null> {
  const tag = shardTag(shard);
  for (let look = 1; ; look += 1) {
    const waiting = (await redis.get(`${tag}:waiting`)) ?? "0";
    if (Number(waiting) <= MOST_SUMMED) return null;
    // The count may be wrong, or the stream be taken away, which is told. An entry is the charges of one call.
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

/** Read at one moment, so these agree exactly at any time. */
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
 * The base that Redis has is the balance of the same version. A version behind the ledger's is in order for some
 * seconds; one that Redis is ahead of cannot be, as Redis was read first.
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

/** Those that Redis still has the same version of. */
async function stillAt(redis: RedisStore, books: readonly Books[]): Promise<Books[]> {
  const found: Books[] = [];
  for (const one of books) {
    const tag = shardTag(shardOf(one.organizationId));
    const version = await redis.hget(`${tag}:o:${one.organizationId}`, "version");
    if (version === one.version) found.push(one);
  }
  return found;
}
