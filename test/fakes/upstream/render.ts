/** Any scripted answer in any dialect, whole or as a stream; pure, so that tests of codecs can use it alone. */
import { completionChunks, wholeCompletion } from "./render-chat.ts";
import { messageEvents, wholeMessage } from "./render-messages.ts";
import { responseEvents, wholeResponse } from "./render-responses.ts";
import type { Answer, RenderContext, WireEvent } from "./script.ts";

export function renderWhole(answer: Answer, context: RenderContext): object {
  switch (context.dialect) {
    case "messages":
      return wholeMessage(answer, context);
    case "chat":
      return wholeCompletion(answer, context);
    case "responses":
      return wholeResponse(answer, context);
  }
}

export function renderEvents(answer: Answer, context: RenderContext): WireEvent[] {
  switch (context.dialect) {
    case "messages":
      return messageEvents(answer, context);
    case "chat":
      return completionChunks(answer, context);
    case "responses":
      return responseEvents(answer, context);
  }
}

export function frame({ event, data }: Pick<WireEvent, "event" | "data">): string {
  return `${event === "" ? "" : `event: ${event}\n`}data: ${data}\n\n`;
}

/** An event of Messages or Responses: named by its type, with which its data begin. */
export const typedFrame = (type: string, more: object): string =>
  frame({ event: type, data: JSON.stringify({ type, ...more }) });

const errorTypes: Record<number, string> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  529: "overloaded_error",
};

/** An error body as the provider writes it; its text names an account, which no client may ever see. */
export function renderError(
  dialect: RenderContext["dialect"],
  error: { readonly status: number; readonly message?: string; readonly type?: string },
  serial: RenderContext["serial"],
): object {
  const message = error.message ?? `provider account acct_secret failed with ${error.status}`;
  const type = error.type ?? errorTypes[error.status] ?? "api_error";
  return dialect === "messages"
    ? { type: "error", error: { type, message }, request_id: `req_fake${serial}` }
    : { error: { message, type, param: null, code: null } };
}

/** The event that carries an error inside a stream. */
export function errorEvent(
  dialect: RenderContext["dialect"],
  error: { readonly type?: string; readonly message?: string },
  sequenceNumber: number,
): WireEvent {
  const type = error.type ?? "overloaded_error";
  const message = error.message ?? "provider account acct_secret is overloaded";
  switch (dialect) {
    case "messages":
      return { event: "error", data: JSON.stringify({ type: "error", error: { type, message } }) };
    case "chat":
      return { event: "", data: JSON.stringify({ error: { message, type, param: null, code: null } }) };
    case "responses":
      return {
        event: "error",
        data: JSON.stringify({
          type: "error",
          sequence_number: sequenceNumber,
          code: type,
          message,
          param: null,
        }),
      };
  }
}
