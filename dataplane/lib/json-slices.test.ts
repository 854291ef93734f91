import fc from "fast-check";
import { expect, test } from "vitest";
import { written } from "../../test/fakes/written-json.ts";
import { JsonBytes, jsonInSlices, LazyList } from "./json-slices.ts";

test("any value of JSON is written as JSON.stringify writes it", async () => {
  const values = fc.oneof(fc.array(fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue()));
  await fc.assert(
    fc.asyncProperty(values, async (value) => {
      expect(await written(value as object)).toBe(JSON.stringify(value));
    }),
  );
});

test("what is left out, what cannot be left out of a list, and numbers as they stand are written alike", async () => {
  const number = (JSON as unknown as { rawJSON(json: string): object }).rawJSON("9007199254740993.25");
  const value = { none: undefined, list: [undefined, number, { none: undefined, number }, []], é: "\ud800" };
  expect(await written(value)).toBe(JSON.stringify(value));
});

test("a lazy list is written as the list that it makes, also an empty one", async () => {
  const lists: readonly (readonly unknown[])[] = [[], [1], [{ none: undefined, list: [] }, "two"]];
  for (const list of lists) {
    const lazy = { list: new LazyList(() => list), mapped: LazyList.of(list, (one) => [one, [one]]) };
    const whole = JSON.stringify({ list, mapped: list.flatMap((one) => [one, [one]]) });
    expect([await written(lazy), JSON.stringify(lazy)]).toEqual([whole, whole]);
  }
});

test("what is written already stands as it is, in a list too", async () => {
  const entry = { id: "é", n: 1 };
  const ready = new JsonBytes([Buffer.from(JSON.stringify(entry))]);
  const lazy = LazyList.of([ready, ready], (one) => [one]);
  expect(await written({ data: lazy, one: ready })).toBe(
    JSON.stringify({ data: [entry, entry], one: entry }),
  );
  expect(await written({ one: ready, n: 1 })).toBe(JSON.stringify({ one: entry, n: 1 }));
});

test("many ready bytes are written without a copy, in pieces, between what stands around them", async () => {
  const long = Buffer.from(JSON.stringify("é".repeat(100_000)));
  const value = { before: 1, one: new JsonBytes([Buffer.from("["), long, Buffer.from("]")]), after: 2 };
  const pieces: Buffer[] = [];
  for await (const piece of jsonInSlices(value, 1_000)) pieces.push(piece);
  const all = Buffer.concat(pieces).toString();
  expect(all).toBe(JSON.stringify({ before: 1, one: ["é".repeat(100_000)], after: 2 }));
  expect(Math.max(...pieces.map(({ length }) => length))).toBe(64 * 1024);
  expect(pieces.filter(({ buffer }) => buffer === long.buffer)).toHaveLength(4);
});
