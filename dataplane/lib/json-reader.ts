/**
 * Reads JSON in place: one pass over the bytes validates the text as strictly as JSON.parse does and finds the places
 * of the few values of interest. json-splice.ts edits the text there.
 *
 * Stricter than JSON.parse in four ways: the depth and the members of one object are bounded, an object that is
 * *read* (not skipped) may not name a member twice (which of the two counts would depend on the reader), and input
 * must be UTF-8. An upstream's answer may name a member twice: its next readers, clients, all take the last.
 */
import { isUtf8 } from "node:buffer";
import { bodyLimits } from "./body-limits.ts";
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  isJsonSpace,
} from "./json-bytes.ts";

/** Deeper nesting is refused: every reader of ours and most of the upstreams' are recursive. */
export const MAX_JSON_DEPTH: number = bodyLimits.depth;

export type JsonFaultKind = "syntax" | "depth" | "keys" | "duplicate" | "encoding";

/** Why a text is not acceptable JSON, and the byte offset at which that shows. */
export class JsonFault extends Error {
  readonly kind: JsonFaultKind;
  /** Byte offset from the beginning of the text. */
  readonly position: number;

  constructor(kind: JsonFaultKind, message: string, position: number) {
    super(`${message} at position ${position}`);
    this.name = "JsonFault";
    this.kind = kind;
    this.position = position;
  }
}

export type JsonKind = "object" | "array" | "string" | "number" | "boolean" | "null";

/** Byte offsets: `start` inclusive, `end` exclusive. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** One member of an object; `start` and `end` are those of its value. */
export interface Member extends Span {
  /** Decoded. */
  readonly key: string;
  /** Offset of the key's opening quote. */
  readonly keyStart: number;
  readonly kind: JsonKind;
}

/** An object with its members in the order of the text; `start` is the opening brace. */
export interface ObjectSpan extends Span {
  readonly members: readonly Member[];
}

/** What becomes of a repeated member: it is refused, or `visit` is called with it too. */
export type Repeats = "refused" | "told";

const isDigit = (byte: number | undefined) => byte !== undefined && byte >= 0x30 && byte <= 0x39;
const isHex = (byte: number | undefined) =>
  byte !== undefined && (isDigit(byte) || (byte >= 0x41 && byte <= 0x46) || (byte >= 0x61 && byte <= 0x66));

/** The characters that may follow a backslash, `u` aside. */
const escapable = new Set(Buffer.from('"\\/bfnrt'));
/** From this length on strings are skipped a word at a time. */
const WORD_SKIP_FROM = 64;
/** While a value is skipped, for each open level: 0 for an array, else the number of the object's members so far. Shared, as skipping calls no other code. */
const openMembers = new Int32Array(MAX_JSON_DEPTH + 1);
/** Objects with more members than this find duplicates with a Set. */
const FEW_MEMBERS = 16;

/**
 * A cursor over one JSON text. Each method starts at a value (white space before it is skipped) and leaves the
 * cursor behind it. All of them throw JsonFault where the text is not JSON.
 */
export class JsonReader {
  readonly bytes: Buffer;
  readonly #repeats: Repeats;
  /** Byte offset of the cursor. */
  position = 0;
  /** Objects and arrays met so far. */
  containers = 0;
  /** Commas between values met so far: with the containers, about as many as there are values. */
  commas = 0;
  #depth = 0;
  /** Whether the last skipped string holds a backslash. */
  #escaped = false;
  /** Little-endian words of the aligned part of `bytes`, made when the first long string is met. */
  #words: Int32Array | null = null;
  #firstWordAt = 0;

  constructor(bytes: Buffer, repeats: Repeats = "refused") {
    this.bytes = bytes;
    this.#repeats = repeats;
  }

  /** Reads a text that is one value and white space; `read` must consume the value. */
  static whole<T>(bytes: Buffer, read: (reader: JsonReader) => T, repeats?: Repeats): T {
    if (!isUtf8(bytes)) throw new JsonFault("encoding", "The text is not UTF-8", firstBadByte(bytes));
    const reader = new JsonReader(bytes, repeats);
    const result = read(reader);
    reader.end();
    return result;
  }

