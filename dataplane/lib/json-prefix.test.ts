import fc from "fast-check";
import { expect, test } from "vitest";
import { closedJson } from "./json-prefix.ts";

test.each([
  ['{"a":"one t', '{"a":"one t"}'],
  ['{"a":"one', '{"a":"one"}'],
  ['{"a":"one\\', '{"a":"one"}'],
  ['{"a":"one\\\\', '{"a":"one\\\\"}'],
  ['{"a":"one\\u00e', '{"a":"one"}'],
  ['{"a":["x",{"b":1', '{"a":["x",{}]}'],
  ['{"a":["x",{"b":1,', '{"a":["x",{"b":1}]}'],
  ['{"a":"x","ke', '{"a":"x"}'],
  ['{"a":"x","key"', '{"a":"x"}'],
  ['{"a":"x","key" : ', '{"a":"x"}'],
  ['{"a":"x" , "b": tru', '{"a":"x" }'],
  ['[1,"a{[', '[1,"a{["]'],
  ["{", "{}"],
  ['{"a":1}', '{"a":1}'],
])("%j is %j", (begun, closed) => {
  expect(closedJson(begun)).toBe(closed);
});

test.each(["<html><body>no", "nothing", ""])("%j is no JSON afterwards either", (begun) => {
  expect(() => JSON.parse(closedJson(begun)) as unknown).toThrow(SyntaxError);
});

test("the beginning of any object is an object, wherever it was cut", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.nat(), fc.boolean(), (value, cut, wide) => {
      const text = JSON.stringify(value, null, wide ? 1 : 0);
      const begun = text.slice(0, 1 + (cut % text.length));
      const read: unknown = JSON.parse(closedJson(begun));
      expect(read).toBeTypeOf("object");
      if (begun === text) expect(read).toEqual(JSON.parse(text));
    }),
  );
});
