import fc from "fast-check";
import { expect, test } from "vitest";
import { placeOf } from "./json-place.ts";
import { JsonReader } from "./json-reader.ts";
import { runs } from "../../test/fakes/runs.ts";

const at = (text: string, mark: string) =>
  placeOf(Buffer.from(text), Buffer.byteLength(text.slice(0, text.indexOf(mark))));

test.each([
  ['{"a":{"b":[0,{"c":!}]}}', ["a", "b", 1]],
  ["[!]", []],
  ["!", []],
  ['{"a":[[],[1,2],["]{\\"",!]]}', ["a", 2]],
  [String.raw`{"x":"{[\\","\u0061\"":{"k":[!`, ['a"', "k"]],
  ['{"a":{"b":1},"c":{"d":!', ["c"]],
])("%s stands in %j", (text, path) => {
  expect(at(text, "!")).toEqual(path);
});

test("long paths and keys are cut", () => {
  const deep = '{"a":'.repeat(100);
  expect(placeOf(Buffer.from(deep), deep.length)).toHaveLength(20);
  const long = `{"${"k".repeat(500)}":[`;
  expect(placeOf(Buffer.from(long), long.length)).toEqual(["k".repeat(60)]);
});

test("every member that a reader finds stands where it says", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const bytes = Buffer.from(JSON.stringify({ a: [value], b: { c: value } }));
      const reader = new JsonReader(bytes);
      reader.object((outer) => {
        if (outer !== "b") return;
        reader.object((inner) => {
          expect(placeOf(bytes, reader.position)).toEqual(["b"]);
          if (reader.kind() !== "array") return;
          reader.array((index) => {
            reader.kind();
            const path = placeOf(bytes, reader.position);
            expect([...path, index]).toEqual(["b", inner, index]);
          });
        });
      });
    }),
    { numRuns: runs(200) },
  );
});
