/**
 * Reads a JSON object that a client sent, and says precisely what is wrong with one that cannot be read
 * (rule 1.4). `JSON.parse` does the reading; the walk over the bytes runs beside it for what `JSON.parse` does
 * not tell: depth, duplicate keys, and the place of a fault.
 */
import { isUtf8 } from "node:buffer";
import { ApiError } from "./api-error.ts";

export type JsonObjectRead = Record<string, unknown>;

/** Deeper values are refused: what walks a body recursively must never run out of stack. */
export const MAX_JSON_DEPTH = 200;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Parses a request body that must be one JSON object.
 * @throws ApiError 400: empty, not UTF-8, not JSON (with line, column and byte), too deep, not an object, or with
 * a key twice at the top level.
 */
export function readJsonObject(body: Buffer): JsonObjectRead {
  const bytes = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? body.subarray(3) : body;
  if (isBlank(bytes))
    throw new ApiError("invalid_request", "The request body is empty; a JSON object is needed.");
  if (!isUtf8(bytes)) throw new ApiError("invalid_request", "The request body is not valid UTF-8.");
  const shape = surveyJson(bytes);
  if (shape.depth > MAX_JSON_DEPTH) {
    throw new ApiError("invalid_request", `The request body is nested deeper than ${MAX_JSON_DEPTH} levels.`);
  }
  const value = parse(bytes);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ApiError("invalid_request", "The request body must be a JSON object.");
  }
  if (shape.duplicateKey !== null) {
    throw new ApiError(
      "invalid_request",
      `The key "${shape.duplicateKey}" appears twice in the request body.`,
      {
        param: shape.duplicateKey,
      },
    );
  }
  return value as JsonObjectRead;
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw invalidJson(bytes, cause);
  }
}

/** The 400 for bytes that `JSON.parse` refused, naming the place. */
export function invalidJson(bytes: Buffer, cause?: unknown): ApiError {
  const at = firstFault(bytes);
  const before = bytes.subarray(0, at);
  const lineStart = before.lastIndexOf(0x0a) + 1;
  let line = 1;
  for (let index = before.indexOf(0x0a); index >= 0; index = before.indexOf(0x0a, index + 1)) line += 1;
  const column = before.subarray(lineStart).toString("utf8").length + 1;
  const what = at >= bytes.length ? "it ends too early" : `unexpected ${nameOf(bytes, at)}`;
  return new ApiError(
    "invalid_request",
    `The request body is not valid JSON: ${what} at line ${line}, column ${column} (byte ${at}).`,
    { cause },
  );
}

function nameOf(bytes: Buffer, at: number): string {
  const code = bytes[at] ?? 0;
  if (code < 0x20 || code === 0x7f) return `control character 0x${code.toString(16).padStart(2, "0")}`;
  const [character] = bytes.subarray(at, at + 4).toString("utf8");
  return `"${character ?? "?"}"`;
}

const isBlank = (bytes: Buffer) => bytes.length <= 1024 && bytes.toString("latin1").trim() === "";

/** What a walk over the bytes finds; meaningful only when the bytes are JSON. */
export interface JsonShape {
  readonly depth: number;
  /** The first top-level key that comes a second time, decoded. */
  readonly duplicateKey: string | null;
}

/** One pass that skips strings with a native search: milliseconds for the largest body. */
export function surveyJson(bytes: Buffer): JsonShape {
  const keys = new Set<string>();
  let duplicateKey: string | null = null;
  let depth = 0;
  let deepest = 0;
  let wantsKey = false;
  for (let index = 0; index < bytes.length; index += 1) {
    switch (bytes[index]) {
      case 0x7b: // {
      case 0x5b: // [
        depth += 1;
        if (depth > deepest) deepest = depth;
        wantsKey = depth === 1 && bytes[index] === 0x7b;
        break;
      case 0x7d: // }
      case 0x5d: // ]
        depth -= 1;
        break;
      case 0x2c: // ,
        wantsKey = depth === 1;
        break;
      case QUOTE: {
        const end = stringEnd(bytes, index);
        if (wantsKey && depth === 1) {
          const key = decodeKey(bytes.subarray(index, end + 1));
          if (keys.has(key)) duplicateKey ??= key;
          keys.add(key);
          wantsKey = false;
        }
        index = end;
        break;
      }
      default:
    }
  }
  return { depth: deepest, duplicateKey };
}

