/**
 * The lines of result files (dialects.md §A7, §A8; rules 4.8, 4.11). Pure, but for its pauses. `customId` is a
 * JSON string literal everywhere.
 */
import { messagesErrorBody, openaiErrorBody, errorStatus } from "../dialects/errors.ts";
import type { ApiError, ErrorCode } from "../lib/api-error.ts";
import { ANSWER_SLICE_MS, Slices } from "../lib/slices.ts";
import { joinedInSlices } from "../lib/small-pieces.ts";
import type { BatchForm } from "./batch.ts";

/** The fields of an item that its line needs. */
export interface LineItem {
  readonly customId: string;
  readonly requestId: string;
}

/** The codes of batch results (service.md "What becomes of an item"). */
type ResultCode =
  | "insufficient_quota"
  | "key_limit_reached"
  | "project_limit_reached"
  | "invalid_request"
  | "upstream_error"
  | "unsupported_tool"
  | "unsupported_parameter"
  | "unsupported_content";

/** The result code of each error of the service; a new error needs one here. */
const resultCodes: Readonly<Record<ErrorCode, ResultCode>> = {
  insufficient_credit: "insufficient_quota",
  key_limit_reached: "key_limit_reached",
  project_limit_reached: "project_limit_reached",
  unsupported_tool: "unsupported_tool",
  unsupported_parameter: "unsupported_parameter",
  thread_unsupported: "unsupported_parameter",
  unsupported_content: "unsupported_content",
  // Not the request's fault.
  upstream_error: "upstream_error",
  internal: "upstream_error",
  unavailable: "upstream_error",
  timeout: "upstream_error",
  overloaded: "upstream_error",
  rate_limited: "upstream_error",
  tokens_rate_limited: "upstream_error",
  // The request asks for something impossible, or for what its organization may not have.
  invalid_request: "invalid_request",
  invalid_request_error: "invalid_request",
  missing_parameter: "invalid_request",
  invalid_type: "invalid_request",
  invalid_value: "invalid_request",
  context_length_exceeded: "invalid_request",
  storage_limit_reached: "invalid_request",
  authentication: "invalid_request",
  permission: "invalid_request",
  not_found: "invalid_request",
  model_not_found: "invalid_request",
  file_expired: "invalid_request",
  too_large: "invalid_request",
  // Only HTTP requests are answered with these, never an item.
  request_timeout: "invalid_request",
  method_not_allowed: "invalid_request",
  unsupported_media_type: "invalid_request",
  expectation_failed: "invalid_request",
  upgrade_required: "invalid_request",
  people_limit_reached: "invalid_request",
};

/** The code of an error in results, of the few that these have. */
export const resultCode = (error: ApiError): ResultCode => resultCodes[error.code];

/**
 * Makes the line of an answer, in slices: it may have many MiB.
 * @param answer the whole body, as a live client would have received it.
 */
export async function succeededLine(form: BatchForm, item: LineItem, answer: Buffer): Promise<Buffer> {
  const [before, after] =
    form === "messages"
      ? [`{"custom_id":${item.customId},"result":{"type":"succeeded","message":`, "}}\n"]
      : [
          `{"id":"${lineId(item)}","custom_id":${item.customId},"response":{"status_code":200,"request_id":"${item.requestId}","body":`,
          '},"error":null}\n',
        ];
  const pieces = await new Slices(ANSWER_SLICE_MS).map(piecesOf(answer), onOneLine);
  return joinedInSlices([onOneLine(Buffer.from(before)), ...pieces, Buffer.from(after)]);
}

/** Makes the line of a failure, with the error as a live client of this form would have got it, and a code in every one. */
export function erroredLine(form: BatchForm, item: LineItem, error: ApiError): Buffer {
  const code = resultCode(error);
  if (form === "messages") {
    const body = messagesErrorBody(error, item.requestId);
    const shown = body["error"] as Record<string, unknown>;
    const details = shown["details"] as Record<string, unknown> | undefined;
    const type = messagesTypes[code];
    const full = { ...body, error: { ...shown, type, code, details: { ...details, error_code: code } } };
    return line(item, `"result":${JSON.stringify({ type: "errored", error: full })}`);
  }
  const body = openaiErrorBody(error);
  const shown = body["error"] as Record<string, unknown>;
  const response = {
    status_code: errorStatus("openai", error),
    request_id: item.requestId,
    // Clients read either of the two errors, so both have a code (dialects.md §A8).
    body: { ...body, error: { ...shown, code: shown["code"] ?? code } },
  };
  return openaiLine(item, response, { code, message: error.message });
}

