import { expect, test } from "vitest";
import { Gathered } from "./gathered.ts";

/** Doubles what it is asked, and notes what was asked at once. */
function doubling(most: number) {
  const asked: (readonly number[])[] = [];
  const gathered = new Gathered(async (questions: readonly number[]) => {
    asked.push([...questions]);
    return new Map(questions.map((one) => [one, 2 * one]));
  }, most);
  const ask = async (one: number) => (await gathered.ask(one)).get(one);
  return { asked, ask };
}

test("what is asked in one turn is asked together, and each gets its answer", async () => {
  const { asked, ask } = doubling(10);
  expect(await Promise.all([1, 2, 3].map(ask))).toEqual([2, 4, 6]);
  expect(await ask(4)).toBe(8);
  expect(asked).toEqual([[1, 2, 3], [4]]);
});

test("no more than the most are asked at once", async () => {
  const { asked, ask } = doubling(2);
  expect(await Promise.all([1, 2, 3, 4, 5].map(ask))).toEqual([2, 4, 6, 8, 10]);
  expect(asked.toSorted((one, other) => (one[0] ?? 0) - (other[0] ?? 0))).toEqual([[1, 2], [3, 4], [5]]);
});

test("all who asked together hear of a failure, and the next are asked anew", async () => {
  let broken = true;
  const gathered = new Gathered(async (questions: readonly number[]) => {
    if (broken) throw new Error("away");
    return questions.length;
  }, 10);
  const failed = await Promise.allSettled([gathered.ask(1), gathered.ask(2)]);
  expect(failed.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  broken = false;
  expect(await gathered.ask(3)).toBe(1);
});
