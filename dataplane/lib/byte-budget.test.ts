import { expect, test } from "vitest";
import { ApiError } from "./api-error.ts";
import { ByteBudget, type ByteLease } from "./byte-budget.ts";

const refusal = (act: () => void): string => {
  try {
    act();
  } catch (error) {
    if (error instanceof ApiError) return `${error.kind.status} ${error.retryAfterSeconds}`;
    throw error;
  }
  return "taken";
};
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test("an organization with a quarter gets no more while more than half is in use: 429", () => {
  const budget = new ByteBudget(1000);
  const [mine, more, theirs] = [budget.lease("a"), budget.lease("a"), budget.lease("b")];
  mine.take(250);
  theirs.take(250);
  // Not more than half is in use.
  expect(refusal(() => more.take(1))).toBe("taken");
  expect(refusal(() => more.take(1))).toBe("429 1");
  expect(refusal(() => mine.take(1))).toBe("429 1");
  // Others go on, also with what they have.
  expect(refusal(() => budget.lease("c").take(100))).toBe("taken");
  theirs.release();
  expect(refusal(() => more.take(1))).toBe("taken");
  expect(budget.used).toBe(352);
});

test("a quarter is enough to be refused, one byte less is not", () => {
  const budget = new ByteBudget(1000);
  budget.lease("b").take(501);
  const lease = budget.lease("a");
  lease.take(249);
  expect(refusal(() => lease.take(1))).toBe("taken");
  expect(refusal(() => lease.take(1))).toBe("429 1");
});

test("what an organization holds is not forgotten among many that hold nothing", () => {
  const budget = new ByteBudget(1000);
  budget.lease("a").take(250);
  budget.lease("b").take(260);
  for (let n = 0; n <= 10_000; n += 1) budget.lease(`org_${n}`).expect(1);
  expect(refusal(() => budget.lease("a").take(1))).toBe("429 1");
});

test("a lease holds exactly what it is told, and as much as before without being judged again", () => {
  const budget = new ByteBudget(1000);
  const lease = budget.lease("a");
  const held = [300, 100, 400].map((bytes) => {
    lease.hold(bytes);
    return [lease.bytes, budget.used];
  });
  expect(held).toEqual([
    [300, 300],
    [100, 100],
    [400, 400],
  ]);
  budget.lease("b").take(500);
  expect(refusal(() => lease.hold(401))).toBe("429 1");
  expect(refusal(() => lease.hold(400))).toBe("taken");
  expect([lease.bytes, budget.used]).toEqual([400, 900]);
});

test("beyond the whole: 503, whoever asks, also for what is only announced", () => {
  const budget = new ByteBudget(1000);
  const leases = Array.from({ length: 5 }, (_, index) => budget.lease(`org_${index}`));
  for (const lease of leases) lease.take(200);
  expect(refusal(() => budget.lease("new").take(1))).toBe("503 1");
  leases[0]?.hold(150);
  expect(refusal(() => budget.lease("new").expect(51))).toBe("503 1");
  expect(refusal(() => budget.lease("new").expect(50))).toBe("taken");
  expect(budget.used).toBe(950);
});

test("one body always fits into an idle process, in whatever pieces it comes", () => {
  const budget = new ByteBudget(100);
  const lease = budget.lease("a");
  lease.expect(5000);
  for (let n = 0; n < 50; n += 1) lease.take(100);
  expect(refusal(() => budget.lease("b").take(1))).toBe("503 1");
  lease.release();
  lease.release();
  expect(budget.used).toBe(0);
});

test("work that can wait gets what live requests leave, in its order, and never stands still", async () => {
  const budget = new ByteBudget(1000);
  const live = budget.lease("live");
  live.take(900);
  const got: string[] = [];
  const leases = new Map<string, ByteLease>();
  const ask = (name: string, bytes: number) =>
    void budget.whenRoom(name, bytes).then((lease) => {
      got.push(name);
      leases.set(name, lease);
    });
  ask("first", 300);
  ask("second", 200);
  ask("third", 1);
  await settled();
  // Nothing of its kind was under way.
  expect(got).toEqual(["first"]);
  live.release();
  await settled();
  expect(got).toEqual(["first", "second"]);
  leases.get("first")?.release();
  await settled();
  expect(got).toEqual(["first", "second", "third"]);
  for (const lease of leases.values()) lease.release();
  ask("huge", 100_000);
  await settled();
  expect(got.at(-1)).toBe("huge");
  expect(budget.used).toBe(100_000);
  // However many came and went, and were given back twice: behind live requests it is one at a time.
  for (const lease of leases.values()) lease.release();
  live.take(900);
  ask("one", 10);
  ask("two", 10);
  await settled();
  expect(got.slice(-2)).toEqual(["huge", "one"]);
});