  /** Nothing but white space may follow. */
  end(): void {
    this.#space();
    if (this.position < this.bytes.length) throw this.#unexpected();
  }

  /** The kind of the value ahead; its first byte is then at `position`. */
  kind(): JsonKind {
    this.#space();
    const byte = this.bytes[this.position];
    switch (byte) {
      case OPEN_OBJECT:
        return "object";
      case OPEN_ARRAY:
        return "array";
      case QUOTE:
        return "string";
      case 0x74:
      case 0x66:
        return "boolean";
      case 0x6e:
        return "null";
      default:
        if (byte === 0x2d || isDigit(byte)) return "number";
        throw this.#unexpected();
    }
  }

  /**
   * Validates the value ahead and skips it. It does not recurse and keeps its state in local variables, because a large body
   * spends nearly all of its time here.
   */
  skip(): void {
    const { bytes } = this;
    const outer = this.#depth;
    let depth = outer;
    let at = this.#afterSpace(this.position);
    for (;;) {
      const byte = bytes[at];
      if (byte === QUOTE) at = this.#afterString(at);
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (depth === MAX_JSON_DEPTH) throw tooDeep(at);
        depth += 1;
        this.containers += 1;
        openMembers[depth] = byte === OPEN_OBJECT ? 1 : 0;
        at = this.#afterSpace(at + 1);
        if (bytes[at] !== byte + 2) {
          if (byte === OPEN_OBJECT) at = this.#afterName(at);
          continue;
        }
        depth -= 1;
        at += 1;
      } else at = this.#afterScalar(at, byte);
      for (;;) {
        if (depth === outer) {
          this.position = at;
          return;
        }
        at = this.#afterSpace(at);
        const next = bytes[at];
        const members = openMembers[depth] as number;
        const inObject = members > 0;
        if (next === COMMA) {
          this.commas += 1;
          at = this.#afterSpace(at + 1);
          if (inObject) {
            if (members === bodyLimits.keys) throw tooManyKeys(at);
            openMembers[depth] = members + 1;
            at = this.#afterName(at);
          }
          break;
        }
        if (next !== (inObject ? CLOSE_OBJECT : CLOSE_ARRAY)) throw this.#unexpected(at);
        depth -= 1;
        at += 1;
      }
    }
  }

  /**
   * Reads the object ahead. `visit` is called with the cursor at each member's value and may read it; a value that it does
   * not read is skipped. With duplicate names allowed, it is called for each of them.
   */
  object(visit: (key: string, keyStart: number) => void): void {
    this.#enter(OPEN_OBJECT);
    const seen: string[] = [];
    let manySeen: Set<string> | null = null;
    if (this.#leaveIf(CLOSE_OBJECT)) return;
    for (let members = 0; ; members += 1) {
      this.#space();
      const keyStart = this.position;
      if (members === bodyLimits.keys) throw tooManyKeys(keyStart);
      const key = this.#key();
      const isKnown = manySeen === null ? seen.includes(key) : manySeen.has(key);
      if (isKnown && this.#repeats === "refused") throw duplicateKey(key, keyStart);
      if (manySeen !== null) manySeen.add(key);
      else if (seen.push(key) > FEW_MEMBERS) manySeen = new Set(seen);
      this.#colon();
      const valueAt = this.position;
      visit(key, keyStart);
      if (this.position === valueAt) this.skip();
      if (this.#leaveIf(CLOSE_OBJECT)) return;
      this.#comma();
    }
  }

  /** Reads the array ahead; `visit` as for `object`. @returns the number of items. */
  array(visit: (index: number) => void): number {
    this.#enter(OPEN_ARRAY);
    if (this.#leaveIf(CLOSE_ARRAY)) return 0;
    for (let index = 0; ; index += 1) {
      this.#space();
      const itemAt = this.position;
      visit(index);
      if (this.position === itemAt) this.skip();
      if (this.#leaveIf(CLOSE_ARRAY)) return index + 1;
      this.#comma();
    }
  }

  /**
   * The keys of the object ahead, each with the cursor at its value, for texts that are read in pieces: a value is
   * read or skipped before the next key is asked for.
   */
  *keys(): Generator<string> {
    this.#enter(OPEN_OBJECT);
    const seen = new Set<string>();
    if (this.#leaveIf(CLOSE_OBJECT)) return;
    for (;;) {
      this.#space();
      const keyStart = this.position;
      if (seen.size === bodyLimits.keys) throw tooManyKeys(keyStart);
      const key = this.#key();
      if (seen.has(key)) throw duplicateKey(key, keyStart);
      seen.add(key);
      this.#colon();
      yield key;
      if (this.#leaveIf(CLOSE_OBJECT)) return;
      this.#comma();
    }
  }

  /** The items of the array ahead, one by one, each validated. */
  *items(): Generator<Span> {
    this.#enter(OPEN_ARRAY);
    if (this.#leaveIf(CLOSE_ARRAY)) return;
    for (;;) {
      this.#space();
      const start = this.position;
      this.skip();
      yield { start, end: this.position };
      if (this.#leaveIf(CLOSE_ARRAY)) return;
      this.#comma();
    }
  }

  /** The members of the object ahead; `visit` may look into their values. */
  members(visit: (key: string) => void = () => {}): ObjectSpan {
    this.#space();
    const start = this.position;
    const members: Member[] = [];
    this.object((key, keyStart) => {
      const kind = this.kind();
      const valueStart = this.position;
      visit(key);
      if (this.position === valueStart) this.skip();
      members.push({ key, keyStart, kind, start: valueStart, end: this.position });
    });
    return { start, end: this.position, members };
  }

  /** The string ahead, decoded; undefined (and skipped) when the value is of another kind. */
  string(): string | undefined {
    if (this.kind() !== "string") {
      this.skip();
      return undefined;
    }
    return this.#text();
  }

  /** The number ahead; undefined (and skipped) when the value is of another kind. */
  number(): number | undefined {
    if (this.kind() !== "number") {
      this.skip();
      return undefined;
    }
    const start = this.position;
    this.position = this.#afterNumber(start);
    return Number(this.bytes.toString("latin1", start, this.position));
  }

  /** The boolean ahead; undefined (and skipped) when the value is of another kind. */
  boolean(): boolean | undefined {
    if (this.kind() !== "boolean") {
      this.skip();
      return undefined;
    }
    const value = this.bytes[this.position] === 0x74;
    this.position = this.#afterLiteral(this.position, value ? "true" : "false");
    return value;
  }

  /** Parses the value ahead; for small values only. */
  value(): unknown {
    this.#space();
    const start = this.position;
    this.skip();
    return JSON.parse(this.bytes.toString("utf8", start, this.position));
  }

  #key(): string {
    if (this.bytes[this.position] !== QUOTE) throw this.#unexpected();
    return this.#text();
  }

  /** The string literal ahead, decoded. */
  #text(): string {
    const { bytes } = this;
    const start = this.position;
    const furthest = start + 1 + MAX_KNOWN_TEXT;
    let hash = 0;
    for (let at = start + 1; at <= furthest; at += 1) {
      const byte = bytes[at];
      if (byte === QUOTE) {
        this.position = at + 1;
        return knownText(bytes, start + 1, at, hash);
      }
      if (byte === undefined || byte < 0x20 || byte === BACKSLASH) break;
      hash = (Math.imul(hash, 31) + byte) | 0;
    }
    const end = this.#afterString(start);
    this.position = end;
    return this.#escaped
      ? (JSON.parse(bytes.toString("utf8", start, end)) as string)
      : bytes.toString("utf8", start + 1, end - 1);
  }

  /** Skips a member's name and colon; returns where its value begins. */
  #afterName(at: number): number {
    if (this.bytes[at] !== QUOTE) throw this.#unexpected(at);
    const colon = this.#afterSpace(this.#afterString(at));
    if (this.bytes[colon] !== COLON) throw this.#unexpected(colon);
    return this.#afterSpace(colon + 1);
  }

  #afterString(start: number): number {
    const { bytes } = this;
    this.#escaped = false;
    let at = start + 1;
    let wordsFrom = at + WORD_SKIP_FROM;
    for (;;) {
      const byte = bytes[at];
      if (byte === undefined) throw this.#unexpected(bytes.length);
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) {
        this.#escaped = true;
        at = this.#afterEscape(at);
      } else if (byte < 0x20) {
        throw this.#unexpected(at);
      } else {
        at += 1;
        if (at >= wordsFrom) {
          at = this.#skipPlainWords(at);
          wordsFrom = at + WORD_SKIP_FROM;
        }
      }
    }
  }

  #afterEscape(backslash: number): number {
    const escape = this.bytes[backslash + 1];
    if (escape === 0x75) {
      for (let digit = 2; digit < 6; digit += 1)
        if (!isHex(this.bytes[backslash + digit])) throw this.#unexpected(backslash + digit);
      return backslash + 6;
    }
    if (escape === undefined || !escapable.has(escape)) throw this.#unexpected(backslash + 1);
    return backslash + 2;
  }

  /**
   * Skips four bytes at a time while none of them is a quote, a backslash or a control character: most of a large body is one
   * long string (base64, a document), and this is three times as fast as byte by byte.
   */
  #skipPlainWords(from: number): number {
    if (this.#words === null) {
      const { byteOffset, length, buffer } = this.bytes;
      this.#firstWordAt = -byteOffset & 3;
      const words = Math.max(0, (length - this.#firstWordAt) >> 2);
      this.#words = new Int32Array(buffer, byteOffset + this.#firstWordAt, words);
    }
    const words = this.#words;
    let index = (from - this.#firstWordAt + 3) >> 2;
    const first = index;
    for (; index < words.length; index += 1) {
      const word = words[index] as number;
      const quotes = word ^ 0x22222222;
      const slashes = word ^ 0x5c5c5c5c;
      // The classic "has a byte less than n" and "has a zero byte" tests; a false alarm only costs a byte loop.
      const alarm =
        ((word - 0x20202020) & ~word) |
        ((quotes - 0x01010101) & ~quotes) |
        ((slashes - 0x01010101) & ~slashes);
      if ((alarm & 0x80808080) !== 0) break;
    }
    if (index === first) return from;
    // The bytes before the first whole word are still to be checked.
    const aligned = this.#firstWordAt + (first << 2);
    for (let at = from; at < aligned; at += 1) {
      const byte = this.bytes[at] as number;
      if (byte < 0x20 || byte === QUOTE || byte === BACKSLASH) return at;
    }
    return this.#firstWordAt + index * 4;
  }

  #afterScalar(at: number, byte: number | undefined): number {
    if (byte === 0x2d || isDigit(byte)) return this.#afterNumber(at);
    if (byte === 0x74) return this.#afterLiteral(at, "true");
    if (byte === 0x66) return this.#afterLiteral(at, "false");
    if (byte === 0x6e) return this.#afterLiteral(at, "null");
    throw this.#unexpected(at);
  }

  #afterNumber(start: number): number {
    const { bytes } = this;
    let at = start;
    if (bytes[at] === 0x2d) at += 1;
    if (bytes[at] === 0x30) at += 1;
    else at = this.#afterDigits(at);
    if (bytes[at] === 0x2e) at = this.#afterDigits(at + 1);
    if (bytes[at] === 0x65 || bytes[at] === 0x45) {
      at += 1;
      if (bytes[at] === 0x2b || bytes[at] === 0x2d) at += 1;
      at = this.#afterDigits(at);
    }
    return at;
  }

  #afterDigits(from: number): number {
    let at = from;
    while (isDigit(this.bytes[at])) at += 1;
    if (at === from) throw this.#unexpected(at);
    return at;
  }

  #afterLiteral(at: number, text: string): number {
    for (let index = 0; index < text.length; index += 1)
      if (this.bytes[at + index] !== text.charCodeAt(index)) throw this.#unexpected(at + index);
    return at + text.length;
  }

  #enter(open: number): void {
    this.#space();
    if (this.bytes[this.position] !== open) throw this.#unexpected();
    if (this.#depth === MAX_JSON_DEPTH) throw tooDeep(this.position);
    this.#depth += 1;
    this.containers += 1;
    this.position += 1;
  }

  #leaveIf(close: number): boolean {
    this.#space();
    if (this.bytes[this.position] !== close) return false;
    this.#depth -= 1;
    this.position += 1;
    return true;
  }

  #colon(): void {
    this.#space();
    if (this.bytes[this.position] !== COLON) throw this.#unexpected();
    this.position += 1;
    this.#space();
  }

  #comma(): void {
    if (this.bytes[this.position] !== COMMA) throw this.#unexpected();
    this.commas += 1;
    this.position += 1;
  }

  #space(): void {
    this.position = this.#afterSpace(this.position);
  }

  #afterSpace(from: number): number {
    let at = from;
    // Most texts have no white space between their values.
    while ((this.bytes[at] as number) <= 0x20 && isJsonSpace(this.bytes[at])) at += 1;
    return at;
  }

  #unexpected(position = this.position): JsonFault {
    return position >= this.bytes.length
      ? new JsonFault("syntax", "Unexpected end of JSON", this.bytes.length)
      : new JsonFault("syntax", `Unexpected ${shown(this.bytes[position] as number)}`, position);
  }
}

