import { expect, test } from "vitest";
import { ROOM_MS, TURN_MS, WorkTurns, type Waiting, type WorkOwner } from "./work-turns.ts";

/** Turns on a clock that only work moves on, and a loop that turns when it is told to. */
function world() {
  let now = 1_000;
  let due: (() => void)[] = [];
  let restMs = 0;
  const turns = new WorkTurns({
    clock: { now: () => now },
    workedMs: () => now,
    afterTurn: (call) => void due.push(call),
  });
  const done: string[] = [];
  const work = (owner: WorkOwner, name: string, ms: number) => {
    now += ms;
    owner.spend(ms, now);
    done.push(name);
  };
  return {
    turns,
    done,
    get now() {
      return now;
    },
    pass: (ms: number) => void (now += ms),
    /** So long the rest of each turn is, after what is served in it. */
    rest: (ms: number) => void (restMs = ms),
    /** Whether anything waits for the loop to turn. */
    get isAwaited() {
      return due.length > 0;
    },
    /** One turn of the loop. @returns how long its work took. */
    turn(): number {
      const calls = due;
      due = [];
      const began = now;
      for (const call of calls) call();
      now += restMs;
      return now - began;
    },
    work,
    /** Work of so many milliseconds: at once where it may, else in line; with more to do again and again. */
    come(owner: WorkOwner, name: string, ms: number, times = 1): void {
      let left = times;
      const waiting: Waiting = {
        turn: () => {
          work(owner, name, ms);
          left -= 1;
          if (left > 0) owner.wait(waiting);
        },
      };
      if (!owner.mayWork(now)) return owner.wait(waiting);
      waiting.turn(TURN_MS);
    },
  };
}

/** Uses up what is its own, and what this turn of the loop has for others. */
function exhaust(at: ReturnType<typeof world>, owner: WorkOwner): void {
  at.work(owner, "before", 50);
  at.work(owner, "before", 50);
  at.done.length = 0;
}

test("within its share an owner's work is done as it comes, whoever waits", () => {
  const at = world();
  const [hog, other] = [at.turns.owner("hog"), at.turns.owner("other")];
  exhaust(at, hog);
  at.come(hog, "hog", 5, 10);
  expect(at.done).toEqual([]);
  at.come(other, "other", 1);
  expect(at.done).toEqual(["other"]);
});

test("alone, an owner may have all of the time: nothing waits while the turn of the loop has room", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  at.turn();
  for (let count = 0; count < 4; count += 1) at.come(hog, String(count), 1);
  expect(at.done).toEqual(["0", "1", "2", "3"]);
});

test("and what waits is done without a pause, twenty milliseconds in each turn of the loop", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  at.turn();
  const began = at.now;
  for (let count = 0; count < 300; count += 1) at.come(hog, String(count), 1);
  while (at.isAwaited) expect(at.turn()).toBeLessThanOrEqual(ROOM_MS);
  expect(at.done).toHaveLength(300);
  expect(at.now - began).toBe(300);
});

test("the rest of a turn takes room of what waits, half of it at the most", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  at.turn();
  at.rest(8);
  for (let count = 0; count < 300; count += 1) at.come(hog, String(count), 1);
  for (let turns = 0; turns < 10; turns += 1) expect(at.turn()).toBeLessThanOrEqual(ROOM_MS);
  // Where it is all of a turn, what waits goes on.
  at.rest(2 * ROOM_MS);
  for (let turns = 0; turns < 10; turns += 1) {
    const before = at.done.length;
    at.turn();
    expect(at.done.length).toBeGreaterThan(before);
  }
});

test("what was done before anything waited takes no room", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  for (const name of ["a", "b"]) at.come(hog, name, ROOM_MS / 2);
  while (at.isAwaited) at.turn();
  at.pass(5_000);
  for (let count = 0; count < 60; count += 1) hog.wait({ turn: () => at.work(hog, String(count), 1) });
  expect(at.turn()).toBe(ROOM_MS);
});

test("one owner's work is done in the order in which it came, what comes later behind what waits", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  for (const name of ["a", "b", "c"]) at.come(hog, name, 5);
  at.turn();
  at.come(hog, "d", 5);
  while (at.isAwaited) at.turn();
  expect(at.done).toEqual(["a", "b", "c", "d"]);
});

