/**
 * Reads `{"requests": [ … ]}` from a stream and yields the array's elements one by one, so that a body of 256 MiB is
 * never in memory as a whole. The scanner only finds where pieces begin and end; each piece is then validated as
 * strictly as any other body (`JsonReader`). Both refuse what is not JSON.
 */
import { ApiError } from "../../lib/api-error.ts";
import { BODY_LIMIT, bodyLimits } from "../../lib/body-limits.ts";
import { BYTE_ORDER_MARK } from "../../lib/byte-order-mark.ts";
import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  isJsonSpace,
} from "../../lib/json-bytes.ts";
import { JsonPiece } from "../../lib/json-piece.ts";
import { emptyBody } from "../../lib/json-read.ts";
import { duplicateKey, JsonFault, JsonReader, tooManyKeys } from "../../lib/json-reader.ts";
import { MAX_ITEM_BYTES } from "../batch.ts";
import { DistinctTexts } from "./distinct-texts.ts";

/** Room for `custom_id` and braces around a request of the largest size. */
const MAX_ELEMENT_BYTES = MAX_ITEM_BYTES + 64 * 1024;
/** The longest key or value of top-level fields other than `requests`, which are read and ignored. */
const MAX_OTHER_BYTES = 128 * 1024;
/** Memory that each top-level key but one, `requests`, takes until the body's end. */
const KEY_BYTES = 128;

/** What is expected next. `value` and `element` collect a piece; the rest is punctuation. */
type Place =
  | "start"
  | "key-or-end"
  | "key"
  | "colon"
  | "value"
  | "comma-or-end"
  | "element-or-end"
  | "element"
  | "comma-or-close"
  | "done";

/**
 * Yields the elements of `requests`.
 * @param gathered called after each chunk with the bytes that are in memory: of the unfinished element, and of other fields' keys.
 * @throws ApiError 400: not a JSON object, a key twice or too many, `requests` missing or no array; 413: one element is too large.
 * Whatever `source` and `gathered` throw.
 */
export async function* scanRequests(
  source: AsyncIterable<Buffer>,
  gathered: (bytes: number) => void = () => {},
): AsyncGenerator<Buffer> {
  const scanner = new Scanner();
  for await (const chunk of source) {
    yield* scanner.push(chunk);
    gathered(scanner.gathered);
  }
  scanner.end();
}

const unreadable = (what: string, fault: JsonFault): ApiError =>
  new ApiError("invalid_request", `${what}: ${fault.message}.`, { cause: fault });

/** Makes the error for the element at `index`. */
export const requestTooLarge = (index: number): ApiError =>
  new ApiError("too_large", `requests.${index}: the request is larger than ${BODY_LIMIT}.`);

class Scanner {
  #place: Place = "start";
  #piece: JsonPiece | null = null;
  #key = "";
  #found = false;
  /** Position of the key that was read last, from the beginning of the body. */
  #keyStart = 0;
  readonly #keys = new DistinctTexts();
  #elements = 0;
  /** Bytes before the present chunk. */
  #before = 0;

