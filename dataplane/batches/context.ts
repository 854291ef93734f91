/** What the code of batches is given by the process that runs it. */
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
  /** Of the whole process: batch items take what live requests leave. */
  readonly bodies: ByteBudget;
  readonly clock: Clock;
  readonly newId: NewId;
  /** Where large requests are read; null: here. */
  readonly large: WorkerPool | null;
  readonly log: Logger;
  /** The id of this worker: one for each process. */
  readonly workerId: string;
  /** Message batches whose bodies are coming in here. */
  readonly creating: Set<string>;
  /** Tells the workers of every pod that there is something to do. Never fails: they look by themselves, too. */
  readonly wake: () => void;
  /** Grants − usage of an organization. @throws ApiError 503 */
  readonly balance: (organizationId: string) => Promise<Micros>;
}

/** @throws ApiError 402: a batch is made only while the balance is above 0 (service.md "Limits"). */
export async function requireBalance({ balance }: BatchContext, organizationId: string): Promise<void> {
  if ((await balance(organizationId)) <= 0n) throw creditEmpty();
}
