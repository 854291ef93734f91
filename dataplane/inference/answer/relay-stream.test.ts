/** Streams that pass by: their bytes, and when these leave. */
import { describe, expect, test } from "vitest";
import { bodyOf, hello, serveOneUpstream, usage } from "../../../test/fakes/one-upstream.ts";
import { text } from "../../../test/fakes/upstream/script.ts";
import { withFaults } from "../../../test/fakes/upstream/server.ts";
import { dialects } from "../../dialects/dialect.ts";

const { callTo, fake, serve } = await serveOneUpstream();

describe.each(dialects)("%s", (dialect) => {
  test("streams pass byte for byte however they are cut, when the names agree", async () => {
    const plain = { upstream: { model: "public-model" } };
    const body = bodyOf(dialect, { stream: true, stream_options: { include_usage: true } });
    const seen = new Set<string>();
    for (const chunkBytes of [1, 7, 64, 100_000]) {
      fake.next(withFaults(hello, { chunkBytes }));
      const call = callTo(dialect, body, plain);
      await serve(call);
      seen.add(call.sink.text.replaceAll(/_?fake\d+|\d{10,}|[_-]\d+(?:_\d+)?(?=")/g, ""));
    }
    expect(seen.size).toBe(1);
  });

  test("a stream of CRLF lines passes to its last byte, also when it comes byte by byte", async () => {
    const body = bodyOf(dialect, { stream: true, stream_options: { include_usage: true } });
    const plain = { upstream: { model: "public-model" } };
    fake.next(hello);
    const asItIs = callTo(dialect, body, plain);
    await serve(asItIs);
    const crlf = asItIs.sink.text.replaceAll("\n", "\r\n");
    expect(crlf.endsWith("\r\n\r\n")).toBe(true);
    for (const chunkBytes of [1, 3, 100_000]) {
      fake.next({ raw: { body: crlf, contentType: "text/event-stream" }, faults: { chunkBytes } });
      const call = callTo(dialect, body, plain);
      await serve(call);
      expect(call.sink.text).toBe(crlf);
    }
  });

  test("a foreign model's name is patched in events whose data stands on several lines too", async () => {
    const body = bodyOf(dialect, { stream: true, stream_options: { include_usage: true } });
    fake.next(hello);
    const asItIs = callTo(dialect, body, { upstream: { model: "public-model" } });
    await serve(asItIs);
    const spread = asItIs.sink.text
      .replaceAll("public-model", "theirs")
      .replaceAll(/^data: \{(.*?),/gm, "data: {\ndata: $1\ndata: ,");
    for (const chunkBytes of [7, 100_000]) {
      fake.next({ raw: { body: spread, contentType: "text/event-stream" }, faults: { chunkBytes } });
      const call = callTo(dialect, body);
      await serve(call);
      expect(call.sink.text).not.toContain("theirs");
      expect(call.sink.text.replaceAll("\ndata: ,", ",").replaceAll("data: {\ndata: ", "data: {")).toBe(
        asItIs.sink.text,
      );
      expect(call.meter.settled).toMatchObject([{ status: "ok", estimated: false }]);
    }
  });

  test("rule 1.9: the end of a stream leaves only once its charge is durable", async () => {
    fake.next(hello);
    const call = callTo(dialect, bodyOf(dialect, { stream: true }));
    const durable = Promise.withResolvers<void>();
    let before = "";
    call.meter.onSettle = () => {
      before = call.sink.text;
      setTimeout(() => {
        expect(call.sink.text).toBe(before);
        durable.resolve();
      }, 30);
      return durable.promise;
    };
    await serve(call);
    expect(before).not.toMatch(/message_stop|response\.completed|"finish_reason":"stop"|\[DONE\]/);
    expect(call.sink.text).toMatch(/message_stop|response\.completed|"finish_reason":"stop"/);
  });

  test("a client that is behind pauses the upstream, and the pause is not the upstream's idleness", async () => {
    fake.next(withFaults(text("word ".repeat(300), usage), { delayAtEvent: { event: 5, ms: 30 } }));
    const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 400, requestMs: 10_000 };
    const call = callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts } });
    call.sink.accept = () => call.sink.pieces.length > 2;
    const timer = setInterval(() => call.sink.drain(), 600);
    await serve(call);
    clearInterval(timer);
    expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
    expect(call.sink.text.match(/word/g)?.length).toBeGreaterThanOrEqual(300);
  });
});

describe("rule 7.2: events that are held count with the memory that each takes", () => {
  const blanks = "\n".repeat(100_000);
  const chunk = (content: string, reason: string | null) =>
    `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"public-model","choices":[{"index":0,"delta":{"content":"${content}"},"finish_reason":${JSON.stringify(reason)}}]}\n\n`;
  const timeouts = { connectMs: 30_000, firstByteMs: 60_000, streamIdleMs: 60_000, requestMs: 60_000 };
  const streamed = async (body: string) => {
    fake.next({ raw: { body, contentType: "text/event-stream" } });
    const call = callTo("chat", bodyOf("chat", { stream: true }), { route: { timeouts } });
    return { call, error: await serve(call).catch((thrown: unknown) => thrown) };
  };

  test("very many blank lines are no beginning of an answer", async () => {
    const { call, error } = await streamed(`${blanks}${chunk("Hello", "stop")}data: [DONE]\n\n`);
    expect(error).toMatchObject({ code: "upstream_error" });
    expect(call.sink.text).toBe("");
  });

  test("very many blank lines behind its end are left out", async () => {
    const { call } = await streamed(`${chunk("Hello", "stop")}${blanks}data: [DONE]\n\n`);
    expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
    expect(call.sink.text).toMatch(/"finish_reason":"stop"[^]*\[DONE\]\n\n$/);
    expect(call.sink.text.length).toBeLessThan(blanks.length / 2);
  });

  test("an hour of comments is", async () => {
    const { call } = await streamed(`${": ping\n\n".repeat(3_600)}${chunk("Hello", "stop")}data: [DONE]\n\n`);
    expect(call.sink.text.match(/: ping/g)).toHaveLength(3_600);
    expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
  });
});

describe("the injected usage chunk", () => {
  test.each([
    [{}, false],
    [{ stream_options: null }, false],
    [{ stream_options: { include_usage: false } }, false],
    [{ stream_options: { include_obfuscation: false } }, false],
    [{ stream_options: { include_usage: true } }, true],
  ])("%j: the client sees it: %s", async (options, shown) => {
    fake.next(hello);
    const call = callTo("chat", bodyOf("chat", { stream: true, ...options }));
    await serve(call);
    expect(fake.requests[0]?.json()).toMatchObject({ stream_options: { include_usage: true } });
    expect(/"usage":\{/.test(call.sink.text)).toBe(shown);
    expect(call.sink.text).toMatch(/"finish_reason":"stop"[^]*\[DONE\]/);
    expect(call.meter.settled).toMatchObject([{ estimated: false, tokens: usage }]);
  });
});
