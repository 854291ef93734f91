/**
 * One call to an upstream, on undici's dispatch interface (dependencies.md §5 has the figures). The call keeps the
 * time limits, decompresses answers that come compressed unasked, and tells the ways of failing apart, because
 * retrying, health and charging each need another distinction.
 */
import { errors, type Dispatcher } from "undici";
import type { Readable, Transform } from "node:stream";
import { piecesWithoutMark } from "../lib/byte-order-mark.ts";
import { answerDecoder } from "../lib/content-coding.ts";
import { GatheredPieces, joinedInSlices } from "../lib/small-pieces.ts";
import { isStaleConnectionError } from "./dispatcher.ts";
import {
  LINGER_MS,
  MAX_UNSEEN_BYTES,
  MAX_UNSEEN_CHUNKS,
  MOST_BEGUN_BYTES,
  MOST_INTERIM_ANSWERS,
  PIECE_BYTES,
  UNCOUNTED_BYTES,
  UNSEEN_MS,
  WHOLE_BODY_BYTES,
} from "./limits.ts";
import { type AnswerConnection, answerBegan, TOO_MUCH_OVERHEAD } from "./overhead.ts";

/**
 * Why a call failed.
 *   connect             refused, unreachable, TLS, closed or reset before an answer had begun
 *   stale               the same, on a kept-alive connection that had served before
 *   first_byte_timeout  no byte of the answer's body in time
 *   idle                a stream sent nothing for longer than allowed
 *   cut                 the connection broke after the answer had begun
 *   garbage             the answer's bytes are no HTTP, do not decompress, make their reader throw, or are interim answers or
 *                       frames of chunks without an end
 *   too_large           a whole answer beyond the limit
 *   deadline            the request's own time is up
 *   shutdown            this process ends, and waits no longer
 *   cancelled           the caller wants no more of it
 *   exhausted           this process has no descriptor or port left for a connection, or no room for an answer: our
 *                       fault, for now
 *   unsendable          the request is none that HTTP can carry: our fault, or the configuration's
 */
export type CallFault =
  | "connect"
  | "stale"
  | "first_byte_timeout"
  | "idle"
  | "cut"
  | "garbage"
  | "too_large"
  | "deadline"
  | "shutdown"
  | "cancelled"
  | "exhausted"
  | "unsendable";

const NOTHING = Buffer.alloc(0);

export class CallError extends Error {
  readonly fault: CallFault;
  /** Bytes of the answer's body that had come before the failure, decompressed. */
  readonly received: number;
  /** The bytes that came, if the body was read by `whole` and is not longer than `MOST_BEGUN_BYTES`; else empty. */
  readonly begun: Buffer;

  constructor(fault: CallFault, received: number, cause?: unknown, begun: Buffer = NOTHING) {
    super(`upstream call failed: ${fault}`, { cause });
    this.name = "CallError";
    this.fault = fault;
    this.received = received;
    this.begun = begun;
  }
}

export interface CallOptions {
  readonly origin: string;
  /** Path and query. */
  readonly path: string;
  /** Names and values in turn. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  readonly connectMs: number;
  /** null: no limit of its own. */
  readonly firstByteMs: number | null;
  /** null: not limited (whole answers). */
  readonly idleMs: number | null;
}

/** Names in lower case; a header that came more than once is a list. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * The beginning of an answer. It is known once the first byte of the body came, or the answer ended without one; with a status
 * other than 2xx at once, as the status alone is enough to continue.
 */
export interface AnswerHead {
  readonly status: number;
  readonly headers: AnswerHeaders;
}

/** Receives a body as it comes. Exactly one of `end` and `fail` is called, once. */
export interface BodyReader {
  /** Receives the chunks that came together, in order, at least one: a packet may hold many HTTP chunks. */
  data(chunks: readonly Buffer[]): void;
  end(): void;
  fail(fault: CallFault): void;
}

/** Codes of connection errors that arise in this machine. */
const EXHAUSTION: ReadonlySet<string | undefined> = new Set(["EMFILE", "ENFILE", "EADDRNOTAVAIL", "ENOBUFS"]);

/** Most bytes of a body that are kept while it has no reader; beyond them the connection is paused. */
const UNREAD_LIMIT_BYTES = 256 * 1024;

