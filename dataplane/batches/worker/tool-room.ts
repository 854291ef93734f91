/**
 * How batches go by their organization's tool calls a minute, so that no answer is spent on `too_many_requests` (rule 4.5).
 * A call waits for room. An item in the middle of its loop keeps its place in the worker meanwhile, and what it has
 * asked a model is paid; so only few begin, and fewer where calls have to wait long. Who may not begin has cost nothing
 * and is run again later, each at a time of its own.
 */
import { setTimeout as timerSleep } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { ApiError } from "../../lib/api-error.ts";
import { steadyClock, type Clock } from "../../lib/clock.ts";
import type { AdmitToolCall, ToolCallLimits } from "../../tools/call-limit.ts";
import { Pace } from "./pace.ts";

const MINUTE_MS = 60_000;
/** Of a minute's tool calls batches leave a fifth to requests that somebody waits for. */
const SHARE = 0.8;
const PAUSE_MS = 500;
/** A call that has waited for so long says that too many items run. */
const LONG_MS = 30_000;
/** After a call had to wait, no more items than before run for so long. */
const REST_MS = MINUTE_MS;
/**
 * When no call was admitted here for so long, as live requests take them all, the next one gets `too_many_requests` after
 * all, and no item begins for as long again.
 */
const STUCK_MS = 5 * MINUTE_MS;
/** However many are before it, a call waits no longer, as a route's request time-out is ten minutes (rule 4.5). */
const LONGEST_MS = 10 * MINUTE_MS;
/** Items that could make all their calls within a minute begin at first; where none has to wait, so many times as many. */
const GROWTH = 3;
/** An item that may not begin looks again after so long at most. */
const LOOK_MS = 5 * MINUTE_MS;
const MOST_REMEMBERED = 10_000;

/** What the error of an item that may not begin says to programs. */
export const TOOLS_IN_USE = { reserved: "tool calls" } as const;

interface ToolRoomOptions {
  /** The organization's limit, which live requests share. */
  readonly admit: AdmitToolCall;
  /** Of ages alone. */
  readonly clock?: Clock;
  /** Between two looks whether there is room. */
  readonly sleep?: (ms: number) => Promise<unknown>;
}

/** An organization's items that may call tools under one limit, and their calls. */
interface Items {
  running: number;
  readonly pace: Pace;
  /** The end of the call that came last; each begins to look when the one before it is admitted. */
  lastCall: Promise<unknown>;
  /** By the clock: when a call last looked and found no room, and when one was last admitted. */
  waitedAt: number;
  admittedAt: number;
  /** When the item that was told last to come again is to do so. */
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
   * The tool-call limit of batch items: where a live call would fail, it waits until the last minute has room. Calls that
   * wait here get it in the order in which they came.
   * @throws what the limit throws where it did so when a call gave up: the store is away, and who calls says so.
   */
  readonly admit: AdmitToolCall = async (organizationId, limit) => {
    // One that is unknown was forgotten among very many.
    const items = this.#itemsOf(organizationId, { callsPerMinute: limit, parallelCalls: limit });
    const began = this.#clock.now();
    const admitted = items.lastCall.then(() => this.#whenRoom(organizationId, limit, items, began));
    items.lastCall = admitted.catch(() => undefined);
    return admitted;
  };

  /**
   * Takes a place for an item that may call tools, before its model is asked anything.
   * @returns its end: whether all went well.
   * @throws ApiError `rate_limited` with the cause TOOLS_IN_USE: as many run here as their calls have room for.
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

  /** While the store is away there is no room. */
  async #whenRoom(organizationId: string, limit: number, items: Items, began: number): Promise<boolean> {
    // One call of each pod at a time, or whoever looks first takes all that has become free.
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

/** One item after the other, as fast as there are calls: all at once they would only be refused again. */
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
