import type { TokenUsage } from "../billing/meter.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import { failureOfResponse } from "../dialects/responses/read-response.ts";
import { corruptAnswer } from "../dialects/upstream-error.ts";
import { noTokens } from "../billing/token-usage.ts";
import { JsonFault } from "../lib/json-reader.ts";
import { splice, type Edit } from "../lib/json-splice.ts";
import { metrics } from "../telemetry/metrics.ts";
import type { UpstreamAnswer } from "../upstream/request.ts";
import { failureOfErrorBody } from "../upstream/failure.ts";
import { MAX_ANSWER_BYTES } from "../upstream/limits.ts";
import { CallError, type CallFault } from "../upstream/send.ts";
import { sendWhole } from "./call.ts";
import { CHARACTERS_PER_TOKEN, counted } from "./convert-job.ts";
import { settle, type RelayJob } from "./relay-job.ts";
import { wholeSealEdits } from "./seal-answer.ts";
import { isOwed } from "./stream-answer.ts";
import { isReport } from "./usage-tap.ts";
import {
  brokenWhole,
  countedTokens,
  failedUsage,
  isErrorBody,
  lookAtWhole,
  type WholeLook,
} from "./whole-answer.ts";

/**
 * Relays a whole answer.
 * @throws ApiError when it is no answer; what it costs is settled then, or the bill released.
 */
export async function relayWhole(job: RelayJob, answering: UpstreamAnswer): Promise<void> {
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
  if (seen.failed) return failResponse(job, answering, body);
  answering.accepted();
  const answer = splice(body, wholeEdits(job, seen, body));
  const used = isReport(seen.usage)
    ? countedTokens(seen.usage, job, () => objectOf(parseJson(body.toString("utf8"))) ?? {})
    : { tokens: estimateOf(job, body.length), estimated: true };
  await settle(job, { ...used, status: "ok", upstream: upstream.name });
  sendWhole(job.sink, answer, job.headers);
}

/** A Responses answer that is none by its own account costs what it reports (`isErrorBody`). */
async function failResponse(job: RelayJob, answering: UpstreamAnswer, body: Buffer): Promise<never> {
  const response = objectOf(parseJson(body.toString("utf8"))) ?? {};
  if (isErrorBody(response)) throw failureOfErrorBody(body);
  const reported = failedUsage(response, job.possible);
  const { name } = answering.upstream;
  if (reported === null) await settleEstimate(job, answering, body.length);
  else await settle(job, { ...counted(reported), status: "error", upstream: name });
  metrics.streamFaults.inc({ dialect: job.dialect, kind: "garbage" });
  throw failureOfResponse(response) ?? corruptAnswer("garbage");
}

function lookAt({ dialect, model, keepItem, seal }: RelayJob, body: Buffer): WholeLook | null {
  try {
    return lookAtWhole(dialect, body, model, keepItem, seal);
  } catch (fault) {
    if (fault instanceof JsonFault) return null;
    throw fault;
  }
}

function wholeEdits({ dialect, model, seal }: RelayJob, seen: WholeLook, body: Buffer): Edit[] {
  const edits = seal === null ? [] : wholeSealEdits(dialect, body, seal);
  if (seen.model !== null) edits.push({ ...seen.model, text: JSON.stringify(model) });
  if (dialect === "chat")
    for (const { at, empty } of seen.bareMessages)
      edits.push({ start: at, end: at, text: empty ? '"annotations":[]' : '"annotations":[],' });
  return edits;
}

/** Rule 1.6: a corrupt answer costs what was sent and received; an empty one nothing, unless its client left it. */
async function failWhole(
  job: RelayJob,
  answering: UpstreamAnswer,
  fault: CallFault,
  received: number,
): Promise<never> {
  if (isOwed(answering.call, fault)) await settleEstimate(job, answering, received);
  else await job.bill.release();
  throw brokenWhole(job.dialect, fault);
}

const estimateOf = (job: RelayJob, received: number): TokenUsage => ({
  ...noTokens,
  input: job.estimatedInput,
  output: Math.ceil(received / CHARACTERS_PER_TOKEN),
});

async function settleEstimate(job: RelayJob, { upstream }: UpstreamAnswer, received: number): Promise<void> {
  const tokens = estimateOf(job, received);
  await settle(job, { tokens, estimated: true, status: "error", upstream: upstream.name });
}
