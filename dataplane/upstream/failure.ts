/**
 * What an upstream's failure means: whether the next candidate may be tried, what the client is told (rules 1.5,
 * 2.12), and what it says about the upstream's health (rule 1.14).
 */
import type { Route, Upstream } from "../config/schema.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import { corruptAnswer, inBandError, retryAfterSeconds, upstreamError } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import type { AnswerHead, CallFault } from "./send.ts";

/** The classes of `retries.retryOn`; `null`: no other upstream is asked. */
export type RetryClass = "connect" | "rate_limited" | "server_error" | "first_byte_timeout" | null;

/** An upstream failed before anything of its answer reached the client. */
export class AttemptFailure extends Error {
  readonly retry: RetryClass;
  /** What the client is told when no other upstream answers. */
  readonly error: ApiError;
  /** For `gapura_upstream_requests_total`. */
  readonly status: string;
  /** Whether it counts towards ejection. */
  readonly unhealthy: boolean;
  /** The connection was kept alive and had been closed meanwhile: nothing is known of the upstream itself. */
  readonly stale: boolean;
  /** It did answer: it is there, whatever it said. */
  readonly answered: boolean;
  /** How long the upstream asks to be left alone. */
  readonly retryAfterMs: number | null;

  constructor(
    error: ApiError,
    facts: {
      readonly retry: RetryClass;
      readonly status: string;
      readonly unhealthy?: boolean;
      readonly stale?: boolean;
      readonly answered?: boolean;
      readonly retryAfterMs?: number | null;
    },
  ) {
    super(`upstream failed: ${facts.status}`, { cause: error });
    this.name = "AttemptFailure";
    this.error = error;
    this.retry = facts.retry;
    this.status = facts.status;
    this.unhealthy = facts.unhealthy ?? false;
    this.stale = facts.stale ?? false;
    this.answered = facts.answered ?? false;
    this.retryAfterMs = facts.retryAfterMs ?? null;
  }
}

const unreachable = "The model's provider could not be reached.";
export const timedOut = "The request took longer than this model allows.";

/** A call that failed before its answer's first byte. */
export function failureOfCall(fault: CallFault, cause: unknown): AttemptFailure {
  switch (fault) {
    case "connect":
    case "cut":
      return new AttemptFailure(new ApiError("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status: "connect",
        unhealthy: true,
      });
    case "stale":
      return new AttemptFailure(new ApiError("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status: "connect",
        stale: true,
      });
    case "first_byte_timeout":
      return new AttemptFailure(
        new ApiError("timeout", "The model's provider did not begin to answer in time.", { cause }),
        { retry: "first_byte_timeout", status: "timeout", unhealthy: true },
      );
    case "garbage":
      return new AttemptFailure(corruptAnswer(fault), {
        retry: "connect",
        status: "garbage",
        unhealthy: true,
      });
    case "deadline":
    case "idle":
      return new AttemptFailure(new ApiError("timeout", timedOut, { cause }), {
        retry: null,
        status: "timeout",
      });
    case "too_large":
      return new AttemptFailure(corruptAnswer(fault), {
        retry: null,
        status: "garbage",
      });
    case "exhausted":
      return new AttemptFailure(
        new ApiError("unavailable", "The service is overloaded; try again in a moment.", {
          cause,
          retryAfterSeconds: 1,
        }),
        { retry: null, status: "exhausted" },
      );
    case "unsendable":
      return new AttemptFailure(new ApiError("internal", "The request could not be sent on.", { cause }), {
        retry: null,
        status: "unsendable",
      });
    case "cancelled":
      return new AttemptFailure(new ApiError("internal", "The client went away.", { cause }), {
        retry: null,
        status: "cancelled",
      });
  }
}

/** An answer whose status is not 2xx. `body` is as much of it as was read. */
export function failureOfStatus(
  head: AnswerHead,
  body: Buffer,
  upstream: Upstream,
  route: Route,
  now: number,
): AttemptFailure {
  const { status, headers } = head;
  const [header = null] = [headers["retry-after"]].flat();
  const error = upstreamError({
    dialect: upstream.dialect,
    status,
    body,
    retryAfter: header,
    now,
    upstreamModel: upstream.model,
    model: route.model,
  });
  const means = classOfStatus(status);
  // Of a redirect, or of a request that is refused for what it is, it speaks of that request alone (RFC 9110 §10.2.3).
  const isBusy = means.retry !== null;
  return new AttemptFailure(error, {
    ...means,
    status: String(status),
    retryAfterMs: isBusy && header !== null ? retryAfterSeconds(header, now) * 1000 : null,
  });
}

/** An error told with status 200, as a stream's first event or as a whole answer: as if it had been a status. */
export function failureOfErrorBody(data: Buffer): AttemptFailure {
  const error = inBandError(objectOf(parseJson(data.toString("utf8"))) ?? {});
  const { status } = error.kind;
  return new AttemptFailure(error, { ...classOfStatus(status), status: String(status) });
}

function classOfStatus(status: number): { retry: RetryClass; unhealthy: boolean; answered: boolean } {
  if (status === 429) return { retry: "rate_limited", unhealthy: false, answered: true };
  if (status >= 500) return { retry: "server_error", unhealthy: true, answered: false };
  return { retry: null, unhealthy: false, answered: true };
}
