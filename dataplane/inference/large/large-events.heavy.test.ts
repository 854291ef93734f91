/**
 * An event with very many values that another thread makes lean gives the client the same bytes, and the same charge, as when
 * all of it is read in this thread (rule 7.3).
 */
import { afterAll, beforeEach, describe, expect, test, vi } from "vitest";
import { typedFrame } from "../../../test/fakes/upstream/render.ts";
import { startTwoThreads } from "../../../test/fakes/large/two-threads.ts";
import { callOnWay, type LargeWay, streamedGoldens, waysOf } from "../../../test/fakes/large/way.ts";
import type { JsonObject } from "../../dialects/messages/types.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { ApiError } from "../../lib/api-error.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import { WorkNotDone } from "../../lib/worker-pool.ts";
import type { Serve } from "../call.ts";

const threads = await startTwoThreads();
const { pool, fake, elsewhere } = threads;
beforeEach(() => fake.reset());
afterAll(() => threads.close());

const many = `[${"0,".repeat(40_000)}0]`;
const token = JSON.stringify({
  token: "a",
  logprob: -1,
  bytes: [97],
  top_logprobs: Array.from({ length: 20 }, () => ({ token: "a", logprob: -1, bytes: [97] })),
});
const logprobs = `[${Array.from({ length: 400 }, () => token).join(",")}]`;

/** Makes an event's JSON heavy by a member that nobody reads. */
const heavy = (data: object | string, name = "unread", value = many): string => {
  const text = typeof data === "string" ? data : JSON.stringify(data);
  return text.startsWith("{") ? `{"${name}":${value}${text === "{}" ? "" : ","}${text.slice(1)}` : text;
};
const framed = (data: string, name = ""): string =>
  `${name === "" ? "" : `event: ${name}\n`}data: ${data}\n\n`;

const told = (text: string): string => threads.comparable(text, ["completed_at", "created_at", "created"]);

function callFor(way: LargeWay) {
  const items: unknown[] = [];
  const keep = (id: string, json: Buffer | string) => {
    const { unread: _unread, ...item } = JSON.parse(json.toString()) as JsonObject;
    items.push([told(id), told(JSON.stringify(item))]);
  };
  const call = callOnWay(fake.url, { ...way, request: { stream: true, ...way.request } });
  return { call: { ...call, items: { keep, find: async () => [] } }, items };
}

async function outcome(serve: Serve, stream: string, way: LargeWay) {
  fake.reset();
  fake.next({ raw: { body: stream, contentType: "text/event-stream" } });
  const { call, items } = callFor(way);
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return {
    status: call.sink.status,
    text: told(call.sink.text),
    error: error instanceof ApiError ? [error.code, error.message] : error,
    meter: { settled: call.meter.settled, released: call.meter.released },
    calls: call.summary.calls.map((one) => ({ ...one, ms: 0 })),
    items,
  };
}

/** The outcomes of a stream whose long events another thread makes lean, and of one that is read here. */
const both = (stream: string, way: LargeWay) => threads.both((serve) => outcome(serve, stream, way));

const typeOf = (data: JsonObject | string): string =>
  typeof data === "object" && typeof data["type"] === "string" ? data["type"] : "";

describe.each(streamedGoldens.map((golden, index) => ({ ...golden, index })))(
  "$name",
  ({ from: to, stream, index }) => {
    const whole = stream.map((data) => framed(heavy(data), typeOf(data))).join("");
    test.each(waysOf(to, index))("for $from, server tools: $tools", async (way) => {
      const [seen, expected] = await both(whole, way);
      expect(seen).toEqual(expected);
    });

    test("relayed with each line of its JSON as a data line of its own", async () => {
      const lines = stream.map((data) => framed(heavy(data).replaceAll("0,0", "0,\ndata: 0"), typeOf(data)));
      const [seen, expected] = await both(lines.join(""), { from: to, to });
      // Such an event is written in one line.
      const joined = (text: string) => text.replaceAll(/0,(\ndata: | )0/g, "0,0");
      expect({ ...seen, text: joined(seen.text) }).toEqual({ ...expected, text: joined(expected.text) });
    });
  },
);

