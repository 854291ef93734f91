/**
 * A few worker threads for work that would hold the event loop for long (rule 7.3). A job goes to a worker and comes
 * back as messages; owners take turns. A worker that dies, hangs or has grown is replaced by a fresh one.
 */
import { Worker, type Transferable } from "node:worker_threads";
import { Crew, type CrewMember } from "./crew.ts";

export interface WorkerPoolLimits {
  readonly workers: number;
  /**
   * Heap of a worker, MiB. Jobs must be bounded well below it: a worker that reaches it dies with its job, and where it
   * allocates too fast takes the process along.
   */
  readonly heapMiB: number;
  /** A worker with a larger heap after a job is replaced, so that idle ones are small. MiB */
  readonly retireMiB: number;
  /** Longest time for a job, milliseconds. */
  readonly jobMs: number;
  /** How long a worker may go on for a caller that has left before it is ended, milliseconds. */
  readonly graceMs: number;
  /** Longest wait for a worker, milliseconds. */
  readonly waitMs: number;
  /** Jobs that may wait, of all owners and of one. */
  readonly waiting: number;
  readonly waitingOfOne: number;
}

/** Why a job was not done: there was no place for it, or none in time, it broke its worker, or it was cancelled. */
export class WorkNotDone extends Error {
  override readonly name = "WorkNotDone";
  readonly reason: "busy" | "busy_owner" | "broken" | "cancelled";

  constructor(reason: WorkNotDone["reason"]) {
    super(`the work was not done: ${reason}`);
    this.reason = reason;
  }
}

/** A worker's answer. */
export interface WorkDone {
  readonly result: unknown;
  /** Its heap at the end, MiB. */
  readonly heapMiB: number;
}

/** A message to a worker. */
export interface WorkerMessage {
  readonly message: unknown;
  readonly transfer: readonly Transferable[];
}

export class WorkerPool {
  readonly #limits: WorkerPoolLimits;
  readonly #crew: Crew<PoolWorker>;

  /** @param data given to each worker as its `workerData`. */
  constructor(file: URL, data: unknown, limits: WorkerPoolLimits) {
    this.#limits = limits;
    const options = { workerData: data, resourceLimits: { maxOldGenerationSizeMb: limits.heapMiB } };
    this.#crew = new Crew(
      { ...limits, members: limits.workers },
      (gone) => new PoolWorker(new Worker(file, options), gone),
    );
  }

  /** Starts the workers ahead of the first job. */
  warm(): void {
    this.#crew.warm();
  }

  /**
   * Returns a worker's answer to a message, which is made when a worker is free.
   * @param isOwed the job waits for its turn however many do, and however long: its caller limits the number of such jobs.
   * @throws WorkNotDone
   */
  async run(
    owner: string,
    message: () => WorkerMessage,
    signal: AbortSignal,
    isOwed = false,
  ): Promise<unknown> {
    const release = await this.#crew.place(owner, signal, isOwed);
    if (typeof release === "string") throw new WorkNotDone(release === "late" ? "busy" : release);
    const worker = this.#crew.take();
    const done = worker.run(message, this.#limits, AbortSignal.any([signal, this.#crew.closing]));
    // The result does not wait for this: the place is free once the worker is idle or gone.
    done
      .then(
        ({ heapMiB }) => {
          if (heapMiB > this.#limits.retireMiB) return worker.end();
          this.#crew.giveBack(worker);
          return undefined;
        },
        () => worker.end(),
      )
      .then(release, release);
    return (await done).result;
  }

  /** Ends the workers and everything that waits. */
  close(): Promise<void> {
    return this.#crew.close();
  }
}

class PoolWorker implements CrewMember {
  readonly #worker: Worker;
  #job: PromiseWithResolvers<WorkDone> | null = null;
  /** Whether it has answered once, and so could start. */
  served = false;

  constructor(worker: Worker, gone: () => void) {
    this.#worker = worker;
    // A worker keeps the process alive while it has a job (`run`), not while it is idle.
    worker.unref();
    worker.on("message", (done: WorkDone) => {
      this.served = true;
      this.#job?.resolve(done);
    });
    // The heap is full, or the worker itself failed; `exit` follows.
    worker.on("error", () => this.#fail("broken"));
    worker.on("exit", () => {
      this.#fail("broken");
      gone();
    });
  }

  /** @throws WorkNotDone; the worker must be ended then. */
  async run(
    message: () => WorkerMessage,
    { jobMs, graceMs }: Pick<WorkerPoolLimits, "jobMs" | "graceMs">,
    signal: AbortSignal,
  ): Promise<WorkDone> {
    const job = Promise.withResolvers<WorkDone>();
    this.#job = job;
    let timer = setTimeout(() => this.#fail("broken"), jobMs);
    const leave = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#fail("cancelled"), graceMs);
    };
    signal.addEventListener("abort", leave, { once: true });
    this.#worker.ref();
    try {
      const { message: sent, transfer } = message();
      this.#worker.postMessage(sent, transfer);
      return await job.promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      this.#worker.unref();
      this.#job = null;
    }
  }

  /** Settles when the worker is gone. */
  async end(): Promise<void> {
    this.#fail("cancelled");
    await this.#worker.terminate();
  }

  #fail(reason: "broken" | "cancelled"): void {
    this.#job?.reject(new WorkNotDone(reason));
  }
}
