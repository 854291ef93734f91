/** The table of charges that `usage` refuses (store/migrations/0002_ledger.sql); charge.ts fills it. */
import { createHash } from "node:crypto";
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { causesOf } from "../../lib/causes.ts";
import type { Micros } from "../credits.ts";

const MOST_REASON_CHARS = 300;

export interface DeadLetter {
  /** The request's id, or the digest of the row's text. */
  readonly id: string;
  /** null: charged to nobody. */
  readonly organizationId: string | null;
  readonly charged: Micros;
  readonly provisional: boolean;
  /** The row's text, as in the stream. */
  readonly text: string;
}

/** A dead letter as it is reported to an operator. */
export interface DeadLetterNotice extends DeadLetter {
  readonly reason: string;
  /** Unix milliseconds. */
  readonly refusedAt: number;
}

/** The id of a charge that has none. */
export function chargeDigest(text: string): string {
  return `sha256:${createHash("sha256").update(text).digest("hex")}`;
}

/** Which of these ids are dead letters, and whether provisional ones. */
export async function readDeadLetters(
  db: CommonQueryMethods,
  ids: readonly string[],
): Promise<readonly Pick<DeadLetter, "id" | "provisional">[]> {
  return await db.any(sql.type(z.object({ id: z.string(), provisional: z.boolean() }))`
    select id, provisional from dead_letters where id = any(${sql.array([...ids], "text")})
  `);
}

/** @returns whether it was not there before. */
export async function insertDeadLetter(
  db: CommonQueryMethods,
  { id, organizationId, charged, provisional, text }: DeadLetter,
  reason: unknown,
): Promise<boolean> {
  const inserted = await db.maybeOne(sql.unsafe`
    insert into dead_letters (id, organization_id, charged_micros, provisional, row_bytes, reason)
    values (${id}, ${organizationId}, ${charged}, ${provisional}, ${sql.binary(Buffer.from(text))}, ${reasonText(reason)})
    on conflict (id) do nothing
    returning id
  `);
  return inserted !== null;
}

/** Removes these dead letters; returns what they had charged. */
export async function takeDeadLetters(
  db: CommonQueryMethods,
  ids: readonly string[],
): Promise<readonly Pick<DeadLetter, "organizationId" | "charged">[]> {
  if (ids.length === 0) return [];
  return await db.any(sql.type(z.object({ organizationId: z.string().nullable(), charged: z.bigint() }))`
    delete from dead_letters where id = any(${sql.array([...ids], "text")})
    returning organization_id as "organizationId", charged_micros as charged
  `);
}

/** A page of all dead letters, in the order of their ids. */
export async function pageDeadLetters(
  db: CommonQueryMethods,
  afterId: string,
  limit: number,
): Promise<readonly DeadLetterNotice[]> {
  const schema = z.object({
    id: z.string(),
    organizationId: z.string().nullable(),
    charged: z.bigint(),
    provisional: z.boolean(),
    row: z.instanceof(Buffer),
    reason: z.string(),
    refusedAt: z.number(),
  });
  const page = await db.any(sql.type(schema)`
    select id, organization_id as "organizationId", charged_micros as charged, provisional, row_bytes as row, reason,
      refused_at as "refusedAt"
    from dead_letters where id > ${afterId} order by id limit ${limit}
  `);
  return page.map(({ row, ...letter }) => ({ ...letter, text: row.toString("utf8") }));
}

/** Returns the number of rows that Postgres refuses to store, of all organizations. */
export async function countDeadLetters(db: CommonQueryMethods): Promise<number> {
  return Number(
    await db.oneFirst(sql.type(z.object({ count: z.bigint() }))`select count(*) as count from dead_letters`),
  );
}

/** The message of the innermost error, which is Postgres'. */
function reasonText(reason: unknown): string {
  const text = causesOf(reason).at(-1)?.message ?? String(reason);
  return text.replaceAll("\u0000", "").slice(0, MOST_REASON_CHARS);
}
