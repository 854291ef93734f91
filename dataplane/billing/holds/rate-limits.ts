/** Headers and errors about limits (dialects.md §A3). Pure. */
import { ApiError } from "../../lib/api-error.ts";
import { creditsText } from "../credits.ts";
import type { MeteredRequest } from "../meter.ts";
import { amountOf, anewText, beginsAnewAt, isPersonId, type LimitedScope } from "../scopes.ts";

/** One limit and what is left of it after this request. */
export interface LimitState {
  readonly kind: "requests" | "tokens";
  /** Per minute. */
  readonly limit: number;
  readonly remaining: number;
  /** Milliseconds until the whole limit is there again. */
  readonly fullInMs: number;
}

/** The headers that the SDK of the request's dialect knows; none for limits that are not enforced. */
export function rateLimitHeaders(
  endpoint: MeteredRequest["endpoint"],
  limits: readonly LimitState[],
  nowMs: number,
): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { kind, limit, remaining, fullInMs } of limits) {
    if (endpoint === "messages") {
      headers[`anthropic-ratelimit-${kind}-limit`] = String(limit);
      headers[`anthropic-ratelimit-${kind}-remaining`] = String(remaining);
      headers[`anthropic-ratelimit-${kind}-reset`] = new Date(Math.ceil((nowMs + fullInMs) / 1000) * 1000)
        .toISOString()
        .replace(".000Z", "Z");
    } else {
      headers[`x-ratelimit-limit-${kind}`] = String(limit);
      headers[`x-ratelimit-remaining-${kind}`] = String(remaining);
      headers[`x-ratelimit-reset-${kind}`] = duration(fullInMs);
    }
  }
  return headers;
}

/** `250ms`, `12s`, `6m0s`, as OpenAI writes them. */
function duration(ms: number): string {
  if (ms < 1000) return `${ms}ms`;
  const seconds = Math.ceil(ms / 1000);
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

/** Whole seconds for `retry-after`: at least 1, at most 60 (rule 1.5). */
export function retryAfter(ms: number): number {
  return Math.min(60, Math.max(1, Math.ceil(ms / 1000)));
}

/** Whose limit it is, as the caller is told: a key, or a person with a token. */
export interface LimitOwner {
  /** As the scripts say it: o(rganization), k(ey), p(roject). */
  readonly letter: string | undefined;
  readonly keyId: string;
}

function ownerOf({ letter, keyId }: LimitOwner): string {
  const asker = isPersonId(keyId) ? "this person" : "this key";
  if (letter === "k") return asker;
  return letter === "p" ? `${asker}'s project` : "the organization";
}

/** The 429 of a limit of requests or tokens per minute. @param waitMs until there is room again */
export function limitReached(
  owner: LimitOwner,
  kind: LimitState["kind"],
  limit: number,
  waitMs: number,
  headers: Readonly<Record<string, string>>,
): ApiError {
  return new ApiError(
    kind === "tokens" ? "tokens_rate_limited" : "rate_limited",
    `The limit of ${ownerOf(owner)} of ${limit} ${kind} per minute is reached.`,
    { retryAfterSeconds: retryAfter(waitMs), headers },
  );
}

/** The 429 of a limit of requests that run at the same time. */
export function tooManyAtOnce(owner: LimitOwner, limit: number): ApiError {
  return new ApiError(
    "rate_limited",
    `The limit of ${ownerOf(owner)} of ${limit} requests at the same time is reached.`,
    { retryAfterSeconds: 1 },
  );
}

/** Rules 1.8, 1.17: there is credit, but other requests hold all of it. Never `insufficient_quota`. */
export function creditReserved(): ApiError {
  return new ApiError("rate_limited", "This request has to wait: credit is reserved by running requests.", {
    retryAfterSeconds: 1,
  });
}

/** Cause of `limitReserved`'s error, for programs. */
export const RESERVED_LIMIT = { reserved: "limit" } as const;

/** As `creditReserved`, of what is left of a limit. */
export function limitReserved(kind: LimitedScope["kind"], keyId: string): ApiError {
  const owner = ownerOf({ letter: kind[0], keyId });
  const message = `This request has to wait: what is left of the limit of ${owner} is reserved by running requests.`;
  return new ApiError("rate_limited", message, { retryAfterSeconds: 1, cause: RESERVED_LIMIT });
}

/** Rule 9.3: a limit of credit is spent. Never reported as the organization's credit. */
export function limitSpent({ kind, limits }: LimitedScope, keyId: string, acceptedAt: number): ApiError {
  const { credits } = limits;
  const per = credits?.per ?? "total";
  const at = anewText(beginsAnewAt(per, acceptedAt));
  const amount = credits === undefined ? "" : ` of ${creditsText(amountOf(credits))} credits`;
  const every = per === "total" ? " in total" : ` per ${per}`;
  const then = at === null ? "It does not begin anew." : `It begins anew at ${at}.`;
  return new ApiError(
    kind === "key" ? "key_limit_reached" : "project_limit_reached",
    `The limit of ${ownerOf({ letter: kind[0], keyId })}${amount}${every} is reached. ${then}`,
    { details: { begins_anew_at: at } },
  );
}

/** Rule 2.16: Claude Code looks for "Credit balance is too low". */
export function creditEmpty(): ApiError {
  return new ApiError(
    "insufficient_credit",
    "Credit balance is too low to run this request. Add credit to the organization and try again.",
  );
}

/** The 503 while Redis or the ledger cannot say what may be spent. */
export function meterUnavailable(cause?: unknown): ApiError {
  return new ApiError("unavailable", "Credit cannot be checked right now. Try again in a moment.", {
    retryAfterSeconds: 1,
    cause,
  });
}

/** Nothing may be charged that could not be kept until the ledger takes it. */
export function ledgerBehind(): ApiError {
  return new ApiError("unavailable", "Too many charges wait for the ledger. Try again in a moment.", {
    retryAfterSeconds: 1,
  });
}
