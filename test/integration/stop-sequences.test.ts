/**
 * Rule 2.4 as the official SDKs live it, over HTTP and with real money: toward an upstream without stop sequences the
 * stream ends at the sequence, the upstream sees its caller go, and the organization pays for what was seen.
 */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { withFaults } from "../fakes/upstream/server.ts";
import { startInferenceWorld, type InferenceWorld } from "./inference-world.ts";

let world: InferenceWorld;
beforeAll(async () => {
  world = await startInferenceWorld();
});
beforeEach(() => world.upstream.reset());
afterAll(() => world[Symbol.asyncDispose]());

const reported = { input: 1_000, output: 500 };
/** Sent in a minute, unless somebody ends it. */
const endless = withFaults(text(`One two. STOP${" and on".repeat(3_000)}`, reported), {
  delayBetweenEventsMs: 20,
});
const used = async () => (await world.credit()).used;

test("the Messages SDK, streamed and whole", async () => {
  const client = new Anthropic({ baseURL: world.server.url, apiKey: sampleKeys.inference, maxRetries: 0 });
  const body = {
    model: "m-responses",
    max_tokens: 4_000,
    messages: [{ role: "user" as const, content: "Count" }],
    stop_sequences: ["STOP"],
  };
  world.upstream.next(endless, text("One two. STOP and on.", reported));
  const before = await used();
  const streamed = await client.messages.stream(body).finalMessage();
  const shown = { stop_reason: "stop_sequence", stop_sequence: "STOP" };
  expect(streamed).toMatchObject({ ...shown, content: [{ type: "text", text: "One two. " }] });
  await expect.poll(() => world.upstream.requests[0]?.outcome).toBe("aborted");
  const { used: paid, held } = await world.credit();
  expect(held).toBe(0n);
  // At the sample prices, 96 and 480 micro-credits a token, for what the client was told.
  const { input_tokens: input, output_tokens: output } = streamed.usage;
  expect(paid - before).toBe(BigInt(input) * 96n + BigInt(output) * 480n);
  expect(output).toBeLessThan(20);

  expect(await client.messages.create(body)).toMatchObject({
    ...shown,
    content: [{ type: "text", text: "One two. " }],
  });
  expect((await used()) - paid).toBe(1_000n * 96n + 500n * 480n);
});

test("the Chat SDK, with more sequences than Chat takes", async () => {
  const client = new OpenAI({
    baseURL: `${world.server.url}/v1`,
    apiKey: sampleKeys.inference,
    maxRetries: 0,
  });
  for (const stop of ["STOP", ["1", "2", "3", "4", "STOP"]]) {
    world.upstream.reset();
    world.upstream.next(endless);
    const stream = client.chat.completions.stream({
      model: "m-responses",
      messages: [{ role: "user", content: "Count" }],
      stop,
    });
    const { choices } = await stream.finalChatCompletion();
    expect(choices).toMatchObject([{ finish_reason: "stop", message: { content: "One two. " } }]);
    await expect.poll(() => world.upstream.requests[0]?.outcome).toBe("aborted");
  }
});
