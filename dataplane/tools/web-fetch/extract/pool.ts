/**
 * Reads pages in child processes: no page, however hostile, blocks the event loop or takes the data plane's memory.
 * Each child does one page at a time. A child that hangs, dies or has grown is replaced; a page that broke its child
 * is read once more without a DOM. (A worker thread would not do: its heap overflow can abort the whole process.)
 */
import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { encodeFrame, FrameReader, type ExtractionHead, type ExtractionJob } from "./job.ts";

export type Page = Pick<ExtractionJob, "kind" | "charset" | "url"> & { readonly bytes: Buffer };

export type Extraction =
  | {
      readonly kind: "extracted";
      readonly title: string | null;
      readonly mode: ExtractionHead["mode"];
      readonly text: string;
    }
  /** `busy`: too many pages wait; `aborted`: the caller gave up or the pool closed; `broken`: even plain text failed. */
  | { readonly kind: "failed"; readonly reason: "busy" | "aborted" | "broken" };

export interface PoolLimits {
  /** Children, each about 140 MB when warm. */
  readonly children: number;
  /** Heap of a child, MiB. */
  readonly heapMiB: number;
  /** Time for the DOM before a page is read without one, milliseconds. */
  readonly domTimeoutMs: number;
  /** Time after which a child is killed, milliseconds; above `domTimeoutMs`, with room for the plain reading. */
  readonly killAfterMs: number;
  /** Pages that may wait for a child. */
  readonly queued: number;
  /** A child above this is replaced when it is done, bytes. */
  readonly retireRss: number;
}

/** Both children together stay below 1 GB: a page of 1 MB takes about 420 MB, and more is read without a DOM. */
export const defaultPoolLimits: PoolLimits = {
  children: 2,
  heapMiB: 256,
  domTimeoutMs: 5_000,
  killAfterMs: 9_000,
  queued: 100,
  retireRss: 384 * 1024 * 1024,
};

interface Waiting {
  readonly page: Page;
  readonly plainOnly: boolean;
  readonly done: (extraction: Extraction | "died") => void;
}

const childFile = fileURLToPath(new URL("./child.ts", import.meta.url));

export class ExtractionPool {
  readonly #limits: PoolLimits;
  readonly #idle: Child[] = [];
  readonly #all = new Set<Child>();
  readonly #queue: Waiting[] = [];
  #closed = false;

  constructor(limits: PoolLimits = defaultPoolLimits) {
    this.#limits = limits;
  }

