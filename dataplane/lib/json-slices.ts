/** JSON of megabytes, written while others have their turns. Pure but for the turns. */
import { Slices } from "./slices.ts";

/** Text becomes bytes in pieces of about so many characters. */
const PIECE = 64 * 1024;

/** As `JSON.stringify`, in UTF-8. Lists are written entry by entry, and objects that hold lists field by field; none has a `toJSON`. */
export async function jsonInSlices(value: object, sliceMs: number): Promise<Buffer> {
  const slices = new Slices(sliceMs);
  const bytes: Buffer[] = [];
  let text = "";
  for (const word of wordsOf(value)) {
    text += word;
    if (text.length < PIECE) continue;
    bytes.push(Buffer.from(text));
    text = "";
    if (slices.usedUp) await slices.pause();
  }
  bytes.push(Buffer.from(text));
  return Buffer.concat(bytes);
}

function* wordsOf(value: unknown): Generator<string> {
  if (Array.isArray(value)) {
    yield "[";
    for (const [place, entry] of value.entries()) {
      if (place > 0) yield ",";
      yield* wordsOf(entry);
    }
    yield "]";
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
  typeof value === "object" && value !== null && Object.values(value).some(Array.isArray);
