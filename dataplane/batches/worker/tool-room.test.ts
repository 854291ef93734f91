import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../../lib/api-error.ts";
import { TOOLS_IN_USE, ToolRoom } from "./tool-room.ts";

const clock = { now: () => Date.now() };
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const limits = (callsPerMinute: number) => ({ callsPerMinute, parallelCalls: 4 });
type End = (isWell: boolean) => void;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A room whose calls are counted by the minute, as Redis counts them; `live` takes some. */
function world() {
  const made: number[] = [];
  const admit = async (_organizationId: string, limit: number) => {
    const recent = made.filter((at) => at > clock.now() - 60_000).length;
    if (recent < limit) made.push(clock.now());
    return recent < limit;
  };
  return { made, live: admit, room: new ToolRoom({ admit, clock, sleep }) };
}

/** Items that may begin now: all that do. */
function begin(room: ToolRoom, organizationId = "org", callsPerMinute = 60): End[] {
  const ends: End[] = [];
  for (;;)
    try {
      ends.push(room.begin(organizationId, limits(callsPerMinute)));
    } catch {
      return ends;
    }
}
function left(room: ToolRoom): number {
  const ends = begin(room);
  for (const end of ends) end(false);
  return ends.length;
}

test("a tool call of a batch waits for room, and leaves some to live requests", async () => {
  const asked: number[] = [];
  const room = new ToolRoom({ admit: async (_id, limit) => asked.push(limit) >= 3, clock, sleep });
  const call = room.admit("org", 60);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await call).toBe(true);
  expect(asked).toEqual([48, 48, 48]);
  expect(await room.admit("other", 1)).toBe(true);
  expect(asked.at(-1)).toBe(1);
});

test.each([
  { callsPerMinute: 60, first: 12 },
  { callsPerMinute: 5, first: 1 },
  { callsPerMinute: 1, first: 1 },
])(
  "of $callsPerMinute calls a minute the first $first items may make all theirs at once",
  ({ callsPerMinute, first }) => {
    const { room } = world();
    const ends = begin(room, "org", callsPerMinute);
    expect(ends).toHaveLength(first);
    expect(begin(room, "other", callsPerMinute)).toHaveLength(first);
    // While none of their calls has to wait, more may begin, at most three times as many.
    let most = first;
    for (let round = 0; round < 100; round += 1) {
      for (const end of ends.splice(0)) end(true);
      ends.push(...begin(room, "org", callsPerMinute));
      expect(ends.length).toBeGreaterThanOrEqual(most);
      most = ends.length;
    }
    expect(most).toBe(3 * first);
  },
);

test("who may not begin comes again one by one, as fast as there are calls, and within five minutes", () => {
  const { room } = world();
  begin(room);
  const waits = Array.from({ length: 300 }, () => {
    try {
      room.begin("org", limits(60));
    } catch (error) {
      if (error instanceof ApiError && error.cause === TOOLS_IN_USE) return error.retryAfterSeconds ?? 0;
    }
    throw new Error("it began, or failed otherwise");
  });
  expect(waits.slice(0, 5)).toEqual([3, 4, 5, 6, 8]);
  expect(waits.toSorted((one, other) => one - other)).toEqual(waits);
  expect(waits.at(-1)).toBe(300);
});

test("an item that fails gives its place back, and one that ran below the limit makes no room for more", () => {
  const { room } = world();
  room.begin("org", limits(60))(false);
  expect(left(room)).toBe(12);
  for (let item = 0; item < 50; item += 1) room.begin("org", limits(60))(true);
  expect(left(room)).toBe(12);
});

test("while a call waits none begins; one that waits half a minute halves what runs, and none begins for as long", async () => {
  const { room, live } = world();
  const ends = begin(room);
  for (let call = 0; call < 60; call += 1) await live("org", 60);
  const calls = ends.slice(0, 3).map(() => room.admit("org", 60));
  for (const end of ends.slice(6)) end(false);
  await vi.advanceTimersByTimeAsync(29_000);
  expect(left(room)).toBe(0);
  await vi.advanceTimersByTimeAsync(32_000);
  expect(await Promise.all(calls)).toEqual([true, true, true]);
  for (const end of ends.slice(0, 6)) end(true);
  // Six ran when the first call had waited for half a minute; of those that waited with it the others say nothing new.
  expect(left(room)).toBe(3);
});

test("calls that wait are admitted in the order in which they came; those of another limit do not wait for them", async () => {
  const { room, live } = world();
  for (let call = 0; call < 10; call += 1) await live("org", 60);
  const order: number[] = [];
  for (let call = 0; call < 5; call += 1) void room.admit("org", 5).then(() => order.push(call));
  expect(await room.admit("org", 60)).toBe(true);
  expect(order).toEqual([]);
  await vi.advanceTimersByTimeAsync(125_000);
  expect(order).toEqual([0, 1, 2, 3, 4]);
});

test("when none was admitted for five minutes a call is refused, and none begins for five more", async () => {
  const room = new ToolRoom({ admit: async () => false, clock, sleep });
  const end = room.begin("org", limits(60));
  const call = room.admit("org", 60);
  await vi.advanceTimersByTimeAsync(5 * 60_000 + 500);
  expect(await call).toBe(false);
  end(true);
  await vi.advanceTimersByTimeAsync(5 * 60_000 - 1_000);
  expect(left(room)).toBe(0);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(left(room)).toBe(1);
});

test("a call that gives up while the store is away says so, and not that the calls are used up", async () => {
  const away = new Error("away");
  const room = new ToolRoom({ admit: async () => Promise.reject(away), clock, sleep });
  const calls = Promise.allSettled([room.admit("org", 60), room.admit("org", 60)]);
  await vi.advanceTimersByTimeAsync(11 * 60_000);
  expect(await calls).toEqual([
    { status: "rejected", reason: away },
    { status: "rejected", reason: away },
  ]);
});

