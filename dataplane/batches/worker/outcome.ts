/**
 * Judges a failed run: it ends the item in an error, or the item is tried again (service.md "What becomes of an item"; rules 4.1,
 * 4.3, 4.4, 4.8). Pure.
 */
import { RESERVED_LIMIT } from "../../billing/holds/rate-limits.ts";
import { isOfUpstream, upstreamStatus } from "../../dialects/upstream-error.ts";
import type { ApiError } from "../../lib/api-error.ts";
import { NoAnswer } from "../../upstream/failure.ts";
import { NOT_BEGUN } from "./item-lease.ts";
import { TOOLS_IN_USE } from "./tool-room.ts";

/** What is known of a run that ended in an error. */
export interface RunEnd {
  readonly error: ApiError;
  /** Whether something was charged: another run would charge again. */
  readonly charged: boolean;
  /** Whether the meter admitted it: what failed after that was an upstream. */
  readonly admitted: boolean;
  /** Earlier runs of this item that ended in a fault of the upstream. */
  readonly faults: number;
  /** How many of these count against the item itself: the sum of `own` of their verdicts. */
  readonly ownFaults: number;
  /** When it ended, and when its batch does; Unix milliseconds. */
  readonly now: number;
  readonly expiresAt: number;
  /** Whether another item's run on the same route that began after this item's first fault succeeded. */
  readonly othersSucceed: boolean;
}

export type RunVerdict =
  | { readonly kind: "errored" }
  /** Not the item's fault: it waits its turn again. */
  | {
      readonly kind: "again";
      readonly waitMs: number;
      readonly because: "credit" | "model" | "stores" | "limit" | "tools" | "room";
    }
  /**
   * The upstream failed: the item is tried again after growing waits. `own`: how much counts against the item itself. `restMs`:
   * null where other items may succeed; else no upstream serves any, and none is called for at least this long.
   */
  | {
      readonly kind: "fault";
      readonly waitMs: number;
      readonly own: number;
      readonly restMs: number | null;
    };

/** Failed tries, while others of its route succeed, after which the fault is the item's own: about six minutes. */
const MOST_OWN_FAULTS = 12;
/** Tries that may time out: each may take the route's whole request time-out. */
const MOST_TIMEOUTS = 3;
/** Tries that may end in an answer that tells of an error of no known kind: another one is as likely to. */
const MOST_UNKNOWN = 3;
const LONGEST_WAIT_MS = 60_000;
/** The longest wait while the upstream serves nobody: the worker holds other items back then, so this one need not wait longer. */
const LONGEST_AWAY_MS = 10_000;
/** The longest wait for a limit's next window. Few items look: a refusal halves their batch's room. */
const LIMIT_LOOK_MS = 30_000;

/** The verdict on an item that may not begin any more: it waits again, and the end of its batch decides how it ends. */
export const notBegun = { kind: "again", waitMs: 0, because: "room" } as const satisfies RunVerdict;

/** Judges a failed run. `random`: 0 to 1, spreads items that failed together. */
export function judgeRun(end: RunEnd, random: number): RunVerdict {
  const { error, charged, admitted } = end;
  const errored = { kind: "errored" } as const;
  if (charged) return errored;
  const waitMs = Math.max((error.retryAfterSeconds ?? 0) * 1000, 0);
  switch (error.code) {
    case "rate_limited":
    case "tokens_rate_limited":
      return { kind: "again", waitMs: Math.max(waitMs, 1_000), because: reasonToWait(end) };
    case "unavailable":
    case "overloaded":
      if (error.cause === NOT_BEGUN) return notBegun;
      if (!admitted) return { kind: "again", waitMs: Math.max(waitMs, 1_000), because: "stores" };
      return judgeFault(end, 0, random);
    case "key_limit_reached":
    case "project_limit_reached":
      return judgeLimit(end) ?? errored;
    case "upstream_error":
      return judgeUpstreamError(end, random);
    case "timeout":
      if (upstreamStatus(error) === 504) return judgeUpstreamError(end, random);
      return judgeFault(end, MOST_OWN_FAULTS / MOST_TIMEOUTS, random);
    case "internal":
      return judgeFault(end, MOST_OWN_FAULTS / MOST_TIMEOUTS, random);
    default:
      return errored;
  }
}

/**
 * Returns what the item waits for. Before it was admitted: tool calls that others make, or credit that others hold (rule 4.1),
 * be it the balance or what is left of its key's or project's limit.
 */
function reasonToWait({ error, admitted }: RunEnd): "credit" | "model" | "limit" | "tools" {
  if (admitted) return "model";
  if (error.cause === TOOLS_IN_USE) return "tools";
  return error.cause === RESERVED_LIMIT ? "limit" : "credit";
}

/** Makes it wait for its limit's next window, in which it is accepted (rule 9.6); null: its batch ends before. */
function judgeLimit({ error, now, expiresAt }: RunEnd): RunVerdict | null {
  const anew = Date.parse(String(error.details?.["begins_anew_at"]));
  if (Number.isNaN(anew) || anew >= expiresAt) return null;
  return { kind: "again", waitMs: Math.max(1_000, Math.min(anew - now, LIMIT_LOOK_MS)), because: "limit" };
}

function judgeUpstreamError(end: RunEnd, random: number): RunVerdict {
  const { error, faults, othersSucceed } = end;
  const status = upstreamStatus(error);
  // 401, 402, 403, 404 and the like are faults of the route's configuration: another try would not help (rule 4.8).
  if (status !== null && status < 500) return { kind: "errored" };
  if (status === null && isOfUpstream(error)) return judgeFault(end, MOST_OWN_FAULTS / MOST_UNKNOWN, random);
  // The first fault counts, as its cause is unknown. Later ones do not while the upstream is away for everybody.
  return judgeFault(end, faults === 0 || othersSucceed ? 1 : 0, random);
}

function judgeFault(end: RunEnd, own: number, random: number): RunVerdict {
  const { error, faults, ownFaults, othersSucceed } = end;
  if (ownFaults + own >= MOST_OWN_FAULTS) return { kind: "errored" };
  const namedMs = (error.retryAfterSeconds ?? 0) * 1_000;
  const waitMs = backOff(faults, random);
  if (!isAway(error)) return { kind: "fault", waitMs: Math.max(namedMs, waitMs), own, restMs: null };
  const soon = othersSucceed ? waitMs : Math.min(LONGEST_AWAY_MS, waitMs);
  return { kind: "fault", waitMs: Math.max(namedMs, soon), own, restMs: namedMs };
}

/** Whether the next request is likely to fail too: no upstream was reached, or the one that was serves none for now. */
const isAway = (error: ApiError): boolean =>
  error instanceof NoAnswer ||
  error.code === "unavailable" ||
  error.code === "overloaded" ||
  (upstreamStatus(error) ?? 0) >= 500;

/** Whether an upstream refused this request, though it answers others. */
export const isUpstreamRefusal = (error: ApiError): boolean => (upstreamStatus(error) ?? 500) < 500;

/** 0.5 s, 1 s, 2 s … 60 s, each up to half as long again. */
export function backOff(faults: number, random: number): number {
  return Math.round(Math.min(LONGEST_WAIT_MS, 500 * 2 ** Math.min(faults, 10)) * (1 + random / 2));
}
