/** Lines for credit: who asks when, and in which order. The store is a purse in memory. */
import { setImmediate } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Admission } from "./admission.ts";
import type { Reply } from "./shard.ts";

const ORGANIZATION = "org_1";
const CROWD = 300;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** So many may be held. Answers after a turn of the event loop, as many as ask in the same one together. */
class Purse {
  free = 0;
  /** How many asked in each turn. */
  readonly calls: number[] = [];
  readonly held: number[] = [];
  #call: Promise<void> | null = null;

  readonly ask = async (visitor: number): Promise<Reply> => {
    if (this.#call === null) {
      this.calls.push(0);
      this.#call = setImmediate().then(() => {
        this.#call = null;
      });
    }
    this.calls[this.calls.length - 1] = (this.calls.at(-1) ?? 0) + 1;
    await this.#call;
    if (this.free === 0) return ["busy", ""];
    this.free -= 1;
    this.held.push(visitor);
    return ["held", "1"];
  };
}

/** Turns of the event loop in which no time passes. */
async function until(isSo: () => boolean): Promise<void> {
  for (let turn = 0; turn < 1_000 && !isSo(); turn += 1) await setImmediate();
  expect(isSo()).toBe(true);
}

/** Time passes, and after each millisecond all that was asked is answered. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 1) {
    vi.advanceTimersByTime(1);
    for (let turn = 0; turn < 3; turn += 1) await setImmediate();
  }
}

/** A crowd stands in line, all behind the first, who was told to wait. */
function standInLine(admission: Admission, purse: Purse, count = CROWD): Promise<Reply>[] {
  return Array.from({ length: count }, (_, visitor) =>
    admission.admit(ORGANIZATION, ORGANIZATION, () => purse.ask(visitor)),
  );
}

async function waitingCrowd() {
  const admission = new Admission(60_000);
  const purse = new Purse();
  const first = admission.admit(ORGANIZATION, ORGANIZATION, () => purse.ask(-1));
  await until(() => admission.hasLine(ORGANIZATION));
  const replies = standInLine(admission, purse);
  const free = (amount: number) => {
    purse.free += amount;
    admission.freed(ORGANIZATION);
  };
  return { admission, purse, free, all: Promise.all([first, ...replies]) };
}

const inOrder = (count: number) => Array.from({ length: count }, (_, index) => index - 1);

test("one at a time asks while there is no room, and not in a hurry", async () => {
  const { purse, free, all } = await waitingCrowd();
  await pass(150);
  // At once, and after 20, 60 and 140 ms.
  expect(purse.calls).toEqual([1, 1, 1, 1]);
  free(CROWD + 1);
  await all;
});

test("a crowd that finds room is served in some calls, first come, first served", async () => {
  const { admission, purse, free, all } = await waitingCrowd();
  const before = purse.calls.length;
  free(CROWD + 1);
  expect(new Set((await all).map(([word]) => word))).toEqual(new Set(["held"]));
  expect(purse.calls.slice(before)).toEqual([1, 2, 4, 8, 16, 32, 64, 64, 64, 46]);
  expect(purse.held).toEqual(inOrder(CROWD + 1));
  expect(admission.hasLines).toBe(false);
});

test("room for some is theirs who came first, and the next one asks alone again, after a pause", async () => {
  const { purse, free, all } = await waitingCrowd();
  const before = purse.calls.length;
  free(5);
  await until(() => purse.held.length === 5);
  await pass(100);
  // After 20 and 60 ms.
  expect(purse.calls.slice(before)).toEqual([1, 2, 4, 1, 1]);
  free(CROWD - 4);
  await all;
  expect(purse.held).toEqual(inOrder(CROWD + 1));
});

test("what becomes free while the first asks is asked for at once", async () => {
  const admission = new Admission(60_000);
  const purse = new Purse();
  const reply = admission.admit(ORGANIZATION, ORGANIZATION, async () => {
    const told = await purse.ask(0);
    if (purse.calls.length === 2) {
      purse.free = 1;
      admission.freed(ORGANIZATION);
    }
    return told;
  });
  await pass(25);
  // Its next pause would be 40 ms, and no time passes any more.
  expect(await reply).toEqual(["held", "1"]);
  expect(purse.calls).toEqual([1, 1, 1]);
});

test("who comes while some ask stands behind them, and who fails keeps nobody", async () => {
  const { admission, purse, free, all } = await waitingCrowd();
  const failing = admission.admit(ORGANIZATION, ORGANIZATION, async () => {
    throw new Error("the store is away");
  });
  const told = failing.catch((error: unknown) => error);
  free(7);
  await until(() => purse.held.length === 7);
  const late = standInLine(admission, purse, 1);
  free(CROWD);
  await Promise.all([all, ...late]);
  expect(await told).toEqual(new Error("the store is away"));
  expect(purse.held).toEqual([...inOrder(CROWD + 1), 0]);
});

test("those whose time is up are told that it is busy, however many stand before them", async () => {
  const admission = new Admission(30);
  const purse = new Purse();
  const told = Promise.all(standInLine(admission, purse));
  await pass(60);
  const replies = await told;
  expect(new Set(replies.map((reply) => reply.join()))).toEqual(new Set(["busy,"]));
  expect(admission.hasLines).toBe(false);
});
