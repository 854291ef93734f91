/** Streams that break off, fail, stand still or end oddly: what the client sees of it, and what is charged. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { bodyOf, hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { typedFrame } from "../../test/fakes/upstream/render.ts";
import { text, type Faults } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { dialects } from "../dialects/dialect.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

/** The in-band error of each dialect. */
const inBand = {
  messages: { type: "error", error: { type: expect.any(String) as string }, request_id: "req_test" },
  chat: { error: { message: expect.any(String) as string, param: null } },
  responses: { type: "error", message: expect.any(String) as string, error: { param: null } },
};

function lastEvent(stream: string): unknown {
  const last = stream.trimEnd().split("\n\n").at(-1) ?? "";
  return JSON.parse(last.replace(/^event: error\n/, "").replace(/^data: /, ""));
}

describe.each(dialects)("%s", (dialect) => {
  const midStream: [string, Faults, string][] = [
    ["cut", { cutAtEvent: 3 }, "upstream_error"],
    ["reset", { resetAtByte: 1_100, delayBetweenEventsMs: 5 }, "upstream_error"],
    ["ending without its terminal event", { noTerminal: true }, "upstream_error"],
    ["standing still", { stallAtEvent: 3 }, "timeout"],
    [
      "failing",
      { errorAtEvent: { event: 3, type: "api_error", message: "account org-123 exploded" } },
      "upstream_error",
    ],
  ];
  test.each(midStream)(
    "rule 2.13: a stream %s ends in the in-band error and is charged for what was seen",
    async (_name, faults, code) => {
      fake.next(withFaults(hello, faults));
      // Only the case that waits for it has a short time-out: a busy machine may pause for as long.
      const streamIdleMs = code === "timeout" ? 150 : 5_000;
      const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs, requestMs: 10_000 };
      const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
      await serve(call);
      expect(call.sink.status).toBe(200);
      expect(call.sink.text).not.toContain("org-123");
      expect(call.sink.text).not.toMatch(/message_stop|response\.completed|\[DONE\]/);
      expect(lastEvent(call.sink.text)).toMatchObject(inBand[dialect]);
      const numbers = Array.from(call.sink.text.matchAll(/"sequence_number":(\d+)/g), ([, number]) =>
        Number(number),
      );
      expect(numbers).toEqual(numbers.map((_, index) => index));
      expect(call.summary.errorCode).toBe(code);
      expect(call.sink.ended).toBe(true);
      expect(call.meter.settled).toMatchObject([{ status: "error" }]);
      expect(call.meter.settled[0]?.tokens.input).toBeGreaterThan(0);
    },
  );

  test.each([
    ["HTML", { html: true }],
    ["nothing", { empty: true }],
    ["an error event", { errorAtEvent: { event: 0, type: "overloaded_error" } }],
  ])("rule 1.6: a stream that holds only %s is a real HTTP status", async (_name, faults) => {
    fake.next(withFaults(hello, faults));
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    expect((await refusal(call)).kind.status).toBeGreaterThanOrEqual(502);
    expect(call.meter.settled).toEqual([]);
    expect(call.meter.released).toBe(1);
  });

  test("a stream that outlasts the request's time ends in-band, and aborts the upstream", async () => {
    fake.next(withFaults(text("word ".repeat(500)), { delayBetweenEventsMs: 20 }));
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 2000, requestMs: 400 };
    const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
    await serve(call);
    expect(call.summary.errorCode).toBe("timeout");
    expect(lastEvent(call.sink.text)).toMatchObject(inBand[dialect]);
    expect(call.meter.settled).toMatchObject([{ status: "error" }]);
    await expect.poll(() => fake.requests[0]?.outcome).toBe("aborted");
  });
});