  get gathered(): number {
    return (this.#piece?.length ?? 0) + Math.max(0, this.#keys.size - 1) * KEY_BYTES;
  }

  *push(chunk: Buffer): Generator<Buffer> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#piece !== null) {
        at = this.#piece.push(chunk, at);
        if (!this.#piece.complete) {
          this.#checkSize(this.#piece.length);
          continue;
        }
        const bytes = this.#piece.take();
        this.#piece = null;
        const element = this.#taken(bytes);
        if (element !== null) yield element;
        continue;
      }
      const byte = chunk[at] ?? 0;
      if (isJsonSpace(byte)) at += 1;
      else at = this.#punctuation(byte, at);
    }
    this.#before += chunk.length;
  }

  end(): void {
    if (this.#before === 0) throw emptyBody();
    if (this.#place !== "done") throw this.#invalid("it ends too early", 0);
    if (!this.#found) {
      throw new ApiError("missing_parameter", "requests: Field required", { param: "requests" });
    }
  }

  /** Handles one byte outside of any piece. Returns the next position: the same byte when it begins a piece. */
  #punctuation(byte: number, at: number): number {
    switch (this.#place) {
      case "start":
        if (byte === BYTE_ORDER_MARK[this.#before + at]) return at + 1;
        if (byte !== OPEN_OBJECT) throw this.#invalid("a JSON object is needed", at);
        this.#place = "key-or-end";
        return at + 1;
      case "key-or-end":
        if (byte === CLOSE_OBJECT) return this.#goTo("done", at + 1);
        return this.#begin("key", byte, at);
      case "key":
        return this.#begin("key", byte, at);
      case "colon":
        if (byte !== COLON) throw this.#invalid("unexpected character", at);
        return this.#goTo("value", at + 1);
      case "value":
        if (this.#key === "requests") {
          if (byte !== OPEN_ARRAY) {
            throw new ApiError("invalid_type", "requests: Input should be a valid array", {
              param: "requests",
            });
          }
          this.#found = true;
          return this.#goTo("element-or-end", at + 1);
        }
        return this.#begin("value", byte, at);
      case "comma-or-end":
        if (byte === CLOSE_OBJECT) return this.#goTo("done", at + 1);
        if (byte !== COMMA) throw this.#invalid("unexpected character", at);
        return this.#goTo("key", at + 1);
      case "element-or-end":
        if (byte === CLOSE_ARRAY) return this.#goTo("comma-or-end", at + 1);
        return this.#begin("element", byte, at);
      case "element":
        return this.#begin("element", byte, at);
      case "comma-or-close":
        if (byte === CLOSE_ARRAY) return this.#goTo("comma-or-end", at + 1);
        if (byte !== COMMA) throw this.#invalid("unexpected character", at);
        return this.#goTo("element", at + 1);
      case "done":
        throw this.#invalid("text after the end", at);
    }
  }

  #goTo(place: Place, at: number): number {
    this.#place = place;
    return at;
  }

  #begin(place: "key" | "value" | "element", byte: number, at: number): number {
    if (place === "key" && byte !== QUOTE) throw this.#invalid("unexpected character", at);
    if (byte === COMMA || byte === COLON || byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) {
      throw this.#invalid("unexpected character", at);
    }
    this.#place = place;
    if (place === "key") this.#keyStart = this.#before + at;
    this.#piece = new JsonPiece();
    return at;
  }

  /** Handles a complete piece. Returns it when it is an element of `requests`. */
  #taken(bytes: Buffer): Buffer | null {
    switch (this.#place) {
      case "key":
        this.#key = this.#read(bytes, "The request body", (reader) => reader.string() ?? "");
        this.#addKey(this.#key);
        this.#place = "colon";
        return null;
      case "value":
        this.#read(bytes, this.#key.slice(0, 100), (reader) => reader.skip());
        this.#place = "comma-or-end";
        return null;
      default:
        this.#place = "comma-or-close";
        this.#elements += 1;
        return bytes;
    }
  }

  /** Judges a key as those of any other body are (rules 1.4, 7.4). */
  #addKey(key: string): void {
    if (this.#keys.size === bodyLimits.keys)
      throw unreadable("The request body", tooManyKeys(this.#keyStart));
    if (!this.#keys.add(key)) throw unreadable("The request body", duplicateKey(key, this.#keyStart));
  }

  #read<T>(bytes: Buffer, what: string, read: (reader: JsonReader) => T): T {
    try {
      return JsonReader.whole(bytes, read);
    } catch (fault) {
      if (!(fault instanceof JsonFault)) throw fault;
      throw unreadable(what, fault);
    }
  }

  #checkSize(length: number): void {
    if (this.#place !== "element") {
      if (length > MAX_OTHER_BYTES) {
        throw new ApiError("too_large", `${this.#key.slice(0, 100)}: the field is larger than 128 KiB.`);
      }
    } else if (length > MAX_ELEMENT_BYTES) throw requestTooLarge(this.#elements);
  }

  #invalid(what: string, at: number): ApiError {
    const where = this.#found && this.#elements > 0 ? ` after requests.${this.#elements - 1}` : "";
    return new ApiError(
      "invalid_request",
      `The request body is not valid JSON: ${what}${where} (position ${this.#before + at}).`,
    );
  }
}
