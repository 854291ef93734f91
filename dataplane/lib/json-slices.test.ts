import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonInSlices } from "./json-slices.ts";

test("any value of JSON is written as JSON.stringify writes it", async () => {
  const values = fc.oneof(fc.array(fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue()));
  await fc.assert(
    fc.asyncProperty(values, async (value) => {
      expect((await jsonInSlices(value as object, 1)).toString()).toBe(JSON.stringify(value));
    }),
  );
});

test("what is left out, what cannot be left out of a list, and numbers as they stand are written alike", async () => {
  const number = (JSON as unknown as { rawJSON(json: string): object }).rawJSON("9007199254740993.25");
  const value = { none: undefined, list: [undefined, number, { none: undefined, number }, []], é: "\ud800" };
  expect((await jsonInSlices(value, 1)).toString()).toBe(JSON.stringify(value));
});
