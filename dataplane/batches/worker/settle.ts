/** Gathers the ends of items and stores them, many at a time, however long Postgres is away. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Account } from "../../billing/ledger/accounts.ts";
import { chargeOrSetAside, type chargeRows } from "../../billing/ledger/charge.ts";
import { creditsText } from "../../billing/credits.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { ApiError } from "../../lib/api-error.ts";
import { inBackground } from "../../lib/in-background.ts";
import { isStoreAway } from "../../store/store-away.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { ClaimedItem } from "./claim.ts";
import type { BatchContext } from "../context.ts";
import { erroredLine } from "../lines.ts";
import type { ItemEnd } from "./run.ts";
import { reachedBatchStep } from "../steps.ts";
import { storeEnds, type Ended, type Stored } from "./store-ends.ts";

/** Items that end within this time share a transaction. */
const GATHER_MS = 30;
const ITEMS_AT_ONCE = 200;
const BYTES_AT_ONCE = 8 * 1024 * 1024;
const LONGEST_PAUSE_MS = 5_000;
/** Pause before an end that Postgres refused is tried again; it doubles each time once Postgres takes it in no form. */
const REFUSED_PAUSE_MS = 1_000;
const LONGEST_REFUSED_PAUSE_MS = 60_000;
/** Refusals of an end after which Postgres may take it in another form (`storeSomehow`). */
const MOST_REFUSALS = 3;

interface Waiting extends Ended {
  readonly stored: () => void;
  /** How often Postgres refused it without being away. */
  readonly refusals: number;
}

/**
 * Stores the ends of items, many in one transaction. What Postgres refuses is tried by itself, after some refusals in another form,
 * and again later until its batch's time is over.
 */
export class Settler {
  readonly #context: BatchContext;
  readonly #charged: (rows: readonly UsageRow[], accounts: readonly Account[]) => void;
  readonly #finished: () => void;
  #waiting: Waiting[] = [];
  #running = false;
  /** Claims of runs whose ends Postgres takes in no form, for now. */
  readonly #inNoForm = new Set<string>();

  /**
   * @param charged `Charges.ledgerCharged`
   * @param finished called when a batch has nothing left to run
   */
  constructor(
    context: BatchContext,
    charged: (rows: readonly UsageRow[], accounts: readonly Account[]) => void,
    finished: () => void,
  ) {
    this.#context = context;
    this.#charged = charged;
    this.#finished = finished;
  }

  /** Resolves once the end of the item's run is stored, or is not wanted any more, however long that takes. */
  store(item: ClaimedItem, end: ItemEnd): Promise<void> {
    return new Promise((stored) => {
      this.#enqueue([{ item, end, stored, refusals: 0 }]);
    });
  }

  #enqueue(some: readonly Waiting[]): void {
    this.#waiting.push(...some);
    if (!this.#running) inBackground(this.#run(), this.#context.log, "storing the results of a batch");
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      await sleep(GATHER_MS);
      while (this.#waiting.length > 0) {
        const some = portion(this.#waiting);
        this.#waiting = this.#waiting.slice(some.length);
        await this.#settle(some);
      }
    } finally {
      this.#running = false;
    }
  }

