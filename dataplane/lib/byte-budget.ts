/**
 * Counts the bytes that this process holds for request bodies, opened pages, whole answers, long events and kept texts of streams
 * as they come, and answers waiting to be taken or stored, in total and by organization (rule 7.2). While more than half of the
 * budget is in use, an organization that has a quarter of it gets no more, so that one organization cannot crowd out the others.
 * Without room, live requests are refused at once, their answers end, and pages are not opened; batch items wait.
 */
import { ApiError } from "./api-error.ts";

/** Number of known organizations from which on those that hold nothing are dropped. */
const MOST_KNOWN = 10_000;

/** Who had no room left: the organization, or the whole process. */
export type Exhausted = "organization" | "process";

/** Receives every change for metrics, and refusals that a request was answered with. */
export interface BudgetWatcher {
  used(bytes: number): void;
  refused(by: Exhausted): void;
}

/** What one organization holds. */
interface Share {
  bytes: number;
  /** The lease whose answer is read on though the share is used up; null: none is. */
  beyond: ByteLease | null;
  /** Leases that wait until there is room in the share, or until they may be read on beyond it, each with what ends its wait. */
  readonly line: Map<ByteLease, () => void>;
}

/** Bytes of one body or page. Ends with `release`, which may be called more than once. */
export interface ByteLease {
  /** Empty: of a caller who is not known. */
  readonly organizationId: string;
  readonly bytes: number;
  /** Adds bytes that are in memory or about to be. @throws ApiError 429 or 503 without room for them. */
  take(bytes: number): void;
  /** Adds bytes that are in memory already, even without room. */
  count(bytes: number): void;
  /** Adds bytes of an answer that came. @returns how many were added, which are to be given back. @throws ApiError as `take` */
  receive(bytes: number): number;
  /** Adds bytes that are in memory already, until the organization has a quarter of the budget. @returns how many were added */
  countOfShare(bytes: number): number;
  /**
   * Waits, `mostMs` at the most, until the organization has less than a quarter of the budget, or no other lease of it is read on
   * beyond that; a lease waits once at a time. @returns null: there is nothing to wait for.
   */
  whenShare(mostMs: number): Promise<void> | null;
  /** Sets the lease to exactly `bytes`. @throws ApiError as `take` when it grows. */
  hold(bytes: number): void;
  /** Checks that there is room for announced bytes (content-length) without taking them. @throws ApiError as `take` */
  expect(bytes: number): void;
  /** Returns some of the bytes to the budget. */
  giveBack(bytes: number): void;
  /** Returns all bytes to the budget. */
  release(): void;
}

/** Purpose of a lease: a live request, patient work (nobody waits for it), or a page that a model opens. */
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
  /** Number of leases of patient work that hold bytes. */
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

  /** A lease for a page: without room the tool call fails, not the request. */
  pageLease(organizationId: string): ByteLease {
    return new Lease(this, organizationId, "page");
  }

  /**
   * A lease for patient work (nobody waits for it). Resolves in the order of the calls, once at most half of the budget would
   * be in use with it; at once while no other patient work holds bytes, so that live requests never block it for ever.
   * The holder must not wait for more room while it has the lease: further bytes are taken or refused with 503.
   */
  whenRoom(organizationId: string, bytes: number): Promise<ByteLease> {
    return new Promise((admitted) => {
      this.#line.push({ organizationId, bytes, admitted });
      this.#admit();
    });
  }

  // Called by leases.

  shareOf(organizationId: string): Share {
    const known = this.#shares.get(organizationId);
    if (known !== undefined) return known;
    if (this.#shares.size >= MOST_KNOWN)
      for (const [id, { bytes, line }] of this.#shares)
        if (bytes === 0 && line.size === 0) this.#shares.delete(id);
    const share: Share = { bytes: 0, beyond: null, line: new Map() };
    this.#shares.set(organizationId, share);
    return share;
  }

  /** Whose share is used up when a lease of `held` bytes grows by `more`; null: there is room. */
  exhausted(share: Share, held: number, more: number): Exhausted | null {
    // A lease that is alone in the process always fits.
    if (this.#used === held) return null;
    if (this.#used + more > this.total) return "process";
    return this.#used > this.total / 2 && !this.hasRoomIn(share) ? "organization" : null;
  }

  /** Reports to the watcher that a request is refused. */
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
    if (difference >= 0) return;
    this.#admit();
    this.letOn(share);
  }

  /** Lets the first in a share's line go on, if there is room or nobody is read on beyond it. The next follows when that one comes again. */
  letOn(share: Share): void {
    if (share.line.size === 0) return;
    const hasRoom = this.hasRoomIn(share);
    if (!hasRoom && share.beyond !== null) return;
    for (const [lease, wake] of share.line) {
      if (!hasRoom) share.beyond = lease;
      return wake();
    }
  }

  hasRoomIn({ bytes }: Share): boolean {
    return bytes < this.total / 4;
  }

  /** Changes the number of leases of patient work that hold bytes. */
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
  new ApiError(
    "unavailable",
    "The service holds as many bytes of requests and answers as it can; try again.",
    {
      retryAfterSeconds: 1,
    },
  );

const noRoomOfOwn = (): ApiError =>
  new ApiError("rate_limited", "Too many bytes of this organization's requests and answers are under way.", {
    retryAfterSeconds: 1,
  });

class Lease implements ByteLease {
  readonly #budget: ByteBudget;
  readonly organizationId: string;
  readonly #kind: LeaseKind;
  #bytes = 0;

  constructor(budget: ByteBudget, organizationId: string, kind: LeaseKind) {
    this.#budget = budget;
    this.organizationId = organizationId;
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

  receive(bytes: number): number {
    this.take(bytes);
    return bytes;
  }

  countOfShare(bytes: number): number {
    const share = this.#share;
    const counted = Math.max(0, Math.min(bytes, this.#budget.total / 4 - share.bytes));
    this.#add(share, counted);
    this.#budget.letOn(share);
    return counted;
  }

  whenShare(mostMs: number): Promise<void> | null {
    const share = this.#share;
    if (this.#budget.hasRoomIn(share)) return null;
    share.beyond ??= this;
    if (share.beyond === this) return null;
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        share.line.delete(this);
        resolve();
      };
      const timer = setTimeout(wake, mostMs);
      share.line.set(this, wake);
    });
  }

  hold(bytes: number): void {
    if (bytes > this.#bytes) this.take(bytes - this.#bytes);
    else this.giveBack(this.#bytes - bytes);
  }

  expect(bytes: number): void {
    this.#judge(this.#share, bytes);
  }

  release(): void {
    const share = this.#share;
    share.line.get(this)?.();
    if (share.beyond === this) share.beyond = null;
    if (this.#bytes > 0) this.giveBack(this.#bytes);
    else this.#budget.letOn(share);
  }

  /** Looked up each time, because the budget drops the shares of organizations that hold nothing. */
  get #share(): Share {
    return this.#budget.shareOf(this.organizationId);
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

  giveBack(given: number): void {
    // What was released meanwhile is given back already.
    const bytes = Math.min(given, this.#bytes);
    if (bytes === 0) return;
    this.#bytes -= bytes;
    if (this.#kind === "patient" && this.#bytes === 0) this.#budget.patient(-1);
    this.#budget.change(this.#share, -bytes);
  }
}
