/** What becomes of answers that break off or cannot be read, streamed and whole: what is told, and whether it costs. */
import type { Dialect } from "../../dialects/dialect.ts";
import { corruptAnswer, cutAnswer, isGarbage } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { AttemptFailure, ClientLeft, endedByUs, statusOfFault, timedOut } from "../../upstream/failure.ts";
import type { CallFault, UpstreamCall } from "../../upstream/send.ts";
import type { InferenceCall } from "../call.ts";

/** What a client is told of a stream that stopped before its end. */
export function brokenStream(fault: CallFault): ApiError {
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  if (fault === "shutdown") return endedByUs();
  if (fault === "idle") return new ApiError("timeout", "The model's provider stopped sending.");
  return fault === "cut" || fault === "cancelled" ? cutAnswer() : corruptAnswer(fault);
}

/** What a client is told of a whole answer that broke off, or was none. It is counted. */
export function brokenWhole(dialect: Dialect, fault: CallFault): ApiError {
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  if (fault === "shutdown") return endedByUs();
  metrics.streamFaults.inc({ dialect, kind: faultKind(fault) });
  return corruptAnswer(fault);
}

/**
 * An answer that stopped before anything of it was shown: another upstream may be asked. A broken connection counts as
 * one that was never made, whatever bytes came before; bytes that are no answer are the upstream's fault.
 */
export function unbegunAnswer(error: ApiError, fault: CallFault): AttemptFailure {
  const status = statusOfFault(fault);
  switch (fault) {
    case "cut":
      return new AttemptFailure(error, { retry: "connect", status, reason: fault, unhealthy: true });
    case "idle":
      return new AttemptFailure(error, {
        retry: "first_byte_timeout",
        status,
        reason: fault,
        unhealthy: true,
      });
    case "deadline":
    case "shutdown":
      return new AttemptFailure(error, { retry: null, status, reason: fault });
    default:
      return new AttemptFailure(error, { retry: null, status: "garbage" });
  }
}

/**
 * Whether an answer that did not come to its end costs anything. Where its client left, the upstream has the prompt and
 * charges it (rule 1.11); where the upstream broke off, it has charged us nothing before its first byte.
 */
export const isOwed = ({ sent, received }: UpstreamCall, fault: CallFault): boolean =>
  received > 0 || (fault === "cancelled" && sent);

/**
 * Whether a call of whose answer nothing came costs its prompt: where its client left, the upstream has the prompt and charges it
 * (rule 1.11); in a batch each answer that is none is charged, also an empty one (rule 4.3), but not one that broke off before
 * anything came, as it is asked for again.
 */
export const costsPrompt = (
  error: unknown,
  { batchId }: Pick<InferenceCall, "batchId">,
): error is ApiError =>
  error instanceof ClientLeft
    ? error.sent
    : batchId !== null && error instanceof ApiError && isGarbage(error);

/** The fault of a stream that ended in an orderly way, but too early: bytes without an event were no stream at all. */
export const faultOfEnd = (isBegun: boolean, { received }: UpstreamCall): CallFault =>
  !isBegun && received > 0 ? "garbage" : "cut";

/** The fault's name in `gapura_stream_faults_total`. */
export const faultKind = (fault: CallFault): "idle" | "cut" | "deadline" | "garbage" =>
  fault === "idle" || fault === "cut" || fault === "deadline" ? fault : "garbage";
