/** Failures of a store, which are neither a client's fault nor a bug of ours, and worth another try (service.md "Errors"). */
import {
  BackendTerminatedError,
  BackendTerminatedUnexpectedlyError,
  ConnectionError,
  IdleTransactionTimeoutError,
  StatementCancelledError,
  StatementTimeoutError,
} from "slonik";
import { ApiError } from "../lib/api-error.ts";
import { causesOf, sqlStateOf } from "../lib/causes.ts";

/** Failure of a store whose library has no error of its own for it. */
export class StoreAway extends Error {
  override readonly name = "StoreAway";
}

const away = [
  StoreAway,
  BackendTerminatedError,
  BackendTerminatedUnexpectedlyError,
  ConnectionError,
  IdleTransactionTimeoutError,
  StatementCancelledError,
  StatementTimeoutError,
];

/** Classes of SQLSTATE: no connection, rolled back for others' sake, no room or memory or session, ended or not yet there, a broken disk. */
const awayClasses = new Set(["08", "40", "53", "57", "58"]);
/** A server that takes no writes: a standby before its promotion. */
const READ_ONLY = "25006";
/** First words of Redis' answers when it refuses a command because of its own state. */
const redisStates =
  /^(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN|UNKILLABLE)\b/;
/** Errors of the Redis client without a reply; they have no classes of their own. */
const redisSilence =
  /^(?:Command timed out|Connection is closed\.|Stream isn't writeable)|^Reached the max retries per request/;

/**
 * True when a store was away, full, read-only or too busy when it was asked. False when it refused what it was asked: that is a
 * bug.
 */
export function isStoreAway(error: unknown): boolean {
  for (const cause of causesOf(error)) {
    if (away.some((kind) => cause instanceof kind) || cause.name === "RedisSilent") return true;
    const state = sqlStateOf(cause);
    if (state !== null) return awayClasses.has(state.slice(0, 2)) || state === READ_ONLY;
    if (cause.name === "ReplyError" ? redisStates.test(cause.message) : redisSilence.test(cause.message))
      return true;
  }
  return false;
}

/** Turns whatever was thrown into one of the errors of the table. */
export function apiErrorOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (isStoreAway(error))
    return new ApiError("unavailable", "This cannot be done right now. Try again in a moment.", {
      retryAfterSeconds: 1,
      cause: error,
    });
  return new ApiError("internal", "An unexpected error occurred; the request id helps to find it.", {
    cause: error,
  });
}
