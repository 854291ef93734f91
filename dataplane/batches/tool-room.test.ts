import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TOOLS_IN_USE, ToolRoom } from "./tool-room.ts";

const clock = { now: () => Date.now() };
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const limits = (callsPerMinute: number) => ({ callsPerMinute, parallelCalls: 4 });

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
    expect(room.left("org")).toBe(Number.POSITIVE_INFINITY);
    const ends = Array.from({ length: first }, () => room.begin("org", limits(callsPerMinute)));
    expect(room.left("org")).toBe(0);
    expect(() => room.begin("org", limits(callsPerMinute))).toThrow(
      expect.objectContaining({ code: "rate_limited", cause: TOOLS_IN_USE, retryAfterSeconds: 1 }),
    );
    room.begin("other", limits(callsPerMinute));
    // While none of their calls waits for long, each that ends well makes room for two.
    for (const end of ends) end(true);
    expect(room.left("org")).toBe(2 * first);
  },
);

test("an item that fails gives its place back, and no more", () => {
  const { room } = world();
  room.begin("org", limits(5))(false);
  expect(room.left("org")).toBe(1);
});

test("while a call waits none begins; one that waits half a minute halves what runs, and none begins for as long", async () => {
  const { room, live } = world();
  const ends = Array.from({ length: 12 }, () => room.begin("org", limits(60)));
  for (let call = 0; call < 60; call += 1) await live("org", 60);
  const calls = ends.slice(0, 3).map(() => room.admit("org", 60));
  for (const end of ends.slice(6)) end(false);
  await vi.advanceTimersByTimeAsync(29_000);
  expect(room.left("org")).toBe(0);
  await vi.advanceTimersByTimeAsync(32_000);
  expect(await Promise.all(calls)).toEqual([true, true, true]);
  for (const end of ends.slice(0, 6)) end(true);
  // Six ran when the first call had waited for half a minute; of those that waited with it the others say nothing new.
  expect(room.left("org")).toBe(3);
});

test("calls that wait are admitted in the order in which they came", async () => {
  const { room, live } = world();
  for (let call = 0; call < 60; call += 1) await live("org", 60);
  const order: number[] = [];
  for (let call = 0; call < 5; call += 1) void room.admit("org", 60).then(() => order.push(call));
  await vi.advanceTimersByTimeAsync(65_000);
  expect(order).toEqual([0, 1, 2, 3, 4]);
});

test("after five minutes a call is refused, and none begins for five more", async () => {
  const room = new ToolRoom({ admit: async () => false, clock, sleep });
  const end = room.begin("org", limits(60));
  const call = room.admit("org", 60);
  await vi.advanceTimersByTimeAsync(5 * 60_000 + 500);
  expect(await call).toBe(false);
  end(true);
  await vi.advanceTimersByTimeAsync(5 * 60_000 - 1_000);
  expect(room.left("org")).toBe(0);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(room.left("org")).toBe(1);
});

test("a store that is away fails the call, and none behind it waits for ever", async () => {
  let isAway = true;
  const admit = async () => (isAway ? Promise.reject(new Error("away")) : true);
  const room = new ToolRoom({ admit, clock, sleep });
  await expect(room.admit("org", 60)).rejects.toThrow("away");
  isAway = false;
  expect(await room.admit("org", 60)).toBe(true);
  expect(room.left("org")).toBe(1);
});

interface Work {
  readonly pods: number;
  readonly items: number;
  readonly callsEach: number;
  readonly callsPerMinute: number;
  readonly modelMs: number;
}

/** Pods with a worker each and one count of calls run items as their places allow; a model takes `modelMs`. */
async function runAll({ pods: howMany, items, callsEach, callsPerMinute, modelMs }: Work) {
  const { live, made } = world();
  const pods = Array.from({ length: howMany }, () => new ToolRoom({ admit: live, clock, sleep }));
  const seen = { refused: 0, done: 0 };
  let waiting = items;
  const started = clock.now();
  const work = async (room: ToolRoom, end: (isWell: boolean) => void) => {
    await sleep(modelMs);
    const calls = await Promise.all(
      Array.from({ length: callsEach }, () => room.admit("org", callsPerMinute)),
    );
    seen.refused += calls.filter((isAdmitted) => !isAdmitted).length;
    await sleep(modelMs);
    end(true);
    seen.done += 1;
  };
  while (seen.done < items && clock.now() - started < 24 * 3_600_000) {
    for (const room of pods)
      while (waiting > 0 && room.left("org") > 0) {
        const end = room.begin("org", limits(callsPerMinute));
        waiting -= 1;
        void work(room, end);
        if (room.left("org") === Number.POSITIVE_INFINITY) break;
      }
    await vi.advanceTimersByTimeAsync(1_000);
  }
  return { ...seen, minutes: (clock.now() - started) / 60_000, calls: made.length };
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
])("rule 4.5: no call is burnt, and little time lost: %o", async (work) => {
  const seen = await runAll(work);
  const calls = work.items * work.callsEach;
  expect(seen).toMatchObject({ done: work.items, refused: 0, calls });
  const atBest = calls / Math.floor(work.callsPerMinute * 0.8);
  expect(seen.minutes).toBeLessThan(1.5 * atBest + (4 * work.modelMs) / 60_000 + 1);
});