test("what is admitted from the line may take more of what is left", async () => {
  const budget = new ByteBudget(1000);
  const [one, other] = await Promise.all([budget.whenRoom("a", 200), budget.whenRoom("b", 200)]);
  expect(refusal(() => one.take(100))).toBe("taken");
  expect(refusal(() => other.take(1))).toBe("503 1");
  one.release();
  expect(refusal(() => other.take(1))).toBe("taken");
  expect(budget.used).toBe(201);
});

test("what is there already counts whatever room there is, and keeps the next from theirs", () => {
  const budget = new ByteBudget(100);
  budget.lease("a").take(90);
  const lease = budget.lease("b");
  lease.count(500);
  expect([lease.bytes, budget.used]).toEqual([500, 590]);
  expect(refusal(() => budget.lease("c").take(1))).toBe("503 1");
  lease.release();
  expect(refusal(() => budget.lease("c").take(1))).toBe("taken");
});

test("a page is judged as a live request is, but no request is refused for it", () => {
  const told: string[] = [];
  const budget = new ByteBudget(100, {
    used: () => undefined,
    refused: (by) => told.push(by),
  });
  budget.lease("a").take(30);
  budget.lease("b").take(30);
  expect(refusal(() => budget.pageLease("a").take(1))).toBe("429 1");
  const page = budget.pageLease("c");
  expect(refusal(() => page.take(41))).toBe("503 1");
  expect(refusal(() => page.take(40))).toBe("taken");
  expect([budget.used, told]).toEqual([100, []]);
});

test("what was refused and what is in use is told", () => {
  const told: string[] = [];
  const budget = new ByteBudget(100, {
    used: (bytes) => told.push(`used ${bytes}`),
    refused: (by) => told.push(`refused ${by}`),
  });
  const [a, b, c] = [budget.lease("a"), budget.lease("b"), budget.lease("c")];
  a.take(30);
  b.take(30);
  b.hold(30);
  refusal(() => a.take(1));
  refusal(() => c.take(50));
  a.release();
  expect(told).toEqual(["used 30", "used 60", "refused organization", "refused process", "used 30"]);
});

/** What waits for a share of 250 that others hold; the first is read on beyond it. */
function waitingForShare() {
  const budget = new ByteBudget(1000);
  const lease = () => budget.lease("a");
  const others = lease();
  others.count(300);
  const beyond = lease();
  expect(beyond.whenShare(60_000)).toBeNull();
  const waiting = [lease(), lease(), lease()];
  const woken: number[] = [];
  for (const [index, each] of waiting.entries()) void each.whenShare(60_000)?.then(() => woken.push(index));
  const [first, second, third] = waiting as [ByteLease, ByteLease, ByteLease];
  return { others, beyond, first, second, third, woken };
}

test("whoever is let on beyond the share lets the next on at its end, and one that is over is passed by", async () => {
  const { others, beyond, first, second, third, woken } = waitingForShare();
  // Its answer ended while it waited.
  first.release();
  await settled();
  expect(woken).toEqual([0]);
  beyond.release();
  await settled();
  expect(woken).toEqual([0, 1]);
  // It counted nothing more.
  second.release();
  await settled();
  expect(woken).toEqual([0, 1, 2]);
  third.release();
  others.release();
});

test("bytes that are given back let nobody on as long as the share is used up", async () => {
  const { others, beyond, first, second, third, woken } = waitingForShare();
  others.giveBack(50);
  await settled();
  expect(woken).toEqual([]);
  others.giveBack(1);
  await settled();
  expect(woken).toEqual([0]);
  for (const lease of [first, second, third, beyond, others]) lease.release();
});

test("room in the share lets on one after the other, as long as there is some", async () => {
  const { others, beyond, first, second, third, woken } = waitingForShare();
  others.giveBack(150);
  await settled();
  expect(woken).toEqual([0]);
  expect(first.countOfShare(60)).toBe(60);
  await settled();
  expect(woken).toEqual([0, 1]);
  expect(second.countOfShare(60)).toBe(40);
  await settled();
  expect(woken).toEqual([0, 1]);
  for (const lease of [first, second, third, beyond, others]) lease.release();
});
