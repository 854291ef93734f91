import type { KeepItem } from "../dialects/codecs.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { rememberInputs } from "../dialects/exact-inputs.ts";
import { objectOf, parseJson } from "../dialects/fields.ts";
import { promptOf, tokensOf } from "../billing/token-usage.ts";
import type { JsonObject, MessagesUsage } from "../dialects/messages/types.ts";
import {
  failureOfResponse,
  isEndedStatus,
  isFailedResponse,
  isResponse,
} from "../dialects/responses/read-response.ts";
import {
  type PossibleUsage,
  plausibleUsage,
  readChatUsage,
  readMessagesUsage,
  readResponsesUsage,
  writtenCharacters,
} from "../dialects/usage.ts";
import { corruptAnswer } from "../dialects/upstream-error.ts";
import { ApiError } from "../lib/api-error.ts";
import { JsonFault, JsonReader, type Span } from "../lib/json-reader.ts";
import { metrics } from "../telemetry/metrics.ts";
import { timedOut } from "../upstream/failure.ts";
import type { CallFault } from "../upstream/send.ts";
import { CHARACTERS_PER_TOKEN, type Counted } from "./convert-job.ts";
import { keepItemAhead } from "./item-references.ts";
import type { RelayJob } from "./relay-job.ts";
import type { AnswerSeal } from "./seal-answer.ts";
import { isReport } from "./usage-tap.ts";

/** What a whole answer says of itself. */
export interface WholeLook {
  readonly usage: MessagesUsage | null;
  /** The mandatory parts of an answer are there. */
  readonly complete: boolean;
  /** An error object stands in their place. */
  readonly error: boolean;
  /** Responses: the mandatory parts are there, but by its status or its error the answer is none. */
  readonly failed: boolean;
  /** Spans of the top-level model name, when it is not the public id. */
  readonly model: Span | null;
  /** Chat: offsets just behind the opening brace of each message without annotations, and whether it is empty. */
  readonly bareMessages: readonly { readonly at: number; readonly empty: boolean }[];
}

/**
 * @param keepItem told the output items of a Responses answer, sealed by `seal`.
 * @throws JsonFault when the answer is not JSON at all.
 */
export function lookAtWhole(
  dialect: Dialect,
  body: Buffer,
  model: string,
  keepItem?: KeepItem,
  seal: AnswerSeal | null = null,
): WholeLook {
  return JsonReader.whole(body, (reader) => {
    if (reader.kind() !== "object") throw new JsonFault("syntax", "Not an object", reader.position);
    let usage: MessagesUsage | null = null;
    let parts = 0;
    let error = false;
    let status: string | undefined;
    let span: Span | null = null;
    const bareMessages: { at: number; empty: boolean }[] = [];
    reader.object((key) => {
      const kind = reader.kind();
      if (key === "model" && kind === "string") {
        const start = reader.position;
        if (reader.string() !== model) span = { start, end: reader.position };
      } else if (key === "usage") usage = readUsage(dialect, reader.value());
      else if (key === "error") error = kind === "object" || kind === "string";
      else if (key === "status" && kind === "string") status = reader.string();
      else if (key === partsField[dialect] && kind === "array") {
        if (dialect !== "chat") parts = 1;
        if (dialect === "responses" && keepItem !== undefined)
          reader.array(() => keepItemAhead(reader, keepItem, seal));
        if (dialect !== "chat") return;
        reader.array(() => {
          if (reader.kind() !== "object") return;
          reader.object((name) => {
            if (name !== "message" || reader.kind() !== "object") return;
            parts += 1;
            const bare = bareMessage(reader);
            if (bare !== null) bareMessages.push(bare);
          });
        });
      }
    });
    const failed = dialect === "responses" && (error || !isEndedStatus(status));
    return { usage, complete: parts > 0, error, failed, model: span, bareMessages };
  });
}

const partsField = { messages: "content", chat: "choices", responses: "output" } as const;

function bareMessage(reader: JsonReader): { at: number; empty: boolean } | null {
  const at = reader.position + 1;
  let members = 0;
  let annotated = false;
  reader.object((key) => {
    members += 1;
    annotated ||= key === "annotations";
  });
  return annotated ? null : { at, empty: members === 0 };
}

function readUsage(dialect: Dialect, raw: unknown): MessagesUsage | null {
  if (dialect === "messages") return readMessagesUsage(raw, null);
  return dialect === "chat" ? readChatUsage(raw) : readResponsesUsage(raw);
}

/** A whole answer that is to be converted; null when it is no JSON object. */
export function parsedAnswer(dialect: Dialect, body: Buffer): JsonObject | null {
  const answer = objectOf(parseJson(body.toString("utf8")));
  if (answer !== null && dialect === "messages") rememberInputs(answer, body);
  return answer;
}

/**
 * Some providers answer an error with status 200. A Responses answer that failed has an `output` beside it, and costs
 * nothing unless it reports what it used (service.md "Prices and billing rules").
 */
export const isErrorBody = (body: JsonObject): boolean =>
  isFailedResponse(body)
    ? failedUsage(body) === null
    : typeof body["error"] === "object" &&
      body["error"] !== null &&
      ["choices", "content", "output"].every((part) => body[part] === undefined);

/**
 * What a Responses answer reports that is none by its own account; null when it reports nothing, or is one.
 * @param possible what such a report is believed at the most.
 */
export function failedUsage(body: JsonObject, possible?: PossibleUsage): MessagesUsage | null {
  const isFailed = isResponse(body) && failureOfResponse(body) !== null;
  const usage = isFailed ? readResponsesUsage(body["usage"]) : null;
  if (!isReport(usage)) return null;
  return possible === undefined ? usage : plausibleUsage(usage, possible, () => writtenTokens(body));
}

/**
 * What a whole answer is charged for that reports its usage; a half of which it reports nothing by estimate, as in a
 * stream (design.md §5). `body` is asked for only where that is what was written.
 */
export function countedTokens(
  reported: MessagesUsage,
  { estimatedInput, possible }: Pick<RelayJob, "estimatedInput" | "possible">,
  body: () => JsonObject,
): Counted {
  const usage = plausibleUsage(reported, possible, () => writtenTokens(body()));
  const tokens = tokensOf(usage);
  const written = usage.output_tokens > 0 ? 0 : writtenTokens(body());
  const isCounted = promptOf(tokens) > 0 && written === 0;
  return {
    tokens: {
      ...tokens,
      input: promptOf(tokens) > 0 ? tokens.input : estimatedInput,
      output: written > 0 ? written : tokens.output,
    },
    estimated: !isCounted,
    implausible: usage.implausible === true,
  };
}

/** Tokens of output that an answer holds, as counted here. */
const writtenTokens = (answer: JsonObject): number =>
  Math.ceil(writtenCharacters(answer) / CHARACTERS_PER_TOKEN);

/** What a client is told of a whole answer that broke off, or was none. It is counted. */
export function brokenWhole(dialect: Dialect, fault: CallFault): ApiError {
  if (fault === "deadline") return new ApiError("timeout", timedOut);
  metrics.streamFaults.inc({ dialect, kind: fault === "cut" ? "cut" : "garbage" });
  return corruptAnswer(fault);
}