  /** Starts the children ahead of the first page: loading the parser takes half a second. */
  warm(): void {
    while (!this.#closed && this.#all.size < this.#limits.children) this.#idle.push(this.#start());
  }

  /** Process ids of the children, for tests and metrics. */
  get pids(): readonly number[] {
    return [...this.#all].flatMap(({ pid }) => (pid === undefined ? [] : [pid]));
  }

  async extract(page: Page, signal: AbortSignal): Promise<Extraction> {
    const first = await this.#attempt(page, false, signal);
    if (first !== "died") return first;
    const second = await this.#attempt(page, true, signal);
    return second === "died" ? { kind: "failed", reason: "broken" } : second;
  }

  /** Ends every child and everything that waits; resolves when the processes are gone. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const waiting of this.#queue.splice(0)) waiting.done({ kind: "failed", reason: "aborted" });
    await Promise.all([...this.#all].map((child) => child.kill()));
  }

  #attempt(page: Page, plainOnly: boolean, signal: AbortSignal): Promise<Extraction | "died"> {
    if (this.#closed || signal.aborted) return Promise.resolve({ kind: "failed", reason: "aborted" });
    if (this.#queue.length >= this.#limits.queued) return Promise.resolve({ kind: "failed", reason: "busy" });
    return new Promise((resolve) => {
      const onAbort = () => {
        const place = this.#queue.indexOf(waiting);
        if (place >= 0) this.#queue.splice(place, 1);
        // A page that is under way is let finish: its child stops by itself, and starting a new one costs more.
        waiting.done({ kind: "failed", reason: "aborted" });
      };
      const waiting: Waiting = {
        page,
        plainOnly,
        done: (extraction) => {
          signal.removeEventListener("abort", onAbort);
          resolve(extraction);
        },
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#queue.push(waiting);
      this.#next();
    });
  }

  /** Gives waiting pages to idle children, starting those that are missing. */
  #next(): void {
    while (this.#queue.length > 0 && !this.#closed) {
      const child = this.#idle.pop() ?? (this.#all.size < this.#limits.children ? this.#start() : undefined);
      if (child === undefined) return;
      const waiting = this.#queue.shift();
      if (waiting !== undefined) void this.#run(child, waiting);
    }
  }

  async #run(child: Child, { page, plainOnly, done }: Waiting): Promise<void> {
    const { bytes, ...rest } = page;
    const job = { ...rest, plainOnly, domTimeoutMs: this.#limits.domTimeoutMs };
    const read = await child.run(job, bytes, this.#limits.killAfterMs);
    if (read === null) {
      done(this.#closed ? { kind: "failed", reason: "aborted" } : "died");
    } else {
      const { head, text } = read;
      done({ kind: "extracted", title: head.title, mode: head.mode, text });
      if (head.rss > this.#limits.retireRss) await child.kill();
      else this.#idle.push(child);
    }
    this.#next();
  }

  #start(): Child {
    const child = new Child(this.#limits.heapMiB, () => {
      this.#all.delete(child);
      const place = this.#idle.indexOf(child);
      if (place >= 0) this.#idle.splice(place, 1);
      // Replaced at once, so that the next page finds a warm one; not in a tight loop when children cannot start.
      if (child.served) this.warm();
      this.#next();
    });
    this.#all.add(child);
    return child;
  }
}

/** One child process. */
class Child {
  readonly #process: ChildProcess;
  readonly #frames = new FrameReader();
  readonly #gone: Promise<void>;
  #waiting: ((frame: { head: unknown; body: Buffer } | null) => void) | null = null;
  /** True once it has answered: it could start. */
  served = false;

  constructor(heapMiB: number, onGone: () => void) {
    this.#process = spawn(
      process.execPath,
      ["--permission", "--allow-fs-read=*", `--max-old-space-size=${heapMiB}`, childFile],
      { stdio: ["pipe", "pipe", "ignore"], env: {} },
    );
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gone = promise;
    const gone = () => {
      resolve();
      this.#settle(null);
      onGone();
    };
    this.#process.once("exit", gone);
    this.#process.once("error", gone);
    // Writing to a child that just died fails; its exit says so already.
    this.#process.stdin?.on("error", () => undefined);
    this.#process.stdout?.on("data", (chunk: Buffer) => this.#onData(chunk));
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Null when the child died over the page or had to be killed. */
  async run(
    job: ExtractionJob,
    bytes: Buffer,
    killAfterMs: number,
  ): Promise<{ head: ExtractionHead; text: string } | null> {
    const { promise, resolve } = Promise.withResolvers<{ head: unknown; body: Buffer } | null>();
    this.#waiting = resolve;
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), killAfterMs);
    for (const part of encodeFrame(job, bytes)) this.#process.stdin?.write(part);
    const frame = await promise;
    clearTimeout(timer);
    if (frame === null) return null;
    this.served = true;
    return { head: frame.head as ExtractionHead, text: frame.body.toString("utf8") };
  }

  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#gone;
  }

  #onData(chunk: Buffer): void {
    try {
      const frame = this.#frames.push(chunk);
      if (frame !== null) this.#settle(frame);
    } catch {
      this.#process.kill("SIGKILL");
    }
  }

  #settle(frame: { head: unknown; body: Buffer } | null): void {
    this.#waiting?.(frame);
    this.#waiting = null;
  }
}
