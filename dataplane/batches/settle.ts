/**
 * Stores how items ended: result, usage row and charge in one transaction (design.md §5), many items at a time.
 * An item that was taken from this worker meanwhile is somebody else's: its result here is dropped, uncharged.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { sql, type CommonQueryMethods, type DatabaseTransactionConnection } from "slonik";
import { z } from "zod";
import type { Account } from "../billing/accounts.ts";
import { chargeRows } from "../billing/charge.ts";
import type { UsageRow } from "../billing/usage-row.ts";
import { metrics } from "../telemetry/metrics.ts";
import { at } from "./batch.ts";
import type { ClaimedItem } from "./claim.ts";
import type { Engine } from "./engine.ts";
import type { ItemEnd } from "./run.ts";
import { reached } from "./steps.ts";

/** Items that end within this time share a transaction. */
const GATHER_MS = 30;
const ITEMS_AT_ONCE = 200;
const BYTES_AT_ONCE = 8 * 1024 * 1024;
const LONGEST_PAUSE_MS = 5_000;

type Over = Extract<ItemEnd, { kind: "over" }>;
interface Ended {
  readonly item: ClaimedItem;
  readonly end: ItemEnd;
  readonly stored: () => void;
}

export interface Settler {
  /** Resolves once the end of the item's run is stored, however long that takes. */
  store(item: ClaimedItem, end: ItemEnd): Promise<void>;
}

/** `charged`: `Holds.ledgerCharged`. `finished`: a batch has nothing left to run. */
export function createSettler(
  engine: Engine,
  charged: (rows: readonly UsageRow[], accounts: readonly Account[]) => void,
  finished: () => void,
): Settler {
  let waiting: Ended[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    await sleep(GATHER_MS);
    while (waiting.length > 0) {
      const some = portion(waiting);
      waiting = waiting.slice(some.length);
      await storeUntilDone(some);
      for (const { stored } of some) stored();
    }
    running = false;
  }

  /** A store that is away is waited for: the answers are paid for upstream. */
  async function storeUntilDone(some: readonly Ended[]): Promise<void> {
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        const stored = await engine.pool.transaction((transaction) => storeAll(transaction, engine, some));
        reached("settle.done");
        charged(stored.rows, stored.accounts);
        await Promise.all(stored.dropped.map((over) => over.release().catch(() => undefined)));
        if (stored.finished) finished();
        return;
      } catch (error) {
        engine.log.warn({ err: error, items: some.length }, "results of a batch could not be stored yet");
        await sleep(pauseMs);
      }
    }
  }

  return {
    store: (item, end) =>
      new Promise((stored) => {
        waiting.push({ item, end, stored });
        if (!running) void run();
      }),
  };
}

function portion(waiting: readonly Ended[]): Ended[] {
  let bytes = 0;
  const some: Ended[] = [];
  for (const ended of waiting.slice(0, ITEMS_AT_ONCE)) {
    bytes += ended.end.kind === "over" ? ended.end.line.length : 0;
    if (some.length > 0 && bytes > BYTES_AT_ONCE) break;
    some.push(ended);
  }
  return some;
}

interface Stored {
  readonly rows: readonly UsageRow[];
  readonly accounts: readonly Account[];
  readonly dropped: readonly Over[];
  readonly finished: boolean;
}

/** Locks in one order: batches by id, their items, accounts. */
async function storeAll(
  transaction: DatabaseTransactionConnection,
  engine: Engine,
  some: readonly Ended[],
): Promise<Stored> {
  const fates = await lockBatches(transaction, some, engine.clock.now());
  const over = some.filter((ended): ended is Ended & { end: Over } => ended.end.kind === "over");
  const again = some.filter(({ end }) => end.kind !== "over");
  const kept = await storeLines(transaction, engine.workerId, over);
  const mine = over.filter(({ item }) => kept.has(keyOf(item)));
  const counts = new Counts();
  for (const { item, end } of mine) counts.add(item.batchId, end.state, end.row);
  for (const [batchId, state] of await putBack(transaction, engine.workerId, again, fates)) {
    if (state !== "waiting") counts.add(batchId, state, null);
    else metrics.batchRetries.inc();
  }
  const finished = await counts.store(transaction);
  const rows = mine.flatMap(({ end }) => (end.row === null ? [] : [end.row]));
  const accounts = await chargeRows(transaction, rows);
  for (const { end } of mine) metrics.batchItemsDone.inc({ state: end.state });
  const dropped = over.filter(({ item }) => !kept.has(keyOf(item))).map(({ end }) => end);
  reached("settle.written");
  return { rows, accounts, dropped, finished };
}

const keyOf = ({ batchId, number }: { readonly batchId: string; readonly number: number }) =>
  `${batchId} ${number}`;

/** What becomes of an item that would run again: a batch that was cancelled or is overdue runs nothing more. */
export type Fate = "waiting" | "canceled" | "expired";

async function lockBatches(
  transaction: DatabaseTransactionConnection,
  some: readonly Ended[],
  now: number,
): Promise<ReadonlyMap<string, Fate>> {
  return await fatesOf(transaction, [...new Set(some.map(({ item }) => item.batchId))], now);
}

/** Locks the batches, in the order of their ids, and says what becomes of their waiting items. */
export async function fatesOf(
  transaction: DatabaseTransactionConnection,
  batchIds: readonly string[],
  now: number,
): Promise<ReadonlyMap<string, Fate>> {
  const schema = z.object({ id: z.string(), cancelled: z.boolean(), overdue: z.boolean() });
  const rows = await transaction.any(sql.type(schema)`
    select id, cancel_initiated_at is not null as cancelled, expires_at <= ${at(now)} as overdue
    from batches where id = any(${sql.array([...batchIds], "text")})
    order by id for update
  `);
  return new Map(
    rows.map(({ id, cancelled, overdue }) => [id, cancelled ? "canceled" : overdue ? "expired" : "waiting"]),
  );
}

