/**
 * Stores how runs of items ended: result line, usage row, charge and counters in one transaction (design.md §5). A
 * run counts only while the item still has its claim: the run of an item that was taken from this worker meanwhile
 * stores nothing, as another run, here or elsewhere, has the item.
 */
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import { joinedInSlices } from "../../lib/small-pieces.ts";
import type { Account } from "../../billing/ledger/accounts.ts";
import { chargeRows } from "../../billing/ledger/charge.ts";
import type { ClaimedItem } from "./claim.ts";
import { Counts } from "../counts.ts";
import { nextStatesOf, type NextState } from "./next-state.ts";
import type { ItemEnd } from "./run.ts";
import { reachedBatchStep } from "../steps.ts";

type Over = Extract<ItemEnd, { kind: "over" }>;
export interface Ended<End extends ItemEnd = ItemEnd> {
  readonly item: ClaimedItem;
  readonly end: End;
}

export interface Stored {
  /** Runs whose results are stored. */
  readonly mine: readonly Ended<Over>[];
  /** Runs whose results are dropped: their items were taken. */
  readonly late: readonly Ended<Over>[];
  /** The accounts that were charged, as they are now. */
  readonly accounts: readonly Account[];
  /** Items that will run again. */
  readonly again: number;
  /** True when a batch has nothing left to run. */
  readonly finished: boolean;
}

/**
 * Locks in one order: batches by id, their items, accounts. May be repeated, also after a commit whose answer was
 * lost.
 * @param charge charges what the runs cost.
 */
export async function storeEnds(
  transaction: DatabaseTransactionConnection,
  ends: readonly Ended[],
  now: number,
  charge = chargeRows,
): Promise<Stored> {
  const nextStates = await nextStatesOf(transaction, [...new Set(ends.map(({ item }) => item.batchId))], now);
  const over = ends.filter((ended): ended is Ended<Over> => ended.end.kind === "over");
  const stored = await storeLines(transaction, over);
  const counts = new Counts();
  for (const { item, end } of over) if (stored.has(item.claim)) counts.add(item.batchId, end.state, end.row);
  const kept =
    stored.size === over.length ? stored : new Set([...stored, ...(await storedBefore(transaction, over))]);
  const unfinished = ends.filter(({ end }) => end.kind !== "over");
  const back = await putBack(transaction, unfinished, nextStates);
  let again = 0;
  for (const { batchId, state } of back) {
    if (state === "waiting") again += 1;
    else counts.add(batchId, state, null);
  }
  const isBack = (item: ClaimedItem) =>
    back.some(({ batchId, number }) => batchId === item.batchId && number === item.number);
  await notLost(transaction, [
    ...over.filter(({ item }) => !kept.has(item.claim)),
    ...(back.length === unfinished.length ? [] : unfinished.filter(({ item }) => !isBack(item))),
  ]);
  const finished = await counts.store(transaction);
  const mine = over.filter(({ item }) => kept.has(item.claim));
  const rows = mine.flatMap(({ end }) => (end.row === null ? [] : [end.row]));
  const accounts = await charge(transaction, rows);
  reachedBatchStep("settle.written");
  return { mine, late: over.filter(({ item }) => !kept.has(item.claim)), accounts, again, finished };
}

const claimedSchema = z.object({ claim: z.string() });

/** @returns the claims whose lines were stored. */
async function storeLines(
  db: CommonQueryMethods,
  over: readonly Ended<Over>[],
): Promise<ReadonlySet<string>> {
  if (over.length === 0) return new Set();
  let offset = 1;
  const rows = over.map(({ item, end: { state, line } }) => {
    const start = offset;
    offset += line.length;
    return [...keyOf(item), state, start, line.length];
  });
  const blob = sql.binary(await joinedInSlices(over.map(({ end }) => end.line)));
  const stored = await db.anyFirst(sql.type(claimedSchema)`
    update batch_items item
    set state = ended.state, line = substring(${blob}::bytea from ended.start for ended.length), body = null, worker = null
    from ${sql.unnest(rows, [...keyTypes, "text", "int4", "int4"])}
      as ended (batch_id, number, claim, state, start, length)
    where ${isClaimed("ended")}
    returning item.claim
  `);
  return new Set(stored);
}

