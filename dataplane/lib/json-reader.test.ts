import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { space, valueText } from "../../test/fakes/odd-json.ts";
import { bodyLimits } from "./body-limits.ts";
import { JsonFault, JsonReader, MAX_JSON_DEPTH, type ObjectSpan } from "./json-reader.ts";
import { runs } from "../../test/fakes/runs.ts";

const skipAll = (text: string | Buffer) =>
  JsonReader.whole(Buffer.from(text), (reader) => {
    reader.skip();
    return reader.position;
  });
const membersOf = (text: string): ObjectSpan =>
  JsonReader.whole(Buffer.from(text), (reader) => reader.members());

function accepts(text: string): boolean {
  try {
    skipAll(text);
    return true;
  } catch (fault) {
    if (!(fault instanceof JsonFault)) throw fault;
    return false;
  }
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

describe("validity", () => {
  test("whatever is JSON is read to its end", () => {
    fc.assert(
      fc.property(valueText, space, space, (text, before, after) => {
        expect(skipAll(before + text + after)).toBe(Buffer.byteLength(before + text));
      }),
    );
  });

  test("agrees with JSON.parse after any small mutation", () => {
    const mutation = fc.record({
      at: fc.nat(),
      remove: fc.nat({ max: 3 }),
      insert: fc.string({
        unit: fc.constantFrom(...Array.from('{}[]",:\\0123eE+-.tfnulrsa \n\u0000\u001fé')),
        maxLength: 3,
      }),
    });
    fc.assert(
      fc.property(valueText, mutation, (text, { at, remove, insert }) => {
        const cut = at % (text.length + 1);
        const mutant = text.slice(0, cut) + insert + text.slice(cut + remove);
        // A cut may halve a surrogate pair; what reaches us as bytes is then the replacement character.
        const sent = Buffer.from(mutant).toString();
        expect(accepts(sent)).toBe(parses(sent));
      }),
      { numRuns: runs(2000) },
    );
  });

  test.each([
    ["", 0],
    [" ", 1],
    ['{"a":1,}', 7],
    ["[1,]", 3],
    ["[1 2]", 3],
    ['{"a" 1}', 5],
    ["{a:1}", 1],
    ["01", 1],
    ["1.", 2],
    ["-", 1],
    ["1e", 2],
    ["+1", 0],
    ["tru", 3],
    ["nulL", 3],
    ["NaN", 0],
    ['"a\nb"', 2],
    [String.raw`"\x"`, 2],
    [String.raw`"\u12g4"`, 5],
    ['"abc', 4],
    ["{} {}", 3],
    ["\uFEFF{}", 0],
    [`{"a":"${"x".repeat(500)}\u0001"}`, 506],
  ])("the fault in %j stands at its position", (text, position) => {
    expect(() => skipAll(text)).toThrow(expect.objectContaining({ kind: "syntax", position }));
  });

  test("a long string is searched for control characters at every alignment", () => {
    for (let length = 60; length < 90; length += 1)
      for (let at = 0; at < length; at += 7)
        for (const bad of ["\u0000", "\u001f", "\n"]) {
          const text = "y".repeat(at) + bad + "y".repeat(length - at);
          const padded = Buffer.concat([Buffer.alloc(at % 5), Buffer.from(`"${text}"`)]).subarray(at % 5);
          expect(() => skipAll(padded)).toThrow(expect.objectContaining({ position: at + 1 }));
        }
  });

  test("bytes that are not UTF-8 are named with their position", () => {
    for (const before of ["", "a", "é漢", "x".repeat(1000), "漢".repeat(999)]) {
      const bytes = Buffer.concat([Buffer.from(`"${before}`), Buffer.from([0xff]), Buffer.from('b"')]);
      const position = 1 + Buffer.byteLength(before);
      expect(() => JsonReader.whole(bytes, (reader) => reader.skip())).toThrow(
        expect.objectContaining({ kind: "encoding", position }),
      );
    }
  });

  test("the depth is bounded, whether a value is read or skipped", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    expect(accepts(nested(MAX_JSON_DEPTH))).toBe(true);
    expect(() => skipAll(nested(MAX_JSON_DEPTH + 1))).toThrow(expect.objectContaining({ kind: "depth" }));
    expect(() => membersOf(`{"a":${nested(MAX_JSON_DEPTH)}}`)).toThrow(
      expect.objectContaining({ kind: "depth" }),
    );
  });
});

describe("reading", () => {
  test("members know their positions", () => {
    const text = ' { "model" : "x" ,\n"big":12345678901234567890, "é":[1, 2] }';
    const bytes = Buffer.from(text);
    const { members } = membersOf(text);
    expect(members.map(({ key, kind }) => [key, kind])).toEqual([
      ["model", "string"],
      ["big", "number"],
      ["é", "array"],
    ]);
    expect(members.map(({ start, end }) => bytes.toString("utf8", start, end))).toEqual([
      '"x"',
      "12345678901234567890",
      "[1, 2]",
    ]);
  });

  test("rule 1.4: a duplicate key is refused, also when one of the two is spelled with an escape", () => {
    expect(() => membersOf('{"model":"a","model":"b"}')).toThrow(
      expect.objectContaining({ kind: "duplicate", position: 13 }),
    );
    expect(() => membersOf(String.raw`{"model":"a","\u006dodel":"b"}`)).toThrow(
      expect.objectContaining({ kind: "duplicate" }),
    );
    const many = Array.from({ length: 100 }, (_, index) => `"k${index}":1`).join(",");
    expect(() => membersOf(`{${many},"k3":2}`)).toThrow(expect.objectContaining({ kind: "duplicate" }));
    expect(membersOf(`{${many}}`).members).toHaveLength(100);
  });

  test("of an object with duplicate keys each is told, and counts among its keys", () => {
    const keysOf = (text: string): string[] => {
      const keys: string[] = [];
      JsonReader.whole(Buffer.from(text), (reader) => reader.object((key) => keys.push(key)), "told");
      return keys;
    };
    expect(keysOf('{"a":1,"b":2,"a":3}')).toEqual(["a", "b", "a"]);
    const same = (count: number) => `{${Array.from({ length: count }, () => '"a":1').join(",")}}`;
    expect(keysOf(same(bodyLimits.keys))).toHaveLength(bodyLimits.keys);
    expect(() => keysOf(same(bodyLimits.keys + 1))).toThrow(expect.objectContaining({ kind: "keys" }));
  });

  test("values are decoded, or undefined where they are of another kind", () => {
    const bytes = Buffer.from(String.raw`["a\u00e9\n", 12.5e1, true, null, {"a":[1]}, "x"]`);
    const seen: unknown[] = [];
    JsonReader.whole(bytes, (reader) =>
      reader.array((index) => {
        if (index === 0) seen.push(reader.string());
        else if (index === 1) seen.push(reader.number());
        else if (index === 2) seen.push(reader.boolean());
        else if (index === 3) seen.push(reader.string());
        else if (index === 4) seen.push(reader.value());
        else seen.push(reader.number());
      }),
    );
    expect(seen).toEqual(["aé\n", 125, true, undefined, { a: [1] }, undefined]);
  });
});
