/**
 * Classifies the bytes of a whole answer, on every path: an answer, an error in spite of its status, or unreadable, with its
 * cost. Pure, so that a large answer can be read in another thread.
 */
import { errorHolder } from "../../dialects/chat/read-response.ts";
import type { CodecContext } from "../../dialects/codecs.ts";
import { cutMessage } from "../../dialects/cut-at-stops.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { rememberInputs } from "../../dialects/exact-inputs.ts";
import { objectOf, parseJson, textOf } from "../../dialects/fields.ts";
import type {
  JsonObject,
  JsonValue,
  MessagesResponse,
  MessagesUsage,
} from "../../dialects/messages/types.ts";
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

/** What a whole answer is. Its errors can be sent to another thread (`toldError`). */
export type Outcome<Read> =
  | { readonly kind: "answer"; readonly read: Read }
  /** An error in spite of its status, which costs nothing. */
  | { readonly kind: "error"; readonly error: ApiError }
  /** No JSON object, or one with too many containers. */
  | { readonly kind: "none"; readonly usage: MessagesUsage }
  /** A mandatory part is missing, or the answer reports its own failure. */
  | { readonly kind: "unreadable"; readonly error: ApiError; readonly usage: MessagesUsage };

/**
 * Classifies a whole answer.
 * @param dialect the upstream's.
 * @param read throws ApiError or JsonFault when the body is no answer.
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

/** Largest body that is parsed without counting its containers: it cannot take too much memory. */
const PARSED_UNSEEN_BYTES = 1024 * 1024;

/** Parses a whole answer; null: it is no JSON object, or holds more than any answer does. */
function parsedAnswer(body: Buffer): JsonObject | null {
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

/** Reads a whole answer into Messages form. @throws ApiError when the body is no answer. */
export function readMessage(dialect: Dialect, body: Buffer, context: CodecContext): MessagesResponse {
  const parsed = parsedAnswer(body);
  if (parsed === null) throw corruptAnswer("not a JSON object");
  if (dialect === "messages") rememberInputs(parsed, asUtf8(body));
  return cutMessage(codecs[dialect].readResponse(parsed, context), context.stops ?? []);
}

/** Returns the cost of a body that came in place of a stream, read like a whole answer; null: it is an error, and free. */
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

/** Returns the cost of an answer that cannot be read, from the part that came (rule 10.6); a longer one than models write is not parsed. */
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

/** Returns the cost of an answer of which nothing can be read: the prompt, and the bytes received (rule 1.6). */
export const usageOfBytes = (context: UsageContext, received: number): MessagesUsage =>
  countedUsage(null, context, () => ({ tokens: tokensOfBytes(received) }));

/**
 * Whether an answer with status 200 is an error, and so free. A failed Responses answer also has an `output`; it is free if
 * it reports no usage and holds no output, as in a stream (service.md "Prices and billing rules").
 */
export function isErrorBody(body: JsonObject): boolean {
  if (isFailedResponse(body)) return readResponsesUsage(body["usage"]) === null && weighResponses(body) === 0;
  return holdsError(body) && ["choices", "content", "output"].every((part) => isNothing(body[part]));
}

/** Whether a part of an answer is missing, or is there and holds nothing. */
const isNothing = (part: JsonValue | undefined): boolean =>
  part === undefined || part === null || (Array.isArray(part) && part.length === 0);

/** Returns the error that an answer reports beside its content; null: it reports none. */
function failureBeside(body: JsonObject): ApiError | null {
  if (isResponse(body)) return failureOfResponse(body);
  const failed = errorHolder(body);
  return failed === null ? null : inBandError(failed);
}

/** Returns the usage that an unreadable answer reports all the same, or else counts its output (rule 10.6). */
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

/** Counts an answer's output. If none can be read, the bytes received count as output (rule 1.6), except of a failed response. */
function writtenIn(dialect: Dialect, body: JsonObject, received: number): CountedOutput {
  const read = codecs[dialect].written(body);
  const isSaid = read.tokens > 0 || (dialect === "responses" && isFailedResponse(body));
  return isSaid ? read : { tokens: tokensOfBytes(received) };
}
