/** Puts together all parts of a data plane that deal with batches. */
import type { RedisStore } from "../store/redis-servers.ts";
import type { Holds } from "../billing/holds/holds.ts";
import type { RunServices } from "./worker/run.ts";
import type { BatchContext } from "./context.ts";
import { redisWakeUps } from "./worker/wake-ups.ts";
import { BatchWorker, type WorkerOptions } from "./worker/worker.ts";

export interface BatchesOptions
  extends
    Omit<BatchContext, "workerId" | "creating" | "wake" | "balance">,
    Pick<RunServices, "serve" | "snapshot" | "random" | "records" | "limitsOf" | "toolRoom">,
    Pick<WorkerOptions, "busy" | "liveLoad" | "rhythm" | "limits"> {
  readonly redis: RedisStore;
  readonly holds: Holds;
}

export interface Batches {
  readonly context: BatchContext;
  readonly worker: BatchWorker;
  /** Claims nothing more and waits for running items, at most `timeoutMs` and no longer once `hurry` is aborted. @returns whether all ended. */
  stop(timeoutMs: number, hurry?: AbortSignal): Promise<boolean>;
}

/** Builds the parts; `worker.start()` starts the work. */
export function openBatches(options: BatchesOptions): Batches {
  const { pool, files, bodies, clock, newId, large, log, redis, holds, ...rest } = options;
  const { serve, snapshot, random, records, limitsOf, toolRoom } = options;
  const wakeUps = redisWakeUps(redis);
  const context: BatchContext = {
    pool,
    files,
    bodies,
    clock,
    newId,
    large,
    log,
    // As random as a request's id, and never shown to a client.
    workerId: newId("req"),
    creating: new Set(),
    wake: () => wakeUps.send(),
    balance: async (organizationId) => {
      const { granted, used } = await holds.standing.credit(organizationId);
      return granted - used;
    },
  };
  const worker = new BatchWorker({
    context,
    run: {
      serve,
      snapshot,
      random,
      ...(records === undefined ? {} : { records }),
      clock,
      limitsOf,
      toolRoom,
      meterFor: (claim, onRow) => holds.forItem(claim, onRow),
    },
    charged: (rows, accounts) => holds.charges.ledgerCharged(rows, accounts),
    ...rest,
  });
  wakeUps.listen(() => worker.wake());
  const stop = async (timeoutMs: number, hurry?: AbortSignal) => {
    const isEnded = await worker.stop(timeoutMs, hurry);
    wakeUps.close();
    return isEnded;
  };
  return { context, worker, stop };
}
