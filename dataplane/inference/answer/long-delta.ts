/**
 * Makes several deltas of one with a long text (rule 7.3): each reader adds the texts of deltas, so that they are read and written
 * one after the other with other work in between. Pure.
 */
import type { Dialect } from "../../dialects/dialect.ts";
import { arrayOf, objectOf, parseJson, stringOf } from "../../dialects/fields.ts";
import type { JsonObject, JsonValue } from "../../dialects/messages/types.ts";
import { BACKSLASH } from "../../lib/json-bytes.ts";

/** The data of the events that are read in place of one. */
export interface Pieces {
  /** Where each ends. */
  readonly ends: readonly number[];
  readonly bytes: Buffer;
}

/** A text of so many bytes is read and written in some ten milliseconds. */
const MOST_WHOLE_BYTES = 1024 * 1024;
/** About so many bytes of a longer text are one piece. */
const PIECE_BYTES = 64 * 1024;

/** The events that are made of one: the first piece of its text stands in `first`, each other one in `next`; `last` has no text. */
interface Form {
  readonly first: JsonObject;
  readonly next: JsonObject;
  readonly last: JsonObject | null;
}

/**
 * @param marked the event's data with `mark` in place of the inside of its only long text.
 * @param text that inside, as JSON.
 * @returns null for an event that is no delta of this text, or whose text is not so long.
 */
export function deltaInPieces(dialect: Dialect, marked: Buffer, mark: string, text: Buffer): Pieces | null {
  if (text.length <= MOST_WHOLE_BYTES) return null;
  const event = objectOf(parseJson(marked.toString("utf8")));
  const form = event === null ? null : formOf[dialect](event, mark);
  if (form === null) return null;
  const pieces: Buffer[] = [];
  const [first, next] = [halves(form.first, mark), halves(form.next, mark)];
  for (let at = 0; at < text.length;) {
    const end = pieceEnd(text, at);
    const [before, after] = at === 0 ? first : next;
    pieces.push(Buffer.concat([before, text.subarray(at, end), after]));
    at = end;
  }
  if (form.last !== null) pieces.push(Buffer.from(JSON.stringify(form.last)));
  let end = 0;
  return { ends: pieces.map(({ length }) => (end += length)), bytes: Buffer.concat(pieces) };
}

function halves(event: JsonObject, mark: string): readonly [Buffer, Buffer] {
  const [before = "", after = ""] = JSON.stringify(event).split(mark);
  return [Buffer.from(before), Buffer.from(after)];
}

/** Half of a surrogate pair that is escaped; the other half follows as another escape. */
const HIGH_HALF = /\\ud[89ab][0-9a-f]{2}$/i;
const ESCAPE_BYTES = 6;

/** Returns where the piece that begins at `from` ends: within no character and no escape. */
function pieceEnd(text: Buffer, from: number): number {
  let at = from;
  const least = Math.min(text.length, from + PIECE_BYTES);
  // From the beginning, because only there it is known which backslash begins an escape.
  while (at < least) at += text[at] === BACKSLASH ? (text[at + 1] === LOWER_U ? ESCAPE_BYTES : 2) : 1;
  while (at < text.length && ((text[at] as number) & 0xc0) === 0x80) at += 1;
  const isHalf = HIGH_HALF.test(text.toString("latin1", Math.max(from, at - ESCAPE_BYTES), at));
  return isHalf && text[at] === BACKSLASH ? at + ESCAPE_BYTES : at;
}

const LOWER_U = 0x75;

const formOf: Record<Dialect, (event: JsonObject, mark: string) => Form | null> = {
  messages: (event, mark) =>
    event["type"] === "content_block_delta" && holds(objectOf(event["delta"]), mark) ? each(event) : null,
  responses: (event, mark) => {
    const isPlain = (arrayOf(event["logprobs"]) ?? []).length === 0;
    return stringOf(event["type"])?.endsWith(".delta") === true && event["delta"] === mark && isPlain
      ? each(event)
      : null;
  },
  chat: chatForm,
};

const each = (event: JsonObject): Form => ({ first: event, next: event, last: null });

/** Members of a Messages delta, and of a Chat delta, that are the model's text. */
const messagesTexts = ["text", "thinking", "partial_json"];
const chatTexts = ["content", "reasoning_content", "reasoning", "refusal"];

const holds = (delta: JsonObject | null, mark: string): boolean =>
  delta !== null && messagesTexts.some((name) => delta[name] === mark);

/** A chunk may begin an answer, and end it: its reason and its usage come last. */
function chatForm(event: JsonObject, mark: string): Form | null {
  const choices = arrayOf(event["choices"]) ?? [];
  const choice = objectOf(choices[0]);
  const delta = objectOf(choice?.["delta"]);
  if (choices.length !== 1 || choice === null || delta === null) return null;
  const next = nextDelta(delta, mark);
  if (next === null || event["error"] !== undefined) return null;
  const { usage, ...beginning } = event;
  const { finish_reason: finish, ...begun } = choice;
  const { index = 0 } = choice;
  return {
    first: { ...beginning, choices: [begun] },
    next: { choices: [{ index, delta: next }] },
    last:
      (usage ?? null) === null && (finish ?? null) === null
        ? null
        : { ...event, choices: [{ index, delta: {}, finish_reason: finish ?? null }] },
  };
}

/** Returns a delta that goes on with the text; null: the text is not all that the delta brings. */
function nextDelta(delta: JsonObject, mark: string): JsonObject | null {
  const { role: _role, ...said } = delta;
  const brought = Object.entries(said).filter(([, value]) => !isNothing(value));
  const [only] = brought;
  if (brought.length !== 1 || only === undefined) return null;
  const [name, value] = only;
  if (chatTexts.includes(name)) return value === mark ? { [name]: mark } : null;
  if (name !== "tool_calls") return null;
  const calls = arrayOf(value) ?? [];
  const call = objectOf(calls[0]);
  if (calls.length !== 1 || objectOf(call?.["function"])?.["arguments"] !== mark) return null;
  const { index } = call as JsonObject;
  return { tool_calls: [{ ...(index !== undefined && { index }), function: { arguments: mark } }] };
}

const isNothing = (value: JsonValue | undefined): boolean =>
  value === null || value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
