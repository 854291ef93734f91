/** What becomes of an item that would run again: a batch that was cancelled or is overdue runs nothing more. */
import { sql, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { timestamp } from "../../store/timestamp.ts";

export type NextState = "waiting" | "canceled" | "expired";

/** Locks the batches in the order of their ids and returns the next state of each one's items that would run again. */
export async function nextStatesOf(
  transaction: DatabaseTransactionConnection,
  batchIds: readonly string[],
  now: number,
): Promise<ReadonlyMap<string, NextState>> {
  const schema = z.object({ id: z.string(), cancelled: z.boolean(), overdue: z.boolean() });
  const rows = await transaction.any(sql.type(schema)`
    select id, cancel_initiated_at is not null as cancelled, expires_at <= ${timestamp(now)} as overdue
    from batches where id = any(${sql.array([...batchIds], "text")})
    order by id for update
  `);
  return new Map(
    rows.map(({ id, cancelled, overdue }) => [id, cancelled ? "canceled" : overdue ? "expired" : "waiting"]),
  );
}
