/** JSON of megabytes, written while others have their turns. Pure but for the turns. */
import { Slices } from "./slices.ts";

/** Text becomes bytes in pieces of about so many characters. */
const PIECE = 64 * 1024;

/** A list whose entries are made as they are written, anew each time, so that they are never there all at once. */
export class LazyList<Entry> implements Iterable<Entry> {
  readonly #make: () => Iterable<Entry>;

  constructor(make: () => Iterable<Entry>) {
    this.#make = make;
  }

  /** Of what each of these becomes. */
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

/**
 * As `JSON.stringify`, in UTF-8, piece by piece. Lists are written entry by entry, and objects that hold lists field by field; none
 * has a `toJSON` of another meaning.
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
  } else if (holdsLists(value)) {
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
