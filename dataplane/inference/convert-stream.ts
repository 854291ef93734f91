/**
 * Convert: an upstream's stream becomes the client's through Messages form (design.md §4.4). As in relay, the end
 * of an answer leaves only once its charge is durable.
 */
import { noTools, tokensOf } from "../billing/token-usage.ts";
import type { EndCause, SseEvent, StreamReader, StreamWriter } from "../dialects/codecs.ts";
import type { MessagesEvent, MessagesUsage } from "../dialects/messages/types.ts";
import { codecs } from "../dialects/registry.ts";
import { withoutForeignPaths } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { SseOverflow, SseReader } from "../lib/sse.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { AttemptFailure, failureOfErrorBody } from "../upstream/failure.ts";
import type { CallFault } from "../upstream/send.ts";
import {
  attempt,
  CHARACTERS_PER_TOKEN,
  clientOf,
  counted,
  type ConvertJob,
  type Counted,
  inputEstimate,
  settle,
} from "./convert-job.ts";
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

/**
 * Converts a stream. Resolves when it is over, however it ended.
 * @throws AttemptFailure while nothing has been sent to the client.
 */
export function convertStream(job: ConvertJob, answering: UpstreamAnswer): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  new StreamConversion(job, answering, resolve, reject).start();
  return promise;
}

/** Where a stream stands: before its first event, running, over (its end may still wait for the charge). */
type Phase = "opening" | "running" | "over";

class StreamConversion {
  readonly #job: ConvertJob;
  readonly #answering: UpstreamAnswer;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  readonly #sse = new SseReader();
  readonly #reader: StreamReader;
  readonly #writer: StreamWriter;
  #phase: Phase = "opening";
  #usage: MessagesUsage | null = null;
  /** Characters of the answer so far, for one that breaks off unreported. */
  #characters = 0;
  #observedAt = Number.NEGATIVE_INFINITY;
  #waiting = false;

  constructor(
    job: ConvertJob,
    answering: UpstreamAnswer,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    const { carry, context } = job.conversion;
    this.#job = job;
    this.#answering = answering;
    this.#resolve = resolve;
    this.#reject = reject;
    const { upstream } = answering;
    this.#reader = codecs[upstream.dialect].readStream(job.conversion.reading(upstream));
    this.#writer = codecs[carry.dialect].writeStream(carry, context);
  }

