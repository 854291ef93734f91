import fc from "fast-check";
import { expect, test } from "vitest";
import { SharedCache } from "./shared-cache.ts";

const filled = (max: number, entries: readonly (readonly [string, string])[]) => {
  const cache = new SharedCache<string>(max);
  for (const [owner, key] of entries) cache.set(owner, key, `${owner}'s ${key}`);
  return cache;
};
const many = (owner: string, count: number) =>
  Array.from({ length: count }, (_, n) => [owner, `${owner}${n}`] as const);

test("one owner alone may fill it, and then loses what was not used for longest", () => {
  const cache = filled(3, many("a", 3));
  expect(cache.get("a0")).toBe("a's a0");
  cache.set("a", "a3", "new");
  expect(["a0", "a1", "a2", "a3"].filter((key) => cache.has(key))).toEqual(["a0", "a2", "a3"]);
});

test("whoever floods it pushes out nothing of those who have few, also what nobody uses", () => {
  const cache = filled(100, [...many("quiet", 10), ...many("loud", 1000)]);
  expect(many("quiet", 10).every(([, key]) => cache.has(key))).toBe(true);
  expect(cache.size).toBe(100);
  // And makes room for newcomers up to an even share.
  for (const [owner, key] of many("late", 40)) cache.set(owner, key, "");
  expect(many("quiet", 10).every(([, key]) => cache.has(key))).toBe(true);
  expect(many("late", 40).every(([, key]) => cache.has(key))).toBe(true);
});

test("what is set again is the newest, and may become another owner's", () => {
  const cache = filled(2, many("a", 2));
  cache.set("a", "a0", "again");
  cache.set("a", "a2", "");
  expect([cache.get("a0"), cache.has("a1")]).toEqual(["again", false]);
  cache.set("b", "a0", "theirs");
  expect([cache.get("a0"), cache.size]).toEqual(["theirs", 2]);
  cache.delete("a0");
  cache.delete("a0");
  expect([cache.get("a0"), cache.size]).toEqual([undefined, 1]);
});

test("is what lists say, whatever comes", () => {
  const step = fc.record({
    what: fc.constantFrom("set", "get", "delete"),
    owner: fc.constantFrom("a", "b", "c"),
    key: fc.integer({ min: 0, max: 12 }).map(String),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), fc.integer({ min: 1, max: 8 }), (steps, max) => {
      const cache = new SharedCache<number>(max);
      /** Oldest use first. */
      let kept: { owner: string; key: string; value: number }[] = [];
      for (const [value, { what, owner, key }] of steps.entries()) {
        const known = kept.find((one) => one.key === key);
        const others = kept.filter((one) => one.key !== key);
        if (what === "get") {
          expect(cache.get(key)).toBe(known?.value);
          if (known !== undefined) kept = [...others, known];
        } else if (what === "delete") {
          cache.delete(key);
          kept = others;
        } else {
          const sizes = Map.groupBy(others, (one) => one.owner);
          const most = Math.max(0, ...Array.from(sizes.values(), ({ length }) => length));
          cache.set(owner, key, value);
          kept = [...others, { owner, key, value }];
          if (others.length >= max) {
            const gone = others.filter((one) => !cache.has(one.key));
            expect(gone.length).toBe(1);
            // Of one that had most, the oldest.
            const theirs = sizes.get(gone[0]?.owner ?? "") ?? [];
            expect([theirs.length, theirs[0]]).toEqual([most, gone[0]]);
            kept = kept.filter((one) => one !== gone[0]);
          }
        }
        expect(cache.size).toBe(kept.length);
        expect(kept.every((one) => cache.has(one.key))).toBe(true);
      }
    }),
  );
});
