/** Relayed streams of which an event names a member twice: of each the last counts, which is what every client reads. */
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";
import type { Dialect } from "../dialects/dialect.ts";

const { fake, serve } = await serveOneUpstream();

async function relayed(dialect: Dialect, events: readonly string[], lines = false) {
  const framed = events.map((event) =>
    lines ? `data: ${event.replaceAll(",", ",\ndata: ")}\n\n` : `data: ${event}\n\n`,
  );
  return relayedBytes(dialect, framed.join(""));
}

async function relayedBytes(dialect: Dialect, sent: string | Buffer) {
  fake.reset();
  fake.next({ raw: { body: sent, contentType: "text/event-stream" } });
  const body = dialect === "chat" ? { stream_options: { include_usage: true } } : {};
  const call = callOn(
    fake.url,
    { path: "relay", client: dialect, upstream: dialect, stream: true },
    { body },
  );
  await serve(call);
  return { text: call.sink.text, charge: call.meter.settled[0], errorCode: call.summary.errorCode };
}

const chunk = (choices: string, more = "") =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"public-model"${more},"choices":${choices}}`;
const says = (content: string, finish: string | null = null) =>
  `[{"index":0,"delta":{"content":"${content}"},"finish_reason":${JSON.stringify(finish)}}]`;
const prompt = (input: number, output: number) =>
  `"usage":{"prompt_tokens":${input},"completion_tokens":${output}}`;
const counted = (input: number, output: number) =>
  `"usage":{"input_tokens":${input},"output_tokens":${output}}`;

const started = (message: string) => `{"type":"message_start","message":{"id":"msg_1",${message}}}`;
const ended = (usage: string) => [
  `{"type":"message_delta","delta":{"stop_reason":"end_turn"},${usage}}`,
  `{"type":"message_stop"}`,
];
const response = (type: string, fields: string, number = 0) =>
  `{"type":"response.${type}","sequence_number":${number},"response":{"id":"resp_1","status":"completed","output":[],${fields}}}`;

const names = '"model":"theirs","model":"theirs-too"';

describe.each([false, true])("in several lines of data: %s", (lines) => {
  test.each<[Dialect, string[]]>([
    [
      "chat",
      [
        chunk(says("Hi"), `,${names}`),
        chunk(says("Ho"), `,${names}`),
        chunk(says("", "stop"), `,${names}`),
        chunk("[]", `,${names},${prompt(11, 7)}`),
        "[DONE]",
      ],
    ],
    [
      "messages",
      [
        started(`${names},"content":[],${counted(11, 0)}},"message":{${names},${counted(11, 0)}`),
        ...ended(counted(11, 7)),
      ],
    ],
    [
      "responses",
      [
        response("created", names),
        response("in_progress", `${names}},"response":{${names}`, 1),
        response("completed", `${names},${counted(11, 7)}},"response":{${names},${counted(11, 7)}`, 2),
      ],
    ],
  ])("each name of a model is replaced: %s", async (dialect, events) => {
    const { text, charge } = await relayed(dialect, events, lines);
    expect(text).not.toContain("theirs");
    expect(text.match(/"public-model"/g)?.length).toBeGreaterThan(3);
    expect(charge).toMatchObject({ status: "ok", tokens: { input: 11, output: 7 } });
  });
});

test.each<[string, Dialect, string[], object]>([
  [
    "usage",
    "chat",
    [chunk(says("Hi", "stop")), chunk("[]", `,${prompt(999, 999)},${prompt(11, 7)}`), "[DONE]"],
    { input: 11, output: 7 },
  ],
  [
    "usage",
    "messages",
    [
      started(`"usage":{"input_tokens":11,"cache_read_input_tokens":50,"output_tokens":0},${counted(11, 0)}`),
      ...ended(`"usage":{"cache_creation_input_tokens":50,"output_tokens":999},"usage":{"output_tokens":7}`),
    ],
    { input: 11, cacheRead: 0, cacheWrite5m: 0, output: 7 },
  ],
  [
    "message",
    "messages",
    [started(`${counted(999, 5)}},"message":{${counted(11, 0)}`), ...ended(`"usage":{"output_tokens":7}`)],
    { input: 11, output: 7 },
  ],
  [
    "usage",
    "responses",
    [response("created", names), response("completed", `${counted(999, 999)},${counted(11, 7)}`)],
    { input: 11, output: 7 },
  ],
  [
    "response",
    "responses",
    [
      response("created", names),
      response("completed", `${counted(999, 999)}},"response":{${counted(11, 7)}`),
    ],
    { input: 11, output: 7 },
  ],
])("the last %s is charged: %s", async (_name, dialect, events, tokens) => {
  const { charge } = await relayed(dialect, events);
  expect(charge).toMatchObject({ status: "ok", tokens });
});

test.each<[string, Dialect, string[]]>([
  ["usage", "chat", [chunk(says("Hi", "stop")), chunk("[]", `,${prompt(999, 999)},"usage":null`), "[DONE]"]],
  ["usage", "messages", [started(`"content":[]`), ...ended(`${counted(999, 999)},"usage":null`)]],
  [
    "usage",
    "responses",
    [response("created", names), response("completed", `${counted(999, 999)},"usage":null`)],
  ],
  [
    "response",
    "responses",
    [response("created", names), response("completed", `${counted(999, 999)}},"response":{"output":[]`)],
  ],
])("a %s whose last tells nothing is none: %s", async (_name, dialect, events) => {
  const { charge } = await relayed(dialect, events);
  expect(charge?.status).toBe("ok");
  expect(charge?.tokens.input).toBeLessThan(100);
  expect(charge?.tokens.output).toBeLessThan(100);
});

test("choices of Chat whose last does not finish have not finished", async () => {
  const twice = chunk(`${says("x".repeat(4_000), "stop")},"choices":${says("Hi")}`);
  const { text, charge, errorCode } = await relayed("chat", [chunk(says("Hi")), twice]);
  expect(text).not.toContain("[DONE]");
  expect(errorCode).toBe("upstream_error");
  expect(charge?.tokens.output).toBeLessThan(10);
});

test("choices of Chat whose last is empty have no usage of a running answer", async () => {
  const twice = chunk(`${says("Hi")},"choices":[]`, `,${prompt(11, 7)}`);
  const { charge } = await relayed("chat", [chunk(says("Hi", "stop")), twice, "[DONE]"]);
  expect(charge).toMatchObject({ tokens: { input: 11, output: 7 } });
});

test("an error that only the first response of an event holds is none", async () => {
  const good = `"error":null,${counted(11, 7)}`;
  for (const last of [good, `"error":{"code":"x"},${good}`]) {
    const events = [
      response("created", names),
      response("completed", `"error":{"code":"x"}},"response":{${last}`),
    ];
    expect(await relayed("responses", events)).toMatchObject({
      charge: { status: "ok", tokens: { output: 7 } },
    });
  }
});

test("a failed response is told by its last error", async () => {
  const failed = response(
    "failed",
    `"error":{"code":"rate_limit_exceeded"},"error":{"code":"server_error"}`,
    1,
  );
  const begun = response("created", names);
  expect((await relayed("responses", [begun, failed])).errorCode).toBe("upstream_error");
  const nulled = failed.replace(/\}\}$/, `},"response":{"error":{"code":"server_is_overloaded"}}}`);
  expect((await relayed("responses", [begun, nulled])).errorCode).toBe("unavailable");
});

test.each(["messages", "responses"] as const)(
  "an event whose name says nothing is what its type says: %s",
  async (dialect) => {
    const bodies =
      dialect === "messages"
        ? [started(`"model":"theirs",${counted(11, 0)}`), ...ended(counted(11, 7))]
        : [response("created", names), response("completed", `${names},${counted(11, 7)}`)];
    for (const name of ["data", "\xff"]) {
      const sent = bodies.map((data) => `event: ${name}\ndata: ${data}\n\n`).join("");
      const { text, charge } = await relayedBytes(dialect, Buffer.from(sent, "latin1"));
      expect(text).not.toContain("theirs");
      expect(text).not.toContain("upstream_error");
      expect(charge).toMatchObject({ status: "ok", tokens: { input: 11, output: 7 } });
    }
  },
);

test("the number behind the last of an event's numbers is the next", async () => {
  const begun = `{"type":"response.created","type":"response.created","sequence_number":3,"sequence_number":7,"response":{"output":[]}}`;
  const { text } = await relayed("responses", [begun]);
  expect(text).toContain('"sequence_number":8');
});
