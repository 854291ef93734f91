/**
 * Relay of a stream: bytes pass through untouched, save for the model's name and an injected usage chunk
 * (design.md §4.2). The end leaves only once its charge is durable (design.md §5).
 */
import { noTokens, noTools, promptOf, tokensOf } from "../billing/token-usage.ts";
import { parseJson } from "../dialects/fields.ts";
import { plausibleUsage } from "../dialects/usage.ts";
import { ApiError } from "../lib/api-error.ts";
import type { Span } from "../lib/json-reader.ts";
import { frameData, SseOverflow, SseScanner, type SseFrame } from "../lib/sse.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { type AttemptFailure, failureOfErrorBody } from "../upstream/failure.ts";
import type { CallFault } from "../upstream/send.ts";
import type { Counted } from "./convert-job.ts";
import { errorEvent } from "./in-band.ts";
import { settle, type RelayJob } from "./relay-job.ts";
import {
  brokenStream,
  errorOfCharge,
  eventStreamHeaders,
  faultKind,
  faultOfEnd,
  isOwed,
  linger,
  OBSERVE_MS,
  unbegunAnswer,
} from "./stream-answer.ts";
import { streamTap } from "./stream-taps.ts";
import { PASS, type Seen, type StreamTap } from "./usage-tap.ts";

/** What may gather behind the terminal event, or before the first one. */
const MAX_HELD_BYTES = 16 * 1024 * 1024;

/**
 * Relays a stream. Resolves when it is over, however it ended.
 * @throws AttemptFailure while nothing has been sent to the client.
 */
export function relayStream(job: RelayJob, answering: UpstreamAnswer): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  new StreamRelay(job, answering, resolve, reject).start();
  return promise;
}

/** What a client gets of a frame. */
type Passing = Exclude<Seen, { kind: "error" | "swallow" }>;

/** Where a stream stands: before its first event, running, its end held back, over. */
type Phase = "opening" | "running" | "ending" | "over";

class StreamRelay {
  readonly #job: RelayJob;
  readonly #answering: UpstreamAnswer;
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
  #observedAt = Number.NEGATIVE_INFINITY;
  #waiting = false;
  readonly #publicModel: Buffer;

  constructor(
    job: RelayJob,
    answering: UpstreamAnswer,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.#job = job;
    this.#answering = answering;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#publicModel = Buffer.from(JSON.stringify(job.model));
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
    // The beginning of an event that never ended must not reach a client's JSON parser.
    if (!frame.closed && !isWhole(frame)) return;
    const seen = this.#see(frame);
    if (seen.kind === "error") return this.#upstreamError(seen.data);
    if (this.#phase === "ending") {
      if (seen.kind !== "swallow") this.#hold(frame, seen);
      if (seen.kind === "terminal" && seen.last) this.#finish();
      return;
    }
    const isFirst = this.#phase === "opening";
    if (isFirst) {
      if (frame.dataLines === 0) return this.#hold(frame, PASS);
      this.#open();
    }
    this.#send(frame, seen);
    if (isFirst) this.#hurry();
  }

