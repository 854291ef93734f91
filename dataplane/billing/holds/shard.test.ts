import { expect, test } from "vitest";
import { operation, shardOf } from "./shard.ts";

test("an operation is its name, the number of its arguments and these, a zero byte behind each", () => {
  expect(operation("hold", "org_1", "", "12")).toBe("hold\x003\0org_1\0\x0012\0");
  expect(operation("none")).toBe("none\x000\0");
});

test("an organization's shard never changes: pods of two releases must agree", () => {
  expect(["org_acme", "org_demo", "org_default_blue", "", "größe"].map(shardOf)).toEqual([4, 5, 12, 5, 2]);
});

test.each(["a\0b", "a\x1fb", "\n"])("an id that would break a packed operation has no shard: %j", (id) => {
  expect(() => shardOf(id)).toThrow(RangeError);
});
