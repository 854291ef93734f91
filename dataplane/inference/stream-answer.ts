/** What relayed, converted and tool-running streams have in common: how they begin, break and end. */
import { corruptAnswer, cutAnswer } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { AttemptFailure, timedOut } from "../upstream/failure.ts";
import type { CallFault, UpstreamCall } from "../upstream/send.ts";

/** Time between two observations of a running stream: what a crash of this process would still charge. */
export const OBSERVE_MS = 1_000;
/** How long a finished upstream may take to close its answer, so that its connection can be used again. */
const LINGER_MS = 1_000;

/** Headers of a stream's answer (dialects.md §A3), with others beside them. */
export const eventStreamHeaders = (others: Readonly<Record<string, string>>): Record<string, string> => ({
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
  ...others,
});

/** What a client is told of a stream that stopped before its end. */
export function brokenStream(fault: CallFault): ApiError {
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  if (fault === "idle") return new ApiError("timeout", "The model's provider stopped sending.");
  return fault === "cut" || fault === "cancelled" ? cutAnswer() : corruptAnswer(fault);
}

/**
 * An answer that stopped before anything of it was shown: another upstream may be asked. A break is as if the
 * connection had not been made, whatever bytes came before it; garbage stays garbage.
 */
export function unbegunAnswer(error: ApiError, fault: CallFault): AttemptFailure {
  switch (fault) {
    case "cut":
      return new AttemptFailure(error, { retry: "connect", status: "cut", unhealthy: true });
    case "idle":
      return new AttemptFailure(error, { retry: "first_byte_timeout", status: "timeout", unhealthy: true });
    case "deadline":
      return new AttemptFailure(error, { retry: null, status: "timeout" });
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

/** The fault of a stream that ended in an orderly way, but too early: bytes without an event were no stream at all. */
export const faultOfEnd = (isBegun: boolean, { received }: UpstreamCall): CallFault =>
  !isBegun && received > 0 ? "garbage" : "cut";

/** The fault's name in `gapura_stream_faults_total`. */
export const faultKind = (fault: CallFault): "idle" | "cut" | "garbage" =>
  fault === "idle" || fault === "cut" ? fault : "garbage";

/** Lets the upstream close its answer in its own time, so that the connection can serve again. */
export function linger(call: UpstreamCall): void {
  call.resume();
  setTimeout(() => call.abort("cut"), LINGER_MS).unref();
}

/** What a stream's end is told that failed while it was being charged. */
export const errorOfCharge = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError("internal", "Internal error", { cause: error });
