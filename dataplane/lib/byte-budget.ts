/**
 * The bytes of requests' bodies that this process holds, counted in all and for each organization (rule 7.2). Whoever
 * has a quarter of them gets no more while more than half is in use, so that one organization never keeps the others
 * from theirs. Live requests are refused at once; batch items wait for room.
 */
import { ApiError } from "./api-error.ts";

/** Organizations that hold nothing are forgotten when so many are known. */
const MOST_KNOWN = 10_000;

/** Who had no room left: the organization, or the whole process. */
export type Exhausted = "organization" | "process";

/** Is told of every change, for metrics. */
export interface BudgetWatcher {
  used(bytes: number): void;
  refused(by: Exhausted): void;
}

/** What one organization holds. */
interface Share {
  bytes: number;
}

/** Bytes of one body. Ends with `release`, which may be called more than once. */
export interface ByteLease {
  readonly bytes: number;
  /** Counts so many more, which are there already or about to be. @throws ApiError 429 or 503 without room for them. */
  take(bytes: number): void;
  /** Counts exactly so many from now on. @throws ApiError as `take`, when they are more than before. */
  hold(bytes: number): void;
  /** Whether there would be room now for so many that were only announced. @throws ApiError as `take` */
  expect(bytes: number): void;
  /** Gives all of them back. */
  release(): void;
}

interface Patient {
  readonly organizationId: string;
  readonly bytes: number;
  readonly admitted: (lease: ByteLease) => void;
}

export class ByteBudget {
  readonly total: number;
  readonly #watcher: BudgetWatcher | undefined;
  #used = 0;
  /** Entries stay when they are empty: a Map whose entries come and go with each request leaves garbage (roster.ts). */
  readonly #shares = new Map<string, Share>();
  readonly #line: Patient[] = [];
  /** How many hold something that waited in the line. */
  #patient = 0;

  /** `total` in bytes. */
  constructor(total: number, watcher?: BudgetWatcher) {
    this.total = total;
    this.#watcher = watcher;
  }

  /** Bytes in use. */
  get used(): number {
    return this.#used;
  }

  /** A lease that holds nothing yet. */
  lease(organizationId: string): ByteLease {
    return new Lease(this, organizationId);
  }

  /**
   * For work that nobody waits for: resolves, in the order of asking, once at most half of the budget is in use with
   * it. Where no such work holds anything it gets its bytes at once, and so never stands still behind live requests.
   */
  whenRoom(organizationId: string, bytes: number): Promise<ByteLease> {
    return new Promise((admitted) => {
      this.#line.push({ organizationId, bytes, admitted });
      this.#admit();
    });
  }

  // What a lease asks of its budget.

  shareOf(organizationId: string): Share {
    const known = this.#shares.get(organizationId);
    if (known !== undefined) return known;
    if (this.#shares.size >= MOST_KNOWN)
      for (const [id, { bytes }] of this.#shares) if (bytes === 0) this.#shares.delete(id);
    const share = { bytes: 0 };
    this.#shares.set(organizationId, share);
    return share;
  }

  /** @throws ApiError unless a lease that holds `held` may have `more`. */
  check(share: Share, held: number, more: number): void {
    // One body always fits into an idle process.
    if (this.#used === held) return;
    if (this.#used + more > this.total) throw this.#refused("process");
    if (this.#used > this.total / 2 && share.bytes >= this.total / 4) throw this.#refused("organization");
  }

  change(share: Share, difference: number): void {
    share.bytes += difference;
    this.#used += difference;
    this.#watcher?.used(this.#used);
    if (difference < 0) this.#admit();
  }

  #refused(by: Exhausted): ApiError {
    this.#watcher?.refused(by);
    const options = { retryAfterSeconds: 1 };
    return by === "process"
      ? new ApiError("unavailable", "The service holds as many request bodies as it can; try again.", options)
      : new ApiError(
          "rate_limited",
          "Too many bytes of this organization's requests are under way.",
          options,
        );
  }

  #admit(): void {
    for (let [first] = this.#line; first !== undefined; [first] = this.#line) {
      if (this.#patient > 0 && this.#used + first.bytes > this.total / 2) return;
      this.#line.shift();
      this.#patient += 1;
      const share = this.shareOf(first.organizationId);
      this.change(share, first.bytes);
      first.admitted(new Lease(this, first.organizationId, first.bytes, () => (this.#patient -= 1)));
    }
  }
}

class Lease implements ByteLease {
  readonly #budget: ByteBudget;
  readonly #organizationId: string;
  readonly #onRelease: (() => void) | undefined;
  #bytes: number;

  constructor(budget: ByteBudget, organizationId: string, bytes = 0, onRelease?: () => void) {
    this.#budget = budget;
    this.#organizationId = organizationId;
    this.#bytes = bytes;
    this.#onRelease = onRelease;
  }

  get bytes(): number {
    return this.#bytes;
  }

  take(bytes: number): void {
    // Asked for anew each time: the budget forgets who holds nothing.
    const share = this.#budget.shareOf(this.#organizationId);
    this.#budget.check(share, this.#bytes, bytes);
    this.#bytes += bytes;
    this.#budget.change(share, bytes);
  }

  hold(bytes: number): void {
    if (bytes > this.#bytes) this.take(bytes - this.#bytes);
    else this.#giveBack(this.#bytes - bytes);
  }

  expect(bytes: number): void {
    this.#budget.check(this.#budget.shareOf(this.#organizationId), this.#bytes, bytes);
  }

  release(): void {
    if (this.#bytes === 0) return;
    this.#onRelease?.();
    this.#giveBack(this.#bytes);
  }

  #giveBack(bytes: number): void {
    if (bytes === 0) return;
    this.#bytes -= bytes;
    this.#budget.change(this.#budget.shareOf(this.#organizationId), -bytes);
  }
}
