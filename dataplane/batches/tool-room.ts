/**
 * How batches go by their organization's tool calls a minute, so that no answer is spent on `too_many_requests` (rule 4.5).
 * A call waits for room. An item in the middle of its loop keeps its place in the worker meanwhile, and what it has
 * asked a model is paid; so only few begin, and fewer where calls have to wait long. Who may not begin has cost nothing
 * and is run again later.
 */
import { setTimeout as timerSleep } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { ApiError } from "../lib/api-error.ts";
import { steadyClock, type Clock } from "../lib/clock.ts";
import type { AdmitToolCall, ToolCallLimits } from "../tools/call-limit.ts";
import { Pace } from "./pace.ts";

/** Of a minute's tool calls batches leave a fifth to requests that somebody waits for. */
const SHARE = 0.8;
const PAUSE_MS = 500;
/** A call that has waited for so long says that too many items run. */
const LONG_MS = 30_000;
/** After a call had to wait, no more items than before run for so long. */
const REST_MS = 60_000;
/**
 * Then the call gets `too_many_requests` after all, as a route's request time-out is ten minutes; live requests, which may
 * take every call, leave none to batches. No item begins for as long again.
 */
const LONGEST_MS = 5 * 60_000;
const MOST_REMEMBERED = 10_000;

/** What the error of an item that may not begin says to programs. */
export const TOOLS_IN_USE = { reserved: "tool calls" } as const;

export interface ToolRoomOptions {
  /** The organization's limit, which live requests share. */
  readonly admit: AdmitToolCall;
  /** Of ages alone. */
  readonly clock?: Clock;
  /** Between two looks whether there is room. */
  readonly sleep?: (ms: number) => Promise<unknown>;
}

/** One organization's items that may call tools, and their calls. */
interface Items {
  running: number;
  readonly pace: Pace;
  /** The end of the call that came last; each begins to look when the one before it is admitted. */
  lastCall: Promise<unknown>;
  /** When a call last looked and found no room, by the clock. */
  waitedAt: number;
}

export class ToolRoom {
  readonly #admit: AdmitToolCall;
  readonly #clock: Clock;
  readonly #sleep: (ms: number) => Promise<unknown>;
  readonly #organizations = new LRUCache<string, Items>({ max: MOST_REMEMBERED });

  constructor({ admit, clock = steadyClock, sleep = timerSleep }: ToolRoomOptions) {
    this.#admit = admit;
    this.#clock = clock;
    this.#sleep = sleep;
  }

  /**
   * The tool-call limit of batch items: where a live call would fail, it waits until the last minute has room. Calls that
   * wait here get it in the order in which they came.
   */
  readonly admit: AdmitToolCall = async (organizationId, limit) => {
    // One that is unknown was forgotten among very many.
    const items = this.#itemsOf(organizationId, { callsPerMinute: limit, parallelCalls: limit });
    const own = shareOf(limit);
    const began = this.#clock.now();
    const admitted = items.lastCall.then(() => this.#whenRoom(organizationId, own, items, began));
    items.lastCall = admitted.catch(() => undefined);
    return admitted;
  };

  #itemsOf(organizationId: string, limits: ToolCallLimits): Items {
    const items = this.#organizations.get(organizationId) ?? newItems(limits);
    this.#organizations.set(organizationId, items);
    return items;
  }

  async #whenRoom(organizationId: string, own: number, items: Items, began: number): Promise<boolean> {
    // One call of each pod at a time, or whoever looks first takes all that has become free.
    if (this.#clock.now() - items.waitedAt <= PAUSE_MS) await this.#sleep(PAUSE_MS);
    for (let isLong = false; ;) {
      if (await this.#admit(organizationId, own)) return true;
      const now = this.#clock.now();
      items.waitedAt = now;
      if (now - began >= LONGEST_MS) {
        items.pace.refused(now, LONGEST_MS, items.running);
        return false;
      }
      if (now - began >= LONG_MS && !isLong) {
        isLong = true;
        items.pace.refused(now, LONG_MS, items.running);
      }
      await this.#sleep(PAUSE_MS);
    }
  }

  /** How many more items of an organization may begin here. */
  left(organizationId: string): number {
    const items = this.#organizations.get(organizationId);
    if (items === undefined) return Number.POSITIVE_INFINITY;
    const { pace, running, waitedAt } = items;
    const now = this.#clock.now();
    const isWaiting = now - waitedAt <= 2 * PAUSE_MS;
    return isWaiting || now < pace.blockedUntil ? 0 : Math.max(0, pace.limit - running);
  }

  /**
   * Takes a place for an item that may call tools, before its model is asked anything.
   * @returns its end: whether all went well.
   * @throws ApiError `rate_limited` with the cause TOOLS_IN_USE: as many run here as their calls have room for.
   */
  begin(organizationId: string, limits: ToolCallLimits): (isWell: boolean) => void {
    const items = this.#itemsOf(organizationId, limits);
    if (this.left(organizationId) === 0) throw inUse();
    items.running += 1;
    return (isWell) => {
      items.running -= 1;
      if (isWell && this.#clock.now() - items.waitedAt > REST_MS) items.pace.succeeded();
    };
  }
}

function newItems({ callsPerMinute, parallelCalls }: ToolCallLimits): Items {
  // Even if each of the first items makes all its calls at once, these have room within one minute for each pod.
  const first = Math.max(1, Math.floor(shareOf(callsPerMinute) / parallelCalls));
  return {
    running: 0,
    pace: new Pace(Number.POSITIVE_INFINITY, first),
    lastCall: Promise.resolve(),
    waitedAt: Number.NEGATIVE_INFINITY,
  };
}

const shareOf = (callsPerMinute: number): number => Math.max(1, Math.floor(callsPerMinute * SHARE));

const inUse = (): ApiError =>
  new ApiError("rate_limited", "This request has to wait: the organization's tool calls are used up.", {
    retryAfterSeconds: 1,
    cause: TOOLS_IN_USE,
  });
