/** Errors as plain data, to send them between threads. */
import type { ReportedError } from "../../dialects/reported-error.ts";
import { errorSaying, saidBy } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { isObject } from "../../lib/json-object.ts";

/** An error as plain data. `code` is null for what is no `ApiError`, which is a fault of ours. */
export interface ToldError {
  /** What an upstream reported inside its answer, from which the error is made again; null for any other error. */
  readonly said: ReportedError | null;
  readonly code: ApiError["code"] | null;
  readonly message: string;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly details: ApiError["details"];
  /** The error's cause if it is plain data. */
  readonly cause: unknown;
}

export function toldError(error: unknown): ToldError {
  if (!(error instanceof ApiError))
    return {
      said: null,
      code: null,
      message: error instanceof Error ? (error.stack ?? error.message) : String(error),
      param: undefined,
      retryAfterSeconds: undefined,
      details: undefined,
      cause: undefined,
    };
  const { code, message, param, retryAfterSeconds, details } = error;
  const cause = isObject(error.cause) && !(error.cause instanceof Error) ? error.cause : undefined;
  return { said: saidBy(error), code, message, param, retryAfterSeconds, details, cause };
}

export function errorOf(told: ToldError): Error {
  const { said, code, message, param, retryAfterSeconds, details, cause } = told;
  if (code === null) return new Error(message);
  if (said !== null) return errorSaying(said);
  return new ApiError(code, message, {
    ...(param !== undefined && { param }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    ...(details !== undefined && { details }),
    cause,
  });
}
