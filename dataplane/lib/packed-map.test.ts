import fc from "fast-check";
import { expect, test } from "vitest";
import { pack, packedSize, packedValue } from "./packed-map.ts";

test("holds what a map holds, the first entry of a key", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string(), fc.string({ unit: "grapheme" }))),
      fc.string(),
      (entries, other) => {
        const packed = pack(entries);
        const map = new Map(entries.toReversed());
        expect(packedSize(packed)).toBe(map.size);
        for (const key of [...map.keys(), other]) expect(packedValue(packed, key)).toBe(map.get(key));
      },
    ),
  );
});
