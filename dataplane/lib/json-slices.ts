/** Writes JSON of megabytes in slices, so that other requests are served in between. */
import { Slices } from "./slices.ts";

/** Approximate number of characters that are encoded at once. */
const PIECE = 64 * 1024;
/** Up to so many ready bytes are copied. */
const COPIED = 4 * 1024;

/** A list whose entries are made while it is iterated, each time anew, so that they are never in memory all at once. */
export class LazyList<Entry> implements Iterable<Entry> {
  readonly #make: () => Iterable<Entry>;

  constructor(make: () => Iterable<Entry>) {
    this.#make = make;
  }

  /** The concatenation of `each(one)` over a list. */
  static of<From, Entry>(list: Iterable<From>, each: (one: From) => readonly Entry[]): LazyList<Entry> {
    return new LazyList(function* () {
      for (const one of list) yield* each(one);
    });
  }

  [Symbol.iterator](): Iterator<Entry> {
    return this.#make()[Symbol.iterator]();
  }

  toJSON(): readonly Entry[] {
    return [...this];
  }
}

/** A value's JSON in UTF-8, which `jsonInSlices` writes as it is, without a copy. */
export class JsonBytes {
  readonly parts: readonly Buffer[];

  constructor(parts: readonly Buffer[]) {
    this.parts = parts;
  }
}

/**
 * `JSON.stringify` as UTF-8 in pieces. Lists are written entry by entry, and objects that hold lists field by field; these
 * must not define `toJSON`.
 */
export async function* jsonInSlices(value: object, sliceMs: number): AsyncGenerator<Buffer> {
  const slices = new Slices(sliceMs);
  let text = "";
  for (const word of wordsOf(value)) {
    if (typeof word === "string") text += word;
    if (typeof word === "string" && text.length < PIECE) continue;
    if (text !== "") yield Buffer.from(text);
    text = "";
    if (typeof word !== "string") yield word;
    if (slices.usedUp) await slices.pause();
  }
  yield Buffer.from(text);
}

/**
 * The entries that `show` makes of a list, as JSON with commas between them: as one entry of a list they are entries of that.
 * Each is written at once.
 */
export async function entriesInSlices<One>(
  list: Iterable<One>,
  show: (one: One) => object,
  sliceMs: number,
): Promise<JsonBytes> {
  const slices = new Slices(sliceMs);
  const parts: Buffer[] = [];
  let text = "";
  let comma = "";
  for (const one of list) {
    text += comma + JSON.stringify(show(one));
    comma = ",";
    if (text.length >= PIECE) {
      parts.push(Buffer.from(text));
      text = "";
    }
    if (slices.usedUp) await slices.pause();
  }
  return new JsonBytes([...parts, Buffer.from(text)]);
}

function* wordsOf(value: unknown): Generator<string | Buffer> {
  if (isList(value)) {
    let before = "[";
    for (const entry of value) {
      yield before;
      yield* wordsOf(entry);
      before = ",";
    }
    yield before === "[" ? "[]" : "]";
  } else if (value instanceof JsonBytes) yield* wordsIn(value);
  else if (holdsLists(value)) {
    let before = "{";
    for (const [name, field] of Object.entries(value)) {
      if (field === undefined) continue;
      yield `${before}${JSON.stringify(name)}:`;
      yield* wordsOf(field);
      before = ",";
    }
    yield "}";
  } else yield JSON.stringify(value) ?? "null";
}

/** Few bytes become text, so that they need no piece of their own. */
function* wordsIn({ parts }: JsonBytes): Generator<string | Buffer> {
  for (const part of parts)
    if (part.length < COPIED) yield part.toString();
    else for (let at = 0; at < part.length; at += PIECE) yield part.subarray(at, at + PIECE);
}

const holdsLists = (value: unknown): value is object =>
  typeof value === "object" &&
  value !== null &&
  Object.values(value).some((field) => isList(field) || field instanceof JsonBytes);

const isList = (value: unknown): value is Iterable<unknown> =>
  Array.isArray(value) || value instanceof LazyList;
