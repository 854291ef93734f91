/**
 * An event that is one long text gives the client the same answer, and the same charge, as when all of it is read in this thread,
 * and does not hold that thread (rule 7.3).
 */
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { startTwoThreads } from "../../../test/fakes/large/two-threads.ts";
import { callOnWay, type LargeWay, waysOf } from "../../../test/fakes/large/way.ts";
import { longestHoldMs } from "../../../test/fakes/large/watch-loop.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { Serve } from "../call.ts";

const threads = await startTwoThreads();
const { fake, elsewhere } = threads;
beforeEach(() => fake.reset());
afterAll(() => threads.close());

const framed = (data: object | string): string => {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  const type = typeof data === "object" && "type" in data ? `event: ${String(data.type)}\n` : "";
  return `${type}data: ${text}\n\n`;
};
const stream = (...events: (object | string)[]): string => events.map(framed).join("");

const chunk = (delta: object, finish: string | null = null, more: object = {}) => ({
  id: "c",
  object: "chat.completion.chunk",
  created: 1,
  model: "theirs",
  choices: [{ index: 0, delta, finish_reason: finish }],
  ...more,
});
const call = (json: string) => ({ index: 0, id: "call_1", function: { name: "f", arguments: json } });
const message = {
  id: "m",
  type: "message",
  role: "assistant",
  model: "theirs",
  content: [],
  usage: { input_tokens: 3, output_tokens: 1 },
};
const messagesStream = (block: object, delta: object): string =>
  stream(
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: block },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "end_turn" } },
    { type: "message_stop" },
  );
const responsesStream = (type: string, item: object, ...events: object[]): string =>
  stream(
    {
      type: "response.created",
      sequence_number: 0,
      response: { id: "r", object: "response", model: "theirs" },
    },
    ...events.map((event) => ({ output_index: 0, content_index: 0, item_id: "i", ...event })),
    { type: "response.output_item.done", sequence_number: 3, output_index: 0, item },
    {
      type,
      sequence_number: 4,
      response: { id: "r", object: "response", model: "theirs", status: "completed", output: [item] },
    },
  );
const messageItem = (text: string) => ({
  id: "i",
  type: "message",
  content: [
    { type: "output_text", text, annotations: [] },
    { type: "output_text", text: "Short.", annotations: [] },
  ],
});
const callItem = (json: string) => ({
  id: "i",
  type: "function_call",
  call_id: "c",
  name: "f",
  arguments: json,
});

/** Streams without a report of their usage: what they cost is counted here. */
const streams: readonly [name: string, to: Dialect, of: (text: string) => string][] = [
  ["a text", "chat", (text) => stream(chunk({ content: "Hi" }), chunk({ content: text }), chunk({}, "stop"))],
  [
    "all in one chunk",
    "chat",
    (text) => stream(chunk({ role: "assistant", content: text }, "stop"), "[DONE]"),
  ],
  [
    "parts of a text",
    "chat",
    (text) =>
      stream(
        chunk(
          {
            content: [
              { type: "text", text },
              { type: "text", text },
            ],
          },
          "stop",
        ),
      ),
  ],
  [
    "reasoning",
    "chat",
    (text) => stream(chunk({ reasoning_content: text }), chunk({ content: "Hi" }, "stop")),
  ],
  [
    "reasoning and a text",
    "chat",
    (text) => stream(chunk({ reasoning_content: text, content: text }, "stop")),
  ],
  ["a call", "chat", (text) => stream(chunk({ tool_calls: [call(JSON.stringify({ text }))] }, "tool_calls"))],
  ["a text", "messages", (text) => messagesStream({ type: "text", text: "" }, { type: "text_delta", text })],
  [
    "a text at the beginning",
    "messages",
    (text) => messagesStream({ type: "text", text }, { type: "text_delta", text: "Hi" }),
  ],
  [
    "a call",
    "messages",
    (text) =>
      messagesStream(
        { type: "tool_use", id: "t", name: "f", input: {} },
        { type: "input_json_delta", partial_json: JSON.stringify({ text }) },
      ),
  ],
  [
    "arguments at the beginning",
    "messages",
    (text) =>
      messagesStream(
        { type: "tool_use", id: "t", name: "f", input: { text } },
        { type: "input_json_delta", partial_json: "" },
      ),
  ],
  [
    "a text",
    "responses",
    (text) =>
      responsesStream(
        "response.completed",
        messageItem(text),
        { type: "response.output_text.delta", sequence_number: 1, delta: text },
        { type: "response.output_text.done", sequence_number: 2, text },
      ),
  ],
  ["a text at the end", "responses", (text) => responsesStream("response.incomplete", messageItem(text))],
  [
    "a call",
    "responses",
    (text) => responsesStream("response.completed", callItem(JSON.stringify({ text }))),
  ],
];

