/** A large whole answer that another thread works on gives the same bytes and the same charge as in this thread (rule 7.3). */
import { afterAll, beforeEach, describe, expect, test, vi } from "vitest";
import { answerOf } from "../../../test/fakes/large/answers.ts";
import { startTwoThreads } from "../../../test/fakes/large/two-threads.ts";
import { callOnWay, type LargeWay, wholeGoldens } from "../../../test/fakes/large/way.ts";
import type { JsonObject } from "../../dialects/messages/types.ts";
import { dialects, type Dialect } from "../../dialects/dialect.ts";
import { refusalOf } from "../../dialects/upstream-error.ts";
import { ApiError } from "../../lib/api-error.ts";
import { ByteBudget } from "../../lib/byte-budget.ts";
import { WorkNotDone } from "../../lib/worker-pool.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { MOST_CHARACTERS } from "../with-tools/whole-events.ts";
import type { Serve } from "../call.ts";
import { newLargePool } from "./large-body.ts";

const threads = await startTwoThreads();
const { keys, pool, fake, serving, here, elsewhere } = threads;
beforeEach(() => fake.reset());
afterAll(() => threads.close());

/** An unknown field that makes an answer large. */
const filler = `"filler":"${"All work and no play makes Jack a dull boy. ".repeat(4_000)}"`;
const padded = (answer: object | string): string => {
  const text = typeof answer === "string" ? answer : JSON.stringify(answer);
  return text.startsWith("{") ? `{${filler}${text === "{}" ? "" : ","}${text.slice(1)}` : `${text}${filler}`;
};

const told = (text: string): string => threads.comparable(text, ["completed_at"]);

function callFor(way: LargeWay) {
  const items: unknown[] = [];
  const keep = (id: string, json: Buffer | string) => void items.push([told(id), told(json.toString())]);
  return { call: { ...callOnWay(fake.url, way), items: { keep, find: async () => [] } }, items };
}

/** Serves one answer, and returns all that it leads to. */
async function outcome(serve: Serve, answer: string | Buffer, way: LargeWay) {
  fake.reset();
  fake.next({ raw: { body: answer } });
  const before = JSON.stringify(await metrics.streamFaults.get());
  const { call, items } = callFor(way);
  const error = await serve(call).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  const after = JSON.stringify(await metrics.streamFaults.get());
  const { status, headers, text } = call.sink;
  return {
    answer: { status, headers: { ...headers, "content-length": "" }, text: told(text) },
    length: Number(headers["content-length"] ?? 0) - Buffer.byteLength(text),
    error:
      error instanceof ApiError
        ? Object.assign({}, error, { message: error.message, cause: error.cause })
        : error,
    refusal: refusalOf(error),
    meter: { settled: call.meter.settled, released: call.meter.released },
    calls: call.summary.calls.map((one) => ({ ...one, ms: 0 })),
    items,
    isCounted: before !== after,
  };
}

/** Returns the outcomes of an answer in another thread and in this one. */
const both = (answer: string | Buffer, way: LargeWay) => threads.both((serve) => outcome(serve, answer, way));

/** Fields of a golden's request that a whole request of the client's dialect may have. */
const shaping: Record<Dialect, readonly string[]> = {
  messages: [],
  chat: ["logprobs", "top_logprobs", "stop", "user"],
  responses: ["include", "top_logprobs", "metadata", "text", "user"],
};
const wishes = (client: Dialect, { request = {} }: { readonly request?: JsonObject }): object =>
  Object.fromEntries(Object.entries(request).filter(([name]) => shaping[client].includes(name)));

describe.each(wholeGoldens)("$name", (golden) => {
  test.each(dialects)("for a %s client", async (client) => {
    const way = { from: client, to: golden.from, request: wishes(client, golden) };
    const [seen, expected] = await both(padded(golden.whole), way);
    expect(seen).toEqual(expected);
  });

  test("for the tool loop", async () => {
    const way = { from: "messages", to: golden.from, tools: true } as const;
    const [seen, expected] = await both(padded(golden.whole), way);
    expect(seen).toEqual(expected);
  });
});

