/**
 * What an upstream's failure means: whether the next candidate may be tried, what the client is told (rules 1.5,
 * 2.12), and what it says about the upstream's health (rule 1.14).
 */
import type { Dialect } from "../dialects/dialect.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import {
  corruptAnswer,
  inBandError,
  retryAfterSeconds,
  sayingOf,
  inBandSaying,
  inBandWords,
  upstreamError,
  upstreamStatus,
  withoutOwn,
} from "../dialects/upstream-error.ts";
import { type Own, withoutSecrets } from "../dialects/own-secrets.ts";
import { ApiError } from "../lib/api-error.ts";
import type { AnswerHead, CallFault } from "./send.ts";

/** The classes of `retries.retryOn`; `null`: no other upstream is asked. */
export type RetryClass = "connect" | "rate_limited" | "server_error" | "first_byte_timeout" | null;

/** An upstream failed before anything of its answer reached the client. */
export class AttemptFailure extends Error {
  readonly retry: RetryClass;
  /** What the client is told when no other upstream answers. */
  readonly error: ApiError;
  /** The HTTP status, or why there was none. */
  readonly status: string;
  /** Whether it counts towards ejection. */
  readonly unhealthy: boolean;
  /** A kept-alive connection had been closed meanwhile, which says nothing about the upstream itself. */
  readonly stale: boolean;
  /** The upstream answered, so it is up. */
  readonly answered: boolean;
  /** The upstream refuses our account or lacks the model: another attempt would fail the same way. */
  readonly lasting: boolean;
  /** The time that the upstream asked for with `retry-after`. */
  readonly retryAfterMs: number | null;
  /** The exact cause: an errno, a TLS error, the upstream's own code. For the operator only. */
  readonly reason: string | null;
  /** The upstream's error message, for the operator only. */
  readonly words: string | null;

  constructor(
    error: ApiError,
    facts: {
      readonly retry: RetryClass;
      readonly status: string;
      readonly unhealthy?: boolean;
      readonly stale?: boolean;
      readonly answered?: boolean;
      readonly lasting?: boolean;
      readonly retryAfterMs?: number | null;
      readonly reason?: string | null;
      readonly words?: string | null;
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
    this.lasting = facts.lasting ?? false;
    this.retryAfterMs = facts.retryAfterMs ?? null;
    this.reason = facts.reason ?? null;
    this.words = facts.words ?? null;
  }

  /** Label `status` of `gapura_upstream_requests_total`. By its status alone a 400 about our account would pass for the client's fault. */
  get label(): string {
    return this.lasting && this.status === "400" ? "account" : this.status;
  }
}

/** The label `status` of `gapura_upstream_requests_total` for a fault. */
export function statusOfFault(fault: CallFault): string {
  switch (fault) {
    case "stale":
      return "connect";
    case "first_byte_timeout":
    case "deadline":
    case "idle":
      return "timeout";
    case "too_large":
      return "garbage";
    case "shutdown":
      return "cancelled";
    default:
      return fault;
  }
}

/** The word for a label `status` that tenants may see; null: the call succeeded. */
export function wordOf(status: string): string | null {
  const number = Number(status);
  if (Number.isNaN(number)) return status;
  if (ACCOUNT_FAULTS.has(number)) return "account";
  if (number === 429) return "rate_limited";
  if (number >= 500) return "server_error";
  return number >= 300 ? "refused" : null;
}

/** Codes of errors below HTTP: Node's and the system's, and the verdicts of TLS. */
const CODE = /^[A-Z][A-Z0-9_]{1,63}$/;

/** The code of a connection error; the fault itself when there is no code. */
function reasonOf(fault: CallFault, cause: unknown): string {
  if (fault === "connect" && cause === undefined) return "connect_timeout";
  const { code } = (cause ?? {}) as { code?: unknown };
  if (typeof code === "string" && CODE.test(code)) return code;
  return fault === "garbage" ? "not_http" : fault;
}

/** The client left before its answer had begun. */
export class ClientLeft extends ApiError {
  /** The upstream has the whole request and charges its prompt, and so do we (rule 1.11). */
  readonly sent: boolean;

