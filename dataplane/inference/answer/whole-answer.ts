/** Whole answers: what they report (usage, model, completeness), and what becomes of bodies that are no answer. */
import { isUtf8 } from "node:buffer";
import type { CodecContext, KeepItem } from "../../dialects/codecs.ts";
import {
  type UsageContext,
  countedUsage,
  readChatUsage,
  readMessagesUsage,
  readResponsesUsage,
} from "../../dialects/usage.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { rememberInputs } from "../../dialects/exact-inputs.ts";
import { objectOf, parseJson, textOf } from "../../dialects/fields.ts";
import type { JsonObject, MessagesResponse, MessagesUsage } from "../../dialects/messages/types.ts";
import { tokensOfBytes, type CountedOutput } from "../../dialects/output-estimate.ts";
import { codecs } from "../../dialects/registry.ts";
import {
  failureOfResponse,
  isEndedStatus,
  isFailedResponse,
  isResponse,
  weighResponses,
} from "../../dialects/responses/read-response.ts";
import { cutMessage } from "../../dialects/cut-at-stops.ts";
import {
  corruptAnswer,
  holdsError,
  inBandError,
  isErrorAhead,
  withoutOwn,
} from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { closedJson } from "../../lib/json-prefix.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import type { Edit } from "../../lib/json-splice.ts";
import { BrokenAnswer } from "../../loop/model-answer.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { failureOfErrorBody, type AttemptFailure } from "../../upstream/failure.ts";
import { MAX_ANSWER_BYTES, MOST_BEGUN_BYTES } from "../../upstream/limits.ts";
import type { UpstreamAnswer } from "../../upstream/request.ts";
import { CallError, type CallFault } from "../../upstream/send.ts";
import { brokenWhole, isOwed, unbegunAnswer, usageOfBytes } from "./broken-answer.ts";
import { keepItemAhead } from "../request/item-references.ts";
import type { AnswerSeal } from "./seal-answer.ts";

/** What a whole answer says of itself. */
export interface WholeInspection {
  readonly usage: MessagesUsage | null;
  /** The tier that stands beside the usage (Chat, Responses); null: none does. */
  readonly tier: string | null;
  /** The mandatory parts of an answer are there. */
  readonly complete: boolean;
  /** The mandatory parts are there, but by its error, or by a response's status, the answer is none. */
  readonly failed: boolean;
  /** Spans of the top-level model name, when it is not the public id. */
  readonly model: Span | null;
  /** Chat: what gives each message without a list of annotations an empty one. */
  readonly annotations: readonly Edit[];
}

/**
 * @param keepItem told the output items of a Responses answer, sealed by `seal`.
 * @throws JsonFault when the answer is not JSON at all.
 */
export function inspectWhole(
  dialect: Dialect,
  body: Buffer,
  model: string,
  keepItem: KeepItem | undefined,
  seal: AnswerSeal | null,
): WholeInspection {
  const read = (reader: JsonReader): WholeInspection => {
    if (reader.kind() !== "object") throw new JsonFault("syntax", "Not an object", reader.position);
    let usage: MessagesUsage | null = null;
    let tier: string | null = null;
    let parts = 0;
    let error = false;
    let status: string | undefined;
    let span: Span | null = null;
    const annotations: Edit[] = [];
    reader.object((key) => {
      const kind = reader.kind();
      if (key === "model" && kind === "string") {
        const start = reader.position;
        if (reader.string() !== model) span = { start, end: reader.position };
      } else if (key === "usage") usage = readUsage(dialect, reader.value());
      else if (key === "service_tier") tier = reader.string() ?? null;
      else if (key === "error") error = isErrorAhead(reader);
      else if (key === "status") status = reader.string();
      else if (key === partsField[dialect]) {
        parts = 0;
        if (kind !== "array") return;
        if (dialect !== "chat") parts = 1;
        if (dialect === "responses" && keepItem !== undefined)
          reader.array(() => keepItemAhead(reader, keepItem, seal));
        if (dialect !== "chat") return;
        reader.array(() => {
          if (reader.kind() !== "object") return;
          let hasMessage = false;
          reader.object((name) => {
            if (name !== "message") return;
            hasMessage = reader.kind() === "object";
            if (hasMessage) annotations.push(...annotationsOf(reader));
          });
          if (hasMessage) parts += 1;
        });
      }
    });
    const failed = error || (dialect === "responses" && !isEndedStatus(status));
    return { usage, tier, complete: parts > 0, failed, model: span, annotations };
  };
  return JsonReader.whole(body, read, "told");
}

const partsField = { messages: "content", chat: "choices", responses: "output" } as const;

