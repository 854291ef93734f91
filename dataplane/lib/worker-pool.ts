/**
 * A few worker threads for work that would hold the event loop for long (rule 7.3). A job goes to a worker and comes
 * back as messages; a worker does one at a time, and owners take turns (FairPlaces). A worker that dies, hangs or has grown is replaced by a fresh one.
 */
import { Worker, type Transferable } from "node:worker_threads";
import { FairPlaces, type NoPlace, type Release } from "./fair-places.ts";

export interface WorkerPoolLimits {
  readonly workers: number;
  /**
   * Heap of a worker, MiB. Jobs must be bounded well below it: a worker that reaches it dies with its job, and where it
   * allocates too fast takes the process along.
   */
  readonly heapMiB: number;
  /** A worker with a larger heap after a job is replaced, so that idle ones are small. MiB */
  readonly retireMiB: number;
  /** A job may take so long, milliseconds. */
  readonly jobMs: number;
  /** Whoever left gets so long until the worker that still works for them is ended, milliseconds. */
  readonly graceMs: number;
  /** Nobody waits longer for a worker, milliseconds. */
  readonly waitMs: number;
  /** Jobs that may wait, of all owners and of one. */
  readonly waiting: number;
  readonly waitingOfOne: number;
}

/** Why a job came to nothing: there was no place for it, not in time either, or it broke its worker. */
export class WorkNotDone extends Error {
  override readonly name = "WorkNotDone";
  readonly reason: "busy" | "busy_owner" | "broken" | "cancelled";

  constructor(reason: WorkNotDone["reason"]) {
    super(`the work was not done: ${reason}`);
    this.reason = reason;
  }
}

/** What a worker answers. */
export interface WorkDone {
  readonly result: unknown;
  /** Its heap at the end, MiB. */
  readonly heapMiB: number;
}

/** What a worker is sent. */
export interface WorkerMessage {
  readonly message: unknown;
  readonly transfer: readonly Transferable[];
}

export class WorkerPool {
  readonly #file: URL;
  readonly #data: unknown;
  readonly #limits: WorkerPoolLimits;
  readonly #all = new Set<PoolWorker>();
  readonly #idle: PoolWorker[] = [];
  /** Whoever has one finds a worker, or starts it. */
  readonly #places: FairPlaces;
  readonly #closing = new AbortController();

  /** @param data given to each worker as its `workerData`. */
  constructor(file: URL, data: unknown, limits: WorkerPoolLimits) {
    this.#file = file;
    this.#data = data;
    this.#limits = limits;
    const { workers: places, waiting, waitingOfOne } = limits;
    this.#places = new FairPlaces({ places, waiting, waitingOfOne });
  }

  /** Starts the workers ahead of the first job. */
  warm(): void {
    if (this.#closing.signal.aborted) return;
    while (this.#all.size < this.#limits.workers) this.#idle.push(this.#start());
  }

  /**
   * What a worker answers to a message, which is made when its turn has come.
   * @throws WorkNotDone
   */
  async run(owner: string, message: () => WorkerMessage, signal: AbortSignal): Promise<unknown> {
    const given = AbortSignal.any([signal, this.#closing.signal]);
    const release = await this.#place(owner, given);
    if (typeof release === "string") throw new WorkNotDone(release);
    if (given.aborted) {
      release();
      throw new WorkNotDone("cancelled");
    }
    const worker = this.#idle.pop() ?? this.#start();
    const done = worker.run(message, this.#limits, given);
    // Not waited for by who has the result: the place is free once the worker is idle or gone.
    done
      .then(
        ({ heapMiB }) => {
          if (heapMiB > this.#limits.retireMiB) return worker.end("cancelled");
          this.#idle.push(worker);
          return undefined;
        },
        () => worker.end("cancelled"),
      )
      .then(release, release);
    return (await done).result;
  }

  /** Ends the workers and everything that waits. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#all].map((worker) => worker.end("cancelled")));
  }

  async #place(owner: string, signal: AbortSignal): Promise<Release | NoPlace | "cancelled"> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), this.#limits.waitMs);
    try {
      return await this.#places.take(owner, AbortSignal.any([signal, late.signal]));
    } catch {
      return signal.aborted ? "cancelled" : "busy";
    } finally {
      clearTimeout(timer);
    }
  }

  #start(): PoolWorker {
    const worker = new PoolWorker(
      new Worker(this.#file, {
        workerData: this.#data,
        resourceLimits: { maxOldGenerationSizeMb: this.#limits.heapMiB },
      }),
      () => {
        this.#all.delete(worker);
        const place = this.#idle.indexOf(worker);
        if (place >= 0) this.#idle.splice(place, 1);
        // Not in a tight loop when workers cannot start.
        if (worker.served) this.warm();
      },
    );
    this.#all.add(worker);
    return worker;
  }
}

class PoolWorker {
  readonly #worker: Worker;
  #job: PromiseWithResolvers<WorkDone> | null = null;
  /** It has answered once: it could start. */
  served = false;

  constructor(worker: Worker, gone: () => void) {
    this.#worker = worker;
    // Work that is under way keeps a process alive by its connection; idle workers must not.
    worker.unref();
    worker.on("message", (done: WorkDone) => {
      this.served = true;
      this.#job?.resolve(done);
    });
    // Its exit says the rest: a heap that is full, or a fault in the worker itself.
    worker.on("error", () => this.#fail("broken"));
    worker.on("exit", () => {
      this.#fail("broken");
      gone();
    });
  }

  /** @throws WorkNotDone; the worker is of no use afterwards. */
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
  async end(reason: "broken" | "cancelled"): Promise<void> {
    this.#fail(reason);
    await this.#worker.terminate();
  }

  #fail(reason: "broken" | "cancelled"): void {
    this.#job?.reject(new WorkNotDone(reason));
  }
}
