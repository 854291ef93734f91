import { expect, test } from "vitest";
import { askAgain } from "./asking-again.ts";

test("is asked again as long as what was refused could be left out, and the last refusal is told", async () => {
  const answers = ["a", "b"];
  const left: unknown[] = [];
  const ask = () => Promise.reject(answers.shift());
  const leaveOut = async (refusal: unknown) => left.push(refusal) < 3;
  await expect(askAgain("first", ask, leaveOut)).rejects.toBe("b");
  expect(left).toEqual(["first", "a", "b"]);
});

test("an upstream that refuses whatever it gets is not asked for ever", async () => {
  let asked = 0;
  const ask = () => Promise.reject((asked += 1));
  await expect(askAgain(0, ask, async () => true)).rejects.toBe(5);
  expect(asked).toBe(5);
});
