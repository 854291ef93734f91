/** Inspects a whole answer that is relayed: what it reports of itself, and what of it is replaced. */
import { isChatFailure } from "../../dialects/chat/read-response.ts";
import type { KeepItem } from "../../dialects/codecs.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessagesUsage } from "../../dialects/messages/types.ts";
import { isEndedStatus } from "../../dialects/responses/read-response.ts";
import { corruptAnswer, isErrorAhead } from "../../dialects/upstream-error.ts";
import { readWholeUsage } from "../../dialects/usage.ts";
import { JsonFault, JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, replaceValue } from "../../lib/json-splice.ts";
import { MAX_ANSWER_CONTAINERS } from "../../upstream/limits.ts";
import { keepItemAhead } from "../request/item-references.ts";
import type { AnswerSeal } from "./seal-answer.ts";

/** The metadata of a whole answer. */
export interface WholeInspection {
  readonly usage: MessagesUsage | null;
  /** The `service_tier` of the answer (Chat, Responses); null: none. */
  readonly tier: string | null;
  /** Whether the mandatory parts of an answer are there. */
  readonly complete: boolean;
  /** Whether the answer failed, by its error, a choice's, or a response's status, even if its mandatory parts are there. */
  readonly failed: boolean;
  /** Puts the public id in place of another model's name; in Chat adds an empty list of annotations to each message without one. */
  readonly edits: readonly Edit[];
}

/**
 * @param keepItem called with each output item of a Responses answer, sealed by `seal`.
 * @throws JsonFault when the answer is not JSON at all; ApiError when it holds more than an answer may.
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
    let usage: Span | null = null;
    let tier: string | null = null;
    let parts = 0;
    let error = false;
    let choiceFailed = false;
    let status: string | undefined;
    const edits: Edit[] = [];
    reader.object((key) => {
      const kind = reader.kind();
      const start = reader.position;
      if (key === "model" && kind === "string") {
        if (reader.string() !== model)
          edits.push(replaceValue({ start, end: reader.position }, JSON.stringify(model)));
      } else if (key === "usage") {
        reader.skip();
        usage = { start, end: reader.position };
      } else if (key === "service_tier") tier = reader.string() ?? null;
      else if (key === "error") error = isErrorAhead(reader);
      else if (key === "status") status = reader.string();
      else if (key === partsField[dialect]) {
        parts = 0;
        choiceFailed = false;
        if (kind !== "array") return;
        if (dialect !== "chat") parts = 1;
        if (dialect === "responses" && keepItem !== undefined)
          reader.array(() => keepItemAhead(reader, keepItem, seal));
        if (dialect !== "chat") return;
        reader.array(() => {
          if (reader.kind() !== "object") return;
          const choice = readChoice(reader, edits);
          if (choice.hasMessage) parts += 1;
          choiceFailed ||= choice.failed;
        });
      }
    });
    if (reader.containers > MAX_ANSWER_CONTAINERS) throw corruptAnswer("more in it than in any answer");
    const failed = error || choiceFailed || (dialect === "responses" && !isEndedStatus(status));
    return {
      usage: usageIn(dialect, body, usage),
      tier,
      complete: parts > 0,
      failed,
      edits,
    };
  };
  return JsonReader.whole(body, read, "told");
}

function usageIn(dialect: Dialect, body: Buffer, span: Span | null): MessagesUsage | null {
  return span === null
    ? null
    : readWholeUsage(dialect, JSON.parse(body.toString("utf8", span.start, span.end)));
}

const partsField = { messages: "content", chat: "choices", responses: "output" } as const;

/** Reads a choice of a Chat answer, with the edits of its message. */
function readChoice(reader: JsonReader, edits: Edit[]): { hasMessage: boolean; failed: boolean } {
  let hasMessage = false;
  let error = false;
  let finish: string | undefined;
  reader.object((name) => {
    if (name === "error") error = isErrorAhead(reader);
    else if (name === "finish_reason") finish = reader.string();
    if (name !== "message") return;
    hasMessage = reader.kind() === "object";
    if (hasMessage) for (const edit of annotationsOf(reader)) edits.push(edit);
  });
  return { hasMessage, failed: error || isChatFailure(finish ?? null) };
}

/** Reads a Chat message. @returns edits that add the list of annotations (service.md "Chat completion"), if it is missing or null. */
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