  #send(frame: SseFrame, seen: Exclude<Seen, { kind: "error" }>): void {
    switch (seen.kind) {
      case "pass":
        return this.#pass(frame);
      case "patch":
        return this.#patch(frame, seen.model);
      case "replace":
        return this.#replace(frame, seen.bytes);
      case "swallow":
        return this.#endRun();
      case "terminal":
        this.#endRun();
        this.#flush();
        this.#phase = "ending";
        this.#hold(frame, seen);
        if (seen.last) this.#finish();
    }
  }

  /** A client waits for the first event: it leaves before those that came with it are looked at. */
  #hurry(): void {
    this.#flush();
    this.#job.sink.hurry();
  }

  /** A tap that fails is a bug of ours, and no reason to break the client's stream. */
  #see(frame: SseFrame): Seen {
    try {
      return this.#tap.see(frame);
    } catch (error) {
      metrics.streamFaults.inc({ dialect: this.#job.dialect, kind: "tap" });
      this.#job.log.error({ id: this.#job.requestId, err: error }, "a stream's event could not be looked at");
      return PASS;
    }
  }

  /** The first event is there: from here on the status is 200, and a failure is told in-band. */
  #open(): void {
    this.#phase = "running";
    this.#answering.accepted();
    this.#job.sink.start(200, eventStreamHeaders(this.#job.headers));
    this.#out.push(...this.#held);
    this.#held = [];
    this.#heldBytes = 0;
  }

  #pass(frame: SseFrame): void {
    this.#extend(frame.bytes, frame.start, frame.end);
    if (!frame.closed) this.#close();
  }

  /** Adds bytes to the run when they follow it, else begins a new one. */
  #extend(bytes: Buffer, start: number, end: number): void {
    const run = this.#run;
    if (run !== null && run.bytes === bytes && run.end === start) {
      run.end = end;
      return;
    }
    this.#endRun();
    this.#run = { bytes, start, end };
  }

  /** A last event whose blank line got lost is completed: without it no client would take it. */
  #close(): void {
    this.#endRun();
    this.#out.push("\n\n");
  }

  #patch(frame: SseFrame, model: Span): void {
    this.#extend(frame.bytes, frame.start, model.start);
    this.#endRun();
    this.#out.push(this.#publicModel);
    this.#extend(frame.bytes, model.end, frame.end);
    if (!frame.closed) this.#close();
  }

  #replace(frame: SseFrame, bytes: Buffer): void {
    this.#endRun();
    this.#out.push(bytes);
    if (!frame.closed) this.#close();
  }

  #patched(frame: SseFrame, seen: Passing): (Buffer | string)[] {
    const { bytes, start, end } = frame;
    const tail = frame.closed ? [] : ["\n\n"];
    if ("bytes" in seen && seen.bytes !== undefined) return [seen.bytes, ...tail];
    const model = "model" in seen ? seen.model : null;
    if (model === null) return [bytes.subarray(start, end), ...tail];
    return [bytes.subarray(start, model.start), this.#publicModel, bytes.subarray(model.end, end), ...tail];
  }

  #hold(frame: SseFrame, seen: Passing): void {
    this.#heldBytes += frame.end - frame.start;
    if (this.#heldBytes > MAX_HELD_BYTES) return this.#answering.call.abort("too_large");
    this.#held.push(...this.#patched(frame, seen));
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
    const caughtUp = this.#job.sink.drained().then(() => {
      this.#waiting = false;
      call.resume();
    });
    this.#watch(caughtUp);
  }

  /** What a crash of this process would still charge. */
  #observe(): void {
    const now = performance.now();
    if (now - this.#observedAt < OBSERVE_MS) return;
    this.#observedAt = now;
    this.#job.bill.observe({ ...this.#tokens(), tools: noTools });
  }

  /** The upstream's own count when it is complete, else what was seen of it (design.md §5, abort policy). */
  #tokens(): Counted {
    const { final, estimatedOutput, usage: said } = this.#tap;
    const usage = said === null ? null : plausibleUsage(said, this.#job.possible, () => estimatedOutput);
    const reported = usage === null ? noTokens : tokensOf(usage);
    // A report of no prompt, or of no output beside text that was seen, is one that was not counted.
    const isSent = promptOf(reported) > 0;
    const isWritten = final && (reported.output > 0 || estimatedOutput === 0);
    const input = isSent ? reported.input : this.#job.estimatedInput;
    const output = isWritten ? reported.output : Math.max(reported.output, estimatedOutput);
    const implausible = usage?.implausible === true;
    return { tokens: { ...reported, input, output }, estimated: !isSent || !isWritten, implausible };
  }

  #ended(): void {
    if (this.#phase === "over") return;
    this.#scanner.end();
    this.#flush();
    if (this.#isOver()) return;
    if (this.#phase === "ending") return this.#finish();
    this.#break(faultOfEnd(this.#phase !== "opening", this.#answering.call));
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
    // Every choice was finished before: the answer is complete.
    if (this.#phase === "ending") return this.#finish();
    const failure = failureOfErrorBody(data);
    this.#flush();
    if (this.#phase === "opening") this.#refuse(failure);
    else {
      metrics.streamFaults.inc({ dialect: this.#job.dialect, kind: "error" });
      this.#watch(this.#abandon(failure.error, "garbage"));
    }
    this.#answering.call.abort("cut");
  }

  /** The stream stopped before its end. */
  #break(fault: CallFault): void {
    const { dialect } = this.#job;
    const error = brokenStream(fault);
    if (fault !== "cancelled") metrics.streamFaults.inc({ dialect, kind: faultKind(fault) });
    if (this.#phase === "opening" && fault !== "cancelled") return this.#refuse(unbegunAnswer(error, fault));
    this.#watch(this.#abandon(error, fault));
  }

  /** Whoever waits for the stream hears of what fails on the way to its end. */
  #watch(work: Promise<void>): void {
    work.catch((error: unknown) => this.#reject(error));
  }

  /** Nothing was sent: this is still a plain HTTP error, and another upstream may be asked. */
  #refuse(failure: AttemptFailure): void {
    this.#phase = "over";
    this.#reject(failure);
  }

  /** The charge first, then the end of the answer. */
  #finish(): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#flush();
    this.#watch(this.#complete());
  }

  async #complete(): Promise<void> {
    const { dialect, sink } = this.#job;
    if (this.#tap.faults > 0) metrics.streamFaults.inc({ dialect, kind: "tap" }, this.#tap.faults);
    linger(this.#answering.call);
    try {
      await settle(this.#job, {
        ...this.#tokens(),
        status: "ok",
        upstream: this.#answering.upstream.name,
      });
      sink.write(joined(this.#held));
    } catch (error) {
      this.#tell(errorOfCharge(error));
    }
    sink.end();
    this.#resolve();
  }

  async #abandon(error: ApiError, fault: CallFault): Promise<void> {
    this.#phase = "over";
    const { bill, sink } = this.#job;
    const { call, upstream } = this.#answering;
    this.#flush();
    try {
      if (isOwed(call, fault))
        await settle(this.#job, { ...this.#tokens(), status: "error", upstream: upstream.name });
      else await bill.release();
    } catch (failure) {
      this.#job.failed(failure instanceof ApiError ? failure : error);
    }
    if (fault !== "cancelled") this.#tell(error);
    sink.end();
    this.#resolve();
  }

  #tell(error: ApiError): void {
    const { dialect, requestId, sink, failed } = this.#job;
    failed(error);
    sink.write(errorEvent(dialect, error, requestId, this.#tap.nextNumber));
  }
}

/** Whether the data of a frame that was not closed is complete all the same. */
function isWhole(frame: SseFrame): boolean {
  const data = frameData(frame).toString("utf8");
  return data === "[DONE]" || parseJson(data) !== undefined;
}

/** `Buffer.concat` checks each piece anew; a stream with patched names has two for each event. */
function joined(pieces: readonly (Buffer | string)[]): Buffer {
  const buffers = pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece));
  const all = Buffer.allocUnsafe(buffers.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const buffer of buffers) at += buffer.copy(all, at);
  return all;
}
