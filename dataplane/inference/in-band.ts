import type { Dialect } from "../dialects/dialect.ts";
import { chatErrorChunk, messagesErrorEvent, responsesErrorEvent } from "../dialects/errors.ts";
import type { ApiError } from "../lib/api-error.ts";

/**
 * The event that ends a stream with an error, for a stream whose status has long been sent. `nextNumber`: the
 * numbers of a Responses stream go on (rule 2.13).
 */
export function errorEvent(dialect: Dialect, error: ApiError, requestId: string, nextNumber: number): string {
  switch (dialect) {
    case "messages":
      return messagesErrorEvent(error, requestId);
    case "chat":
      return chatErrorChunk(error);
    case "responses":
      return responsesErrorEvent(error, nextNumber);
  }
}
