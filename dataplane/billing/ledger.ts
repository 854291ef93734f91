/**
 * Usage rows in Postgres, the truth about what was used, and the sums that move with them (design.md §5). Which of
 * these statements a charge takes, and in what order: charge.ts.
 */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { accountSchema, type Account } from "./accounts.ts";
import type { Micros } from "./meter.ts";
import { chargeClasses, type ChargeClass } from "./price.ts";
import type { UsageRow } from "./usage-row.ts";

/** The columns that `usage` and `usage_hourly` share and that are summed, with where a row has them. */
const summed = {
  input_tokens: (row) => BigInt(row.tokens.input),
  cache_read_tokens: (row) => BigInt(row.tokens.cacheRead),
  cache_write_5m_tokens: (row) => BigInt(row.tokens.cacheWrite5m),
  cache_write_1h_tokens: (row) => BigInt(row.tokens.cacheWrite1h),
  output_tokens: (row) => BigInt(row.tokens.output),
  reasoning_tokens: (row) => BigInt(row.tokens.reasoning),
  web_searches: (row) => BigInt(row.tools.webSearches),
  web_fetches: (row) => BigInt(row.tools.webFetches),
  x_searches: (row) => BigInt(row.tools.xSearches),
  x_posts: (row) => BigInt(row.tools.xPosts),
  x_profiles: (row) => BigInt(row.tools.xProfiles),
  input_micros: (row) => row.cost.parts.input,
  cache_read_micros: (row) => row.cost.parts.cacheRead,
  cache_write_5m_micros: (row) => row.cost.parts.cacheWrite5m,
  cache_write_1h_micros: (row) => row.cost.parts.cacheWrite1h,
  output_micros: (row) => row.cost.parts.output,
  web_search_micros: (row) => row.cost.parts.webSearch,
  web_fetch_micros: (row) => row.cost.parts.webFetch,
  x_search_micros: (row) => row.cost.parts.xSearch,
  cost_micros: (row) => row.cost.total,
} satisfies Record<string, (row: UsageRow) => bigint>;
type SummedColumn = keyof typeof summed;
/** Their names, in the order that statements and the audit use. */
export const summedColumns = Object.keys(summed) as readonly SummedColumn[];

/** The class of charge that each column of credits holds. */
export const chargeColumns: Readonly<Record<ChargeClass, SummedColumn>> = {
  input: "input_micros",
  cacheRead: "cache_read_micros",
  cacheWrite5m: "cache_write_5m_micros",
  cacheWrite1h: "cache_write_1h_micros",
  output: "output_micros",
  webSearch: "web_search_micros",
  webFetch: "web_fetch_micros",
  xSearch: "x_search_micros",
};

const columnList = sql.join(
  summedColumns.map((column) => sql.identifier([column])),
  sql.fragment`, `,
);

/** Makes the partitions that the next two months need. */
export async function makePartitions(pool: CommonQueryMethods): Promise<void> {
  await pool.query(sql.unsafe`select make_usage_partitions()`);
}

/** What a call changes: sums by account and by hour. */
export class Changes {
  readonly charged = new Map<string, bigint>();
  readonly hours = new Map<string, Hour>();

  /** A charge to the account alone: the hours know only rows. */
  charge(organizationId: string, micros: Micros): void {
    this.charged.set(organizationId, (this.charged.get(organizationId) ?? 0n) + micros);
  }

  add(row: UsageRow, sign: 1n | -1n = 1n): void {
    this.charge(row.organizationId, sign * row.cost.total);
    const hour = hourOf(row);
    const key = JSON.stringify(hour);
    let sums = this.hours.get(key);
    if (sums === undefined) {
      sums = { ...hour, requests: 0n, sums: summedColumns.map(() => 0n) };
      this.hours.set(key, sums);
    }
    sums.requests += sign;
    for (const [index, column] of summedColumns.entries()) {
      sums.sums[index] = (sums.sums[index] ?? 0n) + sign * summed[column](row);
    }
  }
}

interface Hour extends HourKey {
  requests: bigint;
  /** In the order of `summedColumns`. */
  readonly sums: bigint[];
}

interface HourKey {
  readonly organizationId: string;
  /** Unix milliseconds of its start, UTC. */
  readonly hour: number;
  readonly projectId: string;
  readonly keyId: string;
  readonly model: string;
  readonly contextTokens: number;
  readonly batch: boolean;
}

const HOUR_MS = 3_600_000;
const hourOf = (row: UsageRow): HourKey => ({
  organizationId: row.organizationId,
  hour: Math.floor(row.acceptedAt / HOUR_MS) * HOUR_MS,
  projectId: row.projectId,
  keyId: row.keyId,
  model: row.model,
  contextTokens: row.contextTokens,
  batch: row.endpoint === "batch",
});

const timestamp = (unixMs: number): string => new Date(unixMs).toISOString();

/** Takes the provisional rows out that a final row of this call replaces. */
export async function dropProvisional(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
  changes: Changes,
): Promise<void> {
  const final = rows.filter((row) => !row.provisional);
  if (final.length === 0) return;
  const dropped = await transaction.any(sql.type(storedRowSchema)`
    delete from usage
    where provisional and (accepted_at, id) in (
      select * from ${sql.unnest(
        final.map((row) => [timestamp(row.acceptedAt), row.id]),
        ["timestamptz", "text"],
      )}
    )
    returning id, accepted_at, organization_id, project_id, key_id, model, context_tokens, endpoint, ${columnList}
  `);
  for (const row of dropped) changes.add(readStored(row), -1n);
}

