/**
 * One call to an upstream, on undici's dispatch interface (dependencies.md §5 has the figures). The
 * call keeps the time limits, decompresses what came compressed all the same, and tells every way of failing
 * apart, because retrying, health and charging each need to know another part of it.
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
  MOST_BEGUN_BYTES,
  MOST_INTERIM_ANSWERS,
  PIECE_BYTES,
  UNSEEN_MS,
  WHOLE_BODY_BYTES,
} from "./limits.ts";

/**
 * Why a call failed.
 *   connect             refused, unreachable, TLS, closed or reset before an answer had begun
 *   stale               the same on a kept-alive connection that had served before
 *   first_byte_timeout  no byte of the answer's body in time
 *   idle                a stream stood still for longer than allowed
 *   cut                 the connection broke after the answer had begun
 *   garbage             the answer's bytes are no HTTP, do not decompress, make what reads them fail, or are interim answers
 *                       without an end
 *   too_large           a whole answer beyond the limit
 *   deadline            the request's own time is up
 *   shutdown            this process ends, and waits no longer
 *   cancelled           the caller wants no more of it
 *   exhausted           this process has no descriptor or port left for a connection: our fault, for now
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
  /** Bytes of the answer's body that had come by then, as far as they were read whole. */
  readonly received: number;
  /** What came of a body that was read whole; of a large one nothing. */
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
  /** null: not limited by itself. */
  readonly firstByteMs: number | null;
  /** null: not limited (whole answers). */
  readonly idleMs: number | null;
}

/** Names in lower case; a header that came more than once is a list. */
export type AnswerHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * The beginning of an answer: known once the first byte of its body came, or that there is none; with a status other than
 * 2xx at once, as that alone is enough to go on with.
 */
export interface AnswerHead {
  readonly status: number;
  readonly headers: AnswerHeaders;
}

/** Takes a body as it comes. Exactly one of `end` and `fail` is called, once. */
export interface BodyReader {
  /** What came at once, in order: a packet may hold many HTTP chunks. Never none. */
  data(chunks: readonly Buffer[]): void;
  end(): void;
  fail(fault: CallFault): void;
}

/** Errors of a connection that never left this machine. */
const EXHAUSTION: ReadonlySet<string | undefined> = new Set(["EMFILE", "ENFILE", "EADDRNOTAVAIL", "ENOBUFS"]);

/** A body of which nobody has read anything yet is kept up to here before the connection is paused. */
const UNREAD_LIMIT_BYTES = 256 * 1024;

/** One request under way. `head` settles first; then `read` or `whole` takes the body. */
export class UpstreamCall implements Dispatcher.DispatchHandler {
  readonly head: Promise<AnswerHead>;
  readonly #options: CallOptions;
  readonly #resolveHead: (head: AnswerHead) => void;
  readonly #rejectHead: (error: CallError) => void;
  #controller: Dispatcher.DispatchController | null = null;
  #dispatchedAt = 0;
  #timer: NodeJS.Timeout | null = null;
  /** A time-out that has struck, and is looked at once more when what came meanwhile has been read. */
  #overdue: NodeJS.Immediate | null = null;
  #interim = 0;
  #status = 0;
  #headers: AnswerHeaders = {};
  #decoder: Transform | null = null;
  #headSettled = false;
  #reader: BodyReader | null = null;
  /** What nobody reads yet, or what is gathered until the next tick, when the packet at hand has been parsed. */
  #unread: Buffer[] = [];
  #unreadBytes = 0;
  #isGathering = false;
  #paused = false;
  /** The body is over: ended or failed. */
  #over: { fault: CallFault | null } | null = null;
  #reported = false;
  #received = 0;
  /** The request has gone out wholly. */
  #sent = false;
  /** Bytes that had come when its client left, or when its answer was complete; null: somebody waits for more of it. */
  #unseenFrom: number | null = null;
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

  /** The upstream has the whole request, and will charge for it. */
  get sent(): boolean {
    return this.#sent;
  }

