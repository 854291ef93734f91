import fc from "fast-check";
import { expect, test } from "vitest";
import { ApiError } from "./api-error.ts";
import { readJsonObject } from "./json-read.ts";
import { runs } from "../../test/fakes/runs.ts";

function fault(text: string | Buffer): string {
  try {
    readJsonObject(Buffer.from(text as string));
  } catch (error) {
    if (error instanceof ApiError && error.kind.status === 400) return error.message;
    throw error;
  }
  return "read";
}

test.each<[string, string | Buffer, RegExp]>([
  ["nothing", "", /empty/],
  ["white space", " \n\t", /empty/],
  ["a text that stops", '{"a": [1, 2', /end of JSON.* at line 1, column 12 \(position 11\)/],
  ["a fault on the third line", '{\n "a": 1,\n "é": x}', /line 3, column 7 \(position 18\)/],
  ["a trailing comma", '{"a":1,}', /column 8/],
  ["a single quote", "{'a':1}", /column 2/],
  ["two objects", "{} {}", /column 4/],
  ["a list", "[1]", /must be a JSON object/],
  ["a text", '"x"', /must be a JSON object/],
  ["null", "null", /must be a JSON object/],
  ["too deep a list", `{"a":${"[".repeat(100_000)}`, /128 levels/],
  ["too deep objects", `{"a":${'{"a":'.repeat(300)}1${"}".repeat(301)}`, /128 levels/],
  ["a key twice", '{"a":1,"b":{"a":2},"a":3}', /Duplicate key "a"/],
  ["a key twice, once escaped", String.raw`{"a":1,"\u0061":3}`, /Duplicate key "a"/],
  ["__proto__ twice", '{"__proto__":1,"__proto__":3}', /Duplicate key "__proto__"/],
  ["bytes that are not UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), /not UTF-8/],
  ["a control character in a text", '{"a":"\u0001"}', /not valid JSON/],
])("%s is 400 and says where (rule 1.4)", (_, text, words) => {
  expect(fault(text)).toMatch(words);
});

test("a byte order mark, nested duplicates, odd keys and lone surrogates are read", () => {
  expect(readJsonObject(Buffer.from('\ufeff{"a":1}'))).toEqual({ a: 1 });
  expect(fault('{"a":{"b":1,"b":2}}')).toBe("read");
  const odd = readJsonObject(Buffer.from(String.raw`{"__proto__":{"x":1},"s":"\ud800"}`));
  expect(Object.keys(odd)).toEqual(["__proto__", "s"]);
  expect(odd["x"]).toBe(undefined);
});

test("what JSON.parse reads is read alike, what it refuses is refused", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue(), { noNullPrototype: true }), (value) => {
      const text = JSON.stringify(value);
      expect(readJsonObject(Buffer.from(text))).toEqual(JSON.parse(text));
    }),
  );
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...'{}[],:"\\u0a1-+.eE tfn\n'.split(""))), (characters) => {
      const text = `{${characters.join("")}`;
      let valid = true;
      try {
        JSON.parse(text);
      } catch {
        valid = false;
      }
      expect(valid || fault(text) !== "read").toBe(true);
    }),
    { numRuns: runs(2000) },
  );
});
