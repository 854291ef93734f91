/**
 * Sums over `usage_hourly`, and over `usage_closed` for closed months (rule 12.5): the one place where these reports query
 * the database. Every sum is of one organization.
 */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { summedColumns } from "../billing/ledger/ledger.ts";
import { ApiError } from "../lib/api-error.ts";
import { DAY_MS } from "../lib/clock.ts";
import { LazyList } from "../lib/json-slices.ts";
import { invalidParameter } from "../lib/query.ts";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";
import type { Tag } from "../lib/tags.ts";
import { readRows } from "../store/read-rows.ts";
import { timestamp } from "../store/timestamp.ts";
import type { Filters } from "./filters.ts";
import type { BucketRange } from "./parameters.ts";

/** Columns that may be summed. */
const summable = ["requests", ...summedColumns] as const;
export type SumColumn = (typeof summable)[number];

/** Columns that may be grouped by and filtered. */
export type GroupColumn = "key_id" | "project_id" | "model" | "service_tier" | "context_tokens" | "batch";

export interface SumsQuery<Column extends SumColumn> {
  readonly organizationId: string;
  readonly range: BucketRange;
  readonly groupBy: readonly GroupColumn[];
  /** The tag to group by; null: none. */
  readonly groupTag?: string | null;
  readonly filters: Filters;
  readonly columns: readonly Column[];
}

/** One bucket's sum of one group; a column that is not grouped by is null. */
export interface Sum<Column extends SumColumn> {
  /** Unix milliseconds of the bucket's start. */
  readonly at: number;
  readonly keyId: string | null;
  readonly projectId: string | null;
  readonly model: string | null;
  readonly serviceTier: string | null;
  readonly contextTokens: number | null;
  readonly batch: boolean | null;
  /** Null where the report is not grouped by a tag, and for usage without that tag. */
  readonly tag: Tag | null;
  readonly sums: Readonly<Record<Column, bigint>>;
}

/** Most sums of one answer, which is built in memory; nobody reads more. */
const MAX_SUMS = 100_000;

/** Rows that a statement is meant to return; one bucket may have more. */
const PORTION = 10_000;
/** The most by which the next portion may be longer: a bucket may have far more rows than those before it. */
const PORTION_GROWTH = 8;

const rowSchema = z.object({
  at: z.number(),
  key_id: z.string().nullable(),
  project_id: z.string().nullable(),
  model: z.string().nullable(),
  service_tier: z.string().nullable(),
  context_tokens: z.bigint().transform(Number).nullable(),
  batch: z.boolean().nullable(),
  tag: z.string().nullable(),
  ...(Object.fromEntries(summable.map((column) => [column, z.bigint().optional()])) as Record<
    SumColumn,
    z.ZodOptional<z.ZodBigInt>
  >),
});
const types: Readonly<Record<GroupColumn, string>> = {
  key_id: "text",
  project_id: "text",
  model: "text",
  service_tier: "text",
  context_tokens: "int8",
  batch: "bool",
};

/**
 * Reads the sums of every bucket and group with usage, by time and then by group.
 * @throws ApiError 400 when there are more than `MAX_SUMS` of them.
 */
export async function readSums<Column extends SumColumn>(
  pool: CommonQueryMethods,
  query: SumsQuery<Column>,
): Promise<readonly Sum<Column>[]> {
  const { from, to, widthMs } = query.range;
  const schema = rowSchema.transform((row) => sumOf(row, query));
  const sums: Sum<Column>[] = [];
  // In portions, so that not all rows are in memory together with their sums.
  let buckets = 1;
  for (let at = from; at < to;) {
    const until = Math.min(at + buckets * widthMs, to);
    const portion = { ...query, range: { ...query.range, from: at, to: until } };
    const found = await readRows(pool, schema, statement(portion));
    for (const sum of found) sums.push(sum);
    if (sums.length > MAX_SUMS)
      throw tooLong(MAX_SUMS, "results", "limit", "ask for fewer buckets or groups");
    at = until;
    const room = Math.floor((buckets * PORTION) / Math.max(found.length, 1));
    buckets = Math.min(Math.max(room, 1), buckets * PORTION_GROWTH);
  }
  return sums;
}

/** Makes the 400 for a report that would be too long, with a remedy. */
export const tooLong = (most: number, what: string, param: string, remedy: string): ApiError =>
  new ApiError("invalid_value", `The report has more than ${most} ${what}; ${remedy}.`, { param });

const sumOf = <Column extends SumColumn>(
  row: z.output<typeof rowSchema>,
  { columns, groupTag }: SumsQuery<Column>,
): Sum<Column> => ({
  at: row.at,
  keyId: row.key_id,
  projectId: row.project_id,
  model: row.model,
  serviceTier: row.service_tier,
  contextTokens: row.context_tokens,
  batch: row.batch,
  tag: row.tag === null ? null : { name: groupTag ?? "", value: row.tag },
  sums: Object.fromEntries(columns.map((column) => [column, row[column] ?? 0n])) as Record<Column, bigint>,
});

