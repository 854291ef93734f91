import { expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { isClosed, strictSchema } from "./schemas.ts";

const text = { type: "string" };

test.each([
  ["no object", { type: "string" }, true],
  [
    "all required",
    { type: "object", additionalProperties: false, properties: { a: text }, required: ["a"] },
    true,
  ],
  [
    "one untyped",
    { type: "object", additionalProperties: false, properties: { a: {} }, required: ["a"] },
    false,
  ],
  ["a reference to a closed one", { $ref: "#/$defs/a", $defs: { a: text } }, true],
  ["a reference to an untyped one", { $ref: "#/$defs/a", $defs: { a: {} } }, false],
  [
    "one optional",
    { type: "object", additionalProperties: false, properties: { a: text }, required: [] },
    false,
  ],
  ["open", { type: "object", properties: { a: text }, required: ["a"] }, false],
])("closed in the sense of strict mode: %s", (_, schema, expected) => {
  expect(isClosed(schema)).toBe(expected);
});

test("rule 7.3: an object of many properties is judged in milliseconds", () => {
  const names = Array.from({ length: 20_000 }, (_, index) => `property_${index}`);
  const properties = Object.fromEntries(names.map((name) => [name, text]));
  const schema = { type: "object", additionalProperties: false, properties, required: names };
  const before = computedMs();
  expect(isClosed(schema)).toBe(true);
  expect(computedMs() - before).toBeLessThan(250);
});

test("a member called __proto__ closes no schema", () => {
  const schema = JSON.parse('{"__proto__": {"type": "object", "additionalProperties": false}}');
  expect(strictSchema(schema, "schema", { dropped: () => expect.unreachable() })).toBe(null);
});
