/** Serials whose files are not all there yet: the loader waits for them silently, and reports it when that takes too long. */
import type { Slot } from "./schema.ts";

/** Wait without a report. The kubelet adds the rest within a minute and a half at worst, at once when the operator pokes the pod. */
const PATIENCE_MS = 60_000;

/** A published snapshot that cannot be served. */
export interface Rejection {
  readonly serial: number | null;
  readonly error: string;
}

interface Wait {
  /** Text of the index: another one begins a new wait. */
  readonly text: string;
  readonly serial: number;
  /** Monotonic milliseconds. */
  readonly since: number;
  lacks: string;
  isTold: boolean;
}

export class PendingSerials {
  readonly #waits = new Map<Slot, Wait>();
  readonly #patienceMs: number;

  constructor(patienceMs = PATIENCE_MS) {
    this.#patienceMs = patienceMs;
  }

  /** Notes that a slot is not complete; `lacks` says what is missing. @returns what to report, once, when that lasts too long. */
  note(slot: Slot, text: string, serial: number, lacks: string): Rejection | null {
    const known = this.#waits.get(slot);
    const wait =
      known?.text === text ? known : { text, serial, since: performance.now(), lacks, isTold: false };
    wait.lacks = lacks;
    this.#waits.set(slot, wait);
    if (wait.isTold || !this.#isLong(wait)) return null;
    wait.isTold = true;
    return rejectionOf(wait);
  }

  /** Ends the wait for a slot: it is complete, empty, or known to be bad. */
  end(slot: Slot): void {
    this.#waits.delete(slot);
  }

  /** Serials that are waited for, and have been for too long. */
  get overdue(): Rejection[] {
    return [...this.#waits.values()].filter((wait) => this.#isLong(wait)).map(rejectionOf);
  }

  #isLong(wait: Wait): boolean {
    return performance.now() - wait.since >= this.#patienceMs;
  }
}

const rejectionOf = ({ serial, lacks }: Wait): Rejection => ({
  serial,
  error: `not complete: ${lacks}`,
});
