import { expect, test } from "vitest";
import type { MessagesUsage } from "../dialects/messages/types.ts";
import { isNothing, noTokens, noTools, promptOf, tokensOf } from "./token-usage.ts";

const used = (more: Partial<MessagesUsage> = {}) => tokensOf({ input_tokens: 10, output_tokens: 5, ...more });

test("each class of an answer's usage is billed as itself", () => {
  expect(used()).toEqual({ ...noTokens, input: 10, output: 5 });
  expect(
    used({
      cache_read_input_tokens: 3,
      cache_creation: { ephemeral_5m_input_tokens: 20, ephemeral_1h_input_tokens: 100 },
      output_tokens_details: { thinking_tokens: 4 },
      tiers: { charged: ["fast"], doubtful: [] },
    }),
  ).toEqual({
    input: 10,
    cacheRead: 3,
    cacheWrite5m: 20,
    cacheWrite1h: 100,
    output: 5,
    reasoning: 4,
    tiers: { charged: ["fast"], doubtful: [] },
  });
});

test("rule 7.9: parts are no more than the whole that they are parts of", () => {
  expect(used({ output_tokens_details: { thinking_tokens: 6 } }).reasoning).toBe(5);
  const media = (audioInput: number, audioOutput: number, imageOutput: number) =>
    used({ media: { audioInput, audioOutput, imageOutput } });
  expect(media(9, 2, 3)).toMatchObject({ audioInput: 9, audioOutput: 2, imageOutput: 3 });
  expect(media(11, 2, 4)).toMatchObject({ audioInput: 10, audioOutput: 2, imageOutput: 3 });
  expect(media(0, 6, 1)).toMatchObject({ audioInput: 0, audioOutput: 5, imageOutput: 0 });
  expect(used({ media: {} })).toMatchObject({ audioInput: 0, audioOutput: 0, imageOutput: 0 });
});

test("a prompt is all that was sent, read from a cache, written to one, or neither", () => {
  const tokens = { ...noTokens, input: 1, cacheRead: 20, cacheWrite5m: 300, cacheWrite1h: 4000, output: 9 };
  expect(promptOf(tokens)).toBe(4321);
});

test("a single token or call of a tool is something, a tier and nonsense are nothing", () => {
  const nothing = (tokens: object, tools: object = {}) =>
    isNothing({ tokens: { ...noTokens, ...tokens }, tools: { ...noTools, ...tools }, estimated: false });
  expect(nothing({})).toBe(true);
  expect(nothing({ tiers: { charged: ["fast"], doubtful: [] } })).toBe(true);
  expect(nothing({ input: -1, output: Number.NaN })).toBe(true);
  for (const name of Object.keys(noTokens)) expect(nothing({ [name]: 1 })).toBe(false);
  for (const name of Object.keys(noTools)) expect(nothing({}, { [name]: 1 })).toBe(false);
});
