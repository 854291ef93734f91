/** The steps that end a data plane, in order. Each has a bound of its own, so that no store holds up the steps after it. */
import type { Logger } from "pino";
import { within } from "./lib/within.ts";
import { UNSEEN_MS } from "./upstream/limits.ts";

/** How long a store that does not answer may hold up a step. The grace period has 60 s for all steps. */
const GOODBYE_MS = 5_000;
/** After this the last charges are in Redis or Postgres, or reported as lost. */
const LAST_CHARGES_MS = 30_000;

export interface Stops {
  stop(): Promise<unknown>;
}

export interface EndingParts {
  readonly log: Pick<Logger, "info" | "error">;
  /** Waits for requests and batches, as long as it may. @returns whether all of them ended by themselves. */
  readonly drain: () => Promise<boolean>;
  readonly holds: { idle(timeoutMs: number): Promise<unknown> };
  readonly loader: Stops;
  /** Recurring work that loses nothing when it is cut. */
  readonly helpers: readonly Stops[];
  readonly dispatchers: readonly { destroy(): Promise<unknown> }[];
  readonly pools: readonly { close(): Promise<unknown> }[];
  readonly records: Stops;
  /** Waits for notifications of spent credit that are being sent, 15 s each at most: one that is cut off would be sent again. */
  readonly sender: Stops;
  /** Copies what is declared, and writes when keys were last used. */
  readonly sync: Stops;
  /** Moves the last charges into the ledger; then writes the last changes of accounts to Redis. */
  readonly money: Stops & { tellLast(): Promise<unknown> };
  readonly stores: { close(): Promise<unknown> };
  readonly stopTelemetry: () => Promise<unknown>;
}

export async function endServing(parts: EndingParts): Promise<void> {
  const { log, holds, loader, helpers, dispatchers, pools, records, sender, sync, money, stores } = parts;
  /** Waits for all; a failure is logged, and does not keep later steps from running. */
  const all = async (...ends: readonly Promise<unknown>[]): Promise<void> => {
    for (const end of await Promise.allSettled(ends))
      if (end.status === "rejected") log.error({ err: end.reason as unknown }, "not everything ended well");
  };
  await all(parts.drain().then((clean) => log.info({ clean }, "drained")));
  // Answers whose clients have left are still read for their usage reports.
  await all(holds.idle(UNSEEN_MS + 1_000));
  await all(loader.stop());
  await within(GOODBYE_MS, () => all(...helpers.map((helper) => helper.stop())));
  await all(...dispatchers.map((dispatcher) => dispatcher.destroy()), ...pools.map((pool) => pool.close()));
  await all(records.stop());
  const moveLastCharges = async () => {
    await all(sync.stop(), money.stop());
    await all(money.tellLast());
  };
  // In parallel: if Postgres hangs, charges go where they can while copying waits.
  await within(LAST_CHARGES_MS, () => all(sender.stop(), moveLastCharges()));
  // The stores go last: until here running requests were settling their charges.
  await within(GOODBYE_MS, () => all(stores.close(), parts.stopTelemetry()));
}
