/**
 * The client's side of a streamed answer: its headers, its bytes, and its end, which leaves only once the charge is
 * durable (design.md §5).
 */
import { observedOf } from "../../billing/token-usage.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { ApiError } from "../../lib/api-error.ts";
import { apiErrorOf } from "../../store/store-away.ts";
import type { CallFault } from "../../upstream/send.ts";
import type { AnswerBytes } from "./answer-bytes.ts";
import { settle, type AnswerJob } from "./answer-job.ts";
import type { StreamConsumer } from "./response-stream.ts";
import { countUntil } from "./waiting-bytes.ts";

/** Headers of a streamed answer (dialects.md §A3), and `others`. */
const eventStreamHeaders = (others: Readonly<Record<string, string>>): Record<string, string> => ({
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
  ...others,
});

export class ClientStream implements StreamConsumer<AnswerBytes> {
  readonly dialect: Dialect;
  readonly #job: AnswerJob;
  readonly #upstream: string | null;
  /** Writes the event that ends a stream with an error. */
  readonly #inBand: (error: ApiError) => string;

  constructor(job: AnswerJob, upstream: string | null, inBand: (error: ApiError) => string) {
    this.dialect = job.dialect;
    this.#job = job;
    this.#upstream = upstream;
    this.#inBand = inBand;
  }

  begin(): void {
    const { sink, headers } = this.#job;
    sink.start(200, eventStreamHeaders(headers));
  }

  take(bytes: AnswerBytes): boolean {
    return this.#job.sink.write(bytes);
  }

  drained(): Promise<void> {
    const { lease, sink } = this.#job;
    return countUntil(sink.drained(), sink.waitingBytes, lease);
  }

  observe(usage: MessagesUsage): void {
    this.#job.bill.observe(observedOf(usage));
  }

  async complete(last: AnswerBytes, usage: MessagesUsage): Promise<void> {
    try {
      await settle(this.#job, usage, this.#upstream, "ok");
    } catch (error) {
      return this.fail(apiErrorOf(error));
    }
    this.#job.sink.end(last);
  }

  async abandon(error: ApiError, fault: CallFault, usage: MessagesUsage | null): Promise<void> {
    const { bill, failed, sink } = this.#job;
    try {
      if (usage === null) await bill.release();
      else await settle(this.#job, usage, this.#upstream, "error");
    } catch (failure) {
      failed(failure instanceof ApiError ? failure : error);
    }
    if (fault === "cancelled") sink.end();
    else this.fail(error);
  }

  misread(cause: unknown, usage: MessagesUsage | null): Promise<void> {
    const { log, requestId } = this.#job;
    log.error({ request_id: requestId, err: cause }, "an upstream's stream could not be read");
    return this.abandon(apiErrorOf(cause), "garbage", usage);
  }

  /** Ends the answer with an error in-band. */
  fail(error: ApiError): void {
    this.#job.failed(error);
    this.#job.sink.end(this.#inBand(error));
  }
}
