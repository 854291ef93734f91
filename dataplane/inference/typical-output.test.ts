import { expect, test } from "vitest";
import { sampleOrganization, sampleRoute } from "../../test/fakes/sample-snapshot.ts";
import { usage } from "../../test/integration/money-world.ts";
import { TypicalOutput } from "./typical-output.ts";

const route = sampleRoute("alpha");
const typical = sampleOrganization("org", { hold: "typical" });
const answer = (output: number) => usage(0, { tokens: { ...usage(0).tokens, output } });

test("rule 9.7: held is what 95 of 100 answers of the route take, and at least 1,024", () => {
  const outputs = new TypicalOutput();
  expect(outputs.held(typical, route, 64_000)).toBe(1_024);
  for (let tokens = 100; tokens <= 10_000; tokens += 100) outputs.learn(route, answer(tokens), 1);
  expect(outputs.held(typical, route, 64_000)).toBe(9_500);
  // Never more than the limit; nothing of another route; all of it for an organization that holds the worst case.
  expect(outputs.held(typical, route, 500)).toBe(500);
  expect(outputs.held(typical, sampleRoute("beta"), 64_000)).toBe(1_024);
  expect(outputs.held(sampleOrganization("org"), route, 64_000)).toBe(64_000);
  // Answers that were usual before are forgotten.
  for (let index = 0; index < 256; index += 1) outputs.learn(route, answer(2_000), 1);
  expect(outputs.held(typical, route, 64_000)).toBe(2_000);
});

test("each call of a tool loop and each choice is an answer; those that failed are none", () => {
  const outputs = new TypicalOutput();
  const { tokens } = answer(2_000);
  outputs.learn(route, { ...answer(6_000), calls: [tokens, tokens, tokens] }, 1);
  outputs.learn(route, answer(8_000), 4);
  outputs.learn(route, { ...answer(50_000), status: "error" }, 1);
  outputs.learn(route, null, 1);
  expect(outputs.held(typical, route, 64_000)).toBe(2_000);
});

test("a namespace with very many routes makes its own forgotten, not those of others", () => {
  const outputs = new TypicalOutput();
  outputs.learn(route, answer(2_000), 1);
  const source = { ...route.source, namespace: "greedy" };
  for (let n = 0; n < 5_000; n += 1) {
    const greedy = sampleRoute(`greedy-${n}`, { source: { ...source, uid: `greedy-${n}` } });
    outputs.learn(greedy, answer(3_000), 1);
  }
  expect(outputs.held(typical, route, 64_000)).toBe(2_000);
  const first = { source: { ...source, uid: "greedy-0" } };
  expect(outputs.held(typical, first, 64_000)).toBe(1_024);
});
