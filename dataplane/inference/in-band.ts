import type { Dialect } from "../dialects/dialect.ts";
import type { ApiError } from "../lib/api-error.ts";

/**
 * The event that ends a stream with an error, for a stream whose status has long been sent (dialects.md §C).
 * `sequenceNumber`: the next one of a Responses stream.
 */
export function errorEvent(
  dialect: Dialect,
  error: ApiError,
  requestId: string,
  sequenceNumber: number,
): string {
  const { messagesType, openaiType, openaiCode } = error.kind;
  const { message } = error;
  const detailsCode = "detailsCode" in error.kind ? error.kind.detailsCode : undefined;
  const openai = { message, type: openaiType, param: error.param ?? null, code: openaiCode };
  switch (dialect) {
    case "messages": {
      const details = detailsCode === undefined ? {} : { details: { error_code: detailsCode } };
      const body = {
        type: "error",
        error: { type: messagesType, message, ...details },
        request_id: requestId,
      };
      return `event: error\ndata: ${JSON.stringify(body)}\n\n`;
    }
    case "chat":
      return `data: ${JSON.stringify({ error: openai })}\n\n`;
    case "responses": {
      // Flat as the published schema has it, and nested as the Python SDK reads it.
      const body = {
        type: "error",
        sequence_number: sequenceNumber,
        code: openaiCode,
        message,
        param: openai.param,
        error: openai,
      };
      return `event: error\ndata: ${JSON.stringify(body)}\n\n`;
    }
  }
}
