/**
 * Reads a month of one organization's charges for the FOCUS export, in pages: by UTC day and by everything that charges are
 * kept by. Each day is a statement of its own, a busy day several, so that a slow client holds nothing of the database.
 */
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { DAY_MS } from "../../lib/clock.ts";
import { atOnce, type ReadInTurn } from "../../lib/piece-reader.ts";
import { timestamp } from "../../store/timestamp.ts";
import { lines } from "../charges.ts";
import type { SumColumn } from "../sums.ts";

/** Groups of a page: few enough to be written without delaying other requests noticeably. */
const PAGE = 250;
/** Groups that one statement returns, a few megabytes; it sums all rows of the day that are left. */
const GROUPS_READ = 2_000;

const columns = [...new Set<SumColumn>(lines.flatMap(({ micros, amounts }) => [micros, ...amounts]))];

const groupSchema = z.object({
  projectId: z.string(),
  keyId: z.string(),
  model: z.string(),
  contextTokens: z.bigint(),
  serviceTier: z.string(),
  batch: z.boolean(),
  tags: z.string(),
  organizationName: z.string().nullable(),
  projectName: z.string().nullable(),
  keyName: z.string().nullable(),
  ...(Object.fromEntries(columns.map((column) => [column, z.bigint().optional()])) as Record<
    SumColumn,
    z.ZodOptional<z.ZodBigInt>
  >),
});
/** The usage of one key, model and day, with the same context, tier, batch flag and tags. */
export type DayGroup = z.output<typeof groupSchema> & {
  /** Unix milliseconds of the day's start. */
  readonly day: number;
};

/** Yields the pages. @param month Unix milliseconds of its start and its end. @param how `groups`: groups of one statement. */
export async function* monthPages(
  pool: CommonQueryMethods,
  organizationId: string,
  month: { readonly from: number; readonly to: number },
  how: { readonly inTurn?: ReadInTurn; readonly groups?: number } = {},
): AsyncGenerator<readonly DayGroup[]> {
  const { inTurn = atOnce, groups = GROUPS_READ } = how;
  for (let day = month.from; day < month.to; day += DAY_MS) {
    let after: DayGroup | null = null;
    do {
      const found: readonly DayGroup[] = await inTurn(() =>
        dayGroups(pool, organizationId, day, after, groups),
      );
      for (let at = 0; at < found.length; at += PAGE) yield found.slice(at, at + PAGE);
      after = found.length < groups ? null : (found.at(-1) ?? null);
    } while (after !== null);
  }
}

async function dayGroups(
  pool: CommonQueryMethods,
  organizationId: string,
  day: number,
  after: DayGroup | null,
  most: number,
): Promise<readonly DayGroup[]> {
  const comma = sql.fragment`, `;
  const names = columns.map((column) => sql.identifier([column]));
  const sums = sql.join(
    names.map((name) => sql.fragment`sum(${name})::int8 as ${name}`),
    comma,
  );
  const key = sql.fragment`project_id, key_id, model, context_tokens, service_tier, batch, tags`;
  const beyond =
    after === null
      ? sql.fragment``
      : sql.fragment`and (${key}) > (${after.projectId}, ${after.keyId}, ${after.model}, ${after.contextTokens},
          ${after.serviceTier}, ${after.batch}, ${after.tags})`;
  const rows = await pool.any(sql.type(groupSchema)`
    with groups as (
      select ${key}, ${sums} from usage_sums
      where organization_id = ${organizationId}
        and hour >= ${timestamp(day)} and hour < ${timestamp(day + DAY_MS)} ${beyond}
      group by ${key}
      -- Sums of a provisional row that was taken back may be left as zeros.
      having sum(requests) > 0
      order by ${key} limit ${most}
    )
    select project_id as "projectId", key_id as "keyId", model, context_tokens as "contextTokens",
      service_tier as "serviceTier", batch, tags, ${sql.join(names, comma)},
      (select display_name from organizations where id = ${organizationId}) as "organizationName",
      (select name from projects where id = project_id and organization_id = ${organizationId}) as "projectName",
      (select name from api_keys where id = key_id and organization_id = ${organizationId}) as "keyName"
    from groups order by ${key}
  `);
  return rows.map((row) => ({ day, ...row }));
}