  start(): void {
    this.#answering.call.read({
      data: (chunk) => this.#data(chunk),
      end: () => this.#ended({ kind: "eof" }, "cut"),
      fail: (fault) => this.#ended({ kind: "failed", error: brokenStream(fault) }, fault),
    });
  }

  #data(chunk: Buffer): void {
    if (this.#phase === "over") return;
    let events: readonly SseEvent[];
    try {
      events = this.#sse.push(chunk);
    } catch (error) {
      if (!(error instanceof SseOverflow)) throw error;
      this.#answering.call.abort("too_large");
      return;
    }
    this.#convert(events);
    if (this.#phase === "running") this.#observe();
  }

  /** One write for all that a chunk brought. */
  #convert(events: readonly SseEvent[]): void {
    const converted: MessagesEvent[] = [];
    for (const event of events) {
      const out = attempt(() => this.#reader.step(event));
      if (out instanceof ApiError) {
        this.#say(converted);
        this.#refused(out, event);
        return;
      }
      converted.push(...out);
    }
    this.#say(converted);
  }

  #say(events: readonly MessagesEvent[]): void {
    if (events.length === 0 || this.#phase === "over") return;
    for (const event of events) this.#note(event);
    if (this.#phase === "opening") this.#open();
    const { bytes, terminal } = this.#writer.write(events);
    if (bytes !== "" && !this.#job.sink.write(bytes)) this.#wait();
    if (terminal !== "") this.#watch(this.#complete(terminal));
  }

  /** Keeps what the charge needs. */
  #note(event: MessagesEvent): void {
    if (event.type === "message_start") this.#usage = event.message.usage;
    else if (event.type === "message_delta") {
      // The start was an estimate at best; what the end reports stands.
      const estimated = event.usage.estimated === true;
      this.#usage = { input_tokens: 0, ...this.#usage, ...event.usage, estimated };
    } else if (event.type === "content_block_delta") {
      const { delta } = event;
      if (delta.type === "text_delta") this.#characters += delta.text.length;
      else if (delta.type === "thinking_delta") this.#characters += delta.thinking.length;
      else if (delta.type === "input_json_delta") this.#characters += delta.partial_json.length;
    }
  }

  /** The first event is there: from here on the status is 200, and a failure is told in-band. */
  #open(): void {
    this.#phase = "running";
    this.#answering.accepted();
    this.#job.sink.start(200, eventStreamHeaders(this.#job.headers));
  }

  /** The client is behind: nothing is read until it has caught up; its sink cuts one that takes nothing at all. */
  #wait(): void {
    if (this.#waiting || this.#phase === "over") return;
    this.#waiting = true;
    const { call } = this.#answering;
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
    this.#job.bill.observe({ ...this.#seen(), tools: noTools });
  }

  /** What an answer used that has no end: as it is reported, else as far as it was seen (design.md §5, abort policy). */
  #seen(): Counted {
    const { reported } = this.#reader;
    if (reported !== null) return counted(reported);
    const implausible = this.#usage?.implausible === true;
    const known = this.#usage === null ? inputEstimate(this.#job) : tokensOf(this.#usage);
    const output = Math.max(known.output, Math.ceil(this.#characters / CHARACTERS_PER_TOKEN));
    return { tokens: { ...known, output }, estimated: true, implausible };
  }

  /** The upstream has nothing more to say, for whatever reason; its reader knows whether that was its end. */
  #ended(cause: EndCause, fault: CallFault): void {
    if (this.#phase === "over") return;
    if (cause.kind === "eof") this.#convert(this.#sse.end());
    if (this.#isOver()) return;
    if (fault !== "cancelled") {
      const out = attempt(() => this.#reader.end(cause));
      if (!(out instanceof ApiError)) this.#say(out);
      if (this.#isOver()) return;
      const told = cause.kind === "eof" ? faultOfEnd(this.#phase !== "opening", this.#answering.call) : fault;
      this.#broke(out instanceof ApiError ? out : brokenStream(fault), told);
    } else this.#broke(brokenStream(fault), fault);
  }

  /** Says so after calls that may have ended the stream. */
  #isOver(): boolean {
    return this.#phase === "over";
  }

  /** An event that cannot be read, or that is an error itself. */
  #refused(error: ApiError, event: SseEvent): void {
    if (this.#phase === "over") return;
    if (this.#phase === "opening") {
      const isError = event.event === "error" || /"error"\s*:\s*[{"]/.test(event.data);
      this.#refuse(
        isError
          ? failureOfErrorBody(Buffer.from(event.data))
          : new AttemptFailure(error, { retry: null, status: "garbage" }),
      );
    } else {
      metrics.streamFaults.inc({ dialect: clientOf(this.#job), kind: "error" });
      this.#watch(this.#abandon(error, "garbage"));
    }
    this.#answering.call.abort("cut");
  }

  /** The stream stopped before its end. */
  #broke(error: ApiError, fault: CallFault): void {
    if (fault !== "cancelled")
      metrics.streamFaults.inc({ dialect: clientOf(this.#job), kind: faultKind(fault) });
    if (this.#phase === "opening" && fault !== "cancelled") this.#refuse(unbegunAnswer(error, fault));
    else this.#watch(this.#abandon(error, fault));
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
  async #complete(terminal: string): Promise<void> {
    this.#phase = "over";
    const { sink } = this.#job;
    linger(this.#answering.call);
    const used = this.#usage === null ? this.#seen() : counted(this.#usage);
    try {
      await settle(this.#job, this.#answering, { ...used, status: "ok" });
      sink.write(terminal);
    } catch (error) {
      this.#tell(errorOfCharge(error));
    }
    sink.end();
    this.#resolve();
  }

  async #abandon(error: ApiError, fault: CallFault): Promise<void> {
    this.#phase = "over";
    const { bill, sink, failed } = this.#job;
    try {
      if (isOwed(this.#answering.call, fault))
        await settle(this.#job, this.#answering, { ...this.#seen(), status: "error" });
      else await bill.release();
    } catch (failure) {
      failed(failure instanceof ApiError ? failure : error);
    }
    if (fault !== "cancelled") this.#tell(error);
    sink.end();
    this.#resolve();
  }

  #tell(error: ApiError): void {
    this.#job.failed(error);
    const isForeign = this.#answering.upstream.dialect !== clientOf(this.#job);
    this.#job.sink.write(this.#writer.fail(isForeign ? withoutForeignPaths(error) : error));
  }
}