const chunk = (delta: string, more = "", finish = "null") =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"theirs","choices":[{"index":0,"delta":${delta},` +
  `"finish_reason":${finish}${more}}]}`;
const chatEnd = framed(chunk("{}", "", '"stop"')) + framed("[DONE]");
const usage = { input_tokens: 3, output_tokens: 4, total_tokens: 7 };
const item = (more: string) =>
  `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"blob"},{"id":"msg_1","type":"message",` +
  `"content":[{"type":"output_text","text":"Hi","annotations":[]${more}}]}`;
const completed = (more: string) =>
  `{"type":"response.completed","sequence_number":9,"response":{"id":"r","object":"response","model":"theirs",` +
  `"status":"completed","tools":${many},"output":[${item(more)}],"usage":${JSON.stringify(usage)}}}`;

test("log probabilities, tools and seals pass as they are", async () => {
  const chat = framed(chunk('{"content":"Hi"}', `,"logprobs":{"content":${logprobs}}`)) + chatEnd;
  const [seen, expected] = await both(chat, { from: "chat", to: "chat", request: { logprobs: true } });
  expect(seen).toEqual(expected);
  expect(seen.text).toContain(logprobs);
  expect(seen.text).not.toContain("theirs");
  const stream = framed(completed(`,"logprobs":${logprobs}`), "response.completed");
  const [last, lastExpected] = await both(stream, { from: "responses", to: "responses" });
  expect(last).toEqual(lastExpected);
  expect(last.text).toContain(logprobs);
  expect(last.text).toMatch(/gapura_r1_<.*blob/);
  expect(last.text).not.toContain("theirs");
  expect(last.meter.settled).toMatchObject([{ tokens: { input: 3, output: 4 } }]);
});

const encrypted = '{"encrypted_content":"blob"}';

test("blobs in what nobody reads are sealed", async () => {
  const part = `{"type":"response.new","many":${many},"new":{"deep":[${encrypted}]},"sequence_number":1}`;
  const logs = `,"logprobs":[${encrypted}]`;
  const stream = framed(heavy(completed("")), "response.created") + framed(heavy(part), "response.new");
  const end = framed(completed(logs).replace('"tools":', `"unread":${many},"tools":`), "response.completed");
  const [seen, expected] = await both(stream + end, { from: "responses", to: "responses" });
  expect(seen).toEqual(expected);
  expect(seen.text).not.toContain(encrypted.slice(1, -1));
});

test("an event that cannot be read does not pass with blobs that are not sealed", async () => {
  const items = `[${"{},".repeat(40_000)}${encrypted}]`;
  const first = framed(
    '{"type":"response.created","response":{"id":"r","model":"theirs"}}',
    "response.created",
  );
  const stream =
    first + framed(`{"type":"response.new","item":${items}}`, "response.new") + framed(completed(""));
  const { text, meter } = await outcome(elsewhere, stream, { from: "responses", to: "responses" });
  expect(text).not.toContain("blob");
  expect(text).toContain("upstream_error");
  expect(meter.settled).toMatchObject([{ status: "error" }]);
});

test.each<[Dialect, string]>([
  [
    "chat",
    framed(
      `{"a":${many},"model":"theirs",${chunk('{"content":"Hi"}').slice(1, -1)},"b":${many},"model":"theirs too"}`,
    ) + chatEnd,
  ],
  [
    "messages",
    framed(
      `{"type":"message_start","a":${many},"message":{"model":"theirs"},"b":${many},"message":{"id":"m","type":"message","role":"assistant","c":${many},"model":"theirs","d":${many},"model":"theirs too","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}`,
      "none-of-its-dialect",
    ) +
      typedFrame("message_delta", { delta: { stop_reason: "end_turn" }, usage: { output_tokens: 9 } }) +
      typedFrame("message_stop", {}),
  ],
  [
    "responses",
    framed(
      completed(`,"logprobs":${logprobs}`).replace(
        '"response":{',
        `"a":${many},"response":{"model":"theirs"},"response":{"b":${many},"model":"theirs too",`,
      ),
      "none-of-its-dialect",
    ),
  ],
])(
  "%s: each of an event's names of its model is replaced, whatever the event is called",
  async (dialect, stream) => {
    const [seen, expected] = await both(stream, { from: dialect, to: dialect });
    expect(seen).toEqual(expected);
    expect(seen.text).not.toContain("theirs");
    expect(seen.text.match(/"model":"public-model"/g)?.length).toBeGreaterThanOrEqual(2);
    expect(seen.text).toContain(many);
    expect(seen.meter.settled).toMatchObject([{ status: "ok" }]);
  },
);

test("log probabilities of so many tokens in one event are not converted", async () => {
  const stream = framed(chunk('{"content":"Hi"}', `,"logprobs":{"content":${logprobs}}`)) + chatEnd;
  const request = { include: ["message.output_text.logprobs"] };
  const { text, meter } = await outcome(elsewhere, stream, { from: "responses", to: "chat", request });
  expect(text).toContain('"delta":"Hi"');
  expect(text).not.toContain('"logprob":');
  expect(meter.settled).toMatchObject([{ status: "ok" }]);
});

const anyWay: LargeWay[] = [
  { from: "chat", to: "chat" },
  { from: "messages", to: "chat" },
  { from: "messages", to: "chat", tools: true },
];

