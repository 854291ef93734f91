/** The input for passing an answer on to its client, relayed or converted, whole or streamed. */
import type { Logger } from "pino";
import type { Bill, FinalUsage } from "../../billing/meter.ts";
import { observedOf } from "../../billing/token-usage.ts";
import type { KeepItem } from "../../dialects/codecs.ts";
import type { UsageContext } from "../../dialects/usage.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import type { ToldPlaces } from "../../dialects/told-places.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { countImplausible } from "../../telemetry/counts.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { sendWhole, type AnswerSink, type BodyLease, type InferenceCall } from "../call.ts";
import type { Reading } from "../request/conversion.ts";
import type { BodyPlace } from "../request/request-body.ts";
import type { PassedOn } from "./passed-on.ts";
import type { AnswerSeal } from "./seal-answer.ts";

export interface AnswerJob {
  /** The client's. */
  readonly dialect: Dialect;
  readonly requestId: string;
  readonly organizationId: string;
  /** Public model id. */
  readonly model: string;
  readonly bill: Bill;
  readonly sink: AnswerSink;
  /** Where a large answer is read: its worker pool. */
  readonly place: BodyPlace;
  /** Counts the bytes of a large answer while it is read. */
  readonly lease: BodyLease;
  /** Headers of the answer besides content type and length. */
  readonly headers: Readonly<Record<string, string>>;
  readonly log: Logger;
  /** Called with an error that ends a stream. */
  readonly failed: (error: ApiError) => void;
}

/** @param dropped the value of `x-gapura-dropped`; null: nothing was dropped. */
export const answerJob = (
  { dialect, id, sink, bodyLease, log, summary, principal }: InferenceCall,
  place: BodyPlace,
  model: string,
  bill: Bill,
  dropped: string | null,
): AnswerJob => ({
  dialect,
  requestId: id,
  organizationId: principal.organizationId,
  model,
  bill,
  sink,
  place,
  lease: bodyLease,
  headers: dropped === null ? bill.headers : { ...bill.headers, "x-gapura-dropped": dropped },
  log,
  failed: (error) => {
    summary.errorCode = error.code;
  },
});

export interface ConvertJob extends AnswerJob {
  readonly conversion: Reading;
  /** Places of the sent request that an error may name to the client. */
  readonly places: ToldPlaces;
}

export interface RelayJob extends AnswerJob {
  readonly usageInjected: boolean;
  readonly choices: number;
  /** What is charged if the upstream reports no usage, and the bounds within which its report is believed. */
  readonly usage: UsageContext;
  /** Called with each output item of a Responses answer; undefined: none is kept. */
  readonly keepItem: KeepItem | undefined;
  /** Seals the blobs that clients send back later (`seal-answer.ts`); null: they pass unsealed. */
  readonly seal: AnswerSeal | null;
}

/** Charges an answer without server tools; as `cancelled` if the client has left before. */
export function settle(
  { bill, model, sink }: Pick<AnswerJob, "bill" | "model" | "sink">,
  usage: MessagesUsage,
  upstream: string | null,
  status: FinalUsage["status"],
): Promise<void> {
  const observed = observedOf(usage);
  if (observed.implausible === true) countImplausible(model, upstream ?? "");
  return bill.settle({
    ...observed,
    status: sink.closed.aborted ? "cancelled" : status,
    iterations: 1,
    upstream,
  });
}

/** Charges a whole answer, and sends it to its client unless that has left. */
export async function passOn(
  job: Pick<AnswerJob, "bill" | "model" | "sink" | "headers">,
  answer: UpstreamAnswer,
  { body, usage, items }: PassedOn,
  keepItem: KeepItem | undefined,
): Promise<void> {
  answer.accepted();
  for (const { id, json } of items) keepItem?.(id, json);
  await settle(job, usage, answer.upstream.name, "ok");
  if (body !== null) sendWhole(job.sink, body, job.headers);
}
