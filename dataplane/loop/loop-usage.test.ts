import { expect, test } from "vitest";
import { LoopUsage } from "./loop-usage.ts";

// From these the usual output of a route is learned (rule 9.7): a call that was not made has none.
test("the calls of a loop are those that were made, one under way included", () => {
  const used = new LoopUsage();
  const outputs = () => used.observed.calls?.map(({ output }) => output);
  expect(outputs()).toEqual([]);
  used.observe({ input_tokens: 10, output_tokens: 5 });
  expect(outputs()).toEqual([5]);
  used.commit();
  expect(outputs()).toEqual([5]);
  used.observe({ input_tokens: 20, output_tokens: 7 });
  expect(outputs()).toEqual([5, 7]);
  used.discard();
  expect(outputs()).toEqual([5]);
  expect(used.observed.tokens).toMatchObject({ input: 10, output: 5 });
});