async function served(serve: Serve, answer: string, way: LargeWay) {
  fake.reset();
  fake.next({ raw: { body: answer, contentType: "text/event-stream" } });
  const call = callOnWay(fake.url, { ...way, request: { stream: true } });
  await serve(call);
  return call;
}

async function outcome(serve: Serve, answer: string, way: LargeWay) {
  const { sink, meter } = await served(serve, answer, way);
  const isRelayed = way.from === way.to && way.tools !== true;
  return { text: said(sink.text, isRelayed), settled: meter.settled, released: meter.released };
}

const moments = ["completed_at", "created_at", "created"];
/** What a stream says, however it is cut into deltas; as it is where it was relayed. */
function said(text: string, isRelayed: boolean): string {
  if (isRelayed) return threads.comparable(text, moments);
  let deltas = "";
  let more = "";
  for (const line of text.split("\n").filter((each) => each.startsWith("data: {"))) {
    const { delta, choices, ...event } = JSON.parse(line.slice(6)) as Record<string, unknown>;
    const [choice] = (choices ?? []) as { delta?: unknown }[];
    const told = delta ?? choice?.delta;
    if (told === undefined) more += JSON.stringify({ ...event, sequence_number: 0 });
    else
      JSON.stringify(told, (name, value: unknown) => {
        if (typeof value === "string" && name !== "type" && name !== "signature") deltas += value;
        return value;
      });
  }
  return deltas + threads.comparable(more, moments);
}

const long = 'He said "no", 中文.\n'.repeat(110_000);
describe.each(streams.map(([name, to, of], index) => ({ name, to, of, index })))(
  "$name of $to",
  ({ to, of, index }) => {
    test.each(waysOf(to, index))("for $from, server tools: $tools", async (way) => {
      const [seen, expected] = await threads.both((serve) => outcome(serve, of(long), way));
      expect(seen.settled).toEqual(expected.settled);
      expect(seen.released).toBe(expected.released);
      expect(seen.text === expected.text).toBe(true);
      expect(seen.settled).toMatchObject([{ status: "ok" }]);
    });
  },
);

test.each<LargeWay>([
  { from: "chat", to: "chat" },
  { from: "messages", to: "messages" },
  { from: "responses", to: "responses" },
  { from: "messages", to: "chat" },
  { from: "chat", to: "messages" },
  { from: "messages", to: "chat", tools: true },
])("eight megabytes of quotes hold nobody: $from to $to, server tools: $tools", async (way) => {
  const text = '"'.repeat(4_000_000);
  const answer = {
    chat: stream(chunk({ content: "Hi" }), chunk({ content: text }), chunk({}, "stop")),
    messages: messagesStream({ type: "text", text: "" }, { type: "text_delta", text }),
    responses: responsesStream("response.completed", messageItem(text)),
  }[way.to];
  let least = Number.POSITIVE_INFINITY;
  // The code is new to the compiler at first.
  for (let tries = 0; tries < 3; tries += 1)
    least = Math.min(least, await longestHoldMs(() => served(elsewhere, answer, way)));
  expect(least).toBeLessThan(50);
});
