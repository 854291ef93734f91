/** Reads a whole answer, for relay, conversion and the tool loop: in this thread if it is small, else in another (rule 7.3). */
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { withoutOwn } from "../../dialects/upstream-error.ts";
import type { UsageContext } from "../../dialects/usage.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { BrokenAnswer } from "../../loop/model-answer.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { failureOfError, type AttemptFailure } from "../../upstream/failure.ts";
import { MAX_ANSWER_BYTES, UNCOUNTED_BYTES } from "../../upstream/limits.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { CallError } from "../../upstream/send.ts";
import { LargeAnswer } from "../large/large-answer.ts";
import { CONVERT_HERE_BYTES } from "../large/large-body.ts";
import type { BodyLease } from "../call.ts";
import type { BodyPlace } from "../request/request-body.ts";
import { brokenWhole, isOwed, unbegunAnswer } from "./broken-answer.ts";
import { outcomeOf, usageOfBegun, usageOfBytes, type Outcome } from "./whole-answer.ts";

/** How an answer's bytes are read. */
export interface WholeWork<Read> {
  /** Largest answer that is read in this thread. */
  readonly hereBytes: number;
  /** @throws ApiError or JsonFault when the bytes are no answer. */
  here(body: Buffer): Read;
  /** Does the same in another thread; null: the answer took that down. */
  elsewhere(large: LargeAnswer): Promise<Outcome<Read> | null>;
}

/** The request that an answer is read for. */
export interface WholeReader {
  /** The client's. */
  readonly dialect: Dialect;
  readonly place: BodyPlace;
  /** Counts the bytes of an answer while it comes in and is read. */
  readonly lease: BodyLease;
  /** What is charged if the upstream reports no usage, and the bounds within which its report is believed. */
  readonly usage: UsageContext;
}

/**
 * @throws AttemptFailure when the answer is an error in spite of its status, or broke off and costs nothing; BrokenAnswer, with
 *   its cost, when it broke off or cannot be read (rules 1.6, 4.3); ApiError when it is empty.
 */
export async function readWhole<Read>(
  answer: UpstreamAnswer,
  reader: WholeReader,
  work: WholeWork<Read>,
): Promise<Read> {
  const { upstream } = answer;
  const { lease } = reader;
  const { pool } = reader.place;
  let counted = 0;
  const takeRoom = (bytes: number) => {
    counted += lease.receive(bytes);
    const pause = lease.mayReadOn?.() ?? null;
    if (pause !== null) answer.waitsFor(pause);
    return pause;
  };
  // One function, as each further one that waits costs every request a microsecond.
  try {
    let body: Buffer;
    try {
      body = await answer.call.whole(MAX_ANSWER_BYTES, takeRoom);
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      throw await broken(answer, reader, error, () => costOfBegun(upstream.dialect, reader, error));
    }
    const received = body.length;
    const outcome =
      pool === null || received <= work.hereBytes
        ? outcomeOf(upstream.dialect, body, reader.usage, () => work.here(body))
        : await outcomeElsewhere(new LargeAnswer(pool, reader.place, body), reader, work, received, counted);
    if (outcome.kind === "answer") return outcome.read;
    throw await faultOf(outcome, answer, reader);
  } finally {
    if (counted > 0) lease.giveBack(counted);
  }
}

/** Returns the error of an answer that was read to its end and is none. */
async function faultOf(
  outcome: Exclude<Outcome<unknown>, { kind: "answer" }>,
  answer: UpstreamAnswer,
  reader: WholeReader,
): Promise<ApiError | AttemptFailure | BrokenAnswer> {
  const { upstream, own } = answer;
  switch (outcome.kind) {
    case "error":
      return failureOfError(withoutOwn(outcome.error, own), own);
    case "none":
      return await broken(answer, reader, { fault: "garbage" }, () => outcome.usage);
    case "unreadable":
      metrics.streamFaults.inc({ dialect: reader.dialect, kind: "garbage" });
      answer.broke("garbage", "incomplete");
      return new BrokenAnswer(withoutOwn(outcome.error, own), {
        upstream: upstream.name,
        usage: outcome.usage,
        corrupt: true,
      });
  }
}

async function outcomeElsewhere<Read>(
  large: LargeAnswer,
  { lease, usage }: WholeReader,
  work: WholeWork<Read>,
  received: number,
  counted: number,
): Promise<Outcome<Read>> {
  // What was not counted as it came; of a batch item's answer there may be more, beyond its organization's share.
  const first = Math.min(received - counted, UNCOUNTED_BYTES);
  lease.count(first);
  try {
    // Of an answer that took its thread down nothing can be read.
    return (await work.elsewhere(large)) ?? { kind: "none", usage: usageOfBytes(usage, received) };
  } finally {
    lease.giveBack(first);
  }
}

/** Returns the error of an answer that broke off or is no JSON: it costs what was sent and received, an empty one nothing. */
async function broken(
  answer: UpstreamAnswer,
  { dialect }: WholeReader,
  { fault, cause }: Pick<CallError, "fault" | "cause">,
  cost: () => MessagesUsage | Promise<MessagesUsage>,
): Promise<ApiError | AttemptFailure | BrokenAnswer> {
  const { call, upstream } = answer;
  const error = brokenWhole(dialect, fault, cause);
  answer.broke(fault);
  if (!isOwed(call, fault)) return fault === "garbage" ? error : unbegunAnswer(error, fault);
  const corrupt = fault === "garbage" || fault === "too_large";
  return new BrokenAnswer(error, { upstream: upstream.name, usage: await cost(), corrupt });
}

async function costOfBegun(
  dialect: Dialect,
  { place, usage: context }: WholeReader,
  { received, begun }: Pick<CallError, "received" | "begun">,
): Promise<MessagesUsage> {
  const { pool } = place;
  if (pool === null || begun.length <= CONVERT_HERE_BYTES)
    return usageOfBegun(dialect, context, received, begun);
  const cost = await new LargeAnswer(pool, place, begun).usageOfBegun({ dialect, context, received });
  return cost ?? usageOfBytes(context, received);
}
