/**
 * What an upstream's failure means: whether the next candidate may be tried, what the client is told (rules 1.5,
 * 2.12), and what it says about the upstream's health (rule 1.14).
 */
import type { IncomingHttpHeaders } from "node:http";
import type { Dialect } from "../dialects/dialect.ts";
import { ApiError } from "../lib/api-error.ts";
import { MAX_RETRY_AFTER_SECONDS } from "./limits.ts";
import type { CallFault } from "./send.ts";

/** The classes of `retries.retryOn`; `null`: no other upstream is asked. */
export type RetryClass = "connect" | "rate_limited" | "server_error" | "first_byte_timeout" | null;

/** An upstream failed before anything of its answer reached the client. */
export class UpstreamFailure extends Error {
  readonly retry: RetryClass;
  /** What the client is told when no other upstream answers. */
  readonly error: ApiError;
  /** For `gapura_upstream_requests_total`. */
  readonly status: string;
  /** Whether it counts towards ejection. */
  readonly unhealthy: boolean;
  /** The connection was a stale one: a try on another one is free. */
  readonly stale: boolean;
  /** How long the upstream asks to be left alone. */
  readonly retryAfterMs: number | null;

  constructor(
    error: ApiError,
    facts: {
      readonly retry: RetryClass;
      readonly status: string;
      readonly unhealthy?: boolean;
      readonly stale?: boolean;
      readonly retryAfterMs?: number | null;
    },
  ) {
    super(`upstream failed: ${facts.status}`, { cause: error });
    this.name = "UpstreamFailure";
    this.error = error;
    this.retry = facts.retry;
    this.status = facts.status;
    this.unhealthy = facts.unhealthy ?? false;
    this.stale = facts.stale ?? false;
    this.retryAfterMs = facts.retryAfterMs ?? null;
  }
}

export const unreachable = "The upstream could not be reached.";
const overloaded = "The upstream is overloaded. Try again shortly.";
/** Sent when an upstream names no time of its own, so that SDKs do not come back at once. */
const DEFAULT_RETRY_AFTER_SECONDS = 5;

/** A call that failed before its answer's first byte. */
export function failureOfCall(fault: CallFault, cause: unknown): UpstreamFailure {
  switch (fault) {
    case "connect":
    case "cut":
      return new UpstreamFailure(new ApiError("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status: "connect",
        unhealthy: true,
      });
    case "stale":
      return new UpstreamFailure(new ApiError("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status: "connect",
        stale: true,
      });
    case "first_byte_timeout":
      return new UpstreamFailure(
        new ApiError("timeout", "The upstream did not begin to answer in time.", { cause }),
        { retry: "first_byte_timeout", status: "timeout", unhealthy: true },
      );
    case "garbage":
      return new UpstreamFailure(new ApiError("upstream_error", corrupt, { cause }), {
        retry: "connect",
        status: "garbage",
        unhealthy: true,
      });
    case "deadline":
    case "idle":
      return new UpstreamFailure(new ApiError("timeout", timedOut, { cause }), {
        retry: null,
        status: "timeout",
      });
    case "too_large":
      return new UpstreamFailure(new ApiError("upstream_error", corrupt, { cause }), {
        retry: null,
        status: "garbage",
      });
    case "cancelled":
      return new UpstreamFailure(new ApiError("internal", "The client went away.", { cause }), {
        retry: null,
        status: "cancelled",
      });
  }
}

export const corrupt = "The upstream's answer could not be read.";
export const timedOut = "The request took longer than this model allows.";

/** An answer whose status is not 2xx. `body` is as much of it as was read. */
export function failureOfStatus(
  status: number,
  headers: IncomingHttpHeaders,
  body: Buffer,
  client: Dialect,
): UpstreamFailure {
  const retryAfterSeconds = retryAfter(headers);
  return new UpstreamFailure(errorOfStatus(status, retryAfterSeconds, body, client), {
    retry: status === 429 ? "rate_limited" : status >= 500 ? "server_error" : null,
    status: String(status),
    unhealthy: status >= 500,
    retryAfterMs: retryAfterSeconds === null ? null : retryAfterSeconds * 1000,
  });
}