/** Makes a statement of `readSums`; exported for the benchmark, which explains it. */
export function statement({
  organizationId,
  range,
  groupBy,
  groupTag = null,
  filters,
  columns,
}: SumsQuery<SumColumn>) {
  // Half the time of date_trunc, which looks a time zone up for every row.
  const bucket =
    range.widthMs === DAY_MS
      ? sql.fragment`date_bin('1 day', hour, '2000-01-01T00:00:00Z')`
      : sql.fragment`hour`;
  const grouped = groupBy.map((column) => sql.identifier([column]));
  const absent = (Object.keys(types) as GroupColumn[])
    .filter((column) => !groupBy.includes(column))
    .map((column) => sql.fragment`null::${sql.identifier([types[column]])} as ${sql.identifier([column])}`);
  const comma = sql.fragment`, `;
  const tag = groupTag === null ? sql.fragment`null::text` : valueOfTag(groupTag);
  const order = sql.join(
    [sql.fragment`1`, ...grouped, ...(groupTag === null ? [] : [sql.fragment`tag`])],
    comma,
  );
  return sql.fragment`
    select ${bucket} as at, ${tag} as tag, ${sql.join([...grouped, ...absent], comma)}, ${sql.join(
      columns.map(
        (column) => sql.fragment`sum(${sql.identifier([column])})::int8 as ${sql.identifier([column])}`,
      ),
      comma,
    )}
    from usage_sums
    where organization_id = ${organizationId} and hour >= ${timestamp(range.from)} and hour < ${timestamp(range.to)}
      ${anyOf("model", filters.models)} ${anyOf("key_id", filters.keyIds)}
      ${anyOf("key_id", filters.userIds)}
      ${inProjects(organizationId, filters.projectIds)} ${inTiers(filters.serviceTiers)}
      ${ofWindows(filters.contextTokens)} ${withTag(filters.tag)}
      ${filters.batch === null ? sql.fragment`` : sql.fragment`and batch = ${filters.batch}`}
    group by ${order}
    -- Sums of a provisional row that was taken back may be left as zeros.
    having sum(requests) > 0
    order by ${order}
    limit ${MAX_SUMS + 1}
  `;
}

/**
 * Checks a range of hours. Must be called after the sums were read, as a month may be closed meanwhile.
 * @throws ApiError 400 naming `param` when the range begins in a closed month (rule 12.5): its sums are kept by the day.
 */
export async function checkHours(
  pool: CommonQueryMethods,
  { from, widthMs }: BucketRange,
  param: string,
): Promise<void> {
  if (widthMs === DAY_MS) return;
  const until = await pool.oneFirst(sql.type(z.object({ until: z.number() }))`
    select greatest(closed_until, '1970-01-01T00:00:00Z') as until from usage_retention
  `);
  if (from >= until) return;
  const first = new Date(until).toISOString().slice(0, 10);
  throw invalidParameter(
    param,
    `${param} must not be before ${first} with bucket_width=1h: older usage is kept by the day.`,
  );
}

/** Selects the text after `NAME=`, up to the next comma; null where there is none (no tag has an empty value). */
const valueOfTag = (name: string) =>
  sql.fragment`nullif(split_part(split_part(',' || tags, ${`,${name}=`}, 2), ',', 1), '')`;

function withTag(tag: Tag | null) {
  if (tag === null) return sql.fragment``;
  // A value that no tag can have matches nothing.
  if (/[^\x20-\x7e]|,/.test(tag.value)) return sql.fragment`and false`;
  return sql.fragment`and strpos(',' || tags || ',', ${`,${tag.name}=${tag.value},`}) > 0`;
}

/** Drops values that no column can hold: they match nothing, and never reach the database. */
const possibleTexts = (values: readonly string[]) =>
  sql.array(
    values.filter((value) => !value.includes("\0")),
    "text",
  );

function anyOf(column: GroupColumn, values: readonly string[] | null) {
  if (values === null) return sql.fragment``;
  return sql.fragment`and ${sql.identifier([column])} = any(${possibleTexts(values)})`;
}

/** Filters by projects; `default` is an alias, as it is in paths (rule 5.1). */
function inProjects(organizationId: string, ids: readonly string[] | null) {
  if (ids === null || !ids.includes("default")) return anyOf("project_id", ids);
  return sql.fragment`and project_id = any(${possibleTexts(ids)} || array(
    select id from projects where organization_id = ${organizationId} and is_default
  ))`;
}

/** Filters by tiers. Calls of one request may differ (`priority,standard`): it matches if each of its tiers is in the filter. */
function inTiers(names: readonly string[] | null) {
  if (names === null) return sql.fragment``;
  return sql.fragment`and string_to_array(service_tier, ',') <@ ${possibleTexts(names)}`;
}

function ofWindows(values: readonly string[] | null) {
  if (values === null) return sql.fragment``;
  const possible = values.filter((value) => /^\d{1,15}$/.test(value)).map(Number);
  return sql.fragment`and context_tokens = any(${sql.array(possible, "int8")})`;
}

/** Makes every bucket of a range, empty ones too: `bucket` gets its times and the results of its items. */
export async function buckets<Item extends { readonly at: number }, Result, Bucket>(
  range: BucketRange,
  items: readonly Item[],
  resultsOf: (item: Item) => readonly Result[],
  bucket: (from: number, to: number, results: LazyList<Result>) => Bucket,
): Promise<Bucket[]> {
  const slices = new Slices(ANSWER_SLICE_MS);
  const byStart = new Map<number, Item[]>();
  for (const item of items) {
    if (slices.usedUp) await slices.pause();
    const known = byStart.get(item.at);
    if (known === undefined) byStart.set(item.at, [item]);
    else known.push(item);
  }
  const found: Bucket[] = [];
  for (let at = range.from; at < range.to; at += range.widthMs) {
    const those = byStart.get(at) ?? [];
    found.push(bucket(at, at + range.widthMs, LazyList.of(those, resultsOf)));
  }
  return found;
}