/** Reads a Chat message. A list of annotations is always there (service.md "Chat completion"); some servers leave it out, or null. */
function annotationsOf(reader: JsonReader): Edit[] {
  const start = reader.position + 1;
  const nulls: Edit[] = [];
  let members = 0;
  let given = false;
  reader.object((key) => {
    members += 1;
    if (key !== "annotations") return;
    given = true;
    if (reader.kind() === "null")
      nulls.push({ start: reader.position, end: reader.position + 4, text: "[]" });
  });
  if (given) return nulls;
  return [{ start, end: start, text: members === 0 ? '"annotations":[]' : '"annotations":[],' }];
}

function readUsage(dialect: Dialect, raw: unknown): MessagesUsage | null {
  if (dialect === "messages") return readMessagesUsage(raw, null);
  return dialect === "chat" ? readChatUsage(raw) : readResponsesUsage(raw);
}

/** A whole answer's bytes, and what was read of them. */
export interface WholeAnswer<Read> {
  readonly body: Buffer;
  readonly read: Read;
}

/**
 * Reads a whole answer, for relay, conversion and the tool loop alike.
 * @param client the client's dialect.
 * @param read @throws ApiError or JsonFault when it is none.
 * @throws AttemptFailure when it is an error in spite of its status; BrokenAnswer, with what it cost, when it broke off or
 *   cannot be read (rules 1.6, 4.3); ApiError when nothing came.
 */
export async function readWhole<Read>(
  answer: UpstreamAnswer,
  client: Dialect,
  context: UsageContext,
  read: (body: Buffer) => Read,
): Promise<WholeAnswer<Read>> {
  const { call, upstream } = answer;
  let body: Buffer;
  try {
    body = asUtf8(await call.whole(MAX_ANSWER_BYTES));
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    throw broken(answer, client, context, error.fault, error);
  }
  try {
    return { body, read: read(body) };
  } catch (error) {
    if (!(error instanceof ApiError || error instanceof JsonFault)) throw error;
    const parsed = objectOf(parseJson(body.toString("utf8")));
    if (parsed === null)
      throw broken(answer, client, context, "garbage", { received: body.length, begun: body });
    if (isErrorBody(parsed)) throw failureOfErrorBody(body, answer.own);
    metrics.streamFaults.inc({ dialect: client, kind: "garbage" });
    answer.broke("garbage", "incomplete");
    const told = failureBeside(parsed) ?? error;
    throw new BrokenAnswer(
      told instanceof ApiError ? withoutOwn(told, answer.own) : corruptAnswer("garbage"),
      {
        upstream: upstream.name,
        usage: usageOfBody(upstream.dialect, parsed, context, body.length),
        corrupt: true,
      },
    );
  }
}

/** As every client reads it: some engines cut an answer within a character. */
const asUtf8 = (body: Buffer): Buffer => (isUtf8(body) ? body : Buffer.from(body.toString("utf8")));

/** What a body cost that came for a stream and holds no event of one, as `readWhole` charges it; null: it is an error, and free. */
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

/** One that broke off, or is no JSON at all: it costs what was sent and received, an empty one nothing. */
function broken(
  answer: UpstreamAnswer,
  client: Dialect,
  context: UsageContext,
  fault: CallFault,
  { received, begun }: Pick<CallError, "received" | "begun">,
): ApiError | AttemptFailure | BrokenAnswer {
  const { call, upstream } = answer;
  const error = brokenWhole(client, fault);
  answer.broke(fault);
  if (!isOwed(call, fault)) return fault === "garbage" ? error : unbegunAnswer(error, fault);
  const corrupt = fault === "garbage" || fault === "too_large";
  const usage = usageOfBegun(upstream.dialect, context, received, begun);
  return new BrokenAnswer(error, { upstream: upstream.name, usage, corrupt });
}

/** What it says is read as far as it came (rule 10.6); more than models write is not looked at. */
function usageOfBegun(
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

/** Reads a whole answer into Messages form. @throws as `readWhole` does. */
export async function readConverted(
  answer: UpstreamAnswer,
  client: Dialect,
  context: CodecContext,
): Promise<MessagesResponse> {
  const { dialect } = answer.upstream;
  const { read } = await readWhole(answer, client, context, (body) => {
    const parsed = objectOf(parseJson(body.toString("utf8")));
    if (parsed === null) throw corruptAnswer("not a JSON object");
    if (dialect === "messages") rememberInputs(parsed, body);
    return codecs[dialect].readResponse(parsed, context);
  });
  return cutMessage(read, context.stops ?? []);
}

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
  const usage = readUsage(dialect, body["usage"]);
  const written = () => writtenIn(dialect, body, received);
  return countedUsage(usage, context, written, true, textOf(body["service_tier"]));
}

/** Where nothing can be read, what was received counts as written (rule 1.6); a response that failed says itself what was. */
function writtenIn(dialect: Dialect, body: JsonObject, received: number): CountedOutput {
  const read = codecs[dialect].written(body);
  const isSaid = read.tokens > 0 || (dialect === "responses" && isFailedResponse(body));
  return isSaid ? read : { tokens: tokensOfBytes(received) };
}
