import { weightOfJson } from "../../dialects/output-estimate.ts";
import { JsonFault, JsonReader } from "../../lib/json-reader.ts";
import type { SseFrame } from "../../lib/sse.ts";

/** What a model writes stands under these keys of a Messages delta; in Responses the delta is a string. */
const written = new Set(["text", "thinking", "partial_json"]);

/**
 * Where the text of a delta stands: behind the same key, as far from the event's beginning as in the event before. A
 * key with its quotes and the quote of its value cannot stand inside of a string, whose quotes are escaped: so nearly
 * all deltas of a stream are weighed without being read.
 */
export class TextPlace {
  /** The key, its colon, and the quote behind which the text begins. */
  readonly #key: Buffer;
  /** Of the text, from the data's beginning. */
  readonly #offset: number;
  /** Length and first letters of the event's name: events of another name may be about something else. */
  readonly #name: number;

  private constructor(frame: SseFrame, key: Buffer, start: number) {
    this.#key = key;
    this.#offset = start - frame.dataStart;
    this.#name = shortName(frame);
  }

  /** null: the event holds no such text, or its place alone does not tell which text was weighed. */
  static of(frame: SseFrame, weight: number): TextPlace | null {
    const { bytes, dataStart, dataEnd } = frame;
    let place: TextPlace | null = null;
    const reader = new JsonReader(bytes.subarray(0, dataEnd));
    reader.position = dataStart;
    const found = (key: string) => {
      const start = reader.position + 1;
      for (const colon of [":", ": "]) {
        const before = Buffer.from(`"${key}"${colon}"`);
        const from = start - before.length;
        if (from >= dataStart && before.equals(bytes.subarray(from, start)))
          place = new TextPlace(frame, before, start);
      }
    };
    try {
      reader.object((key) => {
        if (key !== "delta") return;
        if (reader.kind() === "string") return found(key);
        if (reader.kind() !== "object") return;
        reader.object((name) => {
          if (written.has(name) && reader.kind() === "string") found(name);
        });
      });
    } catch (fault) {
      if (!(fault instanceof JsonFault)) throw fault;
      return null;
    }
    const known = place as TextPlace | null;
    return known !== null && known.weigh(frame) === weight ? known : null;
  }

  /** The weight of the delta's text (output-estimate.ts); -1 where it stands elsewhere. */
  weigh(frame: SseFrame): number {
    const { bytes, dataStart, dataEnd, dataLines } = frame;
    const start = dataStart + this.#offset;
    const from = start - this.#key.length;
    if (start >= dataEnd || dataLines !== 1 || shortName(frame) !== this.#name) return -1;
    for (let at = start - 1; at >= from; at -= 1) if (bytes[at] !== this.#key[at - from]) return -1;
    return weightOfJson(bytes, start, dataEnd);
  }
}

/** `response.` stands before the letters that tell events apart. */
const shortName = ({ bytes, nameStart, nameEnd }: SseFrame): number =>
  nameEnd - nameStart < 11
    ? 0
    : ((nameEnd - nameStart) << 16) |
      ((bytes[nameStart + 9] as number) << 8) |
      (bytes[nameStart + 10] as number);
