/**
 * Walks a Messages request's texts: those of its contents, and the JSON of its tools. Step by step, so that the caller
 * may pause or stop anywhere, and without recursion, so that no depth overflows the stack. Pure.
 */
import { DOCUMENT_TOKENS, IMAGE_TOKENS } from "./estimate.ts";
import { jsonTexts } from "./json-texts.ts";
import { isObject } from "../lib/json-object.ts";

/** The fields of a Messages body that hold tokens; all others are ignored. */
export interface CountableRequest {
  readonly system?: unknown;
  readonly messages?: unknown;
  readonly tools?: unknown;
}

/** Tokens of role and separators around each message, and of the turn that the model is to open. */
const MESSAGE_OVERHEAD = 4;
const ANSWER_OVERHEAD = 3;
/** Tokens that frame one tool's declaration. */
const TOOL_OVERHEAD = 8;
/** Characters of a sealed search result for one token: it is base64 of text, which has 4 characters a token. */
const SEALED_CHARACTERS_PER_TOKEN = 6;

type Unknown = Readonly<Record<string, unknown>>;

/**
 * Yields texts to tokenize, and numbers of tokens of what is no text. Each step is short: it looks at one value, or copies
 * some kilobytes.
 */
export function* requestTexts({ system, messages, tools }: CountableRequest): Generator<string | number> {
  yield ANSWER_OVERHEAD;
  yield* contentTexts(system);
  for (const message of listOf(messages)) {
    yield MESSAGE_OVERHEAD;
    if (isObject(message)) yield* contentTexts(message["content"]);
  }
  for (const tool of listOf(tools)) {
    yield TOOL_OVERHEAD;
    yield* jsonTexts(tool);
  }
}

/** A content that counts as a fixed number of tokens. */
class Fixed {
  readonly tokens: number;
  constructor(tokens: number) {
    this.tokens = tokens;
  }
}

/** A content that the model reads as JSON. */
class Json {
  readonly value: unknown;
  constructor(value: unknown) {
    this.value = value;
  }
}

/** Walks a content value: a text, a block, or a list of them. */
function* contentTexts(content: unknown): Generator<string | number> {
  const open = [{ items: [content] as readonly unknown[], at: 0 }];
  for (let list = open.at(-1); list !== undefined; list = open.at(-1)) {
    if (list.at === list.items.length) {
      open.pop();
      continue;
    }
    const value = list.items[list.at];
    list.at += 1;
    if (typeof value === "string") yield value;
    else if (value instanceof Fixed) yield value.tokens;
    else if (value instanceof Json) yield* jsonTexts(value.value);
    else {
      // A long list of values without text is work, too.
      yield 0;
      if (Array.isArray(value)) open.push({ items: value, at: 0 });
      else if (isObject(value)) open.push({ items: partsOf(value), at: 0 });
    }
  }
}

/** Returns the parts of a block that count, as contents. */
function partsOf(block: Unknown): readonly unknown[] {
  switch (block["type"]) {
    case "image":
      return [new Fixed(IMAGE_TOKENS)];
    case "document":
      return [block["title"], block["context"], documentText(block["source"])];
    // Earlier thinking is not passed to the model again.
    case "thinking":
    case "redacted_thinking":
      return [];
    case "tool_use":
    case "server_tool_use":
      return [block["name"], new Json(block["input"] ?? {})];
    default:
      return [...textFields.map((field) => block[field]), sealedText(block["encrypted_content"])];
  }
}

/** The fields with text of text blocks, results and unknown blocks of newer dialects. */
const textFields = ["text", "title", "source", "url", "content"] as const;

function documentText(source: unknown): unknown {
  const kind = isObject(source) ? source["type"] : undefined;
  if (isObject(source) && kind === "text") return source["data"];
  if (isObject(source) && kind === "content") return source["content"];
  return new Fixed(DOCUMENT_TOKENS);
}

/** Counts a sealed text by its size. */
const sealedText = (sealed: unknown) =>
  typeof sealed === "string" ? new Fixed(Math.ceil(sealed.length / SEALED_CHARACTERS_PER_TOKEN)) : null;

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
