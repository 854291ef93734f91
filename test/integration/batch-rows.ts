/** Batches made row by row, and ends of runs that nobody ran: for tests that play what workers do, step by step. */
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { claimItems, batchesInLine, type ClaimedItem } from "../../dataplane/batches/worker/claim.ts";
import type { BatchContext } from "../../dataplane/batches/context.ts";
import type { ItemEnd } from "../../dataplane/batches/worker/run.ts";
import { beat } from "../../dataplane/batches/worker/workers.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { makeOrganization, observed, request, usage } from "./money-world.ts";
import { freshDatabase } from "./stores.ts";

/** A database of a test file's own in which the organization has credit. `close` takes it away. */
export async function openBatchRows(): Promise<{ pool: DatabasePool; close: () => Promise<void> }> {
  const database = await freshDatabase();
  const pool = await openPostgres(database.url, { onError: () => {} });
  await makeOrganization(pool, organizationId, 1_000_000_000n);
  const close = async () => {
    await pool.end();
    await database.drop();
  };
  return { pool, close };
}

/** What of an engine the workers' own steps need. */
export function engineOf(pool: DatabasePool, workerId: string): BatchContext {
  return {
    pool,
    workerId,
    creating: new Set(),
    clock: { now: () => Date.now() },
    newId,
    log: pino({ level: "silent" }),
    wake: () => {},
    balance: () => Promise.resolve(1n),
    files: undefined as never,
    bodies: new ByteBudget(2 ** 30),
    large: null,
  };
}

/** As a worker whose first transaction commits, and which does not hear of it. */
export function deaf(context: BatchContext): BatchContext {
  const { pool } = context;
  let heard = false;
  const transaction: DatabasePool["transaction"] = async (handler) => {
    const result = await pool.transaction(handler);
    if (heard) return result;
    heard = true;
    throw new Error("the connection was cut");
  };
  return { ...context, pool: { ...pool, transaction } };
}

export const organizationId = "org_acme";

/** A message batch that runs, of so many items. @returns its id. */
export async function insertBatch(pool: DatabasePool, items: number): Promise<string> {
  const id = newId("msgbatch");
  await pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, total, created_at, expires_at,
      in_progress_at)
    values (${id}, ${organizationId}, 'default', 'key_1', 'messages', 'messages', 'in_progress', ${items},
      clock_timestamp(), clock_timestamp() + interval '24 hours', clock_timestamp())
  `);
  await pool.query(sql.unsafe`
    insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, model, body)
    select ${id}, number, '"i' || number || '"', 'req_' || ${id} || '_' || number, date_trunc('milliseconds', now()),
      'm', '{}'::bytea
    from generate_series(0, ${items - 1}) as number
  `);
  return id;
}

/** Claims up to `most` items of one batch. `suspects`: as where one that may end its process runs already. */
export async function claim(
  context: BatchContext,
  batchId: string,
  most: number,
  suspects = false,
): Promise<readonly ClaimedItem[]> {
  await beat(context);
  const now = context.clock.now();
  const blocked = { models: [], asked: [], batches: [], suspects };
  const open = await batchesInLine(context.pool, now, blocked);
  if (!open.some(({ id }) => id === batchId)) return [];
  return await claimItems(context.pool, context.workerId, now, {
    shares: new Map([[batchId, most]]),
    blocked,
    modelRooms: new Map(),
    askedRooms: [],
  });
}

/** An answer of so many output tokens, which its line tells as well. */
export function answer(item: ClaimedItem, output: number, release = () => Promise.resolve()): Over {
  const asked = request(item.organizationId, {
    id: item.requestId,
    acceptedAt: item.acceptedAt,
    projectId: item.projectId,
    keyId: item.keyId,
    keyEpoch: null,
    endpoint: "batch",
    batchId: item.batchId,
  });
  const row = usageRow(asked, usage(0, { tokens: { ...observed(1).tokens, output } }));
  const line = Buffer.from(
    `${JSON.stringify({ custom_id: `i${item.number}`, usage: { output_tokens: output } })}\n`,
  );
  return { kind: "over", state: "succeeded", answered: true, line, row, release };
}
type Over = Extract<ItemEnd, { kind: "over" }>;
