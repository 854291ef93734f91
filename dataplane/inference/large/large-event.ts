/** An event of a stream with very many values, which another thread makes lean (`lean-event.ts`). */
import type { SseFrame } from "../../lib/sse.ts";
import { WorkNotDone, type WorkerPool } from "../../lib/worker-pool.ts";
import type { BodyLease } from "../call.ts";
import { holdsMany, LeanFrame, nothingTold, type FramePlaces, type LeanData } from "../answer/lean-event.ts";
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
}

/** The events of one stream that are made lean, one at a time: what follows waits. */
export class LeanEvents {
  readonly #place: LeanPlace | null;
  /** The event that another thread has ("asked"), or has made lean; null: there is none. */
  #next: LeanFrame | "asked" | null = null;

  constructor({ pool, organizationId }: BodyPlace, lease: BodyLease) {
    this.#place = pool === null ? null : { pool, organizationId, lease };
  }

  /** Whether an event is not yet taken. */
  get hasUnread(): boolean {
    return this.#next !== null;
  }

  /**
   * Hands an event over if it holds too many values to be read here, and makes its stream wait; the frame object may be used
   * again meanwhile. @returns whether it did.
   */
  setsAside(frame: SseFrame, stream: { waitFor(work: Promise<void>): void }): boolean {
    if (this.#place === null || !holdsMany(frame)) return false;
    this.#next = "asked";
    const kept = { ...frame };
    stream.waitFor(
      leanElsewhere(this.#place, kept).then((lean) => {
        this.#next = new LeanFrame(kept, lean);
      }),
    );
    return true;
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
async function leanElsewhere({ pool, organizationId, lease }: LeanPlace, frame: SseFrame): Promise<LeanData> {
  // It stands in memory here and there.
  const length = frame.end - frame.start;
  const message = () => {
    // Other events may stand in the same memory: it stays here.
    const body = new Uint8Array(frame.bytes.subarray(frame.start, frame.end)).buffer;
    const sent: JobMessage = { name: "leanEvent", told: placesOf(frame), organizationId, body };
    return { message: sent, transfer: [body] };
  };
  lease.count(2 * length);
  try {
    const { answer, error } = (await pool.run(organizationId, message, never, true)) as JobResult;
    if (error !== null) throw errorOf(error);
    const { body, cuts, line } = answer as LeanData;
    return { body: bufferOf(body), cuts, line: line === null ? null : bufferOf(line) };
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
