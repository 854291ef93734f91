import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { space, valueText } from "../../test/fakes/odd-json.ts";
import { JsonReader, type ObjectSpan } from "./json-reader.ts";
import { insertMembers, removeEntries, replaceValue, splice } from "./json-splice.ts";

const membersOf = (text: string): ObjectSpan =>
  JsonReader.whole(Buffer.from(text), (reader) => reader.members());

describe("editing", () => {
  const object = fc
    .tuple(
      fc.uniqueArray(fc.tuple(fc.string({ maxLength: 6 }), valueText), {
        selector: ([key]) => key,
        maxLength: 6,
      }),
      space,
      space,
    )
    .map(([entries, before, after]) => ({
      text: `{${before}${entries.map(([key, value]) => `${JSON.stringify(key)}${after}:${before}${value}`).join(`${before},${after}`)}${after}}`,
      keys: entries.map(([key]) => key),
    }));

  test("any removal together with an insertion leaves exactly the other members, byte for byte", () => {
    fc.assert(
      fc.property(
        object,
        fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
        fc.boolean(),
        ({ text }, mask, insert) => {
          const bytes = Buffer.from(text);
          const span = membersOf(text);
          const gone = (index: number) => mask[index] === true;
          const kept = span.members.filter((_, index) => !gone(index));
          const inserted = insert ? ([["new key", "12345678901234567890"]] as const) : [];
          const edited = splice(bytes, [
            ...insertMembers(span, inserted, kept.length),
            ...removeEntries(span.members, gone),
          ]).toString();
          const after = membersOf(edited);
          const sent = after.members.map((member) => [
            member.key,
            Buffer.from(edited).toString("utf8", member.start, member.end),
          ]);
          expect(sent).toEqual([
            ...inserted,
            ...kept.map((member) => [member.key, bytes.toString("utf8", member.start, member.end)]),
          ]);
        },
      ),
    );
  });

  test("a replacement touches no byte outside its span", () => {
    fc.assert(
      fc.property(object, fc.nat(), valueText, ({ text }, pick, value) => {
        const bytes = Buffer.from(text);
        const { members } = membersOf(text);
        const member = members[pick % Math.max(1, members.length)];
        if (member === undefined) return;
        const edited = splice(bytes, [replaceValue(member, value)]);
        expect(edited.subarray(0, member.start).equals(bytes.subarray(0, member.start))).toBe(true);
        expect(
          edited.subarray(edited.length - (bytes.length - member.end)).equals(bytes.subarray(member.end)),
        ).toBe(true);
        expect(edited.toString("utf8", member.start, member.start + Buffer.byteLength(value))).toBe(value);
      }),
    );
  });

  test("array items are removed with their comma", () => {
    const text = "[ 1 , 2 ,3, 4 ]";
    const items: { start: number; end: number }[] = [];
    JsonReader.whole(Buffer.from(text), (reader) =>
      reader.array(() => {
        const start = reader.position;
        reader.skip();
        items.push({ start, end: reader.position });
      }),
    );
    const without = (...gone: number[]) =>
      splice(
        Buffer.from(text),
        removeEntries(items, (index) => gone.includes(index)),
      ).toString();
    expect(without(0)).toBe("[ 2 ,3, 4 ]");
    expect(without(1)).toBe("[ 1 , 3, 4 ]");
    expect(without(3)).toBe("[ 1 , 2 ,3 ]");
    expect(without(2, 3)).toBe("[ 1 , 2 ]");
    expect(without(0, 1, 2, 3)).toBe("[  ]");
  });

  const edited = (text: string, ...edits: readonly (readonly [number, number, string | Buffer])[]) =>
    splice(
      Buffer.from(text),
      edits.map(([start, end, inserted]) => ({ start, end, text: inserted })),
    ).toString();

  test("edits come in any order, those at one place in the order given", () => {
    expect(edited("abc", [3, 3, "!"], [2, 2, "X"], [0, 0, "é"], [2, 2, Buffer.from("漢")])).toBe("éabX漢c!");
    const untouched = Buffer.from("abc");
    expect(splice(untouched, [])).toBe(untouched);
  });

  test("what lies inside of what is removed goes with it, what stands beside it stays", () => {
    expect(edited("abcdef", [1, 4, ""], [1, 2, "X"], [2, 2, "X"], [3, 4, "X"])).toBe("aef");
    expect(edited("abcdef", [1, 4, ""], [4, 4, "X"], [4, 5, "Y"])).toBe("aXYf");
  });

  test.each<[string, ...[number, number, string][]]>([
    ["two removals", [1, 3, ""], [2, 4, ""]],
    ["a change inside of a replacement", [0, 4, "X"], [1, 2, "Y"]],
    ["two replacements of one place", [0, 1, "X"], [0, 1, "Y"]],
    ["an end before its beginning", [3, 2, "X"]],
    ["an end behind the text", [4, 6, "X"]],
  ])("edits that overlap are a bug, not a corrupt body: %s", (_name, ...edits) => {
    expect(() => edited("[1,2]", ...edits)).toThrow(RangeError);
  });
});
