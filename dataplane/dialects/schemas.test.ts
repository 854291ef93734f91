import { expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { isClosed } from "./schemas.ts";

test.each([
  ["no object", { type: "string" }, true],
  [
    "all required",
    { type: "object", additionalProperties: false, properties: { a: {} }, required: ["a"] },
    true,
  ],
  [
    "one optional",
    { type: "object", additionalProperties: false, properties: { a: {} }, required: [] },
    false,
  ],
  ["open", { type: "object", properties: { a: {} }, required: ["a"] }, false],
])("closed in the sense of strict mode: %s", (_, schema, expected) => {
  expect(isClosed(schema)).toBe(expected);
});

test("rule 7.3: an object of many properties is judged in milliseconds", () => {
  const names = Array.from({ length: 20_000 }, (_, index) => `property_${index}`);
  const properties = Object.fromEntries(names.map((name) => [name, {}]));
  const schema = { type: "object", additionalProperties: false, properties, required: names };
  const before = computedMs();
  expect(isClosed(schema)).toBe(true);
  expect(computedMs() - before).toBeLessThan(250);
});
