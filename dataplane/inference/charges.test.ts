/** What is charged where the upstream's report is missing or odd. When the client leaves: disconnects.test.ts. */
import { describe, expect, test } from "vitest";
import type { TestCall } from "../../test/fakes/inference.ts";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { typedFrame } from "../../test/fakes/upstream/render.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, type Way, ways } from "../../test/fakes/ways.ts";
import { dialects } from "../dialects/dialect.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

describe.each(dialects)("%s", (dialect) => {
  test("no usage from the upstream: charged from an estimate of what was seen", async () => {
    for (const stream of [false, true]) {
      fake.next(withFaults(text("word ".repeat(80)), { noUsage: true }));
      const call = callTo(dialect, bodyOf(dialect, { stream }));
      await serve(call);
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: true }]);
      expect(call.meter.settled[0]?.tokens.output).toBeGreaterThanOrEqual(80);
      expect(call.meter.settled[0]?.tokens.output).toBeLessThan(800);
    }
  });
});

describe("rule 10.6: a response that failed before it wrote or reported anything is free", () => {
  const error = { type: "server_error", code: "server_error", message: "x" };
  const failed = { object: "response", model: "m", status: "failed", output: [], error, usage: null };
  const running = { ...failed, status: "in_progress", error: null };
  const said = typedFrame("response.output_text.delta", {
    output_index: 0,
    content_index: 0,
    delta: "Half an answer",
  });
  const usage = { input_tokens: 9, output_tokens: 0, total_tokens: 9 };
  const created = typedFrame("response.created", { response: running });
  const end = (more: object = {}) => typedFrame("response.failed", { response: { ...failed, ...more } });
  const failing = ways.filter(({ upstream }) => upstream === "responses");
  const named = failing.map((way) => [nameOf(way), way] as const);
  /** The failure of a whole answer is thrown; a stream that has begun reports it in-band. */
  const serveFailing = async (call: TestCall, { stream }: Way) => {
    if (!stream) {
      expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
      return;
    }
    await serve(call);
    expect(call.summary.errorCode).toBe("upstream_error");
    expect(call.sink.text).toContain('"code":"upstream_error"');
  };

  test.each(named)("%s", async (_name, way) => {
    const contentType = way.stream ? "text/event-stream" : "application/json";
    fake.next({ raw: { body: way.stream ? created + end() : JSON.stringify(failed), contentType } });
    const call = callOn(fake.url, way);
    await serveFailing(call, way);
    expect([call.meter.settled, call.meter.released]).toEqual([[], 1]);
  });

  const output = [{ type: "message", content: [{ type: "output_text", text: "Half an answer" }] }];

  test.each(named)("no longer where it did: %s", async (_name, way) => {
    const contentType = way.stream ? "text/event-stream" : "application/json";
    const whole = (more: object) => JSON.stringify({ ...failed, ...more });
    const wrote = way.stream ? [created + said + end(), created + end({ output })] : [whole({ output })];
    for (const body of wrote) {
      fake.next({ raw: { body, contentType } });
      const call = callOn(fake.url, way);
      await serveFailing(call, way);
      expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true, tokens: { output: 4 } }]);
      expect(call.meter.settled[0]?.tokens.input).toBeGreaterThan(0);
    }
    fake.next({ raw: { body: way.stream ? created + end({ usage }) : whole({ usage }), contentType } });
    const call = callOn(fake.url, way);
    await serveFailing(call, way);
    expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 9, output: 0 } }]);
  });
});

