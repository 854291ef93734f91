/**
 * A few worker threads for work that would hold the event loop for long (rule 7.3). A job goes to a worker and comes
 * back as messages; a worker does one at a time. Waiting jobs are taken by turns of their owners, so that nobody waits
 * for more than about one job of each other. A worker that dies, hangs or has grown is replaced by a fresh one.
 */
import { Worker, type Transferable } from "node:worker_threads";

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
  /** Jobs that may wait, of all owners and of one. */
  readonly waiting: number;
  readonly waitingOfOne: number;
}

/** Why a job came to nothing: there was no place for it, or it broke its worker. */
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

/** Whoever left gets so long until the worker that still works for them is ended. */
const GRACE_MS = 250;

interface Job {
  readonly owner: string;
  readonly message: () => { readonly message: unknown; readonly transfer: readonly Transferable[] };
  readonly done: (result: unknown) => void;
  readonly failed: (error: WorkNotDone) => void;
}

export class WorkerPool {
  readonly #file: URL;
  readonly #data: unknown;
  readonly #limits: WorkerPoolLimits;
  readonly #all = new Set<PoolWorker>();
  readonly #idle: PoolWorker[] = [];
  /** Waiting jobs by owner; whose turn it is stands first. */
  readonly #waiting = new Map<string, Job[]>();
  #waitingCount = 0;
  #closed = false;

  /** @param data given to each worker as its `workerData`. */
  constructor(file: URL, data: unknown, limits: WorkerPoolLimits) {
    this.#file = file;
    this.#data = data;
    this.#limits = limits;
  }

  /** Starts the workers ahead of the first job. */
  warm(): void {
    while (!this.#closed && this.#all.size < this.#limits.workers) this.#idle.push(this.#start());
  }

  /** Jobs that wait for a worker. */
  get waiting(): number {
    return this.#waitingCount;
  }

  /**
   * What a worker answers to a message, which is made when its turn has come.
   * @throws WorkNotDone
   */
  run(owner: string, message: Job["message"], signal: AbortSignal): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    if (this.#closed || signal.aborted) {
      reject(new WorkNotDone("cancelled"));
      return promise;
    }
    const waitingOfOne = this.#waiting.get(owner) ?? [];
    if (this.#waitingCount >= this.#limits.waiting || waitingOfOne.length >= this.#limits.waitingOfOne) {
      reject(new WorkNotDone(this.#waitingCount >= this.#limits.waiting ? "busy" : "busy_owner"));
      return promise;
    }
    const leave = () => this.#leave(job);
    const over = () => signal.removeEventListener("abort", leave);
    const job: Job = {
      owner,
      message,
      done: (result) => {
        over();
        resolve(result);
      },
      failed: (error) => {
        over();
        reject(error);
      },
    };
    signal.addEventListener("abort", leave, { once: true });
    waitingOfOne.push(job);
    this.#waiting.set(owner, waitingOfOne);
    this.#waitingCount += 1;
    this.#next();
    return promise;
  }

  /** Ends the workers and everything that waits. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const jobs of this.#waiting.values())
      for (const job of jobs) job.failed(new WorkNotDone("cancelled"));
    this.#waiting.clear();
    this.#waitingCount = 0;
    await Promise.all([...this.#all].map((worker) => worker.end("cancelled")));
  }

  /** Nobody waits for it any more. */
  #leave(job: Job): void {
    const jobs = this.#waiting.get(job.owner);
    const place = jobs?.indexOf(job) ?? -1;
    if (jobs !== undefined && place >= 0) {
      jobs.splice(place, 1);
      if (jobs.length === 0) this.#waiting.delete(job.owner);
      this.#waitingCount -= 1;
      job.failed(new WorkNotDone("cancelled"));
      return;
    }
    for (const worker of this.#all) if (worker.job === job) worker.endSoon(GRACE_MS);
  }

  /** Gives waiting jobs to idle workers, starting those that are missing. */
  #next(): void {
    while (this.#waitingCount > 0 && !this.#closed) {
      const worker = this.#idle.pop() ?? (this.#all.size < this.#limits.workers ? this.#start() : undefined);
      if (worker === undefined) return;
      const job = this.#take();
      if (job !== undefined) worker.begin(job, this.#limits.jobMs);
    }
  }

  /** The first job of the owner whose turn it is, who goes to the end of the row. */
  #take(): Job | undefined {
    for (const [owner, jobs] of this.#waiting) {
      const job = jobs.shift();
      this.#waiting.delete(owner);
      if (jobs.length > 0) this.#waiting.set(owner, jobs);
      this.#waitingCount -= 1;
      return job;
    }
    return undefined;
  }

  #start(): PoolWorker {
    const worker = new PoolWorker(
      new Worker(this.#file, {
        workerData: this.#data,
        resourceLimits: { maxOldGenerationSizeMb: this.#limits.heapMiB },
      }),
      (heapMiB) => {
        if (heapMiB > this.#limits.retireMiB) worker.endNow("cancelled");
        else this.#idle.push(worker);
        this.#next();
      },
      () => {
        this.#all.delete(worker);
        const place = this.#idle.indexOf(worker);
        if (place >= 0) this.#idle.splice(place, 1);
        // Not in a tight loop when workers cannot start.
        if (worker.served) this.warm();
        this.#next();
      },
    );
    this.#all.add(worker);
    return worker;
  }
}

class PoolWorker {
  readonly #worker: Worker;
  readonly #free: (heapMiB: number) => void;
  #timer: NodeJS.Timeout | null = null;
  job: Job | null = null;
  /** It has answered once: it could start. */
  served = false;

  constructor(worker: Worker, free: (heapMiB: number) => void, gone: () => void) {
    this.#worker = worker;
    this.#free = free;
    // Work that is under way keeps a process alive by its connection; idle workers must not.
    worker.unref();
    worker.on("message", (done: WorkDone) => this.#done(done));
    // Its exit says the rest: a heap that is full, or a fault in the worker itself.
    worker.on("error", () => this.#fail("broken"));
    worker.on("exit", () => {
      this.#fail("broken");
      gone();
    });
  }

  begin(job: Job, jobMs: number): void {
    this.job = job;
    const { message, transfer } = job.message();
    this.#timer = setTimeout(() => this.endNow("broken"), jobMs);
    this.#worker.ref();
    this.#worker.postMessage(message, transfer);
  }

  /** Ends it unless it is done in time. */
  endSoon(ms: number): void {
    this.#stopTimer();
    this.#timer = setTimeout(() => this.endNow("cancelled"), ms);
  }

  /** Nobody waits for its exit. */
  endNow(reason: "broken" | "cancelled"): void {
    this.end(reason).catch((error: unknown) => {
      throw error;
    });
  }

  async end(reason: "broken" | "cancelled"): Promise<void> {
    this.#fail(reason);
    await this.#worker.terminate();
  }

  #done({ result, heapMiB }: WorkDone): void {
    const { job } = this;
    this.#stopTimer();
    this.#worker.unref();
    this.job = null;
    this.served = true;
    job?.done(result);
    this.#free(heapMiB);
  }

  #fail(reason: "broken" | "cancelled"): void {
    this.#stopTimer();
    const { job } = this;
    this.job = null;
    job?.failed(new WorkNotDone(reason));
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
