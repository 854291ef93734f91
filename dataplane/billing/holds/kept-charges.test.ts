import { expect, test } from "vitest";
import { KeptByShard, KeptCharges, KeptSpace } from "./kept-charges.ts";
import { operation } from "./shard.ts";

const charge = (id: number, text = "row") => operation("settle", "org_1", `req_${id}`, "12", text);

test("charges come back as they were, oldest first", () => {
  const kept = new KeptCharges();
  const charges = [
    charge(1),
    charge(2, '{"model":"größe-😀"}'),
    charge(3, ""),
    charge(4, "x".repeat(200_000)),
  ];
  for (const [index, one] of charges.entries()) kept.add(one, 1_000 + index, `${index + 1}-0`);
  expect(kept.all(2_000)).toEqual(charges);
  expect(new KeptCharges().all(0)).toEqual([]);
});

test("each is kept until the ledger has it, however long that takes", () => {
  const kept = new KeptCharges();
  kept.add(charge(1), 0, "5-0");
  expect(kept.all(3_600_000)).toEqual([charge(1)]);
  kept.drainedTo("4-9");
  expect([kept.all(3_600_001), kept.waiting]).toEqual([[charge(1)], true]);
  kept.drainedTo("5-0");
  expect([kept.all(3_600_002), kept.waiting]).toEqual([[], false]);
});

test("what the ledger has is kept for a minute more, as the ledger may lose its last moments", () => {
  const kept = new KeptCharges();
  for (let second = 0; second < 200; second += 1) {
    kept.add(charge(second), second * 1_000, `${second + 1}-0`);
    kept.drainedTo(`${second + 1}-0`);
    const known = kept.all(second * 1_000);
    expect(known).toEqual(expect.arrayContaining([charge(Math.max(0, second - 59))]));
    expect(known).not.toContainEqual(charge(second - 70));
  }
  expect(kept.all(265_000)).toEqual([]);
});

test("what was charged again waits anew, in whatever stream it stands now", () => {
  const kept = new KeptCharges();
  kept.add(charge(1), 0, "100-0");
  kept.drainedTo("100-0");
  kept.chargedAgain("7-0");
  expect(kept.waiting).toBe(true);
  kept.drainedTo("6-0");
  expect(kept.waiting).toBe(true);
  kept.drainedTo("7-0");
  expect(kept.waiting).toBe(false);
});

test("in a rush those that the ledger has go first, and none of the others; with too many of these it is full", () => {
  const space = new KeptSpace({ most: 1_000_000 });
  const kept = [new KeptCharges(space), new KeptCharges(space)];
  const row = "x".repeat(700);
  let at = 0;
  const add = (shard: KeptCharges | undefined, charges: number) => {
    for (let left = charges; left > 0; left -= 1) shard?.add(charge((at += 1), row), 1_000, `${at}-0`);
  };
  add(kept[0], 1_000);
  kept[0]?.drainedTo(`${at}-0`);
  expect(space.full).toBe(false);
  add(kept[1], 1_000);
  expect([space.crowded, space.full]).toEqual([true, false]);
  add(kept[0], 500);
  expect(kept[0]?.all(1_000).length).toBeLessThan(600);
  expect(space.full).toBe(true);
  expect(kept[1]?.all(1_000)).toHaveLength(1_000);
  kept[1]?.drainedTo(`${at}-0`);
  expect(space.full).toBe(false);
});

test("what the ledger may have lost is told once, when it is said to have it, and kept until then", () => {
  const kept = new KeptCharges(new KeptSpace({ keptMs: 0 }));
  kept.add(charge(1), 0, "1-0");
  kept.drainedTo("1-0");
  kept.add(charge(2), 0, "2-0");
  kept.doubt();
  kept.add(charge(3), 0, "3-0");
  expect([kept.takeDoubtful(), kept.doubtful]).toEqual([[], true]);
  kept.drainedTo("2-0");
  expect(kept.all(10_000)).toEqual([charge(1), charge(2), charge(3)]);
  expect(kept.takeDoubtful()).toEqual([charge(1), charge(2)]);
  expect([kept.takeDoubtful(), kept.doubtful]).toEqual([[], false]);
  kept.drainedTo("3-0");
  expect(kept.all(10_000)).toEqual([]);
});

test("a long wait with few charges takes little room", () => {
  const space = new KeptSpace();
  const kept = new KeptCharges(space);
  for (let second = 0; second < 3_600; second += 10) kept.add(charge(second), second * 1_000, "9-0");
  expect(kept.all(3_600_000)).toHaveLength(360);
  expect(space.all).toBeLessThan(256 * 1024);
});

test("answers of Redis that overtake each other leave nothing out, and take nothing back", () => {
  const kept = new KeptCharges();
  kept.add(charge(1), 0, "5-0");
  kept.add(charge(2), 0, "3-0");
  kept.drainedTo("3-0");
  expect(kept.waiting).toBe(true);
  kept.drainedTo("5-0");
  kept.drainedTo("4-0");
  expect(kept.waiting).toBe(false);
});

test("what is forgotten gives its room back", () => {
  const space = new KeptSpace({ most: 64 * 1024 });
  const kept = new KeptCharges(space);
  expect([space.all, space.waiting, space.crowded, space.full]).toEqual([0, 0, false, false]);
  kept.add(charge(1), 0, "1-0");
  expect([space.all, space.waiting, space.crowded, space.full]).toEqual([65_536, 65_536, true, true]);
  kept.drainedTo("1-0");
  expect([space.all, space.waiting, space.crowded, space.full]).toEqual([65_536, 0, true, false]);
  expect(kept.all(0)).toEqual([]);
  expect([space.all, space.waiting, space.crowded]).toEqual([0, 0, false]);
});

test("who only adds forgets as well", () => {
  const space = new KeptSpace();
  const kept = new KeptCharges(space);
  for (let second = 1; second <= 600; second += 1) {
    kept.add(charge(second), second * 1_000, `${second}-0`);
    kept.drainedTo(`${second}-0`);
  }
  // A minute's chunks of five seconds, one more that is not over, and what stands beside its bounds.
  expect(space.all).toBeLessThanOrEqual(15 * 64 * 1024);
});

test("all shards of a process share their room, and are doubted together", () => {
  const shards = new KeptByShard(2, { most: 2 * 64 * 1024 });
  for (const shard of [0, 1]) {
    expect(shards.full).toBe(false);
    shards.of(shard).add(charge(shard), 0, "1-0");
  }
  expect([shards.full, shards.waitingBytes]).toEqual([true, 131_072]);
  shards.of(1).drainedTo("1-0");
  expect([shards.doubtful, shards.takeDoubtful()]).toEqual([false, []]);
  shards.doubt();
  expect([shards.doubtful, shards.takeDoubtful()]).toEqual([true, [charge(1)]]);
  shards.of(0).drainedTo("1-0");
  expect([shards.takeDoubtful(), shards.doubtful]).toEqual([[charge(0)], false]);
  expect(() => shards.of(2)).toThrow(RangeError);
});