const usages = {
  messages: { input_tokens: 3, output_tokens: 4 },
  chat: { prompt_tokens: 3, completion_tokens: 4 },
  responses: { input_tokens: 3, output_tokens: 4 },
};
const refused = {
  type: "invalid_request_error",
  code: "bad_tool",
  param: "tools[0].type",
  message: "no such tool: upstream-model with sk-proj-abcdefgh at http://127.0.0.1:1/v1",
};
/** Bodies that are no answer, by what is wrong with them. */
const faults = (upstream: Dialect): Record<string, string> => ({
  "a page": `<!doctype html><p>${filler}`,
  "JSON that ends early": padded({ content: [], choices: [], output: [], a: 1 }).slice(0, -1),
  "no object": `[${JSON.stringify(filler)}]`,
  "one that ends in the middle of a text": padded(answerOf(upstream, "a short text").toString()).slice(
    0,
    -200,
  ),
  "an error": padded({ error: refused }),
  "an error in a word": padded({ error: "overloaded" }),
  "an error that is a number": padded({ error: 5, usage: usages[upstream] }),
  "an error of our account": padded({ error: { type: "authentication_error", message: "no" } }),
  "a context that is too long": padded({
    error: { ...refused, code: "context_length_exceeded", message: "maximum context length is 1 tokens" },
  }),
  "an error beside usage": padded({ error: refused, usage: usages[upstream] }),
  "an error beside an answer": padded({
    error: refused,
    content: [{ type: "text", text: "Half an ans" }],
    choices: [{ message: { content: "Half an ans" } }],
    output: [{ type: "message", content: [{ type: "output_text", text: "Half an ans" }] }],
    usage: usages[upstream],
  }),
  "a response that failed": padded({
    object: "response",
    status: "failed",
    error: refused,
    output: [{ type: "message", content: [{ type: "output_text", text: "Half an ans" }] }],
  }),
  "a response without a word that failed": padded({
    object: "response",
    status: "failed",
    error: refused,
    output: [],
  }),
  "a response that goes on": padded({
    object: "response",
    status: "in_progress",
    output: [],
    usage: usages[upstream],
  }),
  "without its parts": padded({ usage: usages[upstream], service_tier: "flex" }),
  "with parts that are none": padded({ content: [5], choices: [5], output: [5] }),
  "nested too deep": padded(`{"content":[${"[".repeat(200)}${"]".repeat(200)}],"choices":[],"output":[]}`),
});

describe.each(dialects)("what is no answer of a %s upstream", (upstream) => {
  test.each(Object.entries(faults(upstream)))("%s", async (_what, answer) => {
    const ways: LargeWay[] = dialects.map((from) => ({ from, to: upstream }));
    for (const way of [...ways, { from: "messages", to: upstream, tools: true } as const]) {
      const [seen, expected] = await both(answer, way);
      expect(seen).toEqual(expected);
    }
  });
});

const small = (upstream: Dialect): string => padded(answerOf(upstream, "a short text").toString());
/** Answers that JSON.parse takes and a strict reader does not (odd-json-answers.test.ts), with the text that a client reads. */
const odd: Record<string, (upstream: Dialect) => readonly [answer: Buffer, read: string]> = {
  "a text that is cut within a character": (upstream) => {
    const [before = "", behind = ""] = small(upstream).split("words");
    const cut = Buffer.from("Hell\u{1F99C}").subarray(0, -1);
    return [Buffer.concat([Buffer.from(before), cut, Buffer.from(behind)]), "Hell\ufffd"];
  },
  "members that stand twice": (upstream) => {
    const first = JSON.stringify({ content: [], choices: [], output: [], usage: {}, model: "theirs" });
    return [Buffer.from(`${first.slice(0, -1)},${small(upstream).slice(1)}`), "words"];
  },
};

