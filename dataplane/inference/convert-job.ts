/** What converting an answer needs to know, whole or streamed, and how it is charged. */
import type { Bill, FinalUsage, Observed, TokenUsage } from "../billing/meter.ts";
import { noTokens, noTools, tokensOf } from "../billing/token-usage.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { MessagesUsage } from "../dialects/messages/types.ts";
import { ApiError } from "../lib/api-error.ts";
import { countImplausible } from "../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import type { AnswerSink } from "./call.ts";
import type { Reading } from "./conversion.ts";

/** What an answer takes, about, whose upstream reports nothing. */
export const CHARACTERS_PER_TOKEN = 4;

export interface ConvertJob {
  readonly conversion: Reading;
  readonly bill: Bill;
  readonly sink: AnswerSink;
  /** Headers of the answer beside content type and length. */
  readonly headers: Readonly<Record<string, string>>;
  /** Told the code of an error that ends a stream. */
  readonly failed: (error: ApiError) => void;
}

export const clientOf = ({ conversion }: ConvertJob): Dialect => conversion.carry.dialect;

/** The tokens of an upstream call of which nothing came back yet. */
export const inputEstimate = ({ conversion }: ConvertJob): TokenUsage => ({
  ...noTokens,
  input: conversion.context.estimatedInputTokens ?? 0,
});

/** What an answer is charged for whose usage its reader has counted. */
export const counted = (usage: MessagesUsage): Counted => ({
  tokens: tokensOf(usage),
  estimated: usage.estimated === true,
  implausible: usage.implausible === true,
});

/** What one upstream call used. */
export type Counted = Pick<Observed, "tokens" | "estimated" | "implausible">;

/** Charges one upstream call; a client that is gone by then was not answered. */
export function settle(
  { bill, conversion, sink }: ConvertJob,
  { upstream }: UpstreamAnswer,
  usage: Counted & Pick<FinalUsage, "status">,
): Promise<void> {
  if (usage.implausible === true) countImplausible(conversion.context.model, upstream.name);
  const status = sink.closed.aborted ? "cancelled" : usage.status;
  return bill.settle({ ...usage, status, tools: noTools, iterations: 1, upstream: upstream.name });
}

/** What `read` gives, or the ApiError it throws. */
export function attempt<T>(read: () => T): T | ApiError {
  try {
    return read();
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}