  start(dispatcher: Dispatcher): this {
    const { origin, path, headers, body, connectMs } = this.#options;
    const request = { origin, path, method: "POST" as const, ...bodyOf(headers, body) };
    this.#dispatchedAt = performance.now();
    dispatcher.dispatch(request, this);
    // A new connection is to be made; one from the pool undici looks at once more before it writes.
    if (this.#controller === null && this.#over === null) this.#arm(connectMs, "connect");
    return this;
  }

  /**
   * The client has left. What the upstream reports is read on for, unseen: whoever reads goes on as before, for two
   * seconds and 256 KiB at the most; then the call is aborted as cancelled (rule 1.11). One that the upstream does not
   * have wholly ends at once.
   */
  drain(): void {
    if (this.#over !== null || this.#unseenFrom !== null) return;
    if (!this.#sent) return this.abort("cancelled");
    this.#readOn(UNSEEN_MS, "cancelled");
  }

  /**
   * The answer is complete: its upstream may close it in its own time, so that the connection can serve again. Most have by then,
   * and nothing of such a call is kept.
   */
  linger(): void {
    if (this.#over === null) this.#readOn(LINGER_MS, "cut");
  }

  /** Nobody waits for what still comes. */
  #readOn(ms: number, fault: CallFault): void {
    this.#disarm();
    this.#arm(ms, fault);
    this.#unseenFrom ??= this.#received;
    if (this.#paused) this.resume();
  }

  /** Ends the call from this side; the connection is closed unless the answer was complete. */
  abort(fault: CallFault): void {
    if (this.#over !== null) return;
    this.#finish(fault);
  }

  /** Hands the body over. What came before is delivered at once. */
  read(reader: BodyReader): void {
    this.#reader = reader;
    const wasPaused = this.#paused;
    // Set again by a reader that wants no more for now.
    this.#paused = false;
    this.#handOver();
    if (this.#over !== null) this.#report(reader);
    else if (wasPaused && !this.#paused) this.resume();
  }

  /** The whole body, without a byte order mark. @throws CallError; `received` says how much of it came. */
  whole(maxBytes: number): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const pieces = new GatheredPieces();
    this.read({
      data: (more) => {
        for (const chunk of more) pieces.add(chunk);
        if (this.#received > maxBytes) this.abort("too_large");
      },
      // JSON may not begin with it, and its readers may leave it out (RFC 8259 §8.1).
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
   * Stops reading from the upstream: what the packet at hand brings still comes. The time until `resume` does not count as its
   * idleness (design.md §4.7).
   */
  pause(): void {
    // It is bounded anyhow, and nobody may be there to resume it.
    if (this.#unseenFrom !== null) return;
    this.#paused = true;
    this.#disarm();
    this.#controller?.pause();
    this.#decoder?.pause();
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
    if (status < 200) return this.#countInterim();
    // Whoever answers has seen enough of it.
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
    if (this.#status > 0) return "cut";
    if (EXHAUSTION.has((error as NodeJS.ErrnoException).code)) return "exhausted";
    return isStaleConnectionError(error, this.#dispatchedAt) ? "stale" : "connect";
  }

  #deliver(chunk: Buffer): void {
    if (this.#over !== null) return;
    this.#received += chunk.length;
    if (this.#unseenFrom !== null && this.#received - this.#unseenFrom > MAX_UNSEEN_BYTES)
      return this.abort("cancelled");
    this.#settleHead();
    if (!this.#isGathering) this.#gather();
    this.#unread.push(chunk);
    this.#unreadBytes += chunk.length;
    if (this.#reader === null && this.#unreadBytes > UNREAD_LIMIT_BYTES) this.pause();
  }

  /** Of a packet's chunks, of which there may be hundreds, the first alone says that the upstream is not idle. */
  #gather(): void {
    this.#isGathering = true;
    if (this.#paused) this.#disarm();
    else this.#armIdle();
    // Where nothing can be idle, whoever comes to read is given what is there.
    if (this.#reader !== null || this.#options.idleMs !== null) process.nextTick(() => this.#handOver());
  }

  /** Gives the reader what has come. One that throws, a bug of ours, ends this call and not the process. */
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
    // The timer that was armed for the first byte cannot be reused for idleness: it has another length.
    if (this.#unseenFrom === null) this.#disarm();
    this.#resolveHead({ status: this.#status, headers: this.#headers });
  }

  /** `null`: the body ended as it should. What came before is handed over, unless it is over already. */
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
   * late, and healthy upstreams would be ejected. So a time-out counts only if nothing has come until everything
   * that waits was read.
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
 * Body and headers as undici takes them. It says of a buffer that it is sent when it has handed it to the socket, where
 * a large one may wait; of pieces it hands over the next when the one before has left.
 */
function bodyOf(headers: readonly string[], body: Buffer): { headers: string[]; body: Buffer | Readable } {
  if (body.length <= WHOLE_BODY_BYTES) return { headers: headers as string[], body };
  // It takes any iterable; its types know only one of them.
  const iterable = pieces(body) as unknown as Readable;
  return { headers: [...headers, "content-length", String(body.length)], body: iterable };
}

function* pieces(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += PIECE_BYTES) yield body.subarray(at, at + PIECE_BYTES);
}