function errorOfStatus(
  status: number,
  retryAfterSeconds: number | null,
  body: Buffer,
  client: Dialect,
): ApiError {
  const after = { retryAfterSeconds: retryAfterSeconds ?? DEFAULT_RETRY_AFTER_SECONDS };
  switch (status) {
    case 400:
    case 422:
      return errorOfRejection(body);
    case 413:
      return new ApiError("too_large", "The request is too large for the upstream.");
    case 429:
      return new ApiError("rate_limited", "The upstream's rate limit is reached. Try again later.", after);
    case 503:
      return new ApiError("unavailable", overloaded, after);
    case 529:
      return new ApiError(client === "messages" ? "overloaded" : "unavailable", overloaded, after);
    case 408:
    case 504:
      return new ApiError("timeout", "The upstream timed out.");
    default:
      return new ApiError("upstream_error", "The upstream failed.");
  }
}

/** Whole seconds, at most 60; null when the upstream named none that can be read. */
export function retryAfter(headers: IncomingHttpHeaders): number | null {
  const value = headers["retry-after"];
  if (typeof value !== "string" || !/^\d{1,9}(\.\d+)?$/.test(value.trim())) return null;
  return Math.min(MAX_RETRY_AFTER_SECONDS, Math.ceil(Number(value)));
}

/** Sentences that are about the upstream account, not about the client's request. */
const accountMatter =
  /credit|billing|quota|balance|payment|organi[sz]ation|workspace|project|account|api[ _-]?key|credential|subscription|\bplan\b/i;
/** Keys, account ids, addresses. */
const secrets =
  /\b(?:sk|org|proj|acct|req|key)[-_][A-Za-z0-9_-]{4,}|https?:\/\/\S+|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b/g;
const contextOverflow =
  /prompt is too long|input length and `max_tokens` exceed|context[ _](?:length|window)|maximum context/i;
const MAX_MESSAGE_LENGTH = 2000;

/** Only what a 400 says of the client's own request is passed on (rule 1.5). */
function errorOfRejection(body: Buffer): ApiError {
  const { message, param, code } = readError(body);
  if (message === null) return new ApiError("invalid_request", "The upstream rejected the request.");
  const tooLong = code === "context_length_exceeded" || contextOverflow.test(message);
  if (!tooLong && accountMatter.test(message)) return new ApiError("upstream_error", "The upstream failed.");
  const shown = message.replaceAll(secrets, "[removed]").slice(0, MAX_MESSAGE_LENGTH);
  const options = param === null ? {} : { param };
  return new ApiError(tooLong ? "context_length_exceeded" : "invalid_request", shown, options);
}

interface ReadError {
  readonly message: string | null;
  readonly param: string | null;
  readonly code: string | null;
  readonly type: string | null;
}

/** The parts of a provider's error body; they all nest it alike, and some leave the nesting out. */
export function readError(body: Buffer): ReadError {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString("utf8"));
  } catch {
    parsed = null;
  }
  const outer = isObject(parsed) ? parsed : {};
  const error = isObject(outer["error"]) ? outer["error"] : outer;
  const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : null);
  return {
    message: text(error["message"]) ?? text(outer["error"]) ?? text(outer["message"]),
    param: text(error["param"]),
    code: text(error["code"]),
    type: text(error["type"]),
  };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An error that came as the first event of a stream: as if it had been a status. */
export function failureOfErrorEvent(data: Buffer, client: Dialect): UpstreamFailure {
  return failureOfStatus(statusOfErrorEvent(data), {}, data, client);
}

/** What an error event would have been as an HTTP status. */
export function statusOfErrorEvent(data: Buffer): number {
  const { type, code } = readError(data);
  for (const word of [type, code]) {
    if (word === null) continue;
    if (/^\d{3}$/.test(word)) return Number(word);
    if (/overloaded/.test(word)) return 529;
    if (/rate_limit/.test(word)) return 429;
    if (/timeout/.test(word)) return 504;
    if (/authentication|permission|billing|insufficient|not_found/.test(word)) return 502;
    if (/invalid_request|context_length|invalid_prompt/.test(word)) return 400;
  }
  return 500;
}