/** One request under way. `head` settles first; then `read` or `whole` takes the body. */
export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly head: Promise<AnswerHead>;
  readonly #options: CallOptions;
  readonly #resolveHead: (head: AnswerHead) => void;
  readonly #rejectHead: (error: CallError) => void;
  /** Where the answer's contents are counted against what comes besides (overhead.ts). */
  #connection: AnswerConnection | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #dispatchedAt = 0;
  #timer: NodeJS.Timeout | null = null;
  /** A time-out that has struck; it counts unless data is found when the waiting sockets are read (`#arm`). */
  #overdue: NodeJS.Immediate | null = null;
  #interim = 0;
  #status = 0;
  #headers: AnswerHeaders = {};
  #decoder: Transform | null = null;
  #headSettled = false;
  #reader: BodyReader | null = null;
  /** Chunks that wait for a reader, or for the next tick, when the current packet has been parsed. */
  #unread: Buffer[] = [];
  #unreadBytes = 0;
  #isGathering = false;
  #paused = false;
  /** Set when the body is over: ended or failed. */
  #over: { fault: CallFault | null } | null = null;
  #reported = false;
  #received = 0;
  /** Whether the whole request has gone out. */
  #sent = false;
  /** Bytes that had come when the client left, or when the answer was complete or failed; null: somebody still waits for more. */
  #unseenFrom: number | null = null;
  /** Chunks that came since then, and how the call ends where what comes is too much. */
  #unseenChunks = 0;
  #unseenFault: CallFault = "cancelled";
  #cause: unknown;

  constructor(options: CallOptions) {
    this.#options = options;
    const { promise, resolve, reject } = Promise.withResolvers<AnswerHead>();
    this.head = promise;
    this.#resolveHead = resolve;
    this.#rejectHead = reject;
  }

  /** Bytes of the body so far, decompressed. */
  get received(): number {
    return this.#received;
  }

  /** Whether the upstream has the whole request, and will charge for it. */
  get sent(): boolean {
    return this.#sent;
  }

  start(dispatcher: Dispatcher): this {
    const { origin, path, headers, body, connectMs } = this.#options;
    const request = { origin, path, method: "POST" as const, ...bodyOf(headers, body) };
    this.#dispatchedAt = performance.now();
    dispatcher.dispatch(request, this);
    // undici makes a new connection, or first checks one from its pool once more.
    if (this.#controller === null && this.#over === null) this.#arm(connectMs, "connect");
    return this;
  }

  /**
   * Reads on for the upstream's usage report after the client has left: the reader goes on as before, for two seconds,
   * 256 KiB and 16,384 chunks at the most; then the call is aborted as cancelled (rule 1.11). A call whose request the
   * upstream does not have as a whole ends at once.
   */
  drain(): void {
    if (this.#over !== null || this.#unseenFrom !== null) return;
    if (!this.#sent) return this.abort("cancelled");
    this.#readOn(UNSEEN_MS, "cancelled");
  }

  /** Reads on for the usage report of an answer that has failed already, as far as `drain` does (rule 1.11); then it is cut. */
  awaitReport(): void {
    if (this.#over === null && this.#unseenFrom === null) this.#readOn(UNSEEN_MS, "cut");
  }

  /**
   * Lets the upstream end a complete answer in its own time, so that the connection can serve again. Most have ended it already;
   * then nothing is to be done.
   */
  linger(): void {
    if (this.#over === null) this.#readOn(LINGER_MS, "cut");
  }

  /** Reads what still comes, for which nobody waits. */
  #readOn(ms: number, fault: CallFault): void {
    this.#disarm();
    this.#arm(ms, fault);
    this.#unseenFrom ??= this.#received;
    this.#unseenFault = fault;
    if (this.#paused) this.resume();
  }

  /** Ends the call from this side; the connection is closed unless the answer was complete. */
  abort(fault: CallFault): void {
    if (this.#over !== null) return;
    this.#finish(fault);
  }

  /** Gives the body to `reader`. Bytes that came before are delivered at once. */
  read(reader: BodyReader): void {
    this.#reader = reader;
    const wasPaused = this.#paused;
    // The reader sets it again if it wants no more for now.
    this.#paused = false;
    this.#handOver();
    if (this.#over !== null) this.#report(reader);
    else if (wasPaused && !this.#paused) this.resume();
  }

  /**
   * Reads the whole body, without a byte order mark.
   * @param takeRoom counts bytes that came, beyond the first `UNCOUNTED_BYTES`; it throws when there is no room for them, and
   *   returns what the upstream is paused for, if it is.
   * @throws CallError; `received` says how much of it came, and `cause` what `takeRoom` threw.
   */
  whole(maxBytes: number, takeRoom?: (bytes: number) => Promise<void> | null | void): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const pieces = new GatheredPieces();
    let counted = UNCOUNTED_BYTES;
    this.read({
      data: (more) => {
        for (const chunk of more) pieces.add(chunk);
        if (this.#received > maxBytes) return this.abort("too_large");
        if (takeRoom === undefined || this.#received <= counted) return;
        try {
          const room = takeRoom(this.#received - counted);
          counted = this.#received;
          if (room instanceof Promise) this.#pauseUntil(room);
        } catch (error) {
          this.#settle("exhausted", error);
        }
      },
      // JSON must not begin with a byte order mark, and readers may ignore one (RFC 8259 §8.1).
      end: () => {
        const chunks = piecesWithoutMark(pieces.take());
        const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
        if (length > MOST_BEGUN_BYTES) joinedInSlices(chunks, length).then(resolve, reject);
        else resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, length));
      },
      fail: (fault) => {
        const begun = this.#received > MOST_BEGUN_BYTES ? undefined : Buffer.concat(pieces.take());
        reject(new CallError(fault, this.#received, this.#cause, begun));
      },
    });
    return promise;
  }

  /**
   * Stops reading from the upstream; the rest of the current packet still comes. The time until `resume` does not count as
   * idle (design.md §4.7).
   */
  pause(): void {
    // Reading on is bounded anyhow, and nobody may be left to resume it.
    if (this.#unseenFrom !== null) return;
    this.#paused = true;
    this.#disarm();
    this.#controller?.pause();
    this.#decoder?.pause();
  }

  #pauseUntil(room: Promise<void>): void {
    this.pause();
    room.then(
      () => this.resume(),
      (error: unknown) => this.#settle("exhausted", error),
    );
  }

  resume(): void {
    this.#paused = false;
    if (this.#over !== null) return;
    this.#armIdle();
    this.#decoder?.resume();
    this.#controller?.resume();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over !== null) return controller.abort(new Error("gone"));
    this.#disarm();
    const { firstByteMs } = this.#options;
    if (firstByteMs !== null) this.#arm(firstByteMs, "first_byte_timeout");
  }

  onRequestSent(): void {
    this.#sent = true;
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: AnswerHeaders): void {
    this.#connection = answerBegan(status);
    if (status < 200) return this.#countInterim();
    // An upstream that answers has seen enough of the request.
    this.#sent = true;
    this.#status = status;
    this.#headers = headers;
    const coding = headers["content-encoding"];
    this.#decoder = coding === undefined ? null : answerDecoder(String(coding));
    this.#decoder
      ?.on("data", (chunk: Buffer) => this.#deliver(chunk))
      .on("end", () => this.#finish(null))
      .on("error", (error) => this.#finish("garbage", error));
    if (status > 299) this.#settleHead();
  }

  #countInterim(): void {
    this.#interim += 1;
    if (this.#interim > MOST_INTERIM_ANSWERS) this.abort("garbage");
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#connection?.contents(chunk.length);
    if (this.#over !== null) return;
    if (this.#decoder === null) this.#deliver(chunk);
    else this.#decoder.write(chunk);
  }

  onResponseEnd(): void {
    if (this.#decoder === null) this.#finish(null);
    else this.#decoder.end();
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#finish(this.#faultOf(error), error);
  }

  #faultOf(error: Error): CallFault {
    if (this.#received > 0) return "cut";
    if (error instanceof errors.InvalidArgumentError) return "unsendable";
    if (error.name === "HTTPParserError" || error.name === "HeadersOverflowError") return "garbage";
    if (error.name === TOO_MUCH_OVERHEAD) return "garbage";
    if (this.#status > 0) return "cut";
    if (EXHAUSTION.has((error as NodeJS.ErrnoException).code)) return "exhausted";
    return isStaleConnectionError(error, this.#dispatchedAt) ? "stale" : "connect";
  }

  #deliver(chunk: Buffer): void {
    if (this.#over !== null) return;
    this.#received += chunk.length;
    if (this.#unseenFrom !== null) {
      this.#unseenChunks += 1;
      const unseen = this.#received - this.#unseenFrom;
      if (unseen > MAX_UNSEEN_BYTES || this.#unseenChunks > MAX_UNSEEN_CHUNKS)
        return this.abort(this.#unseenFault);
    }
    this.#settleHead();
    if (!this.#isGathering) this.#gather();
    this.#unread.push(chunk);
    this.#unreadBytes += chunk.length;
    if (this.#reader === null && this.#unreadBytes > UNREAD_LIMIT_BYTES) this.pause();
  }

  /** Begins to gather a packet's chunks. There may be hundreds: only the first restarts the idle timer. */
  #gather(): void {
    this.#isGathering = true;
    if (this.#paused) this.#disarm();
    else this.#armIdle();
    // With neither an idle limit nor a reader nothing is scheduled: `read` delivers what is there.
    if (this.#reader !== null || this.#options.idleMs !== null) process.nextTick(() => this.#handOver());
  }

  /** Gives the reader the gathered chunks. A reader that throws, a bug of ours, ends this call and not the process. */
  #handOver(): void {
    this.#isGathering = false;
    if (this.#reader === null || this.#unread.length === 0) return;
    const chunks = this.#unread;
    this.#unread = [];
    this.#unreadBytes = 0;
    try {
      this.#reader.data(chunks);
    } catch (error) {
      // Not as a broken connection, which would count against its upstream.
      this.#settle("garbage", error);
    }
  }

  #settleHead(): void {
    if (this.#headSettled) return;
    this.#headSettled = true;
    // The timer of the first byte cannot be reused as the idle timer: it has another length.
    if (this.#unseenFrom === null) this.#disarm();
    this.#resolveHead({ status: this.#status, headers: this.#headers });
  }

  /** Ends the body after its gathered chunks are delivered. `fault` is null: it ended as it should. */
  #finish(fault: CallFault | null, cause?: unknown): void {
    if (this.#over === null) this.#handOver();
    this.#settle(fault, cause);
  }

  #settle(fault: CallFault | null, cause: unknown): void {
    if (this.#over !== null) return;
    this.#over = { fault };
    this.#cause = cause;
    this.#disarm();
    if (fault !== null) {
      this.#controller?.abort(new Error(fault));
      this.#decoder?.destroy();
    }
    if (fault === null) this.#settleHead();
    else if (!this.#headSettled) {
      this.#headSettled = true;
      this.#rejectHead(new CallError(fault, this.#received, cause));
    }
    if (this.#reader !== null) this.#report(this.#reader);
  }

  #report(reader: BodyReader): void {
    if (this.#reported) return;
    this.#reported = true;
    const fault = this.#over?.fault ?? null;
    if (fault === null) reader.end();
    else reader.fail(fault);
  }

  #armIdle(): void {
    const { idleMs } = this.#options;
    if (idleMs === null || !this.#headSettled || this.#unseenFrom !== null) return;
    if (this.#overdue !== null) this.#forgive();
    if (this.#timer !== null) this.#timer.refresh();
    else this.#arm(idleMs, "idle");
  }

  /**
   * Timers strike before sockets are read: after a moment without a processor, answers that came in time would look
   * late, and healthy upstreams would be ejected. So a time-out counts only if nothing has come once all waiting
   * sockets were read.
   */
  #arm(ms: number, fault: CallFault): void {
    this.#timer = setTimeout(() => {
      this.#overdue = setImmediate(() => this.abort(fault));
    }, ms);
  }

  #disarm(): void {
    if (this.#overdue !== null) this.#forgive();
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  #forgive(): void {
    if (this.#overdue !== null) clearImmediate(this.#overdue);
    this.#overdue = null;
  }
}

/**
 * Body and headers for undici. It reports a buffer as sent when it has handed it to the socket, where a large one may
 * wait; of an iterable it hands over the next piece when the one before has left.
 */
function bodyOf(headers: readonly string[], body: Buffer): { headers: string[]; body: Buffer | Readable } {
  if (body.length <= WHOLE_BODY_BYTES) return { headers: headers as string[], body };
  // undici takes any iterable; its types know only `Readable`.
  const iterable = pieces(body) as unknown as Readable;
  return { headers: [...headers, "content-length", String(body.length)], body: iterable };
}

function* pieces(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) yield body.subarray(at, at + PIECE_BYTES);
}