test("owners who are all beyond their shares have as much time each, however many things each wants", () => {
  const at = world();
  const owners = ["a", "b", "c"].map((name) => at.turns.owner(name));
  for (const owner of owners) exhaust(at, owner);
  owners.forEach((owner, index) => {
    for (let count = 0; count < 10 ** index; count += 1)
      at.come(owner, "abc"[index] as string, 1 + index, 1_000);
  });
  const began = at.now;
  while (at.now - began < 3_000) at.turn();
  const msOf = (name: string, ms: number) => at.done.filter((one) => one === name).length * ms;
  for (const [name, ms] of [
    ["a", 1],
    ["b", 2],
    ["c", 3],
  ] as const) {
    expect(msOf(name, ms)).toBeGreaterThan(800);
    expect(msOf(name, ms)).toBeLessThan(1_200);
  }
});

test("who was alone for an hour is not kept waiting long by one who comes", () => {
  const at = world();
  const [long, fresh] = [at.turns.owner("long"), at.turns.owner("fresh")];
  for (let count = 0; count < 100_000; count += 1) at.work(long, "long", 10);
  exhaust(at, fresh);
  at.come(long, "long", 5, 100);
  at.come(fresh, "fresh", 5, 100);
  const began = at.now;
  while (!at.done.includes("long")) at.turn();
  expect(at.now - began).toBeLessThan(150);
});

test("what takes far longer than its turn is let through, and the others' turns come after it", () => {
  const at = world();
  const [slow, other] = [at.turns.owner("slow"), at.turns.owner("other")];
  exhaust(at, slow);
  exhaust(at, other);
  at.come(slow, "slow", 400, 3);
  at.come(other, "other", 5, 30);
  while (at.isAwaited) at.turn();
  expect(at.done.filter((one) => one === "slow")).toHaveLength(3);
  expect(at.done.filter((one) => one === "other")).toHaveLength(30);
  expect(at.done.indexOf("other")).toBeLessThan(2);
});

test("what only has to come to its end goes before its owner's other work", () => {
  const at = world();
  const hog = at.turns.owner("hog");
  exhaust(at, hog);
  for (const name of ["a", "b"]) at.come(hog, name, 5);
  const ending: Waiting = { turn: () => at.work(hog, "end", 1) };
  hog.wait(ending);
  hog.waitToEnd(ending);
  while (at.isAwaited) at.turn();
  expect(at.done).toEqual(["end", "a", "b"]);
});

test("time that passes gives a share back", () => {
  const at = world();
  const [hog, other] = [at.turns.owner("hog"), at.turns.owner("other")];
  exhaust(at, hog);
  exhaust(at, other);
  other.wait({ turn: () => at.work(other, "other", 5) });
  expect(hog.mayWork(at.now)).toBe(false);
  at.pass(2_000);
  expect(hog.mayWork(at.now)).toBe(true);
});

test("nothing is awaited where nothing waits, and what was done within shares awaits nothing", () => {
  const at = world();
  const owner = at.turns.owner("a");
  at.work(owner, "a", 1);
  expect(at.isAwaited).toBe(false);
  exhaust(at, owner);
  at.come(owner, "a", 5);
  while (at.isAwaited) at.turn();
  expect(at.done).toEqual(["a"]);
  expect(at.isAwaited).toBe(false);
});

test("what its turn brings little to do has its turn in hundreds, not without end", () => {
  const at = world();
  const owner = at.turns.owner("a");
  exhaust(at, owner);
  let turns = 0;
  for (let count = 0; count < 1_000; count += 1) owner.wait({ turn: () => void (turns += 1) });
  at.turn();
  expect(turns).toBeLessThanOrEqual(100);
});

test("owners are remembered up to a number, and the one that came last is", () => {
  const at = world();
  const first = at.turns.owner("first");
  expect(at.turns.owner("first")).toBe(first);
  for (let count = 0; count < 9_999; count += 1) at.turns.owner(`other ${count}`);
  expect(at.turns.owner("first")).toBe(first);
  for (let count = 0; count < 10_000; count += 1) at.turns.owner(`another ${count}`);
  expect(at.turns.owner("first")).not.toBe(first);
});
