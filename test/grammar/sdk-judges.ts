/** What the official SDKs make of a stream's bytes: their own accumulators are the judges. No sockets. */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import type { JsonObject } from "../../dataplane/dialects/messages/types.ts";

/** Answers every request with these bytes. */
const answering = (bytes: string) =>
  (() =>
    Promise.resolve(
      new Response(bytes, { status: 200, headers: { "content-type": "text/event-stream; charset=utf-8" } }),
    )) as typeof fetch;

const options = (bytes: string) => ({
  apiKey: "sk-svc-test",
  baseURL: "http://gateway.invalid/v1",
  maxRetries: 0,
  fetch: answering(bytes),
});

/** The whole answer that the dialect's SDK puts together. @throws whatever the SDK throws. */
export const accumulated: Record<Dialect, (bytes: string) => Promise<JsonObject>> = {
  messages: async (bytes) => {
    const client = new Anthropic({ ...options(bytes), baseURL: "http://gateway.invalid" });
    const stream = client.messages.stream({ model: "m", max_tokens: 8, messages: [] });
    return plain(await stream.finalMessage());
  },
  chat: async (bytes) => {
    const stream = new OpenAI(options(bytes)).chat.completions.stream({ model: "m", messages: [] });
    return plain(await stream.finalChatCompletion());
  },
  responses: async (bytes) => {
    const stream = new OpenAI(options(bytes)).responses.stream({ model: "m", input: "" });
    return plain(await stream.finalResponse());
  },
};

const plain = (value: unknown): JsonObject => JSON.parse(JSON.stringify(value)) as JsonObject;
