/**
 * Keeps batches within their organization's tool calls a minute, so that no answer is spent on `too_many_requests` (rule 4.5).
 * A call waits for room. Meanwhile its item keeps its place in the worker, and its model calls so far are paid; so only few
 * items begin, and fewer where calls wait long. An item that may not begin has cost nothing and is run again later, each
 * at a time of its own.
 */
import { setTimeout as timerSleep } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { ApiError } from "../../lib/api-error.ts";
import { steadyClock, type Clock } from "../../lib/clock.ts";
import type { AdmitToolCall, ToolCallLimits } from "../../tools/call-limit.ts";
import { Pace } from "./pace.ts";

const MINUTE_MS = 60_000;
/** The part of a minute's tool calls that batches may use; a fifth is left to live requests. */
const SHARE = 0.8;
const PAUSE_MS = 500;
/** A call that waits for this long shows that too many items run. */
const LONG_MS = 30_000;
/** How long after a call had to wait the limit of items does not grow. */
const REST_MS = MINUTE_MS;
/**
 * When no call was admitted here for this long, as live requests take them all, a waiting one gets `too_many_requests`
 * after all, and no item begins for as long again.
 */
const STUCK_MS = 5 * MINUTE_MS;
/** The longest that a call waits, however many are before it: a route's request time-out is ten minutes (rule 4.5). */
const LONGEST_MS = 10 * MINUTE_MS;
/** At first as many items run as could make all their calls within a minute; where none waits, up to this many times as many. */
const GROWTH = 3;
/** The longest wait of an item that may not begin until it is tried again. */
const LOOK_MS = 5 * MINUTE_MS;
const MOST_REMEMBERED = 10_000;

/** Cause of the error of an item that may not begin. */
export const TOOLS_IN_USE = { reserved: "tool calls" } as const;

interface ToolRoomOptions {
  /** The organization's limit, which live requests share. */
  readonly admit: AdmitToolCall;
  /** Used for ages alone. */
  readonly clock?: Clock;
  /** Waits between two checks for room. */
  readonly sleep?: (ms: number) => Promise<unknown>;
}

/** An organization's items that may call tools under one limit, and their calls. */
interface Items {
  running: number;
  readonly pace: Pace;
  /** Resolves when the newest call has ended its wait; each begins to look for room after the one before it. */
  lastCall: Promise<unknown>;
  /** By `#clock`: when a call last found no room, and when one was last admitted. */
  waitedAt: number;
  admittedAt: number;
  /** When the item that was refused last is to come again. */
  nextLookAt: number;
}

export class ToolRoom {
  readonly #admit: AdmitToolCall;
  readonly #clock: Clock;
  readonly #sleep: (ms: number) => Promise<unknown>;
  /** By organization and limit, as routes may differ in it. */
  readonly #items = new LRUCache<string, Items>({ max: MOST_REMEMBERED });

  constructor({ admit, clock = steadyClock, sleep = timerSleep }: ToolRoomOptions) {
    this.#admit = admit;
    this.#clock = clock;
    this.#sleep = sleep;
  }

  /**
   * The tool-call limit of batch items: where a live call would fail, one of theirs waits until the last minute has room.
   * Calls are admitted in the order in which they came.
   * @throws the limit's error if it failed, as the store is away, when the call gave up.
   */
  readonly admit: AdmitToolCall = async (organizationId, limit) => {
    // `begin` made the entry; if it is missing, it was evicted among very many.
    const items = this.#itemsOf(organizationId, { callsPerMinute: limit, parallelCalls: limit });
    const began = this.#clock.now();
    const admitted = items.lastCall.then(() => this.#whenRoom(organizationId, limit, items, began));
    items.lastCall = admitted.catch(() => undefined);
    return admitted;
  };

  /**
   * Takes a place for an item that may call tools, before its first model call.
   * @returns the function that ends it and takes whether it succeeded.
   * @throws ApiError `rate_limited` with the cause TOOLS_IN_USE: as many items run here as their calls have room for.
   */
  begin(organizationId: string, limits: ToolCallLimits): (isWell: boolean) => void {
    const items = this.#itemsOf(organizationId, limits);
    const { pace } = items;
    const now = this.#clock.now();
    const isWaiting = now - items.waitedAt <= 2 * PAUSE_MS;
    if (isWaiting || now < pace.blockedUntil || items.running >= pace.limit)
      throw inUse(nextLook(items, limits, now) - now);
    items.running += 1;
    const isFull = items.running >= pace.limit;
    return (isWell) => {
      items.running -= 1;
      if (isWell && isFull && this.#clock.now() - items.waitedAt > REST_MS) pace.succeeded();
    };
  }

  #itemsOf(organizationId: string, limits: ToolCallLimits): Items {
    const key = `${organizationId} ${limits.callsPerMinute}`;
    const items = this.#items.get(key) ?? newItems(limits);
    this.#items.set(key, items);
    return items;
  }

  /** Waits until the call is admitted or gives up. A store that is away counts as no room. */
  async #whenRoom(organizationId: string, limit: number, items: Items, began: number): Promise<boolean> {
    // After a wait, one call of each pod at a time, or the pod that looks first takes all that has become free.
    if (this.#clock.now() - items.waitedAt <= PAUSE_MS) await this.#sleep(PAUSE_MS);
    for (let isLong = false; ;) {
      const { isAdmitted, fault } = await this.#admit(organizationId, shareOf(limit)).then(
        (answer) => ({ isAdmitted: answer, fault: null }),
        (error: unknown) => ({ isAdmitted: false, fault: error }),
      );
      const now = this.#clock.now();
      if (isAdmitted) {
        items.admittedAt = now;
        return true;
      }
      items.waitedAt = now;
      if (now - Math.max(began, items.admittedAt) >= STUCK_MS || now - began >= LONGEST_MS) {
        items.pace.refused(now, STUCK_MS, items.running);
        if (fault !== null) throw fault;
        return false;
      }
      if (now - began >= LONG_MS && !isLong) {
        isLong = true;
        items.pace.refused(now, LONG_MS, items.running);
      }
      await this.#sleep(PAUSE_MS);
    }
  }
}

function newItems({ callsPerMinute, parallelCalls }: ToolCallLimits): Items {
  // Even if each of the first items makes all its calls at once, these have room within one minute for each pod.
  const first = Math.max(1, Math.floor(shareOf(callsPerMinute) / parallelCalls));
  return {
    running: 0,
    pace: new Pace(GROWTH * first, first),
    lastCall: Promise.resolve(),
    waitedAt: Number.NEGATIVE_INFINITY,
    admittedAt: Number.NEGATIVE_INFINITY,
    nextLookAt: Number.NEGATIVE_INFINITY,
  };
}

/** Spreads the next tries of refused items by the rate of calls: all at once they would only be refused again. */
function nextLook(items: Items, { callsPerMinute }: ToolCallLimits, now: number): number {
  const soonest = Math.max(now + 1_000, items.pace.blockedUntil);
  const inTurn = items.nextLookAt + MINUTE_MS / shareOf(callsPerMinute);
  items.nextLookAt = Math.min(Math.max(soonest, inTurn), now + LOOK_MS);
  return items.nextLookAt;
}

const shareOf = (callsPerMinute: number): number => Math.max(1, Math.floor(callsPerMinute * SHARE));

const inUse = (waitMs: number): ApiError =>
  new ApiError("rate_limited", "This request has to wait: the organization's tool calls are used up.", {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
    cause: TOOLS_IN_USE,
  });
