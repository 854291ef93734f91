/** Token usage of upstreams, as real ones report it (dialects.md §D4). */
import { describe, expect, test } from "vitest";
import type { MessagesUsage } from "./messages/types.ts";
import {
  countedUsage,
  plausibleUsage,
  readChatUsage,
  readMessagesUsage,
  readResponsesUsage,
} from "./usage.ts";
import { openaiTier, writeChatUsage, writeResponsesUsage } from "./write-usage.ts";

const split = (fiveMinutes: number, oneHour: number) => ({
  ephemeral_5m_input_tokens: fiveMinutes,
  ephemeral_1h_input_tokens: oneHour,
});

test.each([
  ["ultrafast", null, "ultrafast"],
  ["fast", "fast", "fast"],
  ["standard", "default", "default"],
  [undefined, "default", "default"],
])("the tier %s is told in words that the client's dialect has", (tier, chat, responses) => {
  const usage = tier === undefined ? {} : { service_tier: tier };
  expect([openaiTier(usage, "chat"), openaiTier(usage, "responses")]).toEqual([chat, responses]);
});

describe("a Chat upstream's usage", () => {
  test("the cache's tokens are no input tokens of their own", () => {
    const usage = {
      prompt_tokens: 100,
      completion_tokens: 20,
      total_tokens: 120,
      prompt_tokens_details: { cached_tokens: 30, cache_write_tokens: 10 },
      completion_tokens_details: { reasoning_tokens: 5 },
    };
    expect(readChatUsage(usage)).toEqual({
      input_tokens: 60,
      output_tokens: 20,
      cache_read_input_tokens: 30,
      cache_creation_input_tokens: 10,
      output_tokens_details: { thinking_tokens: 5 },
    });
  });

  test("xAI's output leaves the reasoning out, its total does not", () => {
    const usage = {
      prompt_tokens: 12,
      completion_tokens: 2,
      total_tokens: 334,
      completion_tokens_details: { reasoning_tokens: 320 },
    };
    expect(readChatUsage(usage)?.output_tokens).toBe(322);
    expect(readChatUsage({ ...usage, completion_tokens: 322 })?.output_tokens).toBe(322);
  });

  test.each([{ prompt_cache_hit_tokens: 30 }, { cached_tokens: 30 }])(
    "other names of a cache: %j",
    (cache) => {
      const usage = { prompt_tokens: 100, completion_tokens: 1, ...cache };
      expect(readChatUsage(usage)).toMatchObject({ input_tokens: 70, cache_read_input_tokens: 30 });
    },
  );

  test.each([null, undefined, 7, { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 }, {}])(
    "%j reports nothing",
    (usage) => {
      expect(readChatUsage(usage)).toBeNull();
      expect(readResponsesUsage(usage)).toBeNull();
    },
  );

  test("more cached than sent never becomes a negative count", () => {
    const usage = { prompt_tokens: 5, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 9 } };
    expect(readChatUsage(usage)?.input_tokens).toBe(0);
  });
});

