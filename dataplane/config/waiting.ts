/** Half-arrived serials are waited for without a word; one that stays half-arrived is told. */
import type { Bank } from "./schema.ts";

/** The kubelet brings the rest within a minute and a half at worst, and at once when the operator pokes the pod. */
const PATIENCE_MS = 60_000;

/** A published snapshot that cannot be served. */
export interface Rejection {
  readonly serial: number | null;
  readonly error: string;
}

interface Wait {
  /** Of the index: another one begins a new wait. */
  readonly text: string;
  readonly serial: number;
  /** Monotonic milliseconds. */
  readonly since: number;
  lacks: string;
  isTold: boolean;
}

export class Waiting {
  readonly #waits = new Map<Bank, Wait>();
  readonly #patienceMs: number;

  constructor(patienceMs = PATIENCE_MS) {
    this.#patienceMs = patienceMs;
  }

  /** A bank is not complete; `lacks` says what is missing. @returns what to say, once, when it lasts too long. */
  note(bank: Bank, text: string, serial: number, lacks: string): Rejection | null {
    const known = this.#waits.get(bank);
    const wait =
      known?.text === text ? known : { text, serial, since: performance.now(), lacks, isTold: false };
    wait.lacks = lacks;
    this.#waits.set(bank, wait);
    if (wait.isTold || !this.#isLong(wait)) return null;
    wait.isTold = true;
    return rejectionOf(wait);
  }

  /** The bank is complete, empty, or known to be bad. */
  end(bank: Bank): void {
    this.#waits.delete(bank);
  }

  /** What has been waited for too long, and is waited for still. */
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
