/** Answers that break off or cannot be read, streamed and whole: the client's error, and whether they cost anything. */
import type { Dialect } from "../../dialects/dialect.ts";
import { corruptAnswer, cutAnswer, isGarbage } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { AttemptFailure, ClientLeft, endedByUs, statusOfFault, timedOut } from "../../upstream/failure.ts";
import type { CallFault, UpstreamCall } from "../../upstream/send.ts";
import type { InferenceCall } from "../call.ts";

/** Returns the client's error for a stream that stopped before its end. */
export function brokenStream(fault: CallFault): ApiError {
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  if (fault === "shutdown") return endedByUs();
  if (fault === "idle") return new ApiError("timeout", "The model's provider stopped sending.");
  return fault === "cut" || fault === "cancelled" ? cutAnswer() : corruptAnswer(fault);
}

/**
 * Returns the client's error for a whole answer that broke off or was none; counts it where the upstream was at fault. An answer for
 * which there was no room has its error as its cause.
 */
export function brokenWhole(dialect: Dialect, fault: CallFault, cause?: unknown): ApiError {
  if (fault === "exhausted" && cause instanceof ApiError) return cause;
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  if (fault === "shutdown") return endedByUs();
  // That the client left says nothing about the upstream.
  if (fault !== "cancelled") metrics.streamFaults.inc({ dialect, kind: faultKind(fault) });
  return corruptAnswer(fault);
}

/**
 * Returns the failure of an answer of which the client got nothing: another upstream may be asked. A broken connection
 * counts as one that was never made, whatever bytes came; bytes that are no answer are the upstream's fault.
 * @param reason the exact cause, where there is a more exact one than the fault.
 */
export function unbegunAnswer(error: ApiError, fault: CallFault, reason: string = fault): AttemptFailure {
  const status = statusOfFault(fault);
  switch (fault) {
    case "cut":
      return new AttemptFailure(error, { retry: "connect", status, reason, unhealthy: true });
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
 * Whether an answer that did not come to its end costs anything. If its client left, the upstream has the prompt and
 * charges it (rule 1.11); if the upstream broke off before its first byte, it charges nothing.
 */
export const isOwed = ({ sent, received }: UpstreamCall, fault: CallFault): boolean =>
  received > 0 || (fault === "cancelled" && sent);

/**
 * Whether a call without any answer costs its prompt. If its client left, the upstream has the prompt and charges it (rule 1.11).
 * In a batch each answer that is none is charged, also an empty one (rule 4.3), but not one that broke off before anything came:
 * it is asked for again.
 */
export const costsPrompt = (
  error: unknown,
  { batchId }: Pick<InferenceCall, "batchId">,
): error is ApiError =>
  error instanceof ClientLeft
    ? error.sent
    : batchId !== null && error instanceof ApiError && isGarbage(error);

/** Returns the fault of a stream that ended in an orderly way, but too early; bytes without an event were no stream at all. */
export const faultOfEnd = (isBegun: boolean, { received }: UpstreamCall): CallFault =>
  !isBegun && received > 0 ? "garbage" : "cut";

/** Returns the fault's name in `gapura_stream_faults_total`. */
export const faultKind = (fault: CallFault): "idle" | "cut" | "deadline" | "garbage" =>
  fault === "idle" || fault === "cut" || fault === "deadline" ? fault : "garbage";