describe("a Messages upstream's usage", () => {
  test("null and absent never overwrite what was reported", () => {
    const before = readMessagesUsage({ input_tokens: 9, output_tokens: 1, cache_read_input_tokens: 4 }, null);
    const after = readMessagesUsage(
      { output_tokens: 7, input_tokens: null, cache_read_input_tokens: null },
      before,
    );
    expect(after).toMatchObject({ input_tokens: 9, output_tokens: 7, cache_read_input_tokens: 4 });
  });

  test("a prompt of zeros alone overwrites none that was reported, and a split of zeros no split", () => {
    const start = {
      input_tokens: 9,
      output_tokens: 1,
      cache_read_input_tokens: 4,
      cache_creation_input_tokens: 20,
      cache_creation: split(0, 20),
    };
    const before = readMessagesUsage(start, null);
    const zeros = { input_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
    expect(readMessagesUsage({ ...zeros, cache_creation: split(0, 0), output_tokens: 7 }, before)).toEqual({
      ...start,
      output_tokens: 7,
    });
    const again = { cache_creation_input_tokens: 20, cache_creation: split(0, 0), output_tokens: 7 };
    expect(readMessagesUsage(again, before)).toEqual({ ...start, output_tokens: 7 });
    // What was read from the cache after all.
    const read = { ...zeros, cache_read_input_tokens: 33, output_tokens: 7 };
    expect(readMessagesUsage(read, before)).toEqual({ ...read, cache_creation: split(0, 0) });
  });

  test("its cache classes are part of OpenAI's prompt", () => {
    const usage = {
      input_tokens: 60,
      output_tokens: 20,
      cache_read_input_tokens: 30,
      cache_creation_input_tokens: 10,
    };
    expect(writeChatUsage(usage)).toMatchObject({
      prompt_tokens: 100,
      completion_tokens: 20,
      total_tokens: 120,
    });
    expect(writeResponsesUsage(usage)).toMatchObject({
      input_tokens: 100,
      input_tokens_details: { cached_tokens: 30, cache_write_tokens: 10 },
      total_tokens: 120,
    });
  });

  test.each([
    { input_tokens: 10, output_tokens: 5, cache_creation: split(0, 30) },
    { input_tokens: 10, output_tokens: 5, cache_creation: split(20, 10), cache_creation_input_tokens: 20 },
  ])("what was written to a cache is in it where only the split says so: %j", (usage) => {
    expect(writeChatUsage(usage)).toMatchObject({
      prompt_tokens: 40,
      total_tokens: 45,
      prompt_tokens_details: { cache_write_tokens: 30 },
    });
    expect(writeResponsesUsage(usage)).toMatchObject({
      input_tokens: 40,
      input_tokens_details: { cache_write_tokens: 30 },
      total_tokens: 45,
    });
  });

  test("a prompt of which only the split is reported is not counted here as well", () => {
    const report = { input_tokens: 0, output_tokens: 5, cache_creation: split(0, 30) };
    expect(countedUsage(report, { estimatedInputTokens: 90 }, () => ({ tokens: 7 }))).toBe(report);
  });
});

describe("rule 10.6: audio and images of an answer", () => {
  const media = { audioInput: 20, outputs: ["audioOutput", "imageOutput"] as const };
  const asked = { estimatedInputTokens: 90, media };
  const seen = { tokens: 70, media: { audioOutput: 50, imageOutput: 8 } };
  const count = (reported: MessagesUsage | null, final = true) =>
    countedUsage(reported, asked, () => seen, final);
  const report = { input_tokens: 100, output_tokens: 60 };

  test("are counted here where nothing is reported", () => {
    const counted = { audioInput: 20, audioOutput: 50, imageOutput: 8 };
    expect(count(null)).toEqual({ input_tokens: 90, output_tokens: 70, estimated: true, media: counted });
    expect(count(report)).toEqual({ ...report, estimated: true, media: counted });
    const silent = () => ({ tokens: 70 });
    expect(countedUsage(null, asked, silent).media).toEqual({ audioInput: 20 });
    expect(countedUsage(null, { media: { ...media, audioInput: 0 } }, () => seen).media).toEqual({
      audioInput: 0,
      ...seen.media,
    });
    expect(countedUsage(null, { media: { ...media, audioInput: 0 } }, silent)).toEqual({
      input_tokens: 0,
      output_tokens: 70,
      estimated: true,
    });
  });

  test("are what is reported, and each that is not is counted here", () => {
    const whole = { ...report, media: { audioInput: 3, audioOutput: 4, imageOutput: 0 } };
    expect(count(whole)).toBe(whole);
    expect(count({ ...report, media: { audioOutput: 4, imageOutput: 5 } })).toEqual({
      ...report,
      estimated: true,
      media: { audioInput: 20, audioOutput: 4, imageOutput: 5 },
    });
    expect(count({ ...report, media: { audioInput: 3, audioOutput: 4 } }).media).toEqual({
      audioInput: 3,
      audioOutput: 4,
      imageOutput: 8,
    });
  });

  test("a running total of them is no less than was seen, and no more than either", () => {
    const running = { ...report, media: { audioInput: 3, audioOutput: 55, imageOutput: 2 } };
    expect(count(running, false)).toEqual({
      ...report,
      output_tokens: 70,
      estimated: true,
      media: { audioInput: 3, audioOutput: 55, imageOutput: 8 },
    });
    const nothing = { ...running, input_tokens: 0 };
    expect(count(nothing)).toMatchObject({ input_tokens: 90, media: { audioInput: 20, audioOutput: 55 } });
  });

  test("a request without any has none, and its output is not counted where it is reported", () => {
    const never = () => {
      throw new Error("the output is counted");
    };
    const none = { audioInput: 0, outputs: [] };
    expect(countedUsage(report, { media: none }, never)).toBe(report);
    expect(countedUsage(report, {}, never)).toBe(report);
    const one = { input_tokens: 1, output_tokens: 1 };
    expect(countedUsage(one, {}, never)).toBe(one);
    expect(countedUsage(null, {}, () => ({ tokens: 7 }))).toEqual({
      input_tokens: 0,
      output_tokens: 7,
      estimated: true,
    });
  });
});

test("rule 7.9: compactions that are one call together add up to a number, whatever they report", () => {
  const small = { type: "compaction", input_tokens: 5, output_tokens: 1 };
  const absurd = { ...small, cache_creation: split(0, 1e308) };
  const iterations = [...Array.from({ length: 7 }, () => small), absurd, absurd];
  const reported = readMessagesUsage({ input_tokens: 1, output_tokens: 1, iterations }, null);
  if (reported === null) throw new Error("it is a report");
  const believed = plausibleUsage(reported, { input: 100, output: 50 }, () => 0);
  expect(believed.compactions?.at(-1)).toMatchObject({
    input_tokens: 10,
    cache_creation: split(0, 55),
    output_tokens: 2,
  });
});

test("rule 7.9: a report that meets the bounds stands, and what is cut off adds up", () => {
  const cache = { ephemeral_5m_input_tokens: 30, ephemeral_1h_input_tokens: 40 };
  const reported = {
    input_tokens: 20,
    cache_read_input_tokens: 10,
    cache_creation_input_tokens: 70,
    cache_creation: cache,
    output_tokens: 50,
  };
  const none = () => 0;
  expect(plausibleUsage(reported, { input: 100, output: 50 }, none)).toBe(reported);
  expect(plausibleUsage(reported, { input: 100, output: 40 }, () => 10)).toBe(reported);
  expect(plausibleUsage(reported, { input: 90, output: 49 }, none)).toEqual({
    ...reported,
    cache_creation_input_tokens: 60,
    cache_creation: { ...cache, ephemeral_1h_input_tokens: 30 },
    output_tokens: 49,
    implausible: true,
  });
});