describe("rule 2.13: the numbers of a Responses stream that breaks off go on", () => {
  const delta = (number: number, more: object = {}) =>
    typedFrame("response.output_text.delta", { delta: "word ", ...more, sequence_number: number });
  const opening = [
    typedFrame("response.created", { response: { model: "public-model" }, sequence_number: 0 }),
    typedFrame("response.in_progress", { response: { model: "public-model" }, sequence_number: 1 }),
    typedFrame("response.output_item.added", { item: { type: "message" }, sequence_number: 2 }),
    typedFrame("response.content_part.added", { part: { type: "output_text" }, sequence_number: 3 }),
  ];
  const begun = [...opening, delta(4), delta(5), delta(6), delta(7)];
  const nameless = begun.map((piece) => piece.replace(/^event: .*\n/, ""));
  const nested = { obj: { sequence_number: 5000 } };
  const failed = { response: { error: { code: "server_error", message: "x" } }, sequence_number: 70 };

  /** Each piece arrives by itself; then the stream ends, or stands still. */
  async function numbered(pieces: readonly string[], end: "cut" | "idle"): Promise<unknown> {
    const server = createServer((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      void (async () => {
        for (const piece of pieces) {
          response.write(piece);
          await pause(2);
        }
        if (end === "cut") response.end();
      })();
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    const streamIdleMs = end === "idle" ? 150 : 5_000;
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs, requestMs: 10_000 };
    const call = callTo("responses", bodyOf("responses", { stream: true }), {
      upstream: { url: `http://127.0.0.1:${port}` },
      route: { timeouts },
    });
    try {
      await serve(call);
    } finally {
      server.closeAllConnections();
      server.close();
    }
    const last = lastEvent(call.sink.text);
    expect(last).toMatchObject(inBand.responses);
    return (last as { sequence_number: unknown }).sequence_number;
  }

  const rows: [string, string[], number][] = [
    ["behind the last delta", begun, 8],
    ["behind a gap", [...begun, delta(41)], 42],
    ["behind a comment", [...begun, ": ping\n\n"], 8],
    ["behind many of them", [...begun, ...Array<string>(9).fill(": ping\n\n")], 8],
    ["behind a comment, before an error", [...begun, ": ping\n\n", typedFrame("error", { message: "x" })], 8],
    ["before a failure with a number", [...begun, ": ping\n\n", typedFrame("response.failed", failed)], 8],
    ["behind a keepalive", [...begun, typedFrame("keepalive", {})], 8],
    ["behind a keepalive with a number", [...begun, typedFrame("keepalive", { sequence_number: 8 })], 9],
    ["behind an unknown event", [...begun, typedFrame("response.new_thing", { a: [1] })], 8],
    ["behind broken data", [...begun, "data: {bad\n\n"], 8],
    ["behind a broken delta", [...begun, "event: response.output_text.delta\ndata: {bad\n\n"], 8],
    ["behind half an event", [...begun, delta(8).slice(0, -20)], 8],
    ["behind a nested number", [...begun, delta(8, nested), typedFrame("response.new_thing", nested)], 9],
    ["behind other events", [...opening, ": ping\n\n"], 4],
    ["in one piece", [begun.join("") + typedFrame("keepalive", {})], 8],
    ["without names", [...nameless, "data: {bad\n\n"], 8],
    ["without numbers", [typedFrame("response.created", { response: {} }), ": ping\n\n"], 0],
  ];
  test.each(rows)("%s", async (_name, pieces, next) => {
    const numbers = [numbered(pieces, "cut"), numbered(pieces, "idle")];
    expect(await Promise.all(numbers)).toEqual([next, next]);
  });
});

describe("streams that end oddly", () => {
  const chunk = (content: string, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", model: "public-model", choices: [{ index: 0, delta: { content }, finish_reason: finish }] })}\n\n`;
  const served = async (body: string) => {
    fake.next({ raw: { body } });
    const options = { stream: true, stream_options: { include_usage: true } };
    const call = callTo("chat", bodyOf("chat", options));
    await serve(call);
    return { sent: call.sink.text, status: call.meter.settled[0]?.status };
  };
  const done = "data: [DONE]\n\n";
  const whole = chunk("a") + chunk("", "stop");
  const finish = (index: number, reason: string) => ({ index, delta: {}, finish_reason: reason });
  const finished = (...choices: object[]) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: "public-model", choices })}\n\n`;
  const call = `data: ${JSON.stringify({ id: "c", created: 7, model: "upstream-name", choices: [{ index: 0, delta: { tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "f", arguments: "{}" } }] } }] })}\n\n`;
  const empty = call
    .replace("upstream-name", "public-model")
    .replace('"id":"call_1",', "")
    .replace('"f"', '""')
    .replace('"{}"', '""');

  test.each([
    ["without [DONE]", whole, whole + done],
    ["without the last blank line", `${whole}data: [DONE]`, whole + done],
    ["within the event behind the end", `${whole}data: {"choices":[],"us`, whole + done],
    ["with an error behind the end", `${whole}data: {"error":{"message":"late"}}\n\n`, whole + done],
    [
      "with comments and CRLF",
      `: hi\r\n\r\n${whole.replaceAll("\n", "\r\n")}`,
      `: hi\r\n\r\n${whole.replaceAll("\n", "\r\n")}${done}`,
    ],
    [
      "without finish_reason, with [DONE]",
      chunk("a") + chunk("b") + done,
      chunk("a") + chunk("b") + finished(finish(0, "stop")) + done,
    ],
    [
      "with a call, without finish_reason and the last blank line, with [DONE]",
      `${call}data: [DONE]`,
      `${call.replace("upstream-name", "public-model")}${finished(finish(0, "tool_calls")).replace('"object"', '"created":7,"object"')}${done}`,
    ],
    [
      "with an empty call, without finish_reason, with [DONE]",
      chunk("a") + empty + done,
      chunk("a") + empty + finished(finish(0, "stop")) + done,
    ],
  ])("rule 2.13: %s is complete", async (_name, body, sent) => {
    expect(await served(body)).toEqual({ sent, status: "ok" });
  });

  test.each(ways.filter(({ stream }) => stream).map((way) => [nameOf(way), way] as const))(
    "rule 1.6: [DONE] alone is an empty answer: %s",
    async (_name, way) => {
      fake.next({ raw: { body: `: hi\n\n${done}`, contentType: "text/event-stream" } });
      const empty = callOn(fake.url, way);
      expect(await refusal(empty)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
      expect(empty.meter.settled).toEqual([]);
      expect(fake.requests).toHaveLength(1);
    },
  );

  test("of several choices those without a reason get one", async () => {
    const other = chunk("b").replace('"index":0', '"index":1');
    fake.next({ raw: { body: chunk("a") + other + chunk("", "length") + done } });
    const call = callTo("chat", bodyOf("chat", { stream: true, n: 2 }));
    await serve(call);
    expect(call.sink.text).toBe(
      chunk("a") + other + chunk("", "length") + finished(finish(1, "stop")) + done,
    );
  });

  const ofChat = ways.filter(({ upstream, stream }) => upstream === "chat" && stream);
  describe.each(ofChat.map((way) => [nameOf(way), way] as const))("%s", (_name, way) => {
    const usage = `data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}\n\n`;
    const counted = { input: 11, output: 7 };
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 150, requestMs: 10_000 };
    const ends: [string, string, Faults][] = [
      ["is cut off", "", { cutAtByte: (whole + usage).length }],
      ["stands still", "", { stallAtByte: (whole + usage).length }],
      ["says something that cannot be read", "data: {nonsense\n\n", {}],
      ["tells an error", 'data: {"error":{"message":"late"}}\n\n', {}],
    ];

    test.each(ends)(
      "rule 2.13: whole, though the connection %s behind the end",
      async (_what, more, faults) => {
        const body = whole + usage + more + ": behind\n\n";
        fake.next({
          raw: { body, contentType: "text/event-stream" },
          faults: { delayBetweenEventsMs: 5, ...faults },
        });
        const call = callOn(fake.url, way, { route: { timeouts } });
        await serve(call);
        expect(call.sink.text).toMatch(/message_stop|response\.completed|"finish_reason":"stop"/);
        expect(call.sink.text).not.toMatch(/"error":\{/);
        expect(call.summary.errorCode ?? null).toBeNull();
        expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false, tokens: counted }]);
      },
    );
  });

  test("in the middle of an event: the half event is kept from the client's JSON parser", async () => {
    const { sent, status } = await served(`${chunk("a")}${chunk("b").slice(0, 60)}`);
    expect(sent.startsWith(chunk("a"))).toBe(true);
    expect(sent.slice(chunk("a").length)).toMatch(/^data: \{"error":/);
    expect(status).toBe("error");
  });
});
