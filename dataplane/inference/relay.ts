/**
 * Relay: an upstream's answer in the client's own dialect passes through untouched, save for the model's name, an
 * injected usage chunk, and `annotations` of whole Chat answers (design.md §4.2). The end of an answer leaves only
 * once its charge is durable (design.md §5).
 */
import type { Bill, FinalUsage, TokenUsage, ToolUsage } from "../billing/meter.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { corruptAnswer, cutAnswer } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { JsonFault, splice, type Edit, type Span } from "../lib/json-splice.ts";
import { SseOverflow, SseScanner, type SseFrame } from "../lib/sse.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { Answering } from "../upstream/ask.ts";
import { failureOfErrorBody, timedOut, AttemptFailure } from "../upstream/failure.ts";
import { MAX_ANSWER_BYTES } from "../upstream/limits.ts";
import { CallError, type CallFault } from "../upstream/send.ts";
import type { AnswerSink } from "./call.ts";
import { errorEvent } from "./in-band.ts";
import { isReport, lookAtWhole, streamTap, tokensOf, type StreamTap, type WholeLook } from "./usage-tap.ts";

/** What may gather behind the terminal event, or before the first one. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;
/** Time between two observations of a running stream. */
const OBSERVE_MS = 1_000;
/** How long a finished upstream may take to close its answer, so that its connection can be used again. */
const LINGER_MS = 1_000;

export const noTools: ToolUsage = { webSearches: 0, webFetches: 0, xSearches: 0, xPosts: 0, xProfiles: 0 };

export interface RelayJob {
  readonly dialect: Dialect;
  readonly requestId: string;
  /** Public model id. */
  readonly model: string;
  readonly usageInjected: boolean;
  readonly choices: number;
  /** Charged when the upstream reports no input. */
  readonly estimatedInput: number;
  readonly bill: Bill;
  readonly sink: AnswerSink;
  /** Headers of the answer beside content type and length. */
  readonly headers: Readonly<Record<string, string>>;
  /** Told the code of an error that ends a stream. */
  readonly failed: (error: ApiError) => void;
}

/**
 * Relays a whole answer.
 * @throws ApiError when it is no answer; what it costs is settled then, or the bill released.
 */
export async function relayWhole(job: RelayJob, answering: Answering): Promise<void> {
  const { call, upstream } = answering;
  let body: Buffer;
  try {
    body = await call.whole(MAX_ANSWER_BYTES);
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    return failWhole(job, answering, error.fault, error.received);
  }
  const seen = lookAt(job, body);
  if (seen === null || !seen.complete) {
    if (seen?.error === true) throw failureOfErrorBody(body);
    return failWhole(job, answering, "garbage", body.length);
  }
  const answer = splice(body, wholeEdits(job, seen));
  const reported = isReport(seen.usage) ? seen.usage : null;
  const tokens =
    reported === null
      ? { ...noTokens, input: job.estimatedInput, output: Math.ceil(body.length / 4) }
      : tokensOf(reported);
  await settle(job, { tokens, estimated: reported === null, status: "ok", upstream: upstream.name });
  const { sink } = job;
  sink.start(200, {
    "content-type": "application/json",
    "content-length": String(answer.length),
    ...job.headers,
  });
  sink.write(answer);
  sink.end();
}

function lookAt({ dialect, model }: RelayJob, body: Buffer): WholeLook | null {
  try {
    return lookAtWhole(dialect, body, model);
  } catch (fault) {
    if (fault instanceof JsonFault) return null;
    throw fault;
  }
}

function wholeEdits({ dialect, model }: RelayJob, seen: WholeLook): Edit[] {
  const edits: Edit[] = [];
  if (seen.model !== null) edits.push({ ...seen.model, text: JSON.stringify(model) });
  if (dialect === "chat")
    for (const { at, empty } of seen.bareMessages)
      edits.push({ start: at, end: at, text: empty ? '"annotations":[]' : '"annotations":[],' });
  return edits;
}

