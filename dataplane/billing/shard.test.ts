import { expect, test } from "vitest";
import { operation, shardOf } from "./shard.ts";

test("an operation is its words, empty ones included, with a separator between them", () => {
  expect(operation("hold", "org_1", "", "12")).toBe("hold\x1forg_1\x1f\x1f12");
});

test("an organization's shard never changes", () => {
  expect(["org_acme", "org_bench", "größe"].map(shardOf)).toEqual([4, 8, 2]);
});

test.each(["a\x1fb", "a\x1eb", "\n"])("an id that would break a packed operation has no shard: %j", (id) => {
  expect(() => shardOf(id)).toThrow(RangeError);
});