describe("rule 10.6: what a Responses stream reports before its end is a running total", () => {
  const running = { object: "response", model: "m", status: "in_progress", output: [], error: null };
  const early = { input_tokens: 9, output_tokens: 1, total_tokens: 10 };
  const begun =
    typedFrame("response.created", { response: { ...running, usage: null } }) +
    typedFrame("response.in_progress", { response: { ...running, usage: early } }) +
    typedFrame("response.output_text.delta", {
      output_index: 0,
      content_index: 0,
      delta: "Half an answer",
    });
  const ends = [
    ["cut", ""],
    [
      "ended without a report",
      typedFrame("response.completed", { response: { ...running, status: "completed", usage: null } }),
    ],
  ] as const;
  const streams = ways.filter(({ upstream, stream }) => upstream === "responses" && stream);
  const cells = streams.flatMap((way) => ends.map(([what, end]) => [nameOf(way), what, way, end] as const));

  test.each(cells)("%s, %s", async (_name, _what, way, end) => {
    fake.next({ raw: { body: begun + end, contentType: "text/event-stream" } });
    const call = callOn(fake.url, way);
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ estimated: true, tokens: { input: 9, output: 4 } }]);
  });
});

describe("a whole answer whose upstream counted no output is charged for what it wrote", () => {
  const written = "x".repeat(400);
  const bodies = {
    messages: { content: [{ type: "text", text: written }], usage: { input_tokens: 10 } },
    chat: {
      choices: [{ message: { role: "assistant", content: written } }],
      usage: { prompt_tokens: 10, completion_tokens: 0 },
    },
    responses: {
      output: [{ type: "message", content: [{ type: "output_text", text: written }] }],
      usage: { input_tokens: 10, output_tokens: -5 },
    },
  };
  test.each(dialects)("%s", async (dialect) => {
    fake.next({ raw: { body: JSON.stringify(bodies[dialect]) } });
    const call = callTo(dialect, bodyOf(dialect));
    await serve(call);
    expect(call.meter.settled).toMatchObject([
      { status: "ok", estimated: true, tokens: { input: 10, output: 100 } },
    ]);
  });

  test("and for nothing when it wrote nothing", async () => {
    const empty = { choices: [{ message: { content: "" } }], usage: { prompt_tokens: 10 } };
    fake.next({ raw: { body: JSON.stringify(empty) } });
    const call = callTo("chat", bodyOf("chat"));
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ estimated: false, tokens: { input: 10, output: 0 } }]);
  });
});

test("rule 1.15: cached and written tokens are parts of the prompt", async () => {
  const usage = {
    prompt_tokens: 10,
    completion_tokens: 5,
    prompt_tokens_details: { cached_tokens: 1_000_000, cache_write_tokens: 7 },
  };
  fake.next({ raw: { body: JSON.stringify({ choices: [{ message: { content: "x" } }], usage }) } });
  const call = callTo("chat", bodyOf("chat"));
  await serve(call);
  expect(call.meter.settled).toMatchObject([
    { tokens: { input: 0, cacheRead: 10, cacheWrite5m: 0, output: 5 } },
  ]);
});

describe("a whole answer that cannot be read is charged as it reports", () => {
  const [input, output, beyond] = [30, 40, 1_000_000];
  const usages = {
    messages: (out: number) => ({ usage: { input_tokens: input, output_tokens: out } }),
    chat: (out: number) => ({ usage: { prompt_tokens: input, completion_tokens: out } }),
    responses: (out: number) => ({ object: "response", usage: { input_tokens: input, output_tokens: out } }),
  };
  const chosen = (finish_reason: string, args: string) => {
    const call = { id: "call_1", type: "function", function: { name: "f", arguments: args } };
    return { choices: [{ message: { role: "assistant", tool_calls: [call] }, finish_reason }] };
  };
  const unread = {
    messages: { "its input is no object": { content: [{ type: "tool_use", name: "f", input: "{a" }] } },
    chat: {
      "its arguments are no JSON": chosen("tool_calls", "{a"),
      "it ends in an error": chosen("error", "{}"),
    },
    responses: {
      "its arguments are no JSON": { output: [{ type: "function_call", name: "f", arguments: "{a" }] },
    },
  };
  const cells = ways
    .filter(({ stream }) => !stream)
    .flatMap((way) => {
      const bodies: Record<string, object> = {
        "its parts are missing": {},
        ...(way.path === "relay" ? {} : unread[way.upstream]),
      };
      return Object.entries(bodies).map(([what, body]) => [nameOf(way), what, way, body] as const);
    });

  test.each(cells)("%s: %s", async (_name, _what, way, body) => {
    const report = usages[way.upstream];
    fake.next({ raw: { body: JSON.stringify({ ...body, ...report(output) }) } });
    const call = callOn(fake.url, way);
    expect(await refusal(call)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: false, implausible: false, tokens: { input, output } },
    ]);

    fake.next({ raw: { body: JSON.stringify({ ...body, ...report(beyond) }) } });
    const absurd = callOn(fake.url, way);
    await refusal(absurd);
    expect(absurd.meter.settled).toMatchObject([{ status: "error", implausible: true }]);
    expect(absurd.meter.settled[0]?.tokens.output).toBeLessThan(200);
  });
});

