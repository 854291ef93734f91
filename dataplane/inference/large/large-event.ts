/** An event of a stream that holds very much, which another thread makes lean (`lean-event.ts`). */
import { frameData, frameName, type ReadEvent, type SseFrame } from "../../lib/sse.ts";
import { WorkNotDone, type WorkerPool } from "../../lib/worker-pool.ts";
import type { BodyLease } from "../call.ts";
import { isHeavy, type FramePlaces, type LeanReading } from "../answer/lean-event.ts";
import { LeanFrame, nothingTold, type LeanData } from "../answer/lean-frame.ts";
import type { BodyPlace } from "../request/request-body.ts";
import { bufferOf } from "./large-body.ts";
import { errorOf } from "./told-error.ts";
import type { JobMessage, JobResult } from "./worker.ts";

/** Never aborts: what is charged is read to its end. */
const { signal: never } = new AbortController();

/** Where the events of one stream are made lean. */
interface LeanPlace {
  readonly pool: WorkerPool;
  readonly organizationId: string;
  /** Counts an event's bytes meanwhile. */
  readonly lease: BodyLease;
  readonly reading: LeanReading;
}

/** The events of one stream that are made lean, one at a time: what follows waits. */
export class LeanEvents {
  readonly #place: LeanPlace | null;
  /** The event that another thread has ("asked"), or has made lean; null: there is none. */
  #next: LeanFrame | "asked" | null = null;
  /** Of the events that are made of it, those that were read, and where the last of these ended. */
  #eventsRead = 0;
  #readTo = 0;

  constructor({ pool, organizationId }: BodyPlace, lease: BodyLease, reading: LeanReading) {
    this.#place = pool === null ? null : { pool, organizationId, lease, reading };
  }

  /** Whether an event is not yet taken. */
  get hasUnread(): boolean {
    return this.#next !== null;
  }

  /**
   * Hands an event over if it holds too much to be read here, and makes its stream wait; the frame object may be used
   * again meanwhile. @returns whether it did.
   */
  setsAside(frame: SseFrame, stream: { waitFor(work: Promise<void>): void }): boolean {
    if (this.#place === null || !isHeavy(frame)) return false;
    this.#next = "asked";
    const kept = { ...frame };
    stream.waitFor(
      leanElsewhere(this.#place, kept).then((lean) => {
        this.#next = new LeanFrame(kept, lean);
      }),
    );
    return true;
  }

  /** Bytes of memory that the events take that are made of one. */
  get heldBytes(): number {
    const next = this.#next;
    return next === null || next === "asked" ? 0 : (next.pieces?.bytes.length ?? 0);
  }

  /** Returns, one after the other, the events that are read in place of the one that was made lean; null: there is none. */
  nextEvent(): ReadEvent | null {
    const lean = this.#next;
    if (lean === "asked" || lean === null) return null;
    const { ends, bytes } = lean.pieces ?? { ends: [lean.dataEnd - lean.dataStart], bytes: frameData(lean) };
    const data = bytes.toString("utf8", this.#readTo, ends[this.#eventsRead]);
    this.#readTo = ends[this.#eventsRead] ?? 0;
    this.#eventsRead += 1;
    if (this.#eventsRead === ends.length) {
      this.#next = null;
      this.#eventsRead = this.#readTo = 0;
    }
    return { event: frameName(lean), data };
  }

  /** Returns the event that was made lean, once. */
  take(): LeanFrame | null {
    const next = this.#next;
    if (next === "asked" || next === null) return null;
    this.#next = null;
    return next;
  }
}

/** An event that takes its thread down cannot be read. */
async function leanElsewhere(
  { pool, organizationId, lease, reading }: LeanPlace,
  frame: SseFrame,
): Promise<LeanData> {
  // It stands in memory here and there.
  const length = frame.end - frame.start;
  const message = () => {
    // Other events may stand in the same memory: it stays here.
    const body = new Uint8Array(frame.bytes.subarray(frame.start, frame.end)).buffer;
    const told = { places: placesOf(frame), reading };
    const sent: JobMessage = { name: "leanEvent", told, organizationId, body };
    return { message: sent, transfer: [body] };
  };
  lease.count(2 * length);
  try {
    const { answer, error } = (await pool.run(organizationId, message, never, true)) as JobResult;
    if (error !== null) throw errorOf(error);
    const { body, line, pieces, ...lean } = answer as LeanData;
    return {
      ...lean,
      body: bufferOf(body),
      line: line === null ? null : bufferOf(line),
      pieces: pieces === null ? null : { ...pieces, bytes: bufferOf(pieces.bytes) },
    };
  } catch (error) {
    if (error instanceof WorkNotDone) return nothingTold;
    throw error;
  } finally {
    lease.giveBack(2 * length);
  }
}

/** The places of a frame whose bytes begin with it. */
function placesOf({ bytes: _bytes, start: by, ...frame }: SseFrame): FramePlaces {
  const hasName = frame.nameEnd > frame.nameStart;
  return {
    ...frame,
    start: 0,
    end: frame.end - by,
    nameStart: hasName ? frame.nameStart - by : 0,
    nameEnd: hasName ? frame.nameEnd - by : 0,
    dataStart: frame.dataStart - by,
    dataEnd: frame.dataEnd - by,
  };
}
