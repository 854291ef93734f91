/** Convert: a whole answer of an upstream becomes the client's through Messages form (design.md §4.3). */
import { codecs } from "../dialects/registry.ts";
import { ApiError } from "../lib/api-error.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { failureOfErrorBody } from "../upstream/failure.ts";
import { MAX_ANSWER_BYTES } from "../upstream/limits.ts";
import { CallError, type CallFault } from "../upstream/send.ts";
import { sendWhole } from "./call.ts";
import {
  attempt,
  CHARACTERS_PER_TOKEN,
  clientOf,
  counted,
  type ConvertJob,
  inputEstimate,
  settle,
} from "./convert-job.ts";
import { isOwed } from "./stream-answer.ts";
import { brokenWhole, failedUsage, isErrorBody, parsedAnswer } from "./whole-answer.ts";

/**
 * Converts a whole answer.
 * @throws ApiError when it is no answer; what it costs is settled then, or the bill released.
 * @throws AttemptFailure when it is an error in spite of its status.
 */
export async function convertWhole(job: ConvertJob, answering: UpstreamAnswer): Promise<void> {
  const { conversion, sink } = job;
  const { carry, context } = conversion;
  let body: Buffer;
  try {
    body = await answering.call.whole(MAX_ANSWER_BYTES);
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    return failWhole(job, answering, error.fault, error.received);
  }
  const parsed = parsedAnswer(answering.upstream.dialect, body);
  if (parsed === null) return failWhole(job, answering, "garbage", body.length);
  if (isErrorBody(parsed)) throw failureOfErrorBody(body);
  const reading = conversion.reading(answering.upstream);
  const message = attempt(() => codecs[answering.upstream.dialect].readResponse(parsed, reading));
  if (message instanceof ApiError) {
    const reported = failedUsage(parsed, reading.possible);
    if (reported === null) await settleEstimate(job, answering, body.length);
    else await settle(job, answering, { ...counted(reported), status: "error" });
    metrics.streamFaults.inc({ dialect: carry.dialect, kind: "garbage" });
    throw message;
  }
  answering.accepted();
  const answer = Buffer.from(JSON.stringify(codecs[carry.dialect].writeResponse(message, carry, context)));
  await settle(job, answering, { ...counted(message.usage), status: "ok" });
  sendWhole(sink, answer, job.headers);
}

/** Rule 1.6: a corrupt answer costs what was sent and received; an empty one nothing, unless its client left it. */
async function failWhole(
  job: ConvertJob,
  answering: UpstreamAnswer,
  fault: CallFault,
  received: number,
): Promise<never> {
  if (isOwed(answering.call, fault)) await settleEstimate(job, answering, received);
  else await job.bill.release();
  throw brokenWhole(clientOf(job), fault);
}

async function settleEstimate(job: ConvertJob, answering: UpstreamAnswer, received: number): Promise<void> {
  const tokens = { ...inputEstimate(job), output: Math.ceil(received / CHARACTERS_PER_TOKEN) };
  await settle(job, answering, { tokens, estimated: true, status: "error" });
}
