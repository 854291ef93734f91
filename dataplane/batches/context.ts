/** What the process that runs it passes to the code of batches. */
import type { DatabasePool } from "slonik";
import type { Logger } from "pino";
import type { Micros } from "../billing/credits.ts";
import { creditEmpty } from "../billing/holds/rate-limits.ts";
import type { FileStore } from "../files/file-store.ts";
import type { ByteBudget } from "../lib/byte-budget.ts";
import type { Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
import type { WorkerPool } from "../lib/worker-pool.ts";

export interface BatchContext {
  readonly pool: DatabasePool;
  readonly files: FileStore;
  /** The process's body budget: batch items take what live requests leave. */
  readonly bodies: ByteBudget;
  readonly clock: Clock;
  readonly newId: NewId;
  /** The threads that read large requests; null: they are read in this one. */
  readonly large: WorkerPool | null;
  readonly log: Logger;
  /** The id of this worker: one for each process. */
  readonly workerId: string;
  /** Ids of message batches whose bodies this process is receiving. */
  readonly creating: Set<string>;
  /** Wakes the workers of every pod. Never fails: they poll, too. */
  readonly wake: () => void;
  /** Grants − usage of an organization. @throws ApiError 503 */
  readonly balance: (organizationId: string) => Promise<Micros>;
}

/** @throws ApiError 402: a batch is made only while the balance is above 0 (service.md "Limits"). */
export async function requireBalance({ balance }: BatchContext, organizationId: string): Promise<void> {
  if ((await balance(organizationId)) <= 0n) throw creditEmpty();
}