describe.each(anyWay)("$from to $to, server tools: $tools", (way) => {
  const first = framed(chunk('{"content":"Hello"}'));

  test("the last event needs no blank line", async () => {
    const [seen, expected] = await both(first + framed(heavy(chunk("{}", "", '"stop"'))).trimEnd(), way);
    expect(seen).toEqual(expected);
    expect(seen.meter.settled).toMatchObject([{ status: "ok" }]);
  });

  test("one that is cut, or no JSON, is what it is when it is short", async () => {
    const cut = heavy(chunk("{}", "", '"stop"')).slice(0, -1);
    for (const rest of [framed(cut) + chatEnd, framed(cut).trimEnd()]) {
      const [seen, expected] = await both(first + rest, way);
      expect(seen).toEqual(expected);
    }
  });

  test("one with too many values that would have to be read passes unread, or is corrupt", async () => {
    const calls = `[${"{},".repeat(40_000)}{}]`;
    const stream = first + framed(chunk(`{"content":"more","tool_calls":${calls}}`)) + chatEnd;
    const { status, text, meter } = await outcome(elsewhere, stream, way);
    expect(status).toBe(200);
    const isRelay = way.from === way.to;
    expect(text.includes(calls)).toBe(isRelay);
    expect(text.includes("upstream_error") || text.includes("api_error")).toBe(!isRelay);
    expect(meter.settled).toMatchObject([{ status: isRelay ? "ok" : "error" }]);
  });

  test("one that takes its thread down cannot be read", async () => {
    const jobs = vi.spyOn(pool, "run").mockRejectedValueOnce(new WorkNotDone("broken"));
    const { meter } = await outcome(
      elsewhere,
      first + framed(heavy(chunk('{"content":"a"}'))) + chatEnd,
      way,
    );
    expect(jobs).toHaveBeenCalledOnce();
    jobs.mockRestore();
    expect(meter.settled).toMatchObject([{ status: way.from === way.to ? "ok" : "error" }]);
  });

  test("its bytes are counted meanwhile, and the client's leaving is charged after it", async () => {
    fake.next({
      raw: { body: framed(heavy(chunk('{"content":"a"}'))) + chatEnd, contentType: "text/event-stream" },
    });
    const { call } = callFor(way);
    const lease = new ByteBudget(1024 ** 3).lease("org_a");
    const counted: number[] = [];
    const run = pool.run.bind(pool);
    const jobs = vi.spyOn(pool, "run").mockImplementationOnce((...given) => {
      counted.push(lease.bytes);
      call.sink.leave();
      return run(...given);
    });
    await elsewhere({ ...call, bodyLease: lease });
    jobs.mockRestore();
    expect(counted[0]).toBeGreaterThan(80_000);
    expect(lease.bytes).toBe(0);
    expect(call.meter.settled).toMatchObject([{ status: "cancelled" }]);
  });
});

test("long events with few values are read here: a text with many quotes, an image", async () => {
  const jobs = vi.spyOn(pool, "run");
  for (const content of ["QUJD".repeat(500_000), 'He said "no".\n'.repeat(1_000), "\\".repeat(100_000)]) {
    const stream = framed(chunk(JSON.stringify({ content }))) + chatEnd;
    const seen = await outcome(elsewhere, stream, { from: "messages", to: "chat" });
    expect(seen.meter.settled).toMatchObject([{ status: "ok" }]);
  }
  expect(jobs).not.toHaveBeenCalled();
  const content = 'He said "no".\n'.repeat(50_000);
  const [seen, expected] = await both(framed(chunk(JSON.stringify({ content }))) + chatEnd, {
    from: "messages",
    to: "chat",
  });
  expect(seen).toEqual(expected);
  jobs.mockRestore();
});

test("events in any pieces: a heavy one between others", async () => {
  const delta = (text: string) =>
    typedFrame("content_block_delta", { index: 0, delta: { type: "text_delta", text } });
  const start = typedFrame("message_start", {
    message: {
      id: "m",
      type: "message",
      role: "assistant",
      model: "m",
      content: [],
      usage: { input_tokens: 3, output_tokens: 1 },
    },
  });
  const stream =
    start +
    typedFrame("content_block_start", { index: 0, content_block: { type: "text", text: "" } }) +
    delta("a").repeat(300) +
    framed(
      heavy({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "b" } }),
      "content_block_delta",
    ).repeat(3) +
    delta("c").repeat(300) +
    typedFrame("content_block_stop", { index: 0 }) +
    typedFrame("message_delta", { delta: { stop_reason: "end_turn" }, usage: { output_tokens: 9 } }) +
    typedFrame("message_stop", {});
  for (const way of [
    { from: "messages", to: "messages" },
    { from: "chat", to: "messages" },
    { from: "messages", to: "messages", tools: true },
  ] as const) {
    const [seen, expected] = await both(stream, way);
    // Converted, deltas that were read together are written together.
    if (way.from === way.to) expect(seen).toEqual(expected);
    else expect(seen.meter).toEqual(expected.meter);
    expect(seen.meter.settled).toMatchObject([{ status: "ok", tokens: { input: 3, output: 9 } }]);
    expect(seen.text.match(/"(a|b|c)"/g)?.join("")).toBe(
      `${'"a"'.repeat(300)}${'"b"'.repeat(3)}${'"c"'.repeat(300)}`,
    );
  }
});
