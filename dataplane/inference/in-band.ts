import type { Dialect } from "../dialects/dialect.ts";
import { chatErrorChunk, messagesErrorEvent, responsesErrorEvent } from "../dialects/errors.ts";
import type { ApiError } from "../lib/api-error.ts";

/** The number after the last one that a Responses stream used; 0 when none can be found. */
export function nextSequenceNumber(lastFrames: Buffer): number {
  const numbers = lastFrames.toString("latin1").matchAll(/"sequence_number"\s*:\s*(\d{1,9})/g);
  const last = Array.from(numbers).at(-1)?.[1];
  return last === undefined ? 0 : Number(last) + 1;
}

/**
 * The event that ends a stream with an error, for a stream whose status has long been sent. `lastFrames`: what
 * was sent last, because the numbers of a Responses stream go on (rule 2.13).
 */
export function errorEvent(dialect: Dialect, error: ApiError, requestId: string, lastFrames: Buffer): string {
  switch (dialect) {
    case "messages":
      return messagesErrorEvent(error, requestId);
    case "chat":
      return chatErrorChunk(error);
    case "responses":
      return responsesErrorEvent(error, nextSequenceNumber(lastFrames));
  }
}