  constructor(sent: boolean, cause: unknown) {
    super("internal", "The client went away.", { cause });
    this.sent = sent;
  }
}

/**
 * Nothing at all came of an answer: the connection could not be made, or ended or stayed silent before the first byte. One
 * that broke off in the middle is another matter, as somebody is there.
 */
export class NoAnswer extends ApiError {}

const unreachable = "The model's provider could not be reached.";
export const timedOut = "The request took longer than this model allows.";

/** The error for a request that was in progress when this process had to end. */
export const endedByUs = (cause?: unknown): ApiError =>
  new ApiError("unavailable", "The service is being replaced and could not wait for the end; try again.", {
    cause,
    retryAfterSeconds: 1,
  });

/**
 * The failure of a call before the first byte of its answer.
 * @param sent whether the request had been sent completely.
 */
export function failureOfCall(fault: CallFault, cause: unknown, sent: boolean): AttemptFailure {
  const status = statusOfFault(fault);
  const reason = reasonOf(fault, cause);
  switch (fault) {
    case "connect":
    case "cut": {
      // With `cut`, the head of an answer had arrived.
      const Unreachable = fault === "cut" ? ApiError : NoAnswer;
      return new AttemptFailure(new Unreachable("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status: "connect",
        reason,
        unhealthy: true,
      });
    }
    case "stale":
      return new AttemptFailure(new NoAnswer("upstream_error", unreachable, { cause }), {
        retry: "connect",
        status,
        reason,
        stale: true,
      });
    case "first_byte_timeout":
      return new AttemptFailure(
        new NoAnswer("timeout", "The model's provider did not begin to answer in time.", { cause }),
        { retry: "first_byte_timeout", status, reason, unhealthy: true },
      );
    // A corrupt answer never ejects, wherever it is found out (rule 1.14).
    case "garbage":
      return new AttemptFailure(corruptAnswer(fault), { retry: "connect", status, reason });
    case "deadline":
    case "idle":
      return new AttemptFailure(new NoAnswer("timeout", timedOut, { cause }), {
        retry: null,
        status,
        reason,
      });
    case "shutdown":
      return new AttemptFailure(endedByUs(cause), { retry: null, status, reason });
    case "too_large":
      return new AttemptFailure(corruptAnswer(fault), {
        retry: null,
        status,
        reason,
      });
    case "exhausted":
      return new AttemptFailure(
        new ApiError("unavailable", "The service is overloaded; try again in a moment.", {
          cause,
          retryAfterSeconds: 1,
        }),
        { retry: null, status, reason },
      );
    case "unsendable":
      return new AttemptFailure(new ApiError("internal", "The request could not be sent on.", { cause }), {
        retry: null,
        status,
        reason,
      });
    case "cancelled":
      return new AttemptFailure(new ClientLeft(sent, cause), { retry: null, status, reason });
  }
}

/** The failure of an answer whose status is not 2xx. `body` is the part of it that was read. */
export function failureOfStatus(
  head: AnswerHead,
  body: Buffer,
  dialect: Dialect,
  own: Own,
  now: number,
): AttemptFailure {
  const { status } = head;
  const header = retryAfterOf(head);
  const error = upstreamError({
    dialect,
    status,
    body,
    retryAfter: header,
    now,
    ...own.names,
  });
  const means = classOf(status, error);
  // For other statuses `retry-after` concerns this request only, not the upstream (RFC 9110 §10.2.3).
  const isBusy = status === 429 || status >= 500;
  return new AttemptFailure(
    withoutOwn(error, () => own),
    {
      ...means,
      status: String(status),
      ...sayingOf(status, body, own.secrets, means.lasting),
      retryAfterMs: isBusy && header !== null ? retryAfterSeconds(header, now) * 1000 : null,
    },
  );
}

/**
 * The value of an answer's `retry-after`. OpenAI and Azure send `retry-after-ms` beside it or alone, and the vendors' own
 * clients prefer that.
 */
function retryAfterOf({ headers }: AnswerHead): string | null {
  const [exact = ""] = [headers["retry-after-ms"]].flat();
  const [header = null] = [headers["retry-after"]].flat();
  return /^\d{1,15}(\.\d+)?$/.test(exact.trim()) ? String(Math.ceil(Number(exact) / 1000)) : header;
}

/** The failure of an error body with status 200, judged as if it had an error status. */
export const failureOfErrorBody = (data: Buffer, own: () => Own): AttemptFailure =>
  failureOfError(withoutOwn(inBandError(objectOf(parseJson(data.toString("utf8"))) ?? {}), own), own);

/** The same for an error that was parsed already (`inBandError`), such as a stream's first event. */
export function failureOfError(error: ApiError, own: () => Own): AttemptFailure {
  const status = upstreamStatus(error) ?? error.kind.status;
  return new AttemptFailure(error, {
    ...classOf(status, error),
    status: String(status),
    reason: inBandReason(error, own),
    words: inBandWords(error, own().secrets),
  });
}

/** The code or type of an error inside an answer, for the operator. */
export function inBandReason(error: ApiError, own: () => Own): string {
  const { type, code } = inBandSaying(error) ?? {};
  const saying = typeof code === "string" && code !== "" ? code : type;
  if (typeof saying !== "string" || saying === "") return "in_band_error";
  return withoutSecrets(saying, null, own().secrets).slice(0, MAX_CODE);
}

/** Longest upstream error code that is kept, in characters. */
const MAX_CODE = 64;

/** What a status means for the next candidate and for the upstream's health. */
type StatusClass = Pick<AttemptFailure, "retry" | "unhealthy" | "answered" | "lasting">;

/**
 * Our account there, not the client's request, is refused: another candidate's may be well. A key or credit that is at
 * its end (401, 402) fails all that come, and ejects; 403 and 404 may be about this one model or place (rule 1.14).
 */
const ACCOUNT_FAULTS: ReadonlyMap<number, Pick<StatusClass, "unhealthy" | "answered">> = new Map([
  [401, { unhealthy: true, answered: false }],
  [402, { unhealthy: true, answered: false }],
  [403, { unhealthy: false, answered: true }],
  [404, { unhealthy: false, answered: true }],
]);

/** A 400 that is none of the client's is about our account as well. It may repeat the client's words, and so never ejects. */
const classOf = (status: number, { code }: ApiError): StatusClass =>
  classOfStatus(status === 400 && code === "upstream_error" ? 404 : status);

function classOfStatus(status: number): StatusClass {
  const account = ACCOUNT_FAULTS.get(status);
  if (account !== undefined) return { retry: "server_error", ...account, lasting: true };
  if (status === 429) return { retry: "rate_limited", unhealthy: false, answered: true, lasting: false };
  if (status >= 500) return { retry: "server_error", unhealthy: true, answered: false, lasting: false };
  return { retry: null, unhealthy: false, answered: true, lasting: false };
}
