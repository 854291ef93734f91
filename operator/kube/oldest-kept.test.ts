import fc from "fast-check";
import { expect, test } from "vitest";
import { runs } from "../../test/fakes/runs.ts";
import { OldestKept } from "./oldest-kept.ts";

const MOST = 100;

interface Sized {
  readonly kind: "PriceTable" | "Organization";
  readonly namespace: string;
  readonly name: string;
  readonly creationTimestamp: number;
  readonly bytes: number;
}
const sized = fc.record({
  kind: fc.constantFrom("PriceTable" as const, "Organization" as const),
  namespace: fc.constant("ns"),
  name: fc.constantFrom("a", "b", "c", "d", "e", "f", "g", "h"),
  creationTimestamp: fc.integer({ min: 0, max: 3 }),
  bytes: fc.integer({ min: 1, max: 70 }),
});
const idOf = ({ kind, name }: Sized): string => `${name} ${kind}`;
const inOrder = (one: Sized, other: Sized): number =>
  one.creationTimestamp - other.creationTimestamp || (idOf(one) < idOf(other) ? -1 : 1);

/** Oldest first, each that fits. */
function expected(objects: readonly Sized[]): string[] {
  let left = MOST;
  return objects.toSorted(inOrder).flatMap((object) => {
    if (object.bytes > left) return [];
    left -= object.bytes;
    return [idOf(object)];
  });
}

test("whatever the order, in the end the oldest are kept that fit, and never more than there may be", () => {
  const scene = fc
    .uniqueArray(sized, { selector: idOf, maxLength: 12 })
    .chain((objects) =>
      fc.tuple(
        fc.shuffledSubarray(objects, { minLength: objects.length }),
        fc.array(fc.nat({ max: Math.max(0, objects.length - 1) }), { maxLength: 3 }),
      ),
    );
  fc.assert(
    fc.property(scene, ([objects, gone]) => {
      const kept = new OldestKept(() => MOST);
      const held = new Map<string, Sized>();
      const offer = (object: Sized) => {
        const out = kept.offer(object, object.bytes) as readonly Sized[];
        held.set(idOf(object), object);
        for (const one of out) held.delete(idOf(one));
        expect([...held.values()].reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(MOST);
      };
      for (const object of objects) offer(object);
      for (const index of gone) {
        const object = objects[index];
        if (object === undefined) continue;
        kept.release(object);
        held.delete(idOf(object));
      }
      const present = objects.filter((_, index) => !gone.includes(index));
      // As lists tell of them again.
      for (let list = 0; list < objects.length; list += 1)
        for (const object of present) if (!held.has(idOf(object))) offer(object);
      expect([...held.keys()].toSorted()).toEqual(expected(present).toSorted());
    }),
    { numRuns: runs(1000) },
  );
});

test("of a namespace without a limit everything is kept", () => {
  const kept = new OldestKept(() => null);
  const object = {
    kind: "PriceTable",
    namespace: "ns",
    name: "a",
    creationTimestamp: null,
  } as const;
  expect(kept.offer(object, 10 * MOST)).toEqual([]);
});