  /**
   * Waits for a store that is away: the answers are paid for upstream. Ends that it refuses are tried one by one, so that the
   * others are stored, and again later (`refused`).
   */
  async #settle(some: readonly Waiting[]): Promise<void> {
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      let stored: Stored;
      try {
        const [one] = some;
        const isRefused = some.length === 1 && one !== undefined && one.refusals >= MOST_REFUSALS;
        stored = await (isRefused ? this.#storeSomehow(one) : this.#store(some));
      } catch (error) {
        const ids = some.slice(0, 10).map(({ item }) => item.requestId);
        this.#context.log.warn(
          { err: error, items: some.length, requests: ids },
          "results of a batch could not be stored yet",
        );
        if (isStoreAway(error)) {
          await sleep(pauseMs);
          continue;
        }
        if (some.length > 1) for (const one of some) await this.#settle([one]);
        else for (const one of some) await this.#refused(one, error);
        return;
      }
      await this.#tell(stored, some).catch((error: unknown) => {
        this.#context.log.error({ err: error }, "what was stored of a batch was not told");
      });
      for (const one of some) this.#isOver(one);
      return;
    }
  }

  #store(ends: readonly Ended[], charge?: typeof chargeRows): Promise<Stored> {
    const { pool, clock } = this.#context;
    return pool.transaction((transaction) => storeEnds(transaction, ends, clock.now(), charge));
  }

  /**
   * Stores an end in the best form that Postgres takes: as it is, if need be with its charge as a dead letter; else as an
   * error in its place, so that its batch ends. Where Postgres would take the error, the end is first tried as it is once
   * more: what made Postgres refuse everything may be gone.
   */
  async #storeSomehow(one: Waiting): Promise<Stored> {
    const asItIs = () => this.#store([one], chargeOrSetAside);
    const inStead = [{ ...one, end: refusedEnd(one) }];
    try {
      return await asItIs();
    } catch (error) {
      if (isStoreAway(error)) throw error;
    }
    await this.#wouldStore(inStead);
    try {
      return await asItIs();
    } catch (error) {
      if (isStoreAway(error)) throw error;
      const stored = await this.#store(inStead, chargeOrSetAside);
      this.#gaveUp(one, error, "errored");
      return stored;
    }
  }

  /** Tries to store the ends and rolls back. @throws Postgres' error where it does not take them. */
  async #wouldStore(ends: readonly Ended[]): Promise<void> {
    const taken = new Error("taken");
    const trial = this.#context.pool.transaction(async (transaction) => {
      await storeEnds(transaction, ends, this.#context.clock.now(), chargeOrSetAside);
      throw taken;
    });
    await trial.catch((error: unknown) => {
      if (error !== taken) throw error;
    });
  }

  /** Lets a refused end be tried again, until the time of its batch is over. */
  async #refused(one: Waiting, error: unknown): Promise<void> {
    const refusals = one.refusals + 1;
    if (refusals > MOST_REFUSALS) {
      this.#inNoForm.add(one.item.claim);
      metrics.batchResultsRefused.set(this.#inNoForm.size);
    }
    if (refusals > MOST_REFUSALS && this.#context.clock.now() >= one.item.expiresAt) {
      this.#gaveUp(one, error, "expired");
      if (one.end.kind === "over") await one.end.release();
      // From here on its claim is unknown to the worker, so `takeUnknown` takes the item, and it expires.
      return this.#isOver(one);
    }
    const doublings = Math.max(0, refusals - MOST_REFUSALS);
    const pauseMs = Math.min(REFUSED_PAUSE_MS * 2 ** doublings, LONGEST_REFUSED_PAUSE_MS);
    setTimeout(() => this.#enqueue([{ ...one, refusals }]), refusals === MOST_REFUSALS ? 0 : pauseMs);
  }

  #gaveUp({ item, end }: Waiting, error: unknown, outcome: "errored" | "expired"): void {
    const cost = end.kind === "over" && end.row !== null ? creditsText(end.row.cost.total) : "0";
    this.#context.log.error(
      { err: error, batch: item.batchId, request_id: item.requestId, credits: cost, outcome },
      "gave up the result of a batch item, which the database refuses",
    );
    metrics.batchResultsGivenUp.inc({ outcome });
  }

  #isOver(one: Waiting): void {
    this.#inNoForm.delete(one.item.claim);
    metrics.batchResultsRefused.set(this.#inNoForm.size);
    one.stored();
  }

  /** Reports what was committed, once. If that fails, accounts and workers learn of it from the database. */
  async #tell(
    { mine, late, accounts, again, finished: anyFinished }: Stored,
    some: readonly Waiting[],
  ): Promise<void> {
    reachedBatchStep("settle.done");
    // The runs' own rows, also where an error was stored in their place: each releases the hold of its run.
    const kept = new Set(mine.map(({ item }) => item.claim));
    const rows = some.flatMap(({ item, end }) =>
      end.kind === "over" && kept.has(item.claim) ? [end.row] : [],
    );
    this.#charged(
      rows.filter((row) => row !== null),
      accounts,
    );
    for (const { end } of mine) metrics.batchItemsDone.inc({ state: end.state });
    metrics.batchRetries.inc(again);
    if (late.length > 0)
      this.#context.log.info(
        { items: late.length },
        "dropped results of items that were taken from this worker",
      );
    await Promise.all(late.map(({ end }) => end.release()));
    if (anyFinished) this.#finished();
  }
}

/** Makes the error that is stored in place of a refused end. The run is charged, as it is paid for upstream. */
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
