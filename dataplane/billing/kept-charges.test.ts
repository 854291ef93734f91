import { expect, test } from "vitest";
import { KeptCharges } from "./kept-charges.ts";
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
  for (const [index, one] of charges.entries()) kept.add(one, 1_000 + index);
  expect(kept.all(2_000)).toEqual(charges);
  expect(new KeptCharges().all(0)).toEqual([]);
});

test("each is kept for a minute, and for less than the 75 s after which Redis would charge it anew", () => {
  const kept = new KeptCharges();
  for (let second = 0; second < 200; second += 1) {
    kept.add(charge(second), second * 1_000);
    const known = kept.all(second * 1_000);
    expect(known).toEqual(expect.arrayContaining([charge(Math.max(0, second - 59))]));
    expect(known).not.toContainEqual(charge(second - 66));
    expect(known.length).toBeLessThanOrEqual(66);
  }
  expect(kept.all(265_000)).toEqual([]);
});

test("in a rush the oldest go first, and some ten thousand stay", () => {
  const kept = new KeptCharges();
  const row = "x".repeat(700);
  for (let id = 0; id < 20_000; id += 1) kept.add(charge(id, row), 1_000);
  const known = kept.all(1_000);
  expect(known.at(-1)).toEqual(charge(19_999, row));
  expect(known.length).toBeGreaterThan(8_000);
  expect(known.length).toBeLessThan(12_000);
});
