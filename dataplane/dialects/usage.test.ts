/** Token usage of upstreams, as real ones report it (dialects.md §D4). */
import { describe, expect, test } from "vitest";
import {
  readChatUsage,
  readMessagesUsage,
  readResponsesUsage,
  writeChatUsage,
  writeResponsesUsage,
} from "./usage.ts";

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
});
