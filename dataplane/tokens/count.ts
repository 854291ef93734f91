/**
 * Counts the tokens of a Messages request here, where no upstream can or may (rule 2.18). The vocabulary is
 * OpenAI's newest public one: right for its models and within some per cent for the others, the same for all.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { DOCUMENT_TOKENS, IMAGE_TOKENS } from "./estimate.ts";

/** One letter repeated costs the tokenizer the square of its length, so that no piece may be long. */
const PIECE_CHARACTERS = 1000;
/** Counted before other requests get their turn: some milliseconds. */
const PIECES_AT_ONCE = 32;
/** Text beyond this is counted by the ratio of what came before it: counting is free, so it must stay cheap. */
const EXACT_CHARACTERS = 2 * 1024 * 1024;
/** Role and separators around each message, and the turn that the model is to open. */
const MESSAGE_OVERHEAD = 4;
const ANSWER_OVERHEAD = 3;
/** Framing of one tool's declaration. */
const TOOL_OVERHEAD = 8;
/** What a sealed search result unfolds to: base64 of text, 4 characters a token. */
const SEALED_CHARACTERS_PER_TOKEN = 6;

type Unknown = Readonly<Record<string, unknown>>;
/** The fields of a Messages body that hold tokens; whatever else it holds is not looked at. */
export interface CountableRequest {
  readonly system?: unknown;
  readonly messages?: unknown;
  readonly tools?: unknown;
}

/** Input tokens of a Messages request. Yields to the event loop; nothing in it can make it fail. */
export async function countTokens(request: CountableRequest): Promise<number> {
  const tally = { texts: [] as string[], fixed: ANSWER_OVERHEAD };
  collect(request.system, tally);
  for (const message of listOf(request.messages)) {
    tally.fixed += MESSAGE_OVERHEAD;
    if (isObject(message)) collect(message["content"], tally);
  }
  for (const tool of listOf(request.tools)) {
    tally.fixed += TOOL_OVERHEAD;
    tally.texts.push(JSON.stringify(tool) ?? "");
  }
  return tally.fixed + (await countTexts(tally.texts));
}

interface Tally {
  readonly texts: string[];
  fixed: number;
}

/** Adds what a content value holds: a text, a block, or a list of them. */
function collect(value: unknown, tally: Tally): void {
  if (typeof value === "string") tally.texts.push(value);
  else if (Array.isArray(value)) for (const item of value) collect(item, tally);
  else if (isObject(value)) collectBlock(value, tally);
}

function collectBlock(block: Unknown, tally: Tally): void {
  switch (block["type"]) {
    case "image":
      tally.fixed += IMAGE_TOKENS;
      break;
    case "document":
      collect(block["title"], tally);
      collect(block["context"], tally);
      collectDocument(block["source"], tally);
      break;
    // Earlier thinking is not given to the model again.
    case "thinking":
    case "redacted_thinking":
      break;
    case "tool_use":
    case "server_tool_use":
      collect(block["name"], tally);
      tally.texts.push(JSON.stringify(block["input"] ?? {}));
      break;
    default:
      collectFields(block, tally);
  }
}

function collectDocument(source: unknown, tally: Tally): void {
  const kind = isObject(source) ? source["type"] : undefined;
  if (isObject(source) && kind === "text") collect(source["data"], tally);
  else if (isObject(source) && kind === "content") collect(source["content"], tally);
  else tally.fixed += DOCUMENT_TOKENS;
}

const textFields = ["text", "title", "source", "url", "content"] as const;

/** Texts, results and whatever a newer dialect has: the fields that hold words, and sealed ones by their size. */
function collectFields(block: Unknown, tally: Tally): void {
  for (const field of textFields) collect(block[field], tally);
  const sealed = block["encrypted_content"];
  if (typeof sealed === "string") tally.fixed += Math.ceil(sealed.length / SEALED_CHARACTERS_PER_TOKEN);
}

const isObject = (value: unknown): value is Unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

type CountPiece = (piece: string) => number;
let loading: Promise<CountPiece> | null = null;

/** The vocabulary takes a fifth of a second and 50 MB, so that it is loaded when first needed. */
function loadTokenizer(): Promise<CountPiece> {
  loading ??= import("gpt-tokenizer/encoding/o200k_base").then(({ countTokens: count }) => {
    // `<|endoftext|>` in a client's text is text; without this it would be an error.
    return (piece: string) => count(piece, { allowedSpecial: "all" });
  });
  return loading;
}

async function countTexts(texts: readonly string[]): Promise<number> {
  const total = texts.reduce((sum, text) => sum + text.length, 0);
  if (total === 0) return 0;
  const count = await loadTokenizer();
  let tokens = 0;
  let seen = 0;
  let pieces = 0;
  for (const text of texts) {
    for (const piece of piecesOf(text)) {
      if (seen + piece.length > EXACT_CHARACTERS) return Math.ceil((tokens * total) / seen);
      tokens += count(piece);
      seen += piece.length;
      pieces += 1;
      if (pieces % PIECES_AT_ONCE === 0) await nextTurn();
    }
  }
  return tokens;
}

/** Cuts a text without parting a surrogate pair. */
function* piecesOf(text: string): Generator<string> {
  let start = 0;
  while (start < text.length) {
    let end = Math.min(text.length, start + PIECE_CHARACTERS);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last <= 0xdbff) end -= 1;
    yield text.slice(start, end);
    start = end;
  }
}
