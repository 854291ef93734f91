import { expect, test } from "vitest";
import { withoutRepeats } from "./json-repeats.ts";

test.each([
  ['{"a":1.0, "b" : [ ] }', '{"a":1.0, "b" : [ ] }'],
  ['{"a":1,"a":2}', '{"a":2}'],
  ['{"a":1,"b":2,"a":3}', '{"b":2,"a":3}'],
  ['{ "a":{"x":1,"x":2}, "a":{"y":1,"y":[{"z":1,"z":2}]} }', '{ "a":{"y":[{"z":2}]} }'],
  ['[{"a":1,"\\u0061":2},{"__proto__":1,"__proto__":2}]', '[{"\\u0061":2},{"__proto__":2}]'],
  ['{"a":"\u00e9","a":"\u20ac"}', '{"a":"\u20ac"}'],
  ['{"a":1,"a":', '{"a":1,"a":'],
  ["\0\0", "\0\0"],
])("%s is %s", (json, expected) => {
  expect(withoutRepeats(Buffer.from(json)).toString()).toBe(expected);
});