const storedRowSchema = z.object({
  id: z.string(),
  accepted_at: z.number(),
  organization_id: z.string(),
  project_id: z.string(),
  key_id: z.string(),
  model: z.string(),
  context_tokens: z.bigint(),
  endpoint: z.enum(["messages", "chat", "responses", "batch"]),
  ...(Object.fromEntries(summedColumns.map((column) => [column, z.bigint()])) as Record<
    SummedColumn,
    z.ZodBigInt
  >),
});

/** As much of a stored row as the books need. */
function readStored(row: z.infer<typeof storedRowSchema>): UsageRow {
  const number = (column: SummedColumn) => Number(row[column]);
  return {
    id: row.id,
    acceptedAt: row.accepted_at,
    organizationId: row.organization_id,
    projectId: row.project_id,
    keyId: row.key_id,
    model: row.model,
    contextTokens: Number(row.context_tokens),
    endpoint: row.endpoint,
    batchId: null,
    status: "ok",
    iterations: 0,
    upstream: null,
    estimated: true,
    provisional: true,
    tokens: {
      input: number("input_tokens"),
      cacheRead: number("cache_read_tokens"),
      cacheWrite5m: number("cache_write_5m_tokens"),
      cacheWrite1h: number("cache_write_1h_tokens"),
      output: number("output_tokens"),
      reasoning: number("reasoning_tokens"),
    },
    tools: {
      webSearches: number("web_searches"),
      webFetches: number("web_fetches"),
      xSearches: number("x_searches"),
      xPosts: number("x_posts"),
      xProfiles: number("x_profiles"),
    },
    cost: {
      total: row.cost_micros,
      parts: Object.fromEntries(
        chargeClasses.map((charge) => [charge, row[chargeColumns[charge]]]),
      ) as Record<ChargeClass, bigint>,
    },
  };
}

/** Types of the columns of `usage` that are not summed, in the order of the statement below. */
const ownTypes = "timestamptz text text text text text int8 text text text int4 text bool bool".split(" ");

/** Inserts what is not there; returns the rows that really were inserted. */
export async function insertRows(
  transaction: DatabaseTransactionConnection,
  rows: readonly UsageRow[],
): Promise<UsageRow[]> {
  const inserted = await transaction.anyFirst(sql.type(z.object({ id: z.string() }))`
    insert into usage (
      accepted_at, id, organization_id, project_id, key_id, model, context_tokens, endpoint, batch_id, status,
      iterations, upstream, estimated, provisional, ${columnList}
    )
    select * from ${sql.unnest(
      rows.map((row) => [
        timestamp(row.acceptedAt),
        row.id,
        row.organizationId,
        row.projectId,
        row.keyId,
        row.model,
        row.contextTokens,
        row.endpoint,
        row.batchId,
        row.status,
        row.iterations,
        row.upstream,
        row.estimated,
        row.provisional,
        ...summedColumns.map((column) => summed[column](row)),
      ]),
      [...ownTypes, ...summedColumns.map(() => "int8")],
    )}
    on conflict (accepted_at, id) do nothing
    returning id
  `);
  const ids = new Set(inserted);
  return rows.filter((row) => ids.has(row.id));
}

/** Whether the final row of this request is in the ledger. */
export async function isStored(
  transaction: DatabaseTransactionConnection,
  { acceptedAt, id }: UsageRow,
): Promise<boolean> {
  return await transaction.exists(sql.unsafe`
    select 1 from usage where accepted_at = ${timestamp(acceptedAt)} and id = ${id} and not provisional
  `);
}

/** Moves hourly sums and accounts; returns the accounts that moved, as they are now. */
export async function storeChanges(
  transaction: DatabaseTransactionConnection,
  changes: Changes,
): Promise<readonly Account[]> {
  if (changes.hours.size > 0) await moveHours(transaction, changes);
  return changes.charged.size === 0 ? [] : await moveAccounts(transaction, changes);
}

async function moveHours(transaction: DatabaseTransactionConnection, changes: Changes): Promise<void> {
  const moved = ["requests", ...summedColumns] as const;
  await transaction.query(sql.unsafe`
    insert into usage_hourly as known (
      organization_id, hour, project_id, key_id, model, context_tokens, batch, service_tier, requests, ${columnList}
    )
    select organization_id, hour, project_id, key_id, model, context_tokens, batch, 'standard', requests, ${columnList}
    from ${sql.unnest(
      [...changes.hours.values()].map((hour) => [
        hour.organizationId,
        timestamp(hour.hour),
        hour.projectId,
        hour.keyId,
        hour.model,
        hour.contextTokens,
        hour.batch,
        hour.requests,
        ...hour.sums,
      ]),
      [
        "text",
        "timestamptz",
        "text",
        "text",
        "text",
        "int8",
        "bool",
        "int8",
        ...summedColumns.map(() => "int8"),
      ],
    )} as added (organization_id, hour, project_id, key_id, model, context_tokens, batch, requests, ${columnList})
    on conflict (organization_id, hour, project_id, key_id, model, context_tokens, service_tier, batch)
    do update set ${sql.join(
      moved.map(
        (column) =>
          sql.fragment`${sql.identifier([column])} = known.${sql.identifier([column])} + excluded.${sql.identifier([column])}`,
      ),
      sql.fragment`, `,
    )}
  `);
}

async function moveAccounts(
  transaction: DatabaseTransactionConnection,
  changes: Changes,
): Promise<readonly Account[]> {
  return await transaction.any(sql.type(accountSchema)`
    update accounts account
    set balance_micros = account.balance_micros - charge.micros, version = account.version + 1,
      changed_at = clock_timestamp()
    from ${sql.unnest([...changes.charged], ["text", "int8"])} as charge (organization_id, micros)
    where account.organization_id = charge.organization_id
    returning account.organization_id as "organizationId", account.balance_micros as balance, account.version
  `);
}
