/**
 * Reads pages in child processes: no page, however hostile, blocks the event loop or takes the data plane's memory.
 * Organizations take turns, so that the pages of one delay another's for no longer than one page takes (rule 7.6). A child
 * that hangs, dies or has grown is replaced; a page that broke its child is read once more without a DOM. (A worker thread
 * would not do: its heap overflow can abort the whole process.)
 */
import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Crew, type CrewMember } from "../../../lib/crew.ts";
import { encodeFrame, FrameReader, type ExtractionHead, type ExtractionJob } from "./job.ts";

export type RawPage = Pick<ExtractionJob, "kind" | "charset" | "url"> & { readonly bytes: Buffer };

export type Extraction =
  | {
      readonly kind: "extracted";
      readonly title: string | null;
      readonly mode: ExtractionHead["mode"];
      readonly text: string;
    }
  /**
   * `busy`: too many pages wait, or this one waited too long; `late`: its own time or that of its children was over; `aborted`:
   * the caller gave up or the pool closed; `broken`: even plain text failed.
   */
  | { readonly kind: "failed"; readonly reason: "busy" | "late" | "aborted" | "broken" };

/** The organization of a page, and how long the page may be read; waiting for a child does not count. */
export interface PageTurn {
  readonly organizationId: string;
  readonly timeoutMs: number;
}

export interface PoolLimits {
  /** Children, each about 140 MB when warm. */
  readonly children: number;
  /** Heap of a child, MiB. */
  readonly heapMiB: number;
  /** Time for the DOM before a page is read without one, milliseconds. */
  readonly domTimeoutMs: number;
  /** Time after which a child is killed, milliseconds; above `domTimeoutMs`, with room for the plain reading. */
  readonly killAfterMs: number;
  /** Pages that may wait for a child, each up to 10 MB: of all, and of one organization. */
  readonly queued: number;
  readonly queuedOfOne: number;
  /** Longest wait for a child, milliseconds. */
  readonly waitMs: number;
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
  queuedOfOne: 40,
  waitMs: 60_000,
  retireRss: 384 * 1024 * 1024,
};

const childFile = fileURLToPath(new URL("./child.ts", import.meta.url));

export class ExtractionPool {
  readonly #limits: PoolLimits;
  readonly #crew: Crew<Child>;

  constructor(limits: PoolLimits = defaultPoolLimits) {
    this.#limits = limits;
    const { children: members, queued: waiting, queuedOfOne: waitingOfOne, waitMs, heapMiB } = limits;
    this.#crew = new Crew({ members, waiting, waitingOfOne, waitMs }, (gone) => new Child(heapMiB, gone));
  }

  /** Starts the children ahead of the first page: loading the parser takes half a second. */
  warm(): void {
    this.#crew.warm();
  }

  /** Process ids of the children, for tests and metrics. */
  get pids(): readonly number[] {
    return this.#crew.members.flatMap(({ pid }) => (pid === undefined ? [] : [pid]));
  }

  async extract(page: RawPage, turn: PageTurn, signal: AbortSignal): Promise<Extraction> {
    const release = await this.#crew.place(turn.organizationId, signal);
    if (typeof release === "string")
      return { kind: "failed", reason: release === "cancelled" ? "aborted" : "busy" };
    // Reading an abandoned page continues: its child ends it by itself, and starting a new child would cost more.
    const reading = this.#read(page).finally(release);
    const given = AbortSignal.any([signal, this.#crew.closing]);
    const own = AbortSignal.timeout(turn.timeoutMs);
    const gaveUp = Promise.withResolvers<Extraction>();
    const onAbort = () => gaveUp.resolve({ kind: "failed", reason: given.aborted ? "aborted" : "late" });
    const either = AbortSignal.any([given, own]);
    either.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([reading, gaveUp.promise]);
    } finally {
      either.removeEventListener("abort", onAbort);
    }
  }

  /** Ends every child and every waiting call; resolves when the processes have ended. */
  close(): Promise<void> {
    return this.#crew.close();
  }

  /** Reads a page. The caller holds a place, so there is a child. */
  async #read(page: RawPage): Promise<Extraction> {
    let fault: "late" | "broken" = "broken";
    for (const plainOnly of [false, true]) {
      if (this.#crew.closing.aborted) return { kind: "failed", reason: "aborted" };
      const child = this.#crew.take();
      const { bytes, ...rest } = page;
      const job = { ...rest, plainOnly, domTimeoutMs: this.#limits.domTimeoutMs };
      const read = await child.run(job, bytes, this.#limits.killAfterMs);
      if (typeof read === "string") {
        fault = read;
        continue;
      }
      const { head, text } = read;
      if (head.rss > this.#limits.retireRss) await child.end();
      else this.#crew.giveBack(child);
      return { kind: "extracted", title: head.title, mode: head.mode, text };
    }
    return { kind: "failed", reason: this.#crew.closing.aborted ? "aborted" : fault };
  }
}

/** One child process. */
class Child implements CrewMember {
  readonly #process: ChildProcess;
  readonly #frames = new FrameReader();
  readonly #gone: Promise<void>;
  #waiting: ((frame: { head: unknown; body: Buffer } | null) => void) | null = null;
  /** True once it has answered, which shows that it could start. */
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
    // Writing to a child that just died fails; its `exit` event reports that already.
    this.#process.stdin?.on("error", () => undefined);
    this.#process.stdout?.on("data", (chunk: Buffer) => this.#onData(chunk));
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Reads one page: `broken` when the child died over it, `late` when the child had to be killed. */
  async run(
    job: ExtractionJob,
    bytes: Buffer,
    killAfterMs: number,
  ): Promise<{ head: ExtractionHead; text: string } | "broken" | "late"> {
    const { promise, resolve } = Promise.withResolvers<{ head: unknown; body: Buffer } | null>();
    this.#waiting = resolve;
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#process.kill("SIGKILL");
    }, killAfterMs);
    for (const part of encodeFrame(job, bytes)) this.#process.stdin?.write(part);
    const frame = await promise;
    clearTimeout(timer);
    if (frame === null) return isLate ? "late" : "broken";
    this.served = true;
    return { head: frame.head as ExtractionHead, text: frame.body.toString("utf8") };
  }

  async end(): Promise<void> {
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
