/**
 * Reasoning that an upstream refuses because another account made it (rule 2.17, dialects.md §D2): after a failover, or
 * when a conversation comes back to another upstream of its route. No other account can read it, so it is left out and
 * the request is sent once more.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import type { MessageParam } from "../../dialects/messages/types.ts";
import { ApiError } from "../../lib/api-error.ts";
import { JsonReader, type Span } from "../../lib/json-reader.ts";
import { type Edit, removeEntries, splice } from "../../lib/json-splice.ts";

/** How upstreams say that a signature or an encrypted item is not theirs, or that the item after a reasoning item is missing. */
const rejection = /signature|thinking|encrypted[ _]content|of type 'reasoning' was provided without/i;

/** Whether an upstream's refusal is about reasoning of earlier turns. */
export const rejectsReasoning = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "invalid_request" && rejection.test(error.message);

/**
 * How upstreams refuse to seal reasoning: models that have none, and servers that do not know the value or the field
 * that asks for it.
 */
const unknownInclude =
  /encrypted[ _]content is not supported|reasoning\.encrypted_content|\binclude(?:\[\d+\]|\.\d+|['"`])/i;

/** Whether an upstream was asked for reasoning that it cannot seal. */
export const cannotSealReasoning = (error: unknown): boolean =>
  error instanceof ApiError && error.code === "invalid_request" && unknownInclude.test(error.message);

const isReasoning = (type: string | undefined): boolean =>
  type === "thinking" || type === "redacted_thinking" || type === "reasoning";

/** Removes the reasoning from a conversation in Messages form; null when it holds none. */
export function withoutReasoning(messages: readonly MessageParam[]): MessageParam[] | null {
  let found = false;
  const kept = messages.flatMap((message) => {
    if (typeof message.content === "string") return [message];
    const content = message.content.filter(({ type }) => !isReasoning(type));
    if (content.length === message.content.length) return [message];
    found = true;
    return content.length === 0 ? [] : [{ ...message, content }];
  });
  return found ? kept : null;
}

/**
 * Removes the reasoning from a client's conversation, every other byte stays; null when it holds none. Chat has no
 * reasoning that anybody verifies.
 * @param body one that `inspectBody` has read.
 */
export function bodyWithoutReasoning(dialect: Dialect, body: Buffer): Buffer | null {
  if (dialect === "chat") return null;
  const edits = JsonReader.whole(body, (reader) => reasoningEdits(reader, dialect));
  return edits.length === 0 ? null : splice(body, edits);
}

function reasoningEdits(reader: JsonReader, dialect: Dialect): Edit[] {
  const edits: Edit[] = [];
  const list = dialect === "messages" ? "messages" : "input";
  reader.object((key) => {
    if (key !== list || reader.kind() !== "array") return;
    edits.push(...(dialect === "messages" ? messagesEdits(reader) : entryEdits(reader).edits));
  });
  return edits;
}

/** Turns that would be left empty are removed whole. */
function messagesEdits(reader: JsonReader): Edit[] {
  const turns: Span[] = [];
  const emptied = new Set<number>();
  const edits: Edit[] = [];
  reader.array((index) => {
    const isTurn = reader.kind() === "object";
    const start = reader.position;
    let inner: ReturnType<typeof entryEdits> | null = null;
    if (isTurn)
      reader.object((key) => {
        if (key === "content" && reader.kind() === "array") inner = entryEdits(reader);
      });
    else reader.skip();
    turns.push({ start, end: reader.position });
    const found = inner as ReturnType<typeof entryEdits> | null;
    if (found === null) return;
    if (found.left === 0 && found.edits.length > 0) emptied.add(index);
    else edits.push(...found.edits);
  });
  return [...edits, ...removeEntries(turns, (index) => emptied.has(index))];
}

/** Returns the edits that take the reasoning out of an array of blocks or items, and how many entries stay. */
function entryEdits(reader: JsonReader): { readonly edits: Edit[]; readonly left: number } {
  const entries: Span[] = [];
  const gone = new Set<number>();
  reader.array((index) => {
    const isEntry = reader.kind() === "object";
    const start = reader.position;
    let type: string | undefined;
    if (isEntry)
      reader.object((key) => {
        if (key === "type") type = reader.string();
      });
    else reader.skip();
    entries.push({ start, end: reader.position });
    if (isReasoning(type)) gone.add(index);
  });
  return { edits: removeEntries(entries, (index) => gone.has(index)), left: entries.length - gone.size };
}
