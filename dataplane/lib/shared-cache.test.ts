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

test("what is large takes the room of many, and is given up before what others have", () => {
  const cache = filled(10, many("small", 3));
  for (const [owner, key] of many("large", 3)) cache.set(owner, key, "", 3);
  const kept = () => ["small0", "large0", "large1", "large2"].filter((key) => cache.has(key));
  expect([cache.size, kept()]).toEqual([5, ["small0", "large1", "large2"]]);
  for (const key of ["small3", "small4"]) cache.set("small", key, "");
  expect([cache.size, kept()]).toEqual([6, ["small0", "large2"]]);
  cache.set("large", "large2", "", 5);
  expect([cache.size, kept()]).toEqual([6, ["small0", "large2"]]);
  cache.set("large", "larger", "", 100);
  expect([cache.size, cache.has("larger")]).toEqual([1, true]);
  cache.delete("larger");
  for (const [owner, key] of many("again", 11)) cache.set(owner, key, "");
  expect(cache.size).toBe(10);
});

test("an owner that may have less than all loses its own, and whoever made room is told of", () => {
  const gone: string[] = [];
  const cache = new SharedCache<string>(10, { maxOfOne: 4, evicted: (key) => gone.push(key) });
  for (const [owner, key] of [...many("a", 4), ...many("b", 2)]) cache.set(owner, key, "");
  cache.set("a", "heavy", "", 2);
  expect(gone).toEqual(["a0", "a1"]);
  cache.set("a", "heavier", "", 100);
  expect(gone).toEqual(["a0", "a1", "a2", "a3", "heavy"]);
  for (const [owner, key] of many("b", 4)) cache.set(owner, key, "");
  expect([...cache.keys()].toSorted()).toEqual(["b0", "b1", "b2", "b3", "heavier"]);
});

test("is what lists say, whatever comes", () => {
  const step = fc.record({
    what: fc.constantFrom("set", "get", "delete"),
    owner: fc.constantFrom("a", "b", "c"),
    key: fc.integer({ min: 0, max: 12 }).map(String),
    weight: fc.integer({ min: 1, max: 3 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), fc.integer({ min: 1, max: 8 }), (steps, max) => {
      const cache = new SharedCache<number>(max);
      /** Oldest use first. */
      let kept: { owner: string; key: string; value: number; weight: number }[] = [];
      const weightOf = (some: typeof kept) => some.reduce((sum, one) => sum + one.weight, 0);
      for (const [value, { what, owner, key, ...asked }] of steps.entries()) {
        const known = kept.find((one) => one.key === key);
        const others = kept.filter((one) => one.key !== key);
        if (what === "get") {
          expect(cache.get(key)).toBe(known?.value);
          if (known !== undefined) kept = [...others, known];
        } else if (what === "delete") {
          cache.delete(key);
          kept = others;
        } else {
          const weight = Math.min(asked.weight, max);
          cache.set(owner, key, value, asked.weight);
          kept = others;
          while (weightOf(kept) + weight > max) {
            const theirs = [...Map.groupBy(kept, (one) => one.owner).values()];
            const most = Math.max(...theirs.map(weightOf));
            // Of one that had most, the oldest; of several such, the lighter one went first if both are gone.
            const oldest = theirs.filter((some) => weightOf(some) === most).flatMap(([first]) => first ?? []);
            const [gone] = oldest
              .filter((one) => !cache.has(one.key))
              .toSorted((one, other) => one.weight - other.weight);
            expect(gone).toBeDefined();
            kept = kept.filter((one) => one !== gone);
          }
          kept = [...kept, { owner, key, value, weight }];
        }
        expect(cache.size).toBe(kept.length);
        expect(kept.every((one) => cache.has(one.key))).toBe(true);
      }
    }),
  );
});
