import fc from "fast-check";
import { expect, test } from "vitest";
import { BySize } from "./by-size.ts";

test("whoever has the most is what a look at all of them finds", () => {
  const step = fc.record({ who: fc.nat(4), size: fc.nat(12) });
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      const owners = Array.from({ length: 5 }, () => ({ size: 0 }));
      const bySize = new BySize<{ size: number }>();
      for (const { who, size } of steps) {
        const owner = owners[who];
        if (owner !== undefined) bySize.resize(owner, size);
        expect(bySize.largest?.size ?? 0).toBe(Math.max(...owners.map((one) => one.size)));
      }
    }),
  );
});

test("of two with as much, the one that has had it for longer is the largest", () => {
  const [early, late] = [{ size: 0 }, { size: 0 }];
  const bySize = new BySize<{ size: number }>();
  for (const owner of [late, early]) bySize.resize(owner, 3);
  bySize.resize(late, 4);
  bySize.resize(late, 3);
  expect(bySize.largest).toBe(early);
});