const messagesTypes: Readonly<Record<ResultCode, string>> = {
  insufficient_quota: "billing_error",
  key_limit_reached: "billing_error",
  project_limit_reached: "billing_error",
  invalid_request: "invalid_request_error",
  unsupported_tool: "invalid_request_error",
  unsupported_parameter: "invalid_request_error",
  unsupported_content: "invalid_request_error",
  upstream_error: "api_error",
};

/** Makes the line of an item that never ran. */
export function neverRunLine(form: BatchForm, item: LineItem & { readonly state: string }): Buffer {
  const cancelled = item.state === "canceled";
  if (form === "messages") {
    return line(item, `"result":${JSON.stringify({ type: cancelled ? "canceled" : "expired" })}`);
  }
  return openaiLine(
    item,
    null,
    cancelled
      ? { code: "batch_cancelled", message: "The batch was cancelled before this request ran." }
      : { code: "batch_expired", message: "The batch expired before this request ran." },
  );
}

const line = (item: LineItem, rest: string) => wholeLine(`{"custom_id":${item.customId},${rest}}`);

const openaiLine = (item: LineItem, response: object | null, error: object) =>
  wholeLine(
    `{"id":"${lineId(item)}","custom_id":${item.customId},"response":${JSON.stringify(response)},"error":${JSON.stringify(error)}}`,
  );

/** `batch_req_…`, the same whenever the line is written. */
const lineId = ({ requestId }: LineItem) => requestId.replace(/^req_/, "batch_req_");

const wholeLine = (json: string) => Buffer.concat([onOneLine(Buffer.from(json)), LINE_FEED]);

const LINE_FEED = Buffer.from("\n");
/** Some line readers, Python's among them, take these for line ends too. In JSON they occur only in strings. */
const otherEnds = ["\u0085", "\u2028", "\u2029"].map((end) => Buffer.from(end));

/** Bytes that are put on one line at once. */
const PIECE_BYTES = 256 * 1024;

/** Cuts UTF-8 into pieces, none of them within a character. */
function* piecesOf(text: Buffer): Generator<Buffer> {
  for (let from = 0; from < text.length;) {
    let to = from + PIECE_BYTES;
    // A character has at most three bytes that continue it.
    for (let back = 0; back < 3 && isContinuation(text[to]); back += 1) to -= 1;
    yield text.subarray(from, to);
    from = to;
  }
}

const isContinuation = (byte: number | undefined) => byte !== undefined && byte >> 6 === 0b10;

/** Puts JSON on one line. It has line breaks only between tokens, where blanks mean the same. */
function onOneLine(json: Buffer): Buffer {
  const escaped = otherEnds.some((end) => json.includes(end)) ? escapeEnds(json) : json;
  if (!escaped.includes(0x0a) && !escaped.includes(0x0d)) return escaped;
  const line = Buffer.from(escaped);
  for (let at = 0; at < line.length; at += 1) if (line[at] === 0x0a || line[at] === 0x0d) line[at] = 0x20;
  return line;
}

/**
 * Escapes `otherEnds`. Works on bytes, so that all others stay as they are, and copies them in a loop: a text may consist of
 * such ends, and a buffer call for each would block the thread for too long.
 */
function escapeEnds(json: Buffer): Buffer {
  let ends = 0;
  for (let at = 0; at < json.length; at += 1) if (otherEndAt(json, at) >= 0) ends += 1;
  const escaped = Buffer.allocUnsafe(json.length + ends * LONGER_BY);
  let length = 0;
  for (let at = 0; at < json.length; at += 1) {
    const end = otherEndAt(json, at);
    if (end < 0) {
      escaped[length] = json[at] as number;
      length += 1;
    } else {
      const escape = escapes[end] as Buffer;
      for (let index = 0; index < escape.length; index += 1)
        escaped[length + index] = escape[index] as number;
      length += escape.length;
      at += end === 0 ? 1 : 2;
    }
  }
  return escaped.subarray(0, length);
}

const escapes = ["\\u0085", "\\u2028", "\\u2029"].map((escape) => Buffer.from(escape));
/** The most bytes that an escape is longer than its character. */
const LONGER_BY = 4;

/** Returns which of `otherEnds` begins at `at`; -1: none. */
function otherEndAt(json: Buffer, at: number): number {
  const byte = json[at];
  if (byte === 0xc2) return json[at + 1] === 0x85 ? 0 : -1;
  if (byte !== 0xe2 || json[at + 1] !== 0x80) return -1;
  const last = json[at + 2];
  return last === 0xa8 ? 1 : last === 0xa9 ? 2 : -1;
}