describe.each(dialects)("what clients read of a %s upstream's odd answer", (upstream) => {
  test.each(Object.entries(odd))("%s", async (_what, of) => {
    const [answer, read] = of(upstream);
    const ways: LargeWay[] = dialects.map((from) => ({ from, to: upstream }));
    for (const way of [...ways, { from: "messages", to: upstream, tools: true } as const]) {
      const [seen, expected] = await both(answer, way);
      expect(seen).toEqual(expected);
      expect(seen.answer.text).toContain(read);
      expect(JSON.parse(seen.answer.text)).toMatchObject({ model: "public-model" });
      expect(seen.meter.settled).toMatchObject([{ status: "ok", tokens: { input: 3, output: 4 } }]);
    }
  });
});

test("reasoning is sealed and items are kept there as well", async () => {
  const reasoning = { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "blob" };
  const item = { type: "message", id: "msg_1", content: [{ type: "output_text", text: "ok" }] };
  const answer = padded({ model: "upstream-model", output: [reasoning, item], usage: usages.responses });
  const [seen, expected] = await both(answer, { from: "responses", to: "responses" });
  expect(seen).toEqual(expected);
  const { answer: relayed, items } = seen;
  expect(relayed.text).toContain('"model":"public-model"');
  expect(relayed.text).toMatch(/gapura_r1_<\{.*blob.*\}>/);
  expect(items).toMatchObject([
    ["rs_1", expect.stringMatching(/gapura_r1_<.*blob/)],
    ["msg_1", expect.any(String)],
  ]);
});

const large = padded(answerOf("chat", "a short text").toString());
const ways: LargeWay[] = [
  { from: "chat", to: "chat" },
  { from: "messages", to: "chat" },
];

describe.each(ways)("$from to $to", (way) => {
  test("whose client leaves while it waits is read for what it cost, and written for nobody", async () => {
    fake.next({ raw: { body: large } });
    const { call } = callFor(way);
    const run = pool.run.bind(pool);
    const jobs = vi.spyOn(pool, "run").mockImplementationOnce((...given) => {
      call.sink.leave();
      return run(...given);
    });
    await elsewhere(call);
    jobs.mockRestore();
    expect(call.meter.settled).toMatchObject([
      { status: "cancelled", estimated: false, tokens: { input: 3, output: 4 } },
    ]);
    expect(call.sink.status).toBe(0);
  });

  test("that takes its thread down cannot be read, and costs what was received", async () => {
    fake.next({ raw: { body: large } });
    const { call } = callFor(way);
    const jobs = vi.spyOn(pool, "run").mockRejectedValueOnce(new WorkNotDone("broken"));
    await expect(elsewhere(call)).rejects.toMatchObject({ code: "upstream_error" });
    jobs.mockRestore();
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: true, tokens: { output: Math.ceil(large.length / 4) } },
    ]);
    expect(call.summary.calls).toMatchObject([{ fault: "garbage", reason: "not_json" }]);
  });
});

test.each<LargeWay>([...ways, { from: "messages", to: "chat", tools: true }])(
  "one whose connection is cut costs what came: $from to $to, server tools: $tools",
  async (way) => {
    const text = JSON.stringify({ choices: [{ message: { content: "a".repeat(300_000) } }] });
    const served = async (serve: Serve) => {
      fake.reset();
      fake.next({ raw: { body: text }, faults: { cutAtByte: 200_000 } });
      const { call } = callFor(way);
      await expect(serve(call)).rejects.toMatchObject({ code: "upstream_error" });
      return call.meter.settled;
    };
    const settled = await served(elsewhere);
    expect(settled).toMatchObject([{ status: "error", estimated: true }]);
    expect(settled).toEqual(await served(here));
  },
);

