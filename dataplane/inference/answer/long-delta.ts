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

const ESCAPE_BYTES = 6;
/** Halves of a surrogate pair, escaped. */
const HIGH_HALF = /^\\ud[89ab]/i;
const LOW_HALF = /^\\ud[c-f]/i;

/** Returns the length of the escape or byte ahead. */
function stepAt(text: Buffer, at: number): number {
  if (text[at] !== BACKSLASH) return 1;
  return text[at + 1] === LOWER_U ? ESCAPE_BYTES : 2;
}

/** Returns where the piece that begins at `from` ends: within no character and no escape. */
function pieceEnd(text: Buffer, from: number): number {
  let at = from;
  let last = from;
  const least = Math.min(text.length, from + PIECE_BYTES);
  // From the beginning, because only there it is known which backslash begins an escape.
  while (at < least) {
    last = at;
    at += stepAt(text, at);
  }
  while (at < text.length && ((text[at] as number) & 0xc0) === 0x80) at += 1;
  const isPair = HIGH_HALF.test(escapeAt(text, last)) && LOW_HALF.test(escapeAt(text, at));
  return isPair ? at + ESCAPE_BYTES : at;
}

const escapeAt = (text: Buffer, at: number): string => text.toString("latin1", at, at + ESCAPE_BYTES);

const LOWER_U = 0x75;

const formOf: Record<Dialect, (event: JsonObject, mark: string) => Form | null> = {
  messages: messagesForm,
  responses: (event, mark) => {
    const isPlain = (arrayOf(event["logprobs"]) ?? []).length === 0;
    return stringOf(event["type"])?.endsWith(".delta") === true && event["delta"] === mark && isPlain
      ? { first: event, next: picked(event, responsesMembers), last: null }
      : null;
  },
  chat: chatForm,
};

/** Members of a Messages delta, and of a Chat delta, that are the model's text. */
const messagesTexts = ["text", "thinking", "partial_json"];
const chatTexts = ["content", "reasoning_content", "reasoning", "refusal"];

/** Members that tell which text a delta of Responses goes on with. */
const responsesMembers = ["type", "item_id", "output_index", "content_index", "summary_index", "delta"];

/** Returns the members of these names: each piece repeats them, and an event may hold megabytes besides its text. */
const picked = (object: JsonObject, names: readonly string[]): JsonObject =>
  Object.fromEntries(
    Object.entries(object).filter(
      ([name, value]) => names.includes(name) && (typeof value === "string" || typeof value === "number"),
    ),
  );

function messagesForm(event: JsonObject, mark: string): Form | null {
  const delta = objectOf(event["delta"]);
  if (event["type"] !== "content_block_delta" || delta === null) return null;
  const name = messagesTexts.find((text) => delta[text] === mark);
  if (name === undefined) return null;
  return {
    first: event,
    next: { ...picked(event, ["type", "index"]), delta: picked(delta, ["type", name]) },
    last: null,
  };
}

/** A chunk may begin an answer, and end it: its reason and its usage come last. */
function chatForm(event: JsonObject, mark: string): Form | null {
  const choices = arrayOf(event["choices"]) ?? [];
  const choice = objectOf(choices[0]);
  const delta = objectOf(choice?.["delta"]);
  if (choices.length !== 1 || choice === null || delta === null) return null;
  const next = nextDelta(delta, mark);
  const index = choice["index"] ?? 0;
  if (next === null || typeof index !== "number" || event["error"] !== undefined) return null;
  const { usage, ...beginning } = event;
  const { finish_reason: finish, ...begun } = choice;
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
  return { tool_calls: [{ ...picked(call as JsonObject, ["index"]), function: { arguments: mark } }] };
}

const isNothing = (value: JsonValue | undefined): boolean =>
  value === null || value === undefined || value === "" || (Array.isArray(value) && value.length === 0);
