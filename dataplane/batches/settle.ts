/** Gathers how items ended and has them stored, many at a time, however long Postgres is away. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Account } from "../billing/accounts.ts";
import type { UsageRow } from "../billing/usage-row.ts";
import { ApiError } from "../lib/api-error.ts";
import { inBackground } from "../lib/in-background.ts";
import { refusesData } from "../store/postgres.ts";
import { isStoreAway } from "../store/store-away.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { ClaimedItem } from "./claim.ts";
import type { BatchContext } from "./context.ts";
import { erroredLine } from "./lines.ts";
import type { ItemEnd } from "./run.ts";
import { reachedBatchStep } from "./steps.ts";
import { storeEnds, type Ended, type Stored } from "./store-ends.ts";

/** Items that end within this time share a transaction. */
const GATHER_MS = 30;
const ITEMS_AT_ONCE = 200;
const BYTES_AT_ONCE = 8 * 1024 * 1024;
const LONGEST_PAUSE_MS = 5_000;
/** What Postgres refused comes again after so long, and later each time once it was given up. */
const REFUSED_PAUSE_MS = 1_000;
const LONGEST_REFUSED_PAUSE_MS = 60_000;
/** So often an end is refused for its data before the item is an error instead. */
const MOST_REFUSALS = 3;

interface Waiting extends Ended {
  readonly stored: () => void;
  /** How often Postgres refused it for its data. */
  readonly refusals: number;
}

export interface Settler {
  /** Resolves once the end of the item's run is stored, or is not wanted any more, however long that takes. */
  store(item: ClaimedItem, end: ItemEnd): Promise<void>;
}

/** `charged`: `Charges.ledgerCharged`. `finished`: a batch has nothing left to run. */
export function createSettler(
  context: BatchContext,
  charged: (rows: readonly UsageRow[], accounts: readonly Account[]) => void,
  finished: () => void,
): Settler {
  let waiting: Waiting[] = [];
  let running = false;

  async function run(): Promise<void> {
    running = true;
    try {
      await sleep(GATHER_MS);
      while (waiting.length > 0) {
        const some = portion(waiting);
        waiting = waiting.slice(some.length);
        await settle(some);
      }
    } finally {
      running = false;
    }
  }

  /**
   * A store that is away is waited for: the answers are paid for upstream. What it does not take is tried item by item, so that
   * the others are stored, and again later (`refused`).
   */
  async function settle(some: readonly Waiting[]): Promise<void> {
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      let stored: Stored;
      try {
        stored = await context.pool.transaction((transaction) =>
          storeEnds(transaction, some, context.clock.now()),
        );
      } catch (error) {
        const ids = some.slice(0, 10).map(({ item }) => item.requestId);
        context.log.warn(
          { err: error, items: some.length, requests: ids },
          "results of a batch could not be stored yet",
        );
        if (isStoreAway(error)) {
          await sleep(pauseMs);
          continue;
        }
        if (some.length > 1) for (const one of some) await settle([one]);
        else for (const one of some) refused(one, error);
        return;
      }
      await tell(stored).catch((error: unknown) => {
        context.log.error({ err: error }, "what was stored of a batch was not told");
      });
      for (const one of some) one.stored();
      return;
    }
  }

  /** It comes again, after a few refusals of its data as an error in its stead, so that its batch ends. */
  function refused(one: Waiting, error: unknown): void {
    const refusals = one.refusals + (refusesData(error) ? 1 : 0);
    const isGivenUp = refusals === MOST_REFUSALS && one.refusals < MOST_REFUSALS;
    if (isGivenUp)
      context.log.error(
        { err: error, batch: one.item.batchId, request_id: one.item.requestId },
        "gave up the result of a batch item, which the database refuses",
      );
    const next = { ...one, refusals, end: isGivenUp ? refusedEnd(one) : one.end };
    const doublings = Math.max(0, refusals - MOST_REFUSALS);
    const pauseMs = Math.min(REFUSED_PAUSE_MS * 2 ** doublings, LONGEST_REFUSED_PAUSE_MS);
    setTimeout(() => enqueue([next]), isGivenUp ? 0 : pauseMs);
  }

  function enqueue(some: readonly Waiting[]): void {
    waiting.push(...some);
    if (!running) inBackground(run(), context.log, "storing the results of a batch");
  }

  /** Tells what was committed, once. If that fails, accounts and workers find out by looking at the database. */
  async function tell({ mine, late, accounts, again, finished: anyFinished }: Stored): Promise<void> {
    reachedBatchStep("settle.done");
    charged(
      mine.flatMap(({ end }) => (end.row === null ? [] : [end.row])),
      accounts,
    );
    for (const { end } of mine) metrics.batchItemsDone.inc({ state: end.state });
    metrics.batchRetries.inc(again);
    if (late.length > 0)
      context.log.info({ items: late.length }, "dropped results of items that were taken from this worker");
    await Promise.all(late.map(({ end }) => end.release()));
    if (anyFinished) finished();
  }

  return {
    store: (item, end) =>
      new Promise((stored) => {
        enqueue([{ item, end, stored, refusals: 0 }]);
      }),
  };
}

/** What becomes of an item whose own end is refused. Its run is charged, as it is paid for upstream. */
function refusedEnd({ item, end }: Ended): ItemEnd {
  const error = new ApiError("internal", "The result of this request could not be stored.", { retry: false });
  const line = erroredLine(item.form, item, error);
  const errored = { kind: "over", state: "errored", line } as const;
  if (end.kind !== "over")
    return { ...errored, answered: false, row: null, release: () => Promise.resolve() };
  return { ...end, ...errored, row: end.row === null ? null : { ...end.row, status: "error" } };
}

function portion(waiting: readonly Waiting[]): Waiting[] {
  let bytes = 0;
  const some: Waiting[] = [];
  for (const ended of waiting.slice(0, ITEMS_AT_ONCE)) {
    bytes += ended.end.kind === "over" ? ended.end.line.length : 0;
    if (some.length > 0 && bytes > BYTES_AT_ONCE) break;
    some.push(ended);
  }
  return some;
}
