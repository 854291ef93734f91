/** The counting thread as the event loop sees it: one list of texts at a time, organizations in turn. */
import { Worker } from "node:worker_threads";
import { FairPlaces } from "../lib/fair-places.ts";
import type { CountingJob } from "./counting-thread.ts";

/** Somebody who asks for more at once than the budget of free requests lets through is turned away. */
const COUNTS_WAITING = { waitingOfOne: 1_000, waiting: 10_000 } as const;

const threadFile = new URL("./counting-thread.ts", import.meta.url);

export class Counter {
  readonly #turns = new FairPlaces({ places: 1, ...COUNTS_WAITING });
  #thread: Worker | null = null;
  #answer: PromiseWithResolvers<number> | null = null;

  /**
   * Tokens of all texts; null when too many wait already.
   * @throws the reason of `signal` when it aborts, Error when the thread could not be started or died.
   */
  async count(job: CountingJob, owner: string, signal: AbortSignal): Promise<number | null> {
    const release = await this.#turns.take(owner, signal);
    if (typeof release === "string") return null;
    try {
      const tokens = await this.#ask(job);
      signal.throwIfAborted();
      return tokens;
    } finally {
      release();
    }
  }

  async #ask(job: CountingJob): Promise<number> {
    this.#thread ??= this.#start();
    const answer = Promise.withResolvers<number>();
    this.#answer = answer;
    // Only a running count keeps the process alive.
    this.#thread.ref();
    this.#thread.postMessage(job);
    try {
      return await answer.promise;
    } finally {
      this.#thread?.unref();
    }
  }

  #start(): Worker {
    const thread = new Worker(threadFile, { name: "count tokens" });
    thread.on("message", (tokens: number) => this.#answer?.resolve(tokens));
    const gone = (reason: unknown) => {
      if (this.#thread !== thread) return;
      this.#thread = null;
      this.#answer?.reject(new Error("the counting thread ended", { cause: reason }));
    };
    thread.on("error", gone);
    thread.on("exit", gone);
    return thread;
  }
}
