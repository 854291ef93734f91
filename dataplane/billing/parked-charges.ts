/** The table of charges that `usage` refuses (store/migrations/0002_ledger.sql); who fills it: charge.ts. */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import type { Micros } from "./meter.ts";

const MOST_REASON_CHARS = 300;

export interface ParkedCharge {
  /** The request's id, or the digest of the row's text. */
  readonly id: string;
  /** null: charged to nobody. */
  readonly organizationId: string | null;
  readonly charged: Micros;
  readonly provisional: boolean;
  /** The row as it stands in the stream. */
  readonly text: string;
}

/** A parked charge as an operator is told of it. */
export interface ParkedNotice extends ParkedCharge {
  readonly reason: string;
  /** Unix milliseconds. */
  readonly parkedAt: number;
}

/** The id of a charge that has none. */
export function digestOf(text: string): string {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

/** Which of these are parked, and whether provisionally. */
export async function readParked(
  db: CommonQueryMethods,
  ids: readonly string[],
): Promise<readonly Pick<ParkedCharge, "id" | "provisional">[]> {
  return await db.any(sql.type(z.object({ id: z.string(), provisional: z.boolean() }))`
    select id, provisional from parked_charges where id = any(${sql.array([...ids], "text")})
  `);
}

/** @returns whether it was not parked before. */
export async function insertParked(
  db: CommonQueryMethods,
  { id, organizationId, charged, provisional, text }: ParkedCharge,
  reason: unknown,
): Promise<boolean> {
  const inserted = await db.maybeOne(sql.unsafe`
    insert into parked_charges (id, organization_id, charged_micros, provisional, row_bytes, reason)
    values (${id}, ${organizationId}, ${charged}, ${provisional}, ${sql.binary(Buffer.from(text))}, ${reasonText(reason)})
    on conflict (id) do nothing
    returning id
  `);
  return inserted !== null;
}

/** Takes these out; returns what they had charged. */
export async function takeParked(
  db: CommonQueryMethods,
  ids: readonly string[],
): Promise<readonly Pick<ParkedCharge, "organizationId" | "charged">[]> {
  if (ids.length === 0) return [];
  return await db.any(sql.type(z.object({ organizationId: z.string().nullable(), charged: z.bigint() }))`
    delete from parked_charges where id = any(${sql.array([...ids], "text")})
    returning organization_id as "organizationId", charged_micros as charged
  `);
}

/** A page of all parked charges, in the order of their ids. */
export async function pageParked(
  db: CommonQueryMethods,
  afterId: string,
  limit: number,
): Promise<readonly ParkedNotice[]> {
  const schema = z.object({
    id: z.string(),
    organizationId: z.string().nullable(),
    charged: z.bigint(),
    provisional: z.boolean(),
    row: z.instanceof(Buffer),
    reason: z.string(),
    parkedAt: z.number(),
  });
  const page = await db.any(sql.type(schema)`
    select id, organization_id as "organizationId", charged_micros as charged, provisional, row_bytes as row, reason,
      parked_at as "parkedAt"
    from parked_charges where id > ${afterId} order by id limit ${limit}
  `);
  return page.map(({ row, ...parked }) => ({ ...parked, text: row.toString("utf8") }));
}

export async function countParked(db: CommonQueryMethods): Promise<number> {
  return Number(
    await db.oneFirst(
      sql.type(z.object({ count: z.bigint() }))`select count(*) as count from parked_charges`,
    ),
  );
}

/** What the innermost error says: that of Postgres. */
function reasonText(reason: unknown): string {
  let innermost: unknown = reason;
  while (innermost instanceof Error && innermost.cause !== undefined) innermost = innermost.cause;
  const text = innermost instanceof Error ? innermost.message : String(innermost);
  return text.replaceAll("\u0000", "").slice(0, MOST_REASON_CHARS);
}
