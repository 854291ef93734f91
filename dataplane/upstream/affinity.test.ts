import fc from "fast-check";
import { expect, test } from "vitest";
import { hash, rank } from "./affinity.ts";

const upstreams = (...weights: number[]) => weights.map((weight, index) => ({ name: `u${index}`, weight }));
const firstOf = (list: { name: string; weight: number }[], key: number) => rank(list, `key ${key}`)[0]?.name;

test("the same conversation ranks the upstreams alike, whatever order they are declared in", () => {
  fc.assert(
    fc.property(fc.string(), fc.uniqueArray(fc.nat({ max: 50 }), { maxLength: 8 }), (key, ids) => {
      const list = ids.map((id) => ({ name: `u${id}`, weight: (id % 4) * 10 }));
      expect(rank([...list].reverse(), key)).toEqual(rank(list, key));
    }),
  );
});

test("shares follow the weights", () => {
  const counts = new Map<string | undefined, number>();
  const list = upstreams(100, 50, 10);
  for (let key = 0; key < 16_000; key += 1) {
    const name = firstOf(list, key);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  expect(counts.get("u0")).toBeGreaterThan(9_700);
  expect(counts.get("u0")).toBeLessThan(10_300);
  expect(counts.get("u1")).toBeGreaterThan(4_700);
  expect(counts.get("u1")).toBeLessThan(5_300);
  expect(counts.get("u2")).toBeGreaterThan(850);
  expect(counts.get("u2")).toBeLessThan(1_150);
});

test("an upstream that goes away takes only its own conversations with it", () => {
  const all = upstreams(100, 100, 100, 100);
  const fewer = all.slice(0, 3);
  for (let key = 0; key < 2000; key += 1) {
    const before = firstOf(all, key);
    const after = firstOf(fewer, key);
    expect(after).toBe(before === "u3" ? rank(all, `key ${key}`)[1]?.name : before);
  }
});

test("a weight that grows only draws conversations to itself", () => {
  for (let key = 0; key < 2000; key += 1) {
    const before = firstOf(upstreams(100, 100, 100), key);
    const after = firstOf(upstreams(100, 100, 300), key);
    expect([before, "u2"]).toContain(after);
  }
});

test("weight 0 comes last", () => {
  for (let key = 0; key < 500; key += 1)
    expect(
      rank(upstreams(0, 1, 0, 100), `key ${key}`)
        .slice(2)
        .map(({ weight }) => weight),
    ).toEqual([0, 0]);
});

test("the hash spreads keys that differ little", () => {
  const buckets = Array.from({ length: 64 }, () => 0);
  for (let key = 0; key < 64_000; key += 1) {
    const bucket = Math.floor((hash(`org_a\n${key}`) / 2 ** 53) * 64);
    buckets[bucket] = (buckets[bucket] ?? 0) + 1;
  }
  expect(Math.min(...buckets)).toBeGreaterThan(850);
  expect(Math.max(...buckets)).toBeLessThan(1150);
});
