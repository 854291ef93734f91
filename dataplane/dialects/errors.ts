/**
 * How an ApiError reads in each error style. Source: dialects.md §A2, §C; rules.md 2.12, 3.1.
 * `lib/api-error.ts` holds the table; nothing else of the program writes an error body.
 */
import { errorKinds, type ApiError, type ErrorKind } from "../lib/api-error.ts";
import type { Dialect } from "./dialect.ts";

/** The two families of official error bodies. */
export type ErrorFamily = "messages" | "openai";

/** `union: true` writes the one body that both families' SDKs parse, for paths that both of them call. */
export interface ErrorStyle {
  readonly family: ErrorFamily;
  readonly union: boolean;
}

export const dialectErrorFamily: Record<Dialect, ErrorFamily> = {
  messages: "messages",
  chat: "openai",
  responses: "openai",
};

/** Returns the error's kind in a family: 529 exists in Messages style only. */
function kindIn(family: ErrorFamily, error: ApiError): ErrorKind {
  return family === "openai" && error.code === "overloaded" ? errorKinds.unavailable : error.kind;
}

/** The status of an error in a family; the same everywhere but for 529. */
export const errorStatus = (family: ErrorFamily, error: ApiError): number => kindIn(family, error).status;

const messageIn = (family: ErrorFamily, error: ApiError): string =>
  family === "openai" ? (error.openaiMessage ?? error.message) : error.message;

/** Returns the code for a body: the table's, or the one that a provider reported where the table has none. */
const codeOf = (error: ApiError, ours: string | null | undefined): string | null =>
  ours ?? error.reportedCode ?? null;

/** Returns `error.details`; undefined where there is neither a code nor details. */
function detailsOf(kind: ErrorKind, error: ApiError): Record<string, unknown> | undefined {
  const code = codeOf(error, kind.detailsCode);
  if (code === null) return error.details === undefined ? undefined : { ...error.details };
  return { error_code: code, ...error.details };
}

/** The Messages error object. `code` repeats the code of service.md "Errors" where its readers look for it. */
function messagesError(error: ApiError): Record<string, unknown> {
  const { kind } = error;
  const details = detailsOf(kind, error);
  const code = codeOf(error, kind.detailsCode);
  return {
    type: kind.messagesType,
    message: error.message,
    ...(code === null ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  };
}

/** The OpenAI error object: all four keys, always. */
function openaiError(error: ApiError): Record<string, unknown> {
  const kind = kindIn("openai", error);
  return {
    message: messageIn("openai", error),
    type: kind.openaiType,
    param: error.param ?? null,
    code: codeOf(error, kind.openaiCode),
  };
}

/** `{type: "error", error: {…}, request_id}`. */
export function messagesErrorBody(error: ApiError, requestId: string): Record<string, unknown> {
  return { type: "error", error: messagesError(error), request_id: requestId };
}

/** `{error: {message, type, param, code}}`. */
export function openaiErrorBody(error: ApiError): Record<string, unknown> {
  return { error: openaiError(error) };
}

/** The body of an error answer. */
export function errorBody(style: ErrorStyle, error: ApiError, requestId: string): Record<string, unknown> {
  if (!style.union) {
    return style.family === "messages" ? messagesErrorBody(error, requestId) : openaiErrorBody(error);
  }
  const kind = kindIn(style.family, error);
  const details = detailsOf(kind, error);
  return {
    type: "error",
    error: {
      type: style.family === "messages" ? kind.messagesType : kind.openaiType,
      message: messageIn(style.family, error),
      param: error.param ?? null,
      code: codeOf(error, kind.openaiCode),
      ...(details === undefined ? {} : { details }),
    },
    request_id: requestId,
  };
}

/** An error after the first byte of a Messages stream, as the bytes of one event. */
export function messagesErrorEvent(error: ApiError, requestId: string): string {
  return `event: error\ndata: ${JSON.stringify(messagesErrorBody(error, requestId))}\n\n`;
}

/** An error after the first byte of a Chat stream; no `[DONE]` follows it. */
export function chatErrorChunk(error: ApiError): string {
  return `data: ${JSON.stringify(openaiErrorBody(error))}\n\n`;
}

/** An error after the first byte of a Responses stream: flat as published and nested as Python reads it. */
export function responsesErrorEvent(error: ApiError, sequenceNumber: number): string {
  const nested = openaiError(error);
  const event = {
    type: "error",
    sequence_number: sequenceNumber,
    code: nested["code"],
    message: nested["message"],
    param: nested["param"],
    error: nested,
  };
  return `event: error\ndata: ${JSON.stringify(event)}\n\n`;
}

/** Returns the headers of an error answer: when to retry, and whether a retry can help at all. */
export function errorHeaders(error: ApiError): Record<string, string> {
  const headers: Record<string, string> = { ...error.headers };
  if (!error.retry) headers["x-should-retry"] = "false";
  const needsRetryAfter = [429, 503, 529].includes(error.kind.status) && error.retry;
  if (error.retryAfterSeconds !== undefined || needsRetryAfter) {
    const seconds = Math.min(60, Math.max(1, Math.ceil(error.retryAfterSeconds ?? 1)));
    headers["retry-after"] = String(seconds);
  }
  return headers;
}