describe("rule 10.7: a summary that the upstream made of a conversation is charged beside the answer, which does not count it", () => {
  const summary = {
    type: "compaction",
    input_tokens: 30,
    output_tokens: 40,
    cache_read_input_tokens: 200,
    cache_creation_input_tokens: 5,
    cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 5 },
  };
  const message = { type: "message", input_tokens: 10, output_tokens: 2 };
  const answer = (usage: object) => ({
    type: "message",
    role: "assistant",
    content: [{ type: "text", text: "Hi" }],
    stop_reason: "end_turn",
    usage,
  });
  const streamed = (usage: object) =>
    [
      { type: "message_start", message: { ...answer({ input_tokens: 10, output_tokens: 1 }), content: [] } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "Hi" } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn" }, usage },
      { type: "message_delta", delta: {}, usage: { output_tokens: 2 } },
      { type: "message_stop" },
    ]
      .map((event) => typedFrame(event.type, event))
      .join("");
  const serveOn = async (way: Way, iterations: readonly object[]) => {
    const usage = { input_tokens: 10, output_tokens: 2, iterations };
    fake.next({
      raw: way.stream
        ? { body: streamed(usage), contentType: "text/event-stream" }
        : { body: JSON.stringify(answer(usage)), contentType: "application/json" },
    });
    const call = callOn(fake.url, way);
    await serve(call);
    return call;
  };
  const summing = ways.filter(({ upstream }) => upstream === "messages");

  test.each(summing.map((way) => [nameOf(way), way] as const))("%s", async (_name, way) => {
    const [charge] = (await serveOn(way, [summary, message])).meter.settled;
    const own = { input: 10, cacheRead: 0, cacheWrite5m: 0, cacheWrite1h: 0, output: 2 };
    expect(charge).toMatchObject({
      status: "ok",
      estimated: false,
      implausible: false,
      tokens: { input: 40, cacheRead: 200, cacheWrite5m: 0, cacheWrite1h: 5, output: 42 },
    });
    // Each has a prompt of its own, by whose length its prices are chosen (rule 10.3).
    expect(charge?.calls).toMatchObject([
      own,
      { input: 30, cacheRead: 200, cacheWrite5m: 0, cacheWrite1h: 5, output: 40 },
    ]);
  });

  test.each(summing.map((way) => [nameOf(way), way] as const))(
    "each of several has a prompt of its own: %s",
    async (_name, way) => {
      const second = { type: "compaction", input_tokens: 70, output_tokens: 20 };
      const [charge] = (await serveOn(way, [summary, message, second])).meter.settled;
      expect(charge).toMatchObject({
        implausible: false,
        tokens: { input: 110, cacheRead: 200, output: 62 },
      });
      expect(charge?.calls).toMatchObject([
        { input: 10, output: 2 },
        { input: 30, cacheRead: 200, cacheWrite1h: 5, output: 40 },
        { input: 70, cacheRead: 0, cacheWrite1h: 0, output: 20 },
      ]);
    },
  );

  test.each(summing.map((way) => [nameOf(way), way] as const))(
    "beyond a few they are one call: %s",
    async (_name, way) => {
      const small = { ...summary, output_tokens: 1, output_tokens_details: { thinking_tokens: 1 } };
      const charged = async (count: number) => {
        const [charge] = (await serveOn(way, [...Array.from({ length: count }, () => small), message])).meter
          .settled;
        return charge;
      };
      const few = await charged(8);
      expect(few?.calls?.map(({ output }) => output)).toEqual([2, ...Array.from({ length: 8 }, () => 1)]);
      const many = await charged(30);
      expect(many?.calls).toHaveLength(9);
      expect(many?.calls?.at(-1)).toMatchObject({
        input: 690,
        cacheRead: 4_600,
        cacheWrite1h: 115,
        output: 23,
      });
      expect(many?.calls?.at(-1)).toMatchObject({ reasoning: 23 });
      expect(many).toMatchObject({
        implausible: false,
        tokens: { input: 910, cacheRead: 6_000, output: 32 },
      });
    },
  );

  test.each(summing.map((way) => [nameOf(way), way] as const))(
    "as far as it is possible: %s",
    async (_name, way) => {
      const absurd = { type: "compaction", input_tokens: 1e30, output_tokens: 1e30 };
      const [charge] = (await serveOn(way, [absurd, message])).meter.settled;
      expect(charge).toMatchObject({ implausible: true, tokens: { input: 200_010, output: 103 } });
      const many = await serveOn(
        way,
        Array.from({ length: 1_000 }, () => summary),
      );
      expect(many.meter.settled).toMatchObject([{ implausible: true, tokens: { output: 103 } }]);
      // Each is possible, but not all of them together.
      const long = { type: "compaction", input_tokens: 150_000, output_tokens: 60 };
      const [cut] = (await serveOn(way, [long, long, long, message])).meter.settled;
      expect(cut).toMatchObject({ implausible: true, tokens: { input: 200_010, output: 103 } });
      expect(cut?.calls).toMatchObject([
        { input: 10, output: 2 },
        { input: 150_000, output: 60 },
        { input: 50_000, output: 41 },
        { input: 0, output: 0 },
      ]);
    },
  );

  const summed = { type: "compaction", content: "s".repeat(400) };
  const whole = (more: object) => ({ ...answer({}), content: [summed], stop_reason: "compaction", ...more });
  const events = (usage: object | undefined) => [
    { type: "message_start", message: { ...answer({}), content: [], usage: undefined } },
    { type: "content_block_start", index: 0, content_block: { type: "compaction", content: null } },
    {
      type: "content_block_delta",
      index: 0,
      delta: { type: "compaction_delta", content: summed.content },
    },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: "compaction" }, usage },
    { type: "message_stop" },
  ];
  const serveAlone = async (way: Way, usage: object | undefined) => {
    fake.next({
      raw: way.stream
        ? {
            body: events(usage)
              .map((event) => typedFrame(event.type, event))
              .join(""),
            contentType: "text/event-stream",
          }
        : { body: JSON.stringify(whole({ usage })), contentType: "application/json" },
    });
    const call = callOn(fake.url, way);
    await serve(call);
    return call.meter.settled[0];
  };

  test.each(summing.map((way) => [nameOf(way), way] as const))("alone: %s", async (_name, way) => {
    const usage = { input_tokens: 0, output_tokens: 0, iterations: [summary] };
    expect(await serveAlone(way, usage)).toMatchObject({
      estimated: false,
      tokens: { input: 30, cacheRead: 200, cacheWrite1h: 5, output: 40 },
    });
  });

  test.each(summing.map((way) => [nameOf(way), way] as const))(
    "by what was written where nothing is reported: %s",
    async (_name, way) => {
      expect(await serveAlone(way, undefined)).toMatchObject({ estimated: true, tokens: { output: 100 } });
    },
  );

  test("a client of a tool loop is told the sum", async () => {
    const call = await serveOn({ path: "tools", client: "messages", upstream: "messages", stream: false }, [
      summary,
      message,
    ]);
    expect(JSON.parse(call.sink.text)).toMatchObject({
      usage: { input_tokens: 40, cache_read_input_tokens: 200, output_tokens: 42 },
    });
    expect(call.sink.text).not.toContain("compactions");
  });
});
