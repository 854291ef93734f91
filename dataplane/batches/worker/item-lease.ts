import type { BodyLease } from "../../inference/call.ts";
import { ApiError } from "../../lib/api-error.ts";
import type { ByteBudget, ByteLease } from "../../lib/byte-budget.ts";

/** Longest time that the answer of one item waits. Its request's time-out stands still meanwhile. */
const MOST_WAIT_MS = 10_000;

/** Cause of the error of an item that waited for room until it might not begin any more. */
export const NOT_BEGUN = { reserved: "room" } as const;

/**
 * The bytes of the body budget that one item holds: its body, if counted, the files that its run inserts, and its answer while it
 * comes in (rule 7.2).
 */
export class ItemLease implements BodyLease {
  readonly #bodies: Pick<ByteBudget, "whenRoom" | "lease">;
  readonly #organizationId: string;
  readonly #mayBegin: () => Promise<boolean>;
  #lease: ByteLease | null = null;
  /** Counts what is there whatever room there is. */
  readonly #counted: ByteLease;
  /** Whether its organization's share had no room for all that came last. */
  #isShort = false;
  /** The wait for room that has begun; null: none has. */
  #waiting: Promise<void> | null = null;
  #waitLeftMs = MOST_WAIT_MS;

  /** @param mayBegin called when the item has its room, for which it may have waited long. */
  constructor(
    bodies: Pick<ByteBudget, "whenRoom" | "lease">,
    organizationId: string,
    mayBegin: () => Promise<boolean>,
  ) {
    this.#bodies = bodies;
    this.#counted = bodies.lease(organizationId);
    this.#organizationId = organizationId;
    this.#mayBegin = mayBegin;
  }

  /**
   * Takes bytes, and waits for room if the item holds none yet. Later it must not wait, as others may wait for what it holds.
   * @throws ApiError 503 without room then: the item is run again; with the cause NOT_BEGUN where it may not begin any more.
   */
  async take(bytes: number): Promise<void> {
    if (this.#lease !== null) {
      this.#lease.take(bytes);
      return;
    }
    this.#lease = await this.#bodies.whenRoom(this.#organizationId, bytes);
    if (!(await this.#mayBegin()))
      throw new ApiError("unavailable", "The batch runs nothing more.", { cause: NOT_BEGUN });
  }

  count(bytes: number): void {
    this.#counted.count(bytes);
  }

  /**
   * Never refuses, as what came is charged and the item would end in error. Nor may the answers of an organization's items
   * take more of the budget than its share: live requests of others would be refused for them.
   */
  receive(bytes: number): number {
    const counted = this.#counted.countOfShare(bytes);
    this.#isShort = counted < bytes;
    return counted;
  }

  /** One answer of an organization at a time is read on beyond its share; the others wait, and so do their upstreams. */
  mayReadOn(): Promise<void> | null {
    if (this.#waiting !== null || !this.#isShort || this.#waitLeftMs <= 0) return this.#waiting;
    const waiting = this.#counted.whenShare(this.#waitLeftMs);
    if (waiting === null) return null;
    const began = performance.now();
    this.#waiting = waiting.then(() => {
      this.#waitLeftMs -= performance.now() - began;
      this.#waiting = null;
    });
    return this.#waiting;
  }

  giveBack(bytes: number): void {
    this.#counted.giveBack(bytes);
  }

  release(): void {
    this.#lease?.release();
    this.#counted.release();
  }
}
