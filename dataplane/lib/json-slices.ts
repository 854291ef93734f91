/** Writes JSON of megabytes in slices, so that other requests are served in between. */
import { Slices } from "./slices.ts";

/** Approximate number of characters that are encoded at once. */
const PIECE = 64 * 1024;

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

/** A JSON text, which `jsonInSlices` writes as it is. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
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
    text += word;
    if (text.length < PIECE) continue;
    yield Buffer.from(text);
    text = "";
    if (slices.usedUp) await slices.pause();
  }
  yield Buffer.from(text);
}

function* wordsOf(value: unknown): Generator<string> {
  if (isList(value)) {
    let before = "[";
    for (const entry of value) {
      yield before;
      yield* wordsOf(entry);
      before = ",";
    }
    yield before === "[" ? "[]" : "]";
  } else if (value instanceof JsonText) yield value.text;
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

const holdsLists = (value: unknown): value is object =>
  typeof value === "object" && value !== null && Object.values(value).some(isList);

const isList = (value: unknown): value is Iterable<unknown> =>
  Array.isArray(value) || value instanceof LazyList;