function decodeKey(quoted: Buffer): string {
  const text = quoted.toString("utf8");
  try {
    return String(JSON.parse(text));
  } catch {
    return text;
  }
}

/** Index of the quote that closes the string opened at `start`; the last index when nothing closes it. */
function stringEnd(bytes: Buffer, start: number): number {
  let end = bytes.indexOf(QUOTE, start + 1);
  while (end > 0) {
    let backslashes = 0;
    for (let index = end - 1; index > start && bytes[index] === BACKSLASH; index -= 1) backslashes += 1;
    if (backslashes % 2 === 0) return end;
    end = bytes.indexOf(QUOTE, end + 1);
  }
  return bytes.length - 1;
}

/**
 * Offset of the first byte that cannot continue a JSON text; the length when it merely ends too early. Iterative,
 * so that no depth can overflow it. Runs only for text that `JSON.parse` has refused.
 */
export function firstFault(bytes: Buffer): number {
  /** Open containers, innermost last: true for an object. */
  const open: boolean[] = [];
  let state: "value" | "value-or-end" | "key" | "key-or-end" | "colon" | "after" = "value";
  let index = 0;
  while (index < bytes.length) {
    const code = bytes[index] ?? 0;
    if (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) {
      index += 1;
      continue;
    }
    if (state === "key" || state === "key-or-end") {
      if (code === 0x7d && state === "key-or-end") {
        open.pop();
        state = "after";
        index += 1;
        continue;
      }
      if (code !== QUOTE) return index;
      const end = stringFault(bytes, index);
      if (end.fault) return end.index;
      index = end.index;
      state = "colon";
    } else if (state === "colon") {
      if (code !== 0x3a) return index;
      index += 1;
      state = "value";
    } else if (state === "after") {
      const inObject = open.at(-1);
      if (inObject === undefined) return index;
      if (code === 0x2c) state = inObject ? "key" : "value";
      else if (code === (inObject ? 0x7d : 0x5d)) open.pop();
      else return index;
      index += 1;
    } else if (code === 0x5d && state === "value-or-end") {
      open.pop();
      state = "after";
      index += 1;
    } else if (code === 0x7b || code === 0x5b) {
      open.push(code === 0x7b);
      state = code === 0x7b ? "key-or-end" : "value-or-end";
      index += 1;
    } else {
      const end = code === QUOTE ? stringFault(bytes, index) : scalarFault(bytes, index);
      if (end.fault) return end.index;
      index = end.index;
      state = "after";
    }
  }
  return bytes.length;
}

interface Reached {
  /** First byte after the token, or the byte at fault. */
  readonly index: number;
  readonly fault: boolean;
}

function stringFault(bytes: Buffer, start: number): Reached {
  for (let index = start + 1; index < bytes.length; index += 1) {
    const code = bytes[index] ?? 0;
    if (code === QUOTE) return { index: index + 1, fault: false };
    if (code < 0x20) return { index, fault: true };
    if (code !== BACKSLASH) continue;
    const escape = String.fromCharCode(bytes[index + 1] ?? 0);
    if (escape === "u") {
      for (let digit = index + 2; digit < index + 6; digit += 1) {
        if (digit >= bytes.length) return { index: bytes.length, fault: true };
        if (!/[0-9a-fA-F]/.test(String.fromCharCode(bytes[digit] ?? 0))) return { index: digit, fault: true };
      }
      index += 5;
    } else if (index + 1 < bytes.length && !'"\\/bfnrt'.includes(escape)) {
      return { index: index + 1, fault: true };
    } else {
      index += 1;
    }
  }
  return { index: bytes.length, fault: true };
}

/** Numbers and the three words; both are short, so a bounded window is looked at. */
function scalarFault(bytes: Buffer, start: number): Reached {
  const text = bytes.subarray(start, start + 1024).toString("latin1");
  const match = /^(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)/.exec(text);
  if (match === null) {
    const word = ["true", "false", "null"].find((candidate) => candidate[0] === text[0]) ?? "";
    let same = 0;
    while (same < word.length && word[same] === text[same]) same += 1;
    if (same === 0 && text[0] === "-") same = 1;
    return { index: start + same, fault: true };
  }
  return { index: start + match[0].length, fault: false };
}
