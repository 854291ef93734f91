/** What relaying an answer needs to know, whole or streamed, and how it is charged. */
import type { Logger } from "pino";
import { noTools } from "../billing/token-usage.ts";
import type { Bill, FinalUsage } from "../billing/meter.ts";
import type { KeepItem } from "../dialects/codecs.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { PossibleUsage } from "../dialects/usage.ts";
import type { ApiError } from "../lib/api-error.ts";
import { countImplausible } from "../telemetry/metrics.ts";
import type { AnswerSink } from "./call.ts";
import type { Counted } from "./convert-job.ts";
import type { AnswerSeal } from "./seal-answer.ts";

export interface RelayJob {
  readonly dialect: Dialect;
  readonly requestId: string;
  /** Public model id. */
  readonly model: string;
  readonly usageInjected: boolean;
  readonly choices: number;
  /** Charged when the upstream reports no input. */
  readonly estimatedInput: number;
  /** Bounds of what the upstream's report is believed. */
  readonly possible: PossibleUsage;
  /** Told the output items of a Responses answer; undefined: none is kept. */
  readonly keepItem: KeepItem | undefined;
  /** Seals what the upstream hands out to be sent back; null: it passes as it is. */
  readonly seal: AnswerSeal | null;
  readonly bill: Bill;
  readonly sink: AnswerSink;
  /** Headers of the answer beside content type and length. */
  readonly headers: Readonly<Record<string, string>>;
  readonly log: Logger;
  /** Told the code of an error that ends a stream. */
  readonly failed: (error: ApiError) => void;
}

/** Charges one upstream call; a client that is gone by then was not answered. */
export function settle(
  job: RelayJob,
  usage: Counted & Pick<FinalUsage, "status"> & { readonly upstream: string },
): Promise<void> {
  if (usage.implausible === true) countImplausible(job.model, usage.upstream);
  return job.bill.settle({
    tokens: usage.tokens,
    estimated: usage.estimated,
    implausible: usage.implausible === true,
    status: job.sink.closed.aborted ? "cancelled" : usage.status,
    upstream: usage.upstream,
    tools: noTools,
    iterations: 1,
  });
}
