/**
 * Recomputes the books from grants and usage rows, and compares all sums that are kept beside them: accounts, hourly sums, and
 * Redis (design.md §5, reconcile-meter.ts). Works beside running data planes: Postgres is read as of one moment, a shard of
 * Redis as of one moment, and what may differ for a moment is read again.
 */
import type { RedisStore } from "../../store/redis-servers.ts";
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { z } from "zod";
import { DAY_MS } from "../../lib/clock.ts";
import { creditsText } from "../credits.ts";
import { readLosses } from "../ledger/ledger-losses.ts";
import { firstLines, MOST_LINES } from "./report-lines.ts";
import { chargeColumns, summedColumns } from "../ledger/ledger.ts";
import { countDeadLetters, pageDeadLetters } from "../ledger/dead-letters.ts";
import { checkMeter } from "./reconcile-meter.ts";

export interface LedgerReport {
  /** One line for each broken invariant; none when everything agrees. */
  readonly broken: readonly string[];
  readonly organizations: number;
  readonly usageRows: bigint;
  readonly holds: number;
}

/** Compares the ledger with its own rows, and Redis with both. Changes nothing. */
export async function reconcileLedger(pool: DatabasePool, redis: RedisStore): Promise<LedgerReport> {
  const ledger = await checkLedger(pool);
  const meter = await checkMeter(pool, redis);
  return { ...ledger, broken: [...ledger.broken, ...meter.broken], holds: meter.holds };
}

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
 * Makes a transaction read everything as of one moment, before or after a month is closed: closing moves rows out of their
 * table, so the tables are locked before anything is read.
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

/** The spend of each key and each project on each day is the sum of their rows, or of its closing. */
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

/** Charges that Redis knew by their sum when the ledger had lost their rows (holds/ledger-guard.ts). */
async function lostCharges(transaction: CommonQueryMethods): Promise<string[]> {
  const losses = await readLosses(transaction);
  return firstLines(
    losses,
    ({ organizationId, lost }) => `${organizationId}: lost ${creditsText(lost)} credits`,
  );
}
