import { expect, test } from "vitest";
import { JsonFault, JsonReader } from "../lib/json-reader.ts";
import { keepDigits } from "./exact-numbers.ts";
import type { JsonValue } from "./messages/types.ts";

function written(text: string, isWanted: ((key: string) => boolean) | null = null): string {
  const value = JSON.parse(text) as JsonValue;
  keepDigits(value, new JsonReader(Buffer.from(text)), isWanted);
  return JSON.stringify(value);
}

test.each([
  "[1,9223372036854775807,-12345678901234567890,1e400,2.5]",
  '{"a":{"b":[[18446744073709551615]],"__proto__":{"c":1e400}},"d":"9223372036854775807"}',
])("large numbers keep all of their digits, wherever they stand: %s", (text) => {
  expect(written(text)).toBe(text);
});

test("only numbers that were rounded are written as they came", () => {
  expect(written("[1.0,1e3,9007199254740991,9007199254740993]")).toBe(
    "[1,1000,9007199254740991,9007199254740993]",
  );
});

test("what is not wanted stays as it was read, save below what is", () => {
  const text =
    '{"a":9223372036854775807,"own":{"a":[9223372036854775807]},"list":[{"own":[9223372036854775807]}]}';
  expect(written(text, (key) => key === "own")).toBe(
    text.replace("9223372036854775807", "9223372036854776000"),
  );
});

test("of a member that stands there twice the last one counts, as it does to JSON.parse", () => {
  const text = '{"a":12345678901234567890,"a":9223372036854775807}';
  const value = JSON.parse(text) as JsonValue;
  expect(() => keepDigits(value, new JsonReader(Buffer.from(text)))).toThrow(JsonFault);
  expect(JSON.stringify(value)).toBe('{"a":9223372036854776000}');
});