/** @returns keys of the items that were still this worker's. */
async function storeLines(
  db: CommonQueryMethods,
  workerId: string,
  over: readonly { readonly item: ClaimedItem; readonly end: Over }[],
): Promise<ReadonlySet<string>> {
  if (over.length === 0) return new Set();
  let offset = 1;
  const starts = over.map(({ end }) => (offset += end.line.length) - end.line.length);
  const blob = sql.binary(Buffer.concat(over.map(({ end }) => end.line)));
  const stored = await db.any(sql.type(z.object({ batchId: z.string(), number: z.number() }))`
    update batch_items item
    set state = ended.state, line = substring(${blob}::bytea from ended.start for ended.length), body = null, worker = null
    from unnest(
      ${sql.array(
        over.map(({ item }) => item.batchId),
        "text",
      )},
      ${sql.array(
        over.map(({ item }) => item.number),
        "int4",
      )},
      ${sql.array(
        over.map(({ end }) => end.state),
        "text",
      )},
      ${sql.array(starts, "int4")},
      ${sql.array(
        over.map(({ end }) => end.line.length),
        "int4",
      )}
    ) as ended (batch_id, number, state, start, length)
    where item.batch_id = ended.batch_id and item.number = ended.number
      and item.state = 'running' and item.worker = ${workerId}
    returning item.batch_id as "batchId", item.number
  `);
  return new Set(stored.map(keyOf));
}

/** @returns the batch and the new state of each item that was still this worker's. */
async function putBack(
  db: CommonQueryMethods,
  workerId: string,
  again: readonly Ended[],
  fates: ReadonlyMap<string, Fate>,
): Promise<(readonly [string, Fate])[]> {
  if (again.length === 0) return [];
  const schema = z.object({ batchId: z.string(), state: z.enum(["waiting", "canceled", "expired"]) });
  const rows = await db.any(sql.type(schema)`
    update batch_items item
    set state = again.state, worker = null, not_before = clock_timestamp() + again.wait_ms * interval '1 millisecond',
      faults = item.faults + again.fault,
      first_fault_at = case when again.fault = 1 then coalesce(item.first_fault_at, clock_timestamp()) else item.first_fault_at end,
      body = case when again.state = 'waiting' then item.body end
    from unnest(
      ${sql.array(
        again.map(({ item }) => item.batchId),
        "text",
      )},
      ${sql.array(
        again.map(({ item }) => item.number),
        "int4",
      )},
      ${sql.array(
        again.map(({ item }) => fates.get(item.batchId) ?? "waiting"),
        "text",
      )},
      ${sql.array(
        again.map(({ end }) => (end.kind === "over" ? 0 : end.waitMs)),
        "int4",
      )},
      ${sql.array(
        again.map(({ end }) => (end.kind === "fault" ? 1 : 0)),
        "int4",
      )}
    ) as again (batch_id, number, state, wait_ms, fault)
    where item.batch_id = again.batch_id and item.number = again.number
      and item.state = 'running' and item.worker = ${workerId}
    returning item.batch_id as "batchId", item.state
  `);
  return rows.map(({ batchId, state }) => [batchId, state]);
}

const counted = ["succeeded", "errored", "canceled", "expired"] as const;
type Counted = (typeof counted)[number];
interface Sums extends Record<Counted, number> {
  input: number;
  cached: number;
  output: number;
  reasoning: number;
}

/** What a transaction adds to the counters of its batches. */
export class Counts {
  readonly #byBatch = new Map<string, Sums>();

  add(batchId: string, state: Counted, row: UsageRow | null, times = 1): void {
    let sums = this.#byBatch.get(batchId);
    if (sums === undefined) {
      sums = {
        succeeded: 0,
        errored: 0,
        canceled: 0,
        expired: 0,
        input: 0,
        cached: 0,
        output: 0,
        reasoning: 0,
      };
      this.#byBatch.set(batchId, sums);
    }
    sums[state] += times;
    if (row === null) return;
    const { tokens } = row;
    sums.input += tokens.input + tokens.cacheRead + tokens.cacheWrite5m + tokens.cacheWrite1h;
    sums.cached += tokens.cacheRead;
    sums.output += tokens.output;
    sums.reasoning += tokens.reasoning;
  }

  /** @returns whether a batch has nothing left to run. */
  async store(db: CommonQueryMethods): Promise<boolean> {
    if (this.#byBatch.size === 0) return false;
    const left = await db.anyFirst(sql.type(z.object({ left: z.number() }))`
      update batches batch set
        succeeded = batch.succeeded + added.succeeded, errored = batch.errored + added.errored,
        canceled = batch.canceled + added.canceled, expired = batch.expired + added.expired,
        overdue = batch.overdue or added.expired > 0,
        input_tokens = batch.input_tokens + added.input, cached_tokens = batch.cached_tokens + added.cached,
        output_tokens = batch.output_tokens + added.output, reasoning_tokens = batch.reasoning_tokens + added.reasoning
      from ${sql.unnest(
        [...this.#byBatch].map(([id, sums]) => [
          id,
          ...counted.map((state) => sums[state]),
          sums.input,
          sums.cached,
          sums.output,
          sums.reasoning,
        ]),
        ["text", "int4", "int4", "int4", "int4", "int8", "int8", "int8", "int8"],
      )} as added (id, succeeded, errored, canceled, expired, input, cached, output, reasoning)
      where batch.id = added.id
      returning batch.total - batch.succeeded - batch.errored - batch.canceled - batch.expired as left
    `);
    return left.includes(0);
  }
}