/** Rule 1.6: a corrupt answer costs what was sent and received; an empty one, and one for nobody, nothing. */
async function failWhole(
  job: RelayJob,
  { upstream }: Answering,
  fault: CallFault,
  received: number,
): Promise<never> {
  const cancelled = fault === "cancelled";
  if (received > 0)
    await settle(job, {
      tokens: { ...noTokens, input: job.estimatedInput, output: Math.ceil(received / 4) },
      estimated: true,
      status: cancelled ? "cancelled" : "error",
      upstream: upstream.name,
    });
  else await job.bill.release();
  if (fault === "deadline") throw new ApiError("timeout", timedOut);
  metrics.streamFaults.inc({ dialect: job.dialect, kind: fault === "cut" ? "cut" : "garbage" });
  throw corruptAnswer(fault);
}

export const noTokens: TokenUsage = {
  input: 0,
  cacheRead: 0,
  cacheWrite5m: 0,
  cacheWrite1h: 0,
  output: 0,
  reasoning: 0,
};

async function settle(
  job: RelayJob,
  usage: Pick<FinalUsage, "tokens" | "estimated" | "status" | "upstream">,
): Promise<void> {
  await job.bill.settle({ ...usage, tools: noTools, iterations: 1 });
}

/**
 * Relays a stream. Resolves when it is over, however it ended.
 * @throws AttemptFailure while nothing has been sent to the client.
 */
export function relayStream(job: RelayJob, answering: Answering): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  new StreamRelay(job, answering, resolve, reject).start();
  return promise;
}

/** Where a stream stands: before its first event, running, its end held back, over. */
type Phase = "opening" | "running" | "ending" | "over";

class StreamRelay {
  readonly #job: RelayJob;
  readonly #answering: Answering;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  readonly #tap: StreamTap;
  readonly #scanner = new SseScanner((frame) => this.#frame(frame));
  #phase: Phase = "opening";
  /** What waits for the first event (comments), or for the charge (the end). */
  #held: (Buffer | string)[] = [];
  #heldBytes = 0;
  /** Pieces to send of the chunk at hand. Neighbours in one buffer are joined. */
  #out: (Buffer | string)[] = [];
  #run: { bytes: Buffer; start: number; end: number } | null = null;
  /** The last frame that was sent, for its sequence number. */
  #last: Buffer = Buffer.alloc(0);
  #observedAt = 0;
  #waiting = false;
  readonly #publicModel: string;

  constructor(job: RelayJob, answering: Answering, resolve: () => void, reject: (error: unknown) => void) {
    this.#job = job;
    this.#answering = answering;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#publicModel = JSON.stringify(job.model);
    this.#tap = streamTap(job.dialect, job);
  }

