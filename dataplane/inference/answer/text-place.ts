import { weightOfJson } from "../../dialects/output-estimate.ts";
import { JsonFault, JsonReader } from "../../lib/json-reader.ts";
import type { SseFrame } from "../../lib/sse.ts";

/** Keys of a Messages delta that hold the model's text; in Responses the delta itself is the text. */
const written = new Set(["text", "thinking", "partial_json"]);

/**
 * The place of the text in a delta: behind the same key, at the same distance from the data's beginning as in an earlier
 * event. A key with its quotes and the quote of its value cannot be part of a string, whose quotes are escaped. So nearly
 * all deltas of a stream are weighed without being parsed.
 */
export class TextPlace {
  /** The key, its colon, and the quote behind which the text begins. */
  readonly #key: Buffer;
  /** Offset of the text from the data's beginning. */
  readonly #offset: number;
  /** Length and two letters of the event's name: events of another name may hold something else. */
  readonly #name: number;

  private constructor(frame: SseFrame, key: Buffer, start: number) {
    this.#key = key;
    this.#offset = start - frame.dataStart;
    this.#name = shortName(frame);
  }

  /** Learns the place of an event's text; null: there is none, or weighing it there does not give `weight`. */
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

  /** Returns the weight of the delta's text (output-estimate.ts); -1 if the text is not at this place. */
  weigh(frame: SseFrame): number {
    const { bytes, dataStart, dataEnd, dataLines } = frame;
    const start = dataStart + this.#offset;
    const from = start - this.#key.length;
    if (start >= dataEnd || dataLines !== 1 || shortName(frame) !== this.#name) return -1;
    for (let at = start - 1; at >= from; at -= 1) if (bytes[at] !== this.#key[at - from]) return -1;
    return weightOfJson(bytes, start, dataEnd);
  }
}

/** The name's length and the letters behind `response.`, packed. */
const shortName = ({ bytes, nameStart, nameEnd }: SseFrame): number =>
  nameEnd - nameStart < 11
    ? 0
    : ((nameEnd - nameStart) << 16) |
      ((bytes[nameStart + 9] as number) << 8) |
      (bytes[nameStart + 10] as number);
