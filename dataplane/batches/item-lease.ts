import type { BodyLease } from "../inference/call.ts";
import type { ByteBudget, ByteLease } from "../lib/byte-budget.ts";

/** The bytes that one item holds: its body where that is counted, and the files that its run puts into it (rule 7.2). */
export class ItemLease implements BodyLease {
  readonly #bodies: Pick<ByteBudget, "whenRoom">;
  readonly #organizationId: string;
  #lease: ByteLease | null = null;

  constructor(bodies: Pick<ByteBudget, "whenRoom">, organizationId: string) {
    this.#bodies = bodies;
    this.#organizationId = organizationId;
  }

  /**
   * Waits for room while the item holds nothing. Later it may not, as others may wait for what it holds.
   * @throws ApiError 503 without room then: the item is run again.
   */
  async take(bytes: number): Promise<void> {
    if (this.#lease === null) this.#lease = await this.#bodies.whenRoom(this.#organizationId, bytes);
    else this.#lease.take(bytes);
  }

  release(): void {
    this.#lease?.release();
  }
}