  start(): void {
    this.#answering.call.read({
      data: (chunk) => this.#data(chunk),
      end: () => this.#ended(),
      fail: (fault) => this.#failed(fault),
    });
  }

  #data(chunk: Buffer): void {
    if (this.#phase === "over") return;
    try {
      this.#scanner.push(chunk);
    } catch (error) {
      if (!(error instanceof SseOverflow)) throw error;
      this.#answering.call.abort("too_large");
      return;
    }
    this.#flush();
    this.#observe();
  }

  #frame(frame: SseFrame): void {
    if (this.#phase === "over") return;
    const seen = this.#tap.see(frame);
    if (seen.kind === "error") return this.#upstreamError(seen.data);
    if (this.#phase === "ending") {
      if (seen.kind !== "swallow") this.#hold(frame, seen.kind === "pass" ? null : seen.model);
      if (seen.kind === "terminal" && seen.last) this.#finish();
      return;
    }
    if (this.#phase === "opening") {
      if (frame.dataLines === 0) return this.#hold(frame, null);
      this.#open();
    }
    switch (seen.kind) {
      case "pass":
        return this.#pass(frame);
      case "patch":
        return this.#patch(frame, seen.model);
      case "swallow":
        return this.#endRun();
      case "terminal":
        this.#endRun();
        this.#flush();
        this.#phase = "ending";
        this.#hold(frame, seen.model);
        if (seen.last) this.#finish();
    }
  }

  /** The first event is there: from here on the status is 200, and a failure is told in-band. */
  #open(): void {
    this.#phase = "running";
    this.#job.sink.start(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
      ...this.#job.headers,
    });
    this.#out.push(...this.#held);
    this.#held = [];
    this.#heldBytes = 0;
  }

  #pass(frame: SseFrame): void {
    const run = this.#run;
    if (run !== null && run.bytes === frame.bytes && run.end === frame.start) run.end = frame.end;
    else {
      this.#endRun();
      this.#run = { bytes: frame.bytes, start: frame.start, end: frame.end };
    }
    if (!frame.closed) this.#close();
  }

  /** A last event whose blank line got lost is completed: without it no client would take it. */
  #close(): void {
    this.#endRun();
    this.#out.push("\n\n");
  }

  #patch(frame: SseFrame, model: Span): void {
    this.#endRun();
    this.#out.push(...this.#patched(frame, model));
  }

  #patched(frame: SseFrame, model: Span | null): (Buffer | string)[] {
    const { bytes, start, end } = frame;
    const tail = frame.closed ? [] : ["\n\n"];
    if (model === null) return [bytes.subarray(start, end), ...tail];
    return [bytes.subarray(start, model.start), this.#publicModel, bytes.subarray(model.end, end), ...tail];
  }

  #hold(frame: SseFrame, model: Span | null): void {
    this.#heldBytes += frame.end - frame.start;
    if (this.#heldBytes > MAX_HELD_BYTES) return this.#answering.call.abort("too_large");
    this.#held.push(...this.#patched(frame, model));
  }

  #endRun(): void {
    if (this.#run === null) return;
    const { bytes, start, end } = this.#run;
    this.#run = null;
    this.#out.push(bytes.subarray(start, end));
  }

  /** One write for all that a chunk brought. */
  #flush(): void {
    this.#endRun();
    const out = this.#out;
    if (out.length === 0) return;
    this.#out = [];
    const [first] = out;
    const bytes = out.length === 1 && first !== undefined ? first : joined(out);
    if (typeof bytes !== "string") this.#last = bytes;
    if (!this.#job.sink.write(bytes)) this.#wait();
  }

  /**
   * The client is behind: nothing is read from the upstream until it has caught up. One that takes nothing at all
   * is cut by its sink.
   */
  #wait(): void {
    if (this.#waiting || this.#phase === "over") return;
    const { call } = this.#answering;
    this.#waiting = true;
    call.pause();
    void this.#job.sink.drained().then(() => {
      this.#waiting = false;
      call.resume();
    });
  }

  /** What a crash of this process would still charge. */
  #observe(): void {
    const now = performance.now();
    if (now - this.#observedAt < OBSERVE_MS) return;
    this.#observedAt = now;
    const { tokens, estimated } = this.#tokens();
    this.#job.bill.observe({ tokens, estimated, tools: noTools });
  }

  /** The upstream's own count when it is complete, else what was seen of it (design.md §5, abort policy). */
  #tokens(): { tokens: TokenUsage; estimated: boolean } {
    const { usage, final, estimatedOutput } = this.#tap;
    // A report of no output beside text that was seen is one that was not counted.
    const counted = final && isReport(usage) && (usage.output_tokens > 0 || estimatedOutput === 0);
    if (counted) return { tokens: tokensOf(usage), estimated: false };
    const seen = isReport(usage) ? tokensOf(usage) : { ...noTokens, input: this.#job.estimatedInput };
    return { tokens: { ...seen, output: Math.max(seen.output, estimatedOutput) }, estimated: true };
  }

  #ended(): void {
    if (this.#phase === "over") return;
    this.#scanner.end();
    this.#flush();
    if (this.#isOver()) return;
    if (this.#phase === "ending") return this.#finish();
    this.#break("cut");
  }

  #failed(fault: CallFault): void {
    if (this.#phase === "over") return;
    // Everything that matters came already: what failed is only the closing (rule 2.13).
    if (this.#phase === "ending" && fault !== "cancelled") return this.#finish();
    this.#break(fault);
  }

  /** Says so after calls that may have ended the stream. */
  #isOver(): boolean {
    return this.#phase === "over";
  }

  #upstreamError(data: Buffer): void {
    const failure = failureOfErrorBody(data);
    this.#flush();
    if (this.#phase === "opening") this.#refuse(failure);
    else {
      metrics.streamFaults.inc({ dialect: this.#job.dialect, kind: "error" });
      void this.#abandon(failure.error, "error");
    }
    this.#answering.call.abort("cut");
  }

  /** The stream stopped before its end. */
  #break(fault: CallFault): void {
    const { dialect } = this.#job;
    const error =
      fault === "idle" || fault === "deadline"
        ? new ApiError("timeout", fault === "idle" ? "The model's provider stopped sending." : timedOut)
        : cutAnswer();
    const kind = fault === "idle" ? "idle" : fault === "cut" ? "cut" : "garbage";
    if (fault !== "cancelled") metrics.streamFaults.inc({ dialect, kind });
    if (this.#phase === "opening" && fault !== "cancelled") return this.#refuseBroken(fault, error);
    void this.#abandon(error, fault === "cancelled" ? "cancelled" : "error");
  }

  /** Nothing was sent: this is still a plain HTTP error, and another upstream may be asked. */
  #refuse(failure: AttemptFailure): void {
    this.#phase = "over";
    this.#reject(failure);
  }

  #refuseBroken(fault: CallFault, error: ApiError): void {
    const cut = fault === "cut" && this.#answering.call.received === 0;
    this.#refuse(
      new AttemptFailure(error, {
        retry: cut ? "connect" : fault === "idle" ? "first_byte_timeout" : null,
        status: fault === "idle" ? "timeout" : cut ? "cut" : "garbage",
        unhealthy: cut || fault === "idle",
      }),
    );
  }

  /** The charge first, then the end of the answer. */
  #finish(): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#flush();
    void this.#complete();
  }

  async #complete(): Promise<void> {
    const { sink } = this.#job;
    this.#linger();
    try {
      await settle(this.#job, {
        ...this.#tokens(),
        status: "ok",
        upstream: this.#answering.upstream.name,
      });
      sink.write(joined(this.#held));
    } catch (error) {
      this.#tell(
        error instanceof ApiError ? error : new ApiError("internal", "Internal error", { cause: error }),
      );
    }
    sink.end();
    this.#resolve();
  }

  /** Lets the upstream close its answer in its own time, so that the connection can serve again. */
  #linger(): void {
    const { call } = this.#answering;
    call.resume();
    const timer = setTimeout(() => call.abort("cut"), LINGER_MS);
    timer.unref();
  }

  async #abandon(error: ApiError, status: "error" | "cancelled"): Promise<void> {
    this.#phase = "over";
    const { bill, sink } = this.#job;
    this.#flush();
    try {
      if (this.#answering.call.received === 0) await bill.release();
      else await settle(this.#job, { ...this.#tokens(), status, upstream: this.#answering.upstream.name });
    } catch (failure) {
      this.#job.failed(failure instanceof ApiError ? failure : error);
    }
    if (status === "error") this.#tell(error);
    sink.end();
    this.#resolve();
  }

  #tell(error: ApiError): void {
    const { dialect, requestId, sink, failed } = this.#job;
    failed(error);
    sink.write(errorEvent(dialect, error, requestId, this.#last));
  }
}

const joined = (pieces: readonly (Buffer | string)[]): Buffer =>
  Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)));
