/**
 * The bytes of requests' bodies, of the pages that models open and of answers that wait to be stored, as this process holds them, counted in all and for each
 * organization (rule 7.2). Whoever has a quarter of them gets no more while more than half is in use, so that one organization
 * never keeps the others from theirs. Live requests are refused at once, and pages are not opened; batch items wait for room.
 */
import { ApiError } from "./api-error.ts";

/** Organizations that hold nothing are forgotten when so many are known. */
const MOST_KNOWN = 10_000;

/** Who had no room left: the organization, or the whole process. */
export type Exhausted = "organization" | "process";

/** Is told of every change, for metrics; of refusals only where a request gets them. */
export interface BudgetWatcher {
  used(bytes: number): void;
  refused(by: Exhausted): void;
}

/** What one organization holds. */
interface Share {
  bytes: number;
}

/** Bytes of one body or page. Ends with `release`, which may be called more than once. */
export interface ByteLease {
  readonly bytes: number;
  /** Counts so many more, which are there already or about to be. @throws ApiError 429 or 503 without room for them. */
  take(bytes: number): void;
  /** Counts so many more that are there already, whatever room there is. */
  count(bytes: number): void;
  /** Counts exactly so many from now on. @throws ApiError as `take`, when they are more than before. */
  hold(bytes: number): void;
  /** Whether there would be room now for so many that were only announced. @throws ApiError as `take` */
  expect(bytes: number): void;
  /** Gives all of them back. */
  release(): void;
}

/** What a lease is for: a request that somebody waits for, work that nobody waits for, or a page that a model opens. */
type LeaseKind = "live" | "patient" | "page";

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
  /** Leases of patient work, which nobody waits for: those that hold something. */
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
    return new Lease(this, organizationId, "live");
  }

  /** The same for a page: without room its tool fails, not the request. */
  pageLease(organizationId: string): ByteLease {
    return new Lease(this, organizationId, "page");
  }

  /**
   * For patient work, which nobody waits for: resolves, in the order of asking, once at most half of the budget is in use with
   * it. Where no such work holds anything it gets its bytes at once, and so never stands still behind live requests.
   * Who has its lease must not wait for more: what it takes then is judged the same, and refused with 503.
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

  /** Who has no room for `more` of a lease that holds `held`; null: there is room. */
  exhausted(share: Share, held: number, more: number): Exhausted | null {
    // One body always fits into an idle process.
    if (this.#used === held) return null;
    if (this.#used + more > this.total) return "process";
    return this.#used > this.total / 2 && share.bytes >= this.total / 4 ? "organization" : null;
  }

  /** A request is refused for it. */
  tellRefused(by: Exhausted): void {
    this.#watcher?.refused(by);
  }

  /** Whether patient work that holds `held` may have `more` now. */
  hasSpareRoom(held: number, more: number): boolean {
    const others = this.#patient - (held > 0 ? 1 : 0);
    return others === 0 || this.#used + more <= this.total / 2;
  }

  change(share: Share, difference: number): void {
    share.bytes += difference;
    this.#used += difference;
    this.#watcher?.used(this.#used);
    if (difference < 0) this.#admit();
  }

  /** So many leases more of patient work hold something. */
  patient(difference: 1 | -1): void {
    this.#patient += difference;
  }

  #admit(): void {
    for (let [first] = this.#line; first !== undefined; [first] = this.#line) {
      if (!this.hasSpareRoom(0, first.bytes)) return;
      this.#line.shift();
      const lease = new Lease(this, first.organizationId, "patient");
      lease.count(first.bytes);
      first.admitted(lease);
    }
  }
}

const noRoom = (): ApiError =>
  new ApiError("unavailable", "The service holds as many request bodies as it can; try again.", {
    retryAfterSeconds: 1,
  });

const noRoomOfOwn = (): ApiError =>
  new ApiError("rate_limited", "Too many bytes of this organization's requests are under way.", {
    retryAfterSeconds: 1,
  });

class Lease implements ByteLease {
  readonly #budget: ByteBudget;
  readonly #organizationId: string;
  readonly #kind: LeaseKind;
  #bytes = 0;

  constructor(budget: ByteBudget, organizationId: string, kind: LeaseKind) {
    this.#budget = budget;
    this.#organizationId = organizationId;
    this.#kind = kind;
  }

  get bytes(): number {
    return this.#bytes;
  }

  take(bytes: number): void {
    const share = this.#share;
    this.#judge(share, bytes);
    this.#add(share, bytes);
  }

  count(bytes: number): void {
    this.#add(this.#share, bytes);
  }

  hold(bytes: number): void {
    if (bytes > this.#bytes) this.take(bytes - this.#bytes);
    else this.#giveBack(this.#bytes - bytes);
  }

  expect(bytes: number): void {
    this.#judge(this.#share, bytes);
  }

  release(): void {
    this.#giveBack(this.#bytes);
  }

  /** Asked for anew each time: the budget forgets who holds nothing. */
  get #share(): Share {
    return this.#budget.shareOf(this.#organizationId);
  }

  #judge(share: Share, bytes: number): void {
    if (this.#kind === "patient") {
      if (!this.#budget.hasSpareRoom(this.#bytes, bytes)) throw noRoom();
      return;
    }
    const by = this.#budget.exhausted(share, this.#bytes, bytes);
    if (by === null) return;
    if (this.#kind === "live") this.#budget.tellRefused(by);
    throw by === "process" ? noRoom() : noRoomOfOwn();
  }

  #add(share: Share, bytes: number): void {
    if (bytes === 0) return;
    if (this.#kind === "patient" && this.#bytes === 0) this.#budget.patient(1);
    this.#bytes += bytes;
    this.#budget.change(share, bytes);
  }

  #giveBack(bytes: number): void {
    if (bytes === 0) return;
    this.#bytes -= bytes;
    if (this.#kind === "patient" && this.#bytes === 0) this.#budget.patient(-1);
    this.#budget.change(this.#share, -bytes);
  }
}