test("while others are admitted a call waits for ten minutes", async () => {
  let admitted = 0;
  let lastAt = Number.NEGATIVE_INFINITY;
  const admit = async () => {
    if (clock.now() - lastAt < 60_000) return false;
    lastAt = clock.now();
    admitted += 1;
    return true;
  };
  const room = new ToolRoom({ admit, clock, sleep });
  const calls = Array.from({ length: 20 }, () => room.admit("org", 1));
  await vi.advanceTimersByTimeAsync(11 * 60_000);
  const outcomes = await Promise.all(calls);
  expect(outcomes.filter(Boolean)).toHaveLength(admitted);
  expect(outcomes.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => true));
  expect(outcomes.slice(12)).toEqual(Array.from({ length: 8 }, () => false));
});

test("a call waits for a store that is away for a moment", async () => {
  let isAway = true;
  const admit = async () => (isAway ? Promise.reject(new Error("away")) : true);
  const room = new ToolRoom({ admit, clock, sleep });
  const calls = [room.admit("org", 60), room.admit("org", 60)];
  await vi.advanceTimersByTimeAsync(3_000);
  isAway = false;
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await Promise.all(calls)).toEqual([true, true]);
});

interface Work {
  readonly pods: number;
  readonly items: number;
  readonly callsEach: number;
  readonly callsPerMinute: number;
  readonly modelMs: number;
  /** So many items without a call went before. */
  readonly before?: number;
}
const PLACES = 56;

/** Pods with a worker each and one count of calls run items as their places allow; a model takes `modelMs` each time. */
async function runAll({ pods: howMany, items, callsEach, callsPerMinute, modelMs, before = 0 }: Work) {
  const { live, made } = world();
  const pods = Array.from({ length: howMany }, () => ({
    room: new ToolRoom({ admit: live, clock, sleep }),
    running: 0,
  }));
  const seen = { refused: 0, done: 0, looks: 0 };
  const started = clock.now();
  const run = async (pod: (typeof pods)[number], end: End, calls: number) => {
    pod.running += 1;
    await sleep(modelMs);
    if (calls > 0) {
      const made = Array.from({ length: calls }, () => pod.room.admit("org", callsPerMinute));
      seen.refused += (await Promise.all(made)).filter((isAdmitted) => !isAdmitted).length;
      await sleep(modelMs);
    }
    pod.running -= 1;
    end(true);
    seen.done += 1;
  };
  const work = async (count: number, calls: number) => {
    /** When each that waits may be looked at. */
    let waiting = Array.from({ length: count }, () => 0);
    for (const goal = seen.done + count; seen.done < goal; await vi.advanceTimersByTimeAsync(1_000)) {
      if (clock.now() - started > 24 * 3_600_000) throw new Error("its day is over");
      for (const pod of pods) {
        const ready = waiting.filter((at) => at <= clock.now());
        waiting = waiting.filter((at) => at > clock.now());
        for (const at of ready)
          try {
            if (pod.running >= PLACES) waiting.push(at);
            else void run(pod, pod.room.begin("org", limits(callsPerMinute)), calls);
          } catch (error) {
            seen.looks += 1;
            waiting.push(clock.now() + 1_000 * ((error as ApiError).retryAfterSeconds ?? 0));
          }
      }
    }
  };
  await work(before, 0);
  Object.assign(seen, { done: 0, looks: 0 });
  const began = clock.now();
  await work(items, callsEach);
  return { ...seen, minutes: (clock.now() - began) / 60_000, calls: made.length };
}

test.each<Work>([
  { pods: 1, items: 30, callsEach: 1, callsPerMinute: 5, modelMs: 2_000 },
  { pods: 3, items: 30, callsEach: 1, callsPerMinute: 5, modelMs: 2_000 },
  { pods: 3, items: 30, callsEach: 4, callsPerMinute: 5, modelMs: 2_000 },
  { pods: 1, items: 300, callsEach: 4, callsPerMinute: 60, modelMs: 2_000 },
  { pods: 3, items: 300, callsEach: 4, callsPerMinute: 60, modelMs: 2_000 },
  { pods: 3, items: 300, callsEach: 4, callsPerMinute: 60, modelMs: 20_000 },
  { pods: 1, items: 300, callsEach: 1, callsPerMinute: 60, modelMs: 20_000 },
  { pods: 3, items: 300, callsEach: 1, callsPerMinute: 60, modelMs: 60_000 },
  { pods: 2, items: 300, callsEach: 4, callsPerMinute: 60, modelMs: 2_000, before: 500 },
  { pods: 3, items: 300, callsEach: 4, callsPerMinute: 60, modelMs: 5_000, before: 500 },
  { pods: 3, items: 100, callsEach: 4, callsPerMinute: 5, modelMs: 2_000, before: 100 },
])("rule 4.5: no call is burnt, and little time lost: %o", async (work) => {
  const seen = await runAll(work);
  const calls = work.items * work.callsEach;
  expect(seen).toMatchObject({ done: work.items, refused: 0, calls });
  const own = Math.floor(work.callsPerMinute * 0.8);
  // The calls' minutes, or where models are slow what those items take that begin at first.
  const first = Math.max(1, Math.floor(own / 4));
  const atBest = Math.max(calls / own, (work.items * 2 * work.modelMs) / 60_000 / (first * work.pods));
  expect(seen.minutes).toBeLessThan(1.5 * atBest + 6);
  // Items that may not begin are looked at now and then, not all the time.
  expect(seen.looks).toBeLessThan(20 * work.items);
});