test.each([
  ["a whole answer", `{"choices":[{"message":{"content":"${"a".repeat(200_000)}"}}]}`],
  ["no JSON", "a".repeat(200_000)],
  ["an error", `{"error":{"message":"${"a".repeat(200_000)}"}}`],
])("%s in place of a later iteration's stream costs the same", async (_, body) => {
  const search = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: "c", function: { name: "web_search", arguments: '{"query":"a"}' } }] }, finish_reason: "tool_calls" }] })}\n\ndata: [DONE]\n\n`;
  const served = async (serve: Serve) => {
    fake.reset();
    fake.next({ raw: { body: search, contentType: "text/event-stream" } }, { raw: { body } });
    const { call } = callFor({ from: "messages", to: "chat", request: { stream: true }, tools: true });
    await serve(call).catch(() => undefined);
    return { settled: call.meter.settled, text: told(call.sink.text).replaceAll(/srvtoolu_\w+/g, "ID") };
  };
  const jobs = vi.spyOn(pool, "run");
  const seen = await served(elsewhere);
  expect(jobs).toHaveBeenCalledOnce();
  jobs.mockRestore();
  expect(seen).toEqual(await served(here));
  expect(seen.settled).toHaveLength(1);
});

test("its bytes are counted while it is worked on", async () => {
  fake.next({ raw: { body: large } });
  const { call } = callFor({ from: "chat", to: "chat" });
  const lease = new ByteBudget(1024 ** 3).lease("org_a");
  const counted: number[] = [];
  const run = pool.run.bind(pool);
  const jobs = vi.spyOn(pool, "run").mockImplementationOnce((...given) => {
    counted.push(lease.bytes);
    return run(...given);
  });
  await elsewhere({ ...call, bodyLease: lease });
  jobs.mockRestore();
  expect([...counted, lease.bytes]).toEqual([large.length, 0]);
});

test("answers come to their turn however many wait: they were paid for", async () => {
  const narrow = newLargePool(keys, { workers: 1, waiting: 1, waitingOfOne: 1, waitMs: 1 });
  const serve = serving(narrow);
  const calls = Array.from({ length: 8 }, () => callFor({ from: "chat", to: "chat" }).call);
  for (const _ of calls) fake.next({ raw: { body: large } });
  await Promise.all(calls.map((call) => serve(call)));
  expect(calls.map(({ sink }) => sink.status)).toEqual(calls.map(() => 200));
  await narrow.close();
});

test(
  "one with more in it than any answer has is none, wherever it is read",
  { timeout: 60_000 },
  async () => {
    const answer = `{"usage":{},"content":[],"choices":[{"message":{}}],"output":[],"more":[${"{},".repeat(2_000_000)}{}]}`;
    for (const [from, to] of [
      ["chat", "chat"],
      ["responses", "chat"],
    ] as const) {
      const [seen, expected] = await both(answer, { from, to });
      expect(seen).toEqual(expected);
      const { error, meter } = seen;
      expect(error).toMatchObject({ code: "upstream_error" });
      expect(meter.settled).toMatchObject([{ tokens: { output: Math.ceil(answer.length / 4) } }]);
    }
  },
);

test("the tool loop takes so many characters of one answer as models write, and no more", async () => {
  const way = { from: "messages", to: "chat", tools: true } as const;
  const answer = (characters: number): string =>
    answerOf("chat", "a short text")
      .toString()
      .replace("words", "a word ".repeat(characters / 7));
  const fitting = await outcome(elsewhere, answer(MOST_CHARACTERS - 1_000), way);
  expect(fitting.error).toBeNull();
  expect(fitting.answer.text.length).toBeGreaterThan(MOST_CHARACTERS - 1_000);
  const [seen, expected] = await both(answer(MOST_CHARACTERS + 1_000), way);
  expect(seen).toEqual(expected);
  expect(seen.error).toMatchObject({ code: "upstream_error" });
  expect(seen.meter.settled).toMatchObject([{ status: "error", tokens: { input: 3, output: 4 } }]);
});

test("what came of one that broke off is read there for what it cost", async () => {
  const jobs = vi.spyOn(pool, "run");
  const costs = [];
  for (const serve of [here, elsewhere]) {
    fake.next({ raw: { body: large }, faults: { cutAtByte: large.length - 10 } });
    const { call } = callFor({ from: "chat", to: "chat" });
    await expect(serve(call)).rejects.toMatchObject({ code: "upstream_error" });
    costs.push(call.meter.settled);
  }
  expect(jobs).toHaveBeenCalledTimes(1);
  jobs.mockRestore();
  expect(costs[1]).toEqual(costs[0]);
  expect(costs[0]).toMatchObject([{ status: "error", estimated: true }]);
});
