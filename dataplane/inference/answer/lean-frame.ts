/**
 * An event that another thread made lean (lean-event.ts), as a frame: taps and readers look at what is left of it, and what they make
 * of it by its places is made of the whole event. Pure.
 */
import { type WeighText, weightOf } from "../../dialects/output-estimate.ts";
import type { Span } from "../../lib/json-reader.ts";
import { frameName, type SseFrame } from "../../lib/sse.ts";
import type { Pieces } from "./long-delta.ts";

/** A lean event, as another thread tells it. */
export interface LeanData {
  /** The event's data without what nobody reads; of one that cannot be read, the beginning of an object. */
  readonly body: Buffer;
  /** In turn: where in `body` something was left out, and how many bytes. */
  readonly cuts: readonly number[];
  /** The whole event with its data in one line, where it came in several; else null. */
  readonly line: Buffer | null;
  /** Whether all of it could be read. */
  readonly isRead: boolean;
  /** Stands, with an index and `MARK_END`, in place of each long text of a relayed event. */
  readonly mark: string;
  /** Weights of the texts that were cut. */
  readonly weights: readonly number[];
  /** A converted delta with a long text, as the data of several; null: its one form is `body`. */
  readonly pieces: Pieces | null;
}

/** Stands in place of data of which nothing can be told. */
export const nothingTold: LeanData = {
  body: Buffer.from("{"),
  cuts: [],
  line: null,
  isRead: false,
  mark: "",
  weights: [],
  pieces: null,
};

/** Ends what stands in place of a text: its mark and its index. */
export const MARK_END = ";";

export const END_OF_EVENT = "\n\n";
const [BEFORE_NAME, BEFORE_DATA] = ["event: ", "data: "];

/** Writes what stands before the data of an event in one line. */
export const fieldsBefore = (frame: SseFrame): string => {
  const name = frameName(frame);
  return `${name === "" ? "" : `${BEFORE_NAME}${name}\n`}${BEFORE_DATA}`;
};

/** Where that data begins. */
export const lineStart = (frame: SseFrame): number => Buffer.byteLength(fieldsBefore(frame));

/**
 * A lean event as a frame, whose data is one line. What is made of it, by the places of the lean data, is made of the whole
 * event: `spanInWhole`, `inWholeData`.
 */
export class LeanFrame implements SseFrame {
  readonly whole: SseFrame;
  readonly bytes: Buffer;
  readonly start = 0;
  readonly end: number;
  readonly nameStart: number;
  readonly nameEnd: number;
  readonly dataStart: number;
  readonly dataEnd: number;
  readonly dataLines = 1;
  readonly closed: boolean;
  /** Whether all of it could be read. */
  readonly isRead: boolean;
  /** The data of the events that are read in its place, in order; null: it is read itself. */
  readonly pieces: Pieces | null;
  readonly #cuts: readonly number[];
  readonly #mark: string;
  readonly #weights: readonly number[];

  /** @param frame the event as it came; its bytes stay, the object itself may be used again. */
  constructor(frame: SseFrame, { body, cuts, line, isRead, mark, weights, pieces }: LeanData) {
    this.whole = line === null ? { ...frame } : lineFrame(frame, line);
    const before = Buffer.from(fieldsBefore(frame));
    this.bytes = Buffer.concat([before, body, Buffer.from(END_OF_EVENT)]);
    this.end = this.bytes.length;
    this.dataStart = before.length;
    this.dataEnd = before.length + body.length;
    ({ nameStart: this.nameStart, nameEnd: this.nameEnd } = namePlaces(before.length));
    this.closed = frame.closed;
    this.isRead = isRead;
    this.pieces = pieces;
    this.#cuts = cuts;
    this.#mark = mark;
    this.#weights = weights;
  }

  /** Whether texts were cut, so that their bytes here weigh nothing like they do (`weigh`). */
  get hasCutTexts(): boolean {
    return this.#weights.length > 0;
  }

  /** Weighs a text of this event: whole, where it was cut (output-estimate.ts). */
  weigh(text: string): number {
    if (!this.hasCutTexts) return weightOf(text);
    const [first = "", ...marked] = text.split(this.#mark);
    return marked.reduce((sum, part) => {
      const end = part.indexOf(MARK_END);
      return sum + (this.#weights[Number(part.slice(0, end))] ?? 0) + weightOf(part.slice(end + 1));
    }, weightOf(first));
  }

  /** The place in `whole.bytes` of one in the lean frame's bytes. */
  spanInWhole({ start, end }: Span): Span {
    const { dataStart } = this.whole;
    const data = this.inWholeData({ start: start - this.dataStart, end: end - this.dataStart });
    return { start: data.start + dataStart, end: data.end + dataStart };
  }

  /** The place in the whole event's data of one in the lean data. */
  inWholeData<Place extends Span>(place: Place): Place {
    return { ...place, start: this.#moved(place.start), end: this.#moved(place.end) };
  }

  #moved(at: number): number {
    let moved = at;
    for (let cut = 0; cut < this.#cuts.length && (this.#cuts[cut] as number) <= at; cut += 2)
      moved += this.#cuts[cut + 1] as number;
    return moved;
  }
}

/** Where the name stands in front of data that begins at `dataStart`. */
const namePlaces = (dataStart: number): Pick<SseFrame, "nameStart" | "nameEnd"> =>
  dataStart === BEFORE_DATA.length
    ? { nameStart: 0, nameEnd: 0 }
    : { nameStart: BEFORE_NAME.length, nameEnd: dataStart - BEFORE_DATA.length - 1 };

/** Returns the function that weighs the texts of an event. */
export const weigherOf = (frame: SseFrame): WeighText =>
  frame instanceof LeanFrame ? (text) => frame.weigh(text) : weightOf;

/** The event as it came. */
export const wholeFrame = (frame: SseFrame): SseFrame => (frame instanceof LeanFrame ? frame.whole : frame);

/** The frame of an event that was written anew in one line. */
function lineFrame(frame: SseFrame, line: Buffer): SseFrame {
  const dataStart = lineStart(frame);
  return {
    bytes: line,
    start: 0,
    end: line.length,
    ...namePlaces(dataStart),
    dataStart,
    dataEnd: line.length - END_OF_EVENT.length,
    dataLines: 1,
    closed: true,
  };
}