/** @returns the claims whose results were stored by a transaction whose answer was lost. */
async function storedBefore(
  db: CommonQueryMethods,
  over: readonly Ended<Over>[],
): Promise<ReadonlySet<string>> {
  return new Set(
    await db.anyFirst(sql.type(claimedSchema)`
      select item.claim
      from batch_items item join ${keysOf(over)} as ended (batch_id, number, claim)
        on item.batch_id = ended.batch_id and item.number = ended.number and item.claim = ended.claim
      where item.state in ('succeeded', 'errored')
    `),
  );
}

/** Takes back losses of items that were taken from here though their runs went on to end: no process died of them (losses.ts). */
async function notLost(db: CommonQueryMethods, ends: readonly Ended[]): Promise<void> {
  if (ends.length === 0) return;
  await db.query(sql.unsafe`
    update batch_items item
    set lost_claims = array(select unnest(item.lost_claims) except select unnest(ended.claims))
    from (
      select batch_id, number, array_agg(claim) as claims
      from ${keysOf(ends)} as ended (batch_id, number, claim) group by batch_id, number
    ) as ended
    where item.batch_id = ended.batch_id and item.number = ended.number and item.lost_claims && ended.claims
      and item.state in ('waiting', 'running')
  `);
}

/** @returns the items whose claims still stood, with their new states. */
async function putBack(
  db: CommonQueryMethods,
  again: readonly Ended[],
  nextStates: ReadonlyMap<string, NextState>,
): Promise<readonly { readonly batchId: string; readonly number: number; readonly state: NextState }[]> {
  if (again.length === 0) return [];
  const schema = z.object({
    batchId: z.string(),
    number: z.number(),
    state: z.enum(["waiting", "canceled", "expired"]),
  });
  return await db.any(sql.type(schema)`
    update batch_items item
    set state = again.state, worker = null, claim = null,
      not_before = clock_timestamp() + again.wait_ms * interval '1 millisecond',
      -- A limit counts a request in the window in which it is accepted: it is accepted anew when it is tried again.
      accepted_at = case when again.anew = 1
        then date_trunc('milliseconds', clock_timestamp() + again.wait_ms * interval '1 millisecond')
        else item.accepted_at end,
      faults = item.faults + again.fault,
      own_faults = item.own_faults + again.own,
      first_fault_at = case when again.fault = 1 then coalesce(item.first_fault_at, clock_timestamp()) else item.first_fault_at end,
      body = case when again.state = 'waiting' then item.body end
    from ${sql.unnest(
      again.map(({ item, end }) => [
        ...keyOf(item),
        nextStates.get(item.batchId) ?? "waiting",
        end.kind === "over" ? 0 : end.waitMs,
        end.kind === "fault" ? 1 : 0,
        end.kind === "fault" ? end.own : 0,
        end.kind === "again" && end.because === "limit" ? 1 : 0,
      ]),
      [...keyTypes, "text", "int4", "int4", "int4", "int4"],
    )} as again (batch_id, number, claim, state, wait_ms, fault, own, anew)
    where ${isClaimed("again")}
    returning item.batch_id as "batchId", item.number, item.state
  `);
}

/** What names a run: batch, number, claim. */
const keyOf = ({ batchId, number, claim }: ClaimedItem) => [batchId, number, claim] as const;
const keyTypes = ["text", "int4", "uuid"];
const keysOf = (ends: readonly Ended[]) =>
  sql.unnest(
    ends.map(({ item }) => keyOf(item)),
    keyTypes,
  );
/** An item has at most one claim, so that of two runs of it at most one is joined. */
const isClaimed = (name: "ended" | "again") => {
  const of = sql.identifier([name]);
  return sql.fragment`
    item.batch_id = ${of}.batch_id and item.number = ${of}.number and item.claim = ${of}.claim
    and item.state = 'running'
  `;
};