/** Characters of a key that an error message repeats. */
const SHOWN_KEY = 100;

/** Makes the fault of an object that has a key twice, the second one at `at`. */
export const duplicateKey = (key: string, at: number): JsonFault =>
  new JsonFault("duplicate", `Duplicate key ${JSON.stringify(key.slice(0, SHOWN_KEY))}`, at);
/** Makes the fault of an object with more keys than `bodyLimits.keys`, the first of these at `at`. */
export const tooManyKeys = (at: number): JsonFault =>
  new JsonFault("keys", `More than ${bodyLimits.keys} keys in one object`, at);
const tooDeep = (at: number) => new JsonFault("depth", `Nested more than ${MAX_JSON_DEPTH} levels deep`, at);

/** Cache of short strings by a hash of their bytes: the same few dozen keys, roles and models stand in every body. */
const textSlots: (string | undefined)[] = Array.from({ length: 1024 });
const MAX_KNOWN_TEXT = 32;

/** Decodes a short text; ASCII texts come from the cache when they are there. */
function knownText(bytes: Buffer, start: number, end: number, hash: number): string {
  const length = end - start;
  const slot = hash & (textSlots.length - 1);
  const known = textSlots[slot];
  if (known !== undefined && known.length === length) {
    let same = 0;
    while (same < length && known.charCodeAt(same) === bytes[start + same]) same += 1;
    if (same === length) return known;
  }
  const text = bytes.toString("utf8", start, end);
  // Only ASCII texts are kept: in others the bytes are not the characters.
  if (text.length === length) textSlots[slot] = text;
  return text;
}

const shown = (byte: number): string =>
  byte > 0x20 && byte < 0x7f
    ? `character ${JSON.stringify(String.fromCharCode(byte))}`
    : `byte 0x${byte.toString(16).padStart(2, "0")}`;

/** Offset of the first byte that is not UTF-8, found by halving. */
function firstBadByte(bytes: Buffer): number {
  let good = 0;
  let bad = bytes.length;
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    // A prefix may end inside a character: the up to three bytes of its beginning are not a fault.
    let cut = middle;
    while (cut > good && cut > middle - 4 && ((bytes[cut] as number) & 0xc0) === 0x80) cut -= 1;
    if (cut > good && isUtf8(bytes.subarray(good, cut))) good = cut;
    else bad = middle;
  }
  return good;
}
