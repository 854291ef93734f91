/** Lines for credit: who asks when, and in which order. The store is a purse in memory. */
import { setImmediate } from "node:timers/promises";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { runs } from "../../../test/fakes/runs.ts";
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

  ask = async (visitor: number): Promise<Reply> => {
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
  await until(() => !admission.hasLines);
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

test("who comes while some ask stands behind them", async () => {
  const { admission, purse, free, all } = await waitingCrowd();
  free(7);
  await until(() => purse.held.length === 7);
  const late = standInLine(admission, purse, 1);
  free(CROWD);
  await Promise.all([all, ...late]);
  expect(purse.held).toEqual([...inOrder(CROWD + 1), 0]);
});

test("who fails leaves the line, and no more ask at once because of it", async () => {
  const admission = new Admission(60_000);
  const purse = new Purse();
  let tries = 0;
  const failing = admission.admit(ORGANIZATION, ORGANIZATION, async () => {
    tries += 1;
    if (tries === 1) return ["busy", ""];
    throw new Error("the store is away");
  });
  const told = failing.catch((error: unknown) => error);
  await until(() => admission.hasLine(ORGANIZATION));
  const replies = standInLine(admission, purse, 3);
  purse.free = 3;
  admission.freed(ORGANIZATION);
  expect(await told).toEqual(new Error("the store is away"));
  await Promise.all(replies);
  expect(purse.calls).toEqual([1, 2]);
  await until(() => !admission.hasLines);
});

test("who has room hears it at once, though another that asked with it waits", async () => {
  const admission = new Admission(60_000);
  const slow = Promise.withResolvers<Reply>();
  const asked: string[] = [];
  let isFull = true;
  const visit = (name: string, reply: () => Promise<Reply>) =>
    admission.admit(ORGANIZATION, ORGANIZATION, async () => {
      if (isFull) return ["busy", ""];
      asked.push(name);
      return await reply();
    });
  const held = async (): Promise<Reply> => ["held", "1"];
  const first = visit("first", held);
  await until(() => admission.hasLine(ORGANIZATION));
  const second = visit("second", () => slow.promise);
  const third = visit("third", held);
  isFull = false;
  admission.freed(ORGANIZATION);
  expect(await first).toEqual(["held", "1"]);
  expect(await third).toEqual(["held", "1"]);
  expect(asked).toEqual(["first", "second", "third"]);
  slow.resolve(["held", "1"]);
  expect(await second).toEqual(["held", "1"]);
  expect(asked.length).toBe(3);
});

test("a crowd behind one whose answer takes long is served meanwhile, so many at once and in its order", async () => {
  const admission = new Admission(60_000);
  const purse = new Purse();
  const first = admission.admit(ORGANIZATION, ORGANIZATION, () => purse.ask(-1));
  await until(() => admission.hasLine(ORGANIZATION));
  const slow = Promise.withResolvers<Reply>();
  const late = admission.admit(ORGANIZATION, ORGANIZATION, () => slow.promise);
  const replies = standInLine(admission, purse);
  purse.free = CROWD + 1;
  admission.freed(ORGANIZATION);
  await Promise.all([first, ...replies]);
  expect(purse.held).toEqual(inOrder(CROWD + 1));
  expect(Math.max(...purse.calls)).toBe(63);
  expect(admission.hasLine(ORGANIZATION)).toBe(true);
  slow.resolve(["held", "1"]);
  expect(await late).toEqual(["held", "1"]);
  await until(() => !admission.hasLines);
});

test("nobody's time is up later because another's answer takes long", async () => {
  const admission = new Admission(30);
  const purse = new Purse();
  const slow = Promise.withResolvers<Reply>();
  let isSlow = false;
  const first = admission.admit(ORGANIZATION, ORGANIZATION, async () =>
    isSlow ? await slow.promise : ["busy", ""],
  );
  await until(() => admission.hasLine(ORGANIZATION));
  isSlow = true;
  const told = Promise.all(standInLine(admission, purse));
  admission.freed(ORGANIZATION);
  await pass(40);
  expect(new Set((await told).map((reply) => reply.join()))).toEqual(new Set(["busy,"]));
  expect(purse.calls).toEqual([]);
  slow.resolve(["held", "1"]);
  expect(await first).toEqual(["held", "1"]);
});

test("those who come meanwhile put nothing off: what another pod gave back is found while they come", async () => {
  const admission = new Admission(2_000);
  const purse = new Purse();
  const replies = [];
  for (let visitor = 0; visitor < 100; visitor += 1) {
    replies.push(...standInLine(admission, purse, 1));
    await pass(5);
    if (visitor === 60) purse.free = 1_000;
  }
  // Within the longest pause of a tenth of a second.
  expect(purse.held.length).toBeGreaterThan(15);
  await pass(200);
  expect((await Promise.all(replies)).map(([word]) => word)).toEqual(Array<string>(100).fill("held"));
});

test("of a crowd whose time is up one has a last try", async () => {
  const admission = new Admission(50);
  const purse = new Purse();
  const first = admission.admit(ORGANIZATION, ORGANIZATION, () => purse.ask(-1));
  await until(() => admission.hasLine(ORGANIZATION));
  const replies = standInLine(admission, purse);
  await pass(49);
  const before = purse.calls.length;
  await pass(5);
  expect(purse.calls.slice(before)).toEqual([1]);
  expect(new Set((await Promise.all([first, ...replies])).map((reply) => reply.join()))).toEqual(
    new Set(["busy,"]),
  );
  expect(admission.hasLines).toBe(false);
});

test("where there is no room, an answer to one that asked before hurries nobody", async () => {
  const { admission, purse, free, all } = await waitingCrowd();
  const slow = Promise.withResolvers<Reply>();
  free(2);
  const before = purse.calls.length;
  // The second waits for its answer while one more is held, and those behind find none.
  const asks = purse.ask;
  let asked = 0;
  purse.ask = async (visitor) => {
    asked += 1;
    return asked === 2 ? await slow.promise : await asks(visitor);
  };
  await until(() => purse.held.length === 2 && purse.calls.length > before + 1);
  await pass(5);
  const calls = purse.calls.length;
  slow.resolve(["held", "1"]);
  await pass(15);
  expect(purse.calls.length).toBe(calls);
  await pass(10);
  expect(purse.calls.slice(calls)).toEqual([1]);
  free(CROWD);
  await all;
  await until(() => !admission.hasLines);
});

test("whatever answers take: in order, so many at once, and where there is no room one alone, after a pause", async () => {
  const visit = fc.record({ tookMs: fc.integer({ min: 0, max: 40 }), fails: fc.boolean() });
  const gift = fc.record({
    afterMs: fc.integer({ min: 1, max: 60 }),
    amount: fc.integer({ min: 1, max: 90 }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(visit, { minLength: 1, maxLength: 200 }),
      fc.array(gift, { maxLength: 5 }),
      async (visits, gifts) => {
        const admission = new Admission(60_000);
        const [waiting, asking] = [new Set<number>(), new Set<number>()];
        let free = 0;
        /** When somebody was last told that there is no room, and whether nothing has changed since. */
        let [toldAt, isFull] = [0, false];
        const ask = async (visitor: number): Promise<Reply> => {
          const { tookMs = 0, fails = false } = visits[visitor] ?? {};
          waiting.delete(visitor);
          if (isFull) {
            expect(asking.size).toBe(0);
            expect(performance.now() - toldAt).toBeGreaterThanOrEqual(20);
          }
          for (const other of waiting) expect(other).toBeGreaterThan(visitor);
          asking.add(visitor);
          expect(asking.size).toBeLessThanOrEqual(64);
          await new Promise((done) => setTimeout(done, tookMs));
          asking.delete(visitor);
          if (free === 0) {
            waiting.add(visitor);
            [toldAt, isFull] = [performance.now(), true];
            return ["busy", ""];
          }
          // Of those who began to ask before, this says that there was room.
          if (asking.size === 0) isFull = false;
          if (fails) throw new Error("the store is away");
          free -= 1;
          return ["held", "1"];
        };
        const first = admission.admit(ORGANIZATION, ORGANIZATION, async () => {
          return admission.hasLines ? ["held", "1"] : ["busy", ""];
        });
        await until(() => admission.hasLine(ORGANIZATION));
        const told = visits.map(async (_, visitor) => {
          waiting.add(visitor);
          return await admission.admit(ORGANIZATION, ORGANIZATION, () => ask(visitor));
        });
        const over = Promise.allSettled([first, ...told]);
        const give = (amount: number) => {
          free += amount;
          isFull = false;
          admission.freed(ORGANIZATION);
        };
        for (const { afterMs, amount } of gifts) {
          await pass(afterMs);
          give(amount);
        }
        give(visits.length);
        for (let round = 0; round < 500 && admission.hasLines; round += 1) await pass(20);
        expect(admission.hasLines).toBe(false);
        const faults = (await over).map((one) =>
          one.status === "rejected" ? String(one.reason) : one.value[0],
        );
        expect(faults).toEqual([
          "held",
          ...visits.map(({ fails }) => (fails ? "Error: the store is away" : "held")),
        ]);
      },
    ),
    { numRuns: runs(100) },
  );
});

test("who waits for something else moves to its line, behind those that ask and before those who came later", async () => {
  const admission = new Admission(60_000);
  const KEY = "/key.m";
  let [room, wanted, answered] = [0, "", Promise.resolve()];
  const held: string[] = [];
  const visit = (name: string, line: string, busy: () => string, before = () => Promise.resolve()) =>
    admission.admit(ORGANIZATION, line, async () => {
      await before();
      if (room === 0) return ["busy", busy()];
      room -= 1;
      held.push(name);
      return ["held", "1"];
    });
  const mover = visit("mover", ORGANIZATION, () => wanted);
  await until(() => admission.hasLine(ORGANIZATION));
  await pass(5);
  const first = visit(
    "first",
    KEY,
    () => KEY,
    () => answered,
  );
  await until(() => admission.hasLine(KEY));
  const second = visit("second", KEY, () => KEY);
  const reply = Promise.withResolvers<void>();
  answered = reply.promise;
  admission.freed(KEY);
  await setImmediate();
  // While the first of the key's line asks.
  wanted = KEY;
  admission.freed(ORGANIZATION);
  await until(() => !admission.hasLine(ORGANIZATION));
  reply.resolve();
  await setImmediate();
  room = 3;
  admission.freed(KEY);
  await Promise.all([mover, first, second]);
  expect(held).toEqual(["mover", "first", "second"]);
  await until(() => !admission.hasLines);
});

test("those whose time is up are told that it is busy, however many stand before them", async () => {
  const admission = new Admission(30);
  const purse = new Purse();
  const told = Promise.all(standInLine(admission, purse));
  await pass(60);
  const replies = await told;
  expect(new Set(replies.map((reply) => reply.join()))).toEqual(new Set(["busy,"]));
  await until(() => !admission.hasLines);
});
