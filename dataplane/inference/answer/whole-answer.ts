/**
 * What the bytes of a whole answer come to, on every path: an answer, an error in spite of its status, or nothing that can be
 * read, and what that costs. Pure, so that a large one is read in another thread.
 */
import type { CodecContext } from "../../dialects/codecs.ts";
import { cutMessage } from "../../dialects/cut-at-stops.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { rememberInputs } from "../../dialects/exact-inputs.ts";
import { objectOf, parseJson, textOf } from "../../dialects/fields.ts";
import type { JsonObject, MessagesResponse, MessagesUsage } from "../../dialects/messages/types.ts";
import { tokensOfBytes, type CountedOutput } from "../../dialects/output-estimate.ts";
import { codecs } from "../../dialects/registry.ts";
import {
  failureOfResponse,
  isFailedResponse,
  isResponse,
  weighResponses,
} from "../../dialects/responses/read-response.ts";
import { corruptAnswer, holdsError, inBandError } from "../../dialects/upstream-error.ts";
import { type UsageContext, countedUsage, readResponsesUsage, readWholeUsage } from "../../dialects/usage.ts";
import { ApiError } from "../../lib/api-error.ts";
import { closedJson } from "../../lib/json-prefix.ts";
import { JsonFault, JsonReader } from "../../lib/json-reader.ts";
import { asUtf8 } from "../../lib/utf8.ts";
import { MAX_ANSWER_CONTAINERS, MOST_BEGUN_BYTES } from "../../upstream/limits.ts";

/** What a whole answer is. Errors are such as `toldError` can tell. */
export type Outcome<Read> =
  | { readonly kind: "answer"; readonly read: Read }
  /** An error in spite of its status, which costs nothing. */
  | { readonly kind: "error"; readonly error: ApiError }
  /** No JSON object, or one with too much in it. */
  | { readonly kind: "none"; readonly usage: MessagesUsage }
  /** Something that it must have is missing, or it failed by its own account. */
  | { readonly kind: "unreadable"; readonly error: ApiError; readonly usage: MessagesUsage };

/**
 * @param dialect the upstream's.
 * @param read @throws ApiError or JsonFault when it is no answer.
 */
export function outcomeOf<Read>(
  dialect: Dialect,
  body: Buffer,
  context: UsageContext,
  read: () => Read,
): Outcome<Read> {
  try {
    return { kind: "answer", read: read() };
  } catch (error) {
    if (!(error instanceof ApiError || error instanceof JsonFault)) throw error;
    const parsed = parsedAnswer(body);
    if (parsed === null) return { kind: "none", usage: usageOfBegun(dialect, context, body.length, body) };
    if (isErrorBody(parsed)) return { kind: "error", error: inBandError(parsed) };
    const told = failureBeside(parsed) ?? (error instanceof ApiError ? error : corruptAnswer("garbage"));
    return {
      kind: "unreadable",
      error: told,
      usage: usageOfBody(dialect, parsed, context, body.length),
    };
  }
}

/** Up to this size no answer holds so much that parsing it takes too much memory. */
const PARSED_UNSEEN_BYTES = 1024 * 1024;

/** A whole answer, parsed; null: it is no JSON object, or holds more than any answer does. */
export function parsedAnswer(body: Buffer): JsonObject | null {
  if (body.length > PARSED_UNSEEN_BYTES && !isParsable(body)) return null;
  return objectOf(parseJson(body.toString("utf8")));
}

function isParsable(body: Buffer): boolean {
  const reader = new JsonReader(body);
  try {
    reader.skip();
  } catch (fault) {
    if (fault instanceof JsonFault) return false;
    throw fault;
  }
  return reader.containers <= MAX_ANSWER_CONTAINERS;
}

/** Reads a whole answer into Messages form. @throws ApiError when it is none. */
export function readMessage(dialect: Dialect, body: Buffer, context: CodecContext): MessagesResponse {
  const parsed = parsedAnswer(body);
  if (parsed === null) throw corruptAnswer("not a JSON object");
  if (dialect === "messages") rememberInputs(parsed, asUtf8(body));
  return cutMessage(codecs[dialect].readResponse(parsed, context), context.stops ?? []);
}

/** What a body cost that came for a stream and holds no event of one, as a whole answer's is; null: it is an error, and free. */
export function usageOfNoStream(
  dialect: Dialect,
  context: UsageContext,
  received: number,
  body: Buffer,
): MessagesUsage | null {
  const parsed = objectOf(parseJson(body.toString("utf8")));
  if (parsed === null) return usageOfBegun(dialect, context, received, body);
  return isErrorBody(parsed) ? null : usageOfBody(dialect, parsed, context, received);
}

/** What an answer cost that cannot be read: what it says is read as far as it came (rule 10.6); more than models write is not looked at. */
export function usageOfBegun(
  dialect: Dialect,
  context: UsageContext,
  received: number,
  begun: Buffer,
): MessagesUsage {
  const parsed = received > MOST_BEGUN_BYTES ? null : objectOf(parseJson(closedJson(begun.toString("utf8"))));
  return parsed === null
    ? usageOfBytes(context, received)
    : countedUsage(null, context, () => writtenIn(dialect, parsed, received));
}

/** What an answer cost of which nothing can be read: the prompt, and what was received (rule 1.6). */
export const usageOfBytes = (context: UsageContext, received: number): MessagesUsage =>
  countedUsage(null, context, () => ({ tokens: tokensOfBytes(received) }));

/**
 * Some providers answer an error with status 200. A Responses answer that failed has an `output` beside it, and costs
 * nothing as long as it neither reports nor holds anything, as in a stream (service.md "Prices and billing rules").
 */
export function isErrorBody(body: JsonObject): boolean {
  if (isFailedResponse(body)) return readResponsesUsage(body["usage"]) === null && weighResponses(body) === 0;
  return holdsError(body) && ["choices", "content", "output"].every((part) => body[part] === undefined);
}

/** What went wrong by the account of an answer that holds something beside it; null: it tells of nothing. */
function failureBeside(body: JsonObject): ApiError | null {
  if (isResponse(body)) return failureOfResponse(body);
  return holdsError(body) ? inBandError(body) : null;
}

/** What an answer that cannot be read reports nevertheless; when it reports nothing, what it says (rule 10.6). */
function usageOfBody(
  dialect: Dialect,
  body: JsonObject,
  context: UsageContext,
  received: number,
): MessagesUsage {
  const usage = readWholeUsage(dialect, body["usage"]);
  const written = () => writtenIn(dialect, body, received);
  return countedUsage(usage, context, written, true, textOf(body["service_tier"]));
}

/** Where nothing can be read, what was received counts as written (rule 1.6); a response that failed says itself what was. */
function writtenIn(dialect: Dialect, body: JsonObject, received: number): CountedOutput {
  const read = codecs[dialect].written(body);
  const isSaid = read.tokens > 0 || (dialect === "responses" && isFailedResponse(body));
  return isSaid ? read : { tokens: tokensOfBytes(received) };
}
