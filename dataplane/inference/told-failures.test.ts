/** Rule 1.5: an upstream that reports in its answer, in whatever form, that it failed is believed, and no client gets its words. */
import { beforeAll, describe, expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const said = "the provider's very own words";
const told = JSON.stringify({ error: { code: 502, message: said } });
const ending = { index: 0, delta: { content: "" }, finish_reason: "error" };
const chunk = { id: "c", object: "chat.completion.chunk", created: 1, model: "theirs", choices: [ending] };

const forms: Readonly<Record<string, string>> = {
  "an object without a name or a type": `data: ${told}\n\n`,
  "an object named as what has no name": `event: message\ndata: ${told}\n\n`,
  "an event without a type": `event: error\ndata: ${told}\n\n`,
  "an event without an object": `event: error\ndata: {"message":"${said}"}\n\n`,
  "an event that is no JSON": `event: error\ndata: ${said}\n\n`,
  "an empty event": "event: error\ndata: {}\n\n",
  "a chunk that ends its choice with an error": `data: ${JSON.stringify({ ...chunk, error: { code: "server_error", message: said } })}\n\n`,
  "a chunk whose choice holds the error": `data: ${JSON.stringify({ ...chunk, choices: [{ ...ending, error: { code: 502, message: said } }] })}\n\n`,
  "a chunk whose choice holds an error and no reason": `data: ${JSON.stringify({ ...chunk, choices: [{ ...ending, finish_reason: null, error: { code: 502, message: said } }] })}\n\n`,
  "a chunk that gives a failure as its reason": `data: ${JSON.stringify(chunk)}\n\n`,
  "a chunk that says why beside its failure, and goes on": `data: ${JSON.stringify({ ...chunk, choices: [{ ...ending, delta: { content: said } }] })}\n\ndata: ${JSON.stringify({ ...chunk, choices: [{ ...ending, delta: { content: said }, finish_reason: null }] })}\n\n`,
};

/** The events of a good answer. */
const streams = new Map<Dialect, readonly string[]>();
beforeAll(async () => {
  for (const dialect of dialects) {
    fake.next(hello);
    const call = callOn(fake.url, { path: "relay", client: dialect, upstream: dialect, stream: true });
    await serve(call);
    streams.set(dialect, call.sink.text.split(/(?<=\n\n)/));
  }
});

const cells = ways
  .filter(({ stream }) => stream)
  .flatMap((way) => Object.entries(forms).map(([what, form]) => [what, nameOf(way), way, form] as const))
  // In the other dialects, a chunk of Chat is no event.
  .filter(([what, , { upstream }]) => !what.startsWith("a chunk") || upstream === "chat");

test.each(cells)("%s: %s", async (_what, _name, way, form) => {
  const events = streams.get(way.upstream) ?? [];
  const body = [...events.slice(0, 4), form, ...events.slice(4)].join("");
  fake.next({ raw: { body, contentType: "text/event-stream" } });
  const call = callOn(fake.url, way);
  await serve(call);
  const { text } = call.sink;
  expect(text).not.toContain(said);
  expect(text).not.toMatch(/message_stop|response\.completed|\[DONE\]/);
  const last = text.trimEnd().split("\n\n").at(-1) ?? "";
  expect(last).toMatch(/^(?:event: error\n)?data: \{.*"error":\{.*"upstream_error"/);
  expect(call.summary.errorCode).toBe("upstream_error");
  expect(call.meter.settled).toMatchObject([{ status: "error" }]);
});

const codes = ways
  .filter(({ stream }) => stream)
  .flatMap((way) =>
    [
      ["rate_limit_error", "slow_down"],
      ["server_error", "engine_lost"],
      ["invalid_request_error", "bad_picture"],
      ["invalid_request_error", "context_length_exceeded"],
      ["overloaded_error", null],
    ].map(([type, code]) => [code ?? type, nameOf(way), way, { type, code, message: said }] as const),
  );

test.each(codes)(
  "rule 14.1: %s is the reason of a try, before an answer and within it: %s",
  async (reason, _name, way, error) => {
    const events = streams.get(way.upstream) ?? [];
    for (const before of [0, 4]) {
      const body = [
        ...events.slice(0, before),
        `event: error\ndata: ${JSON.stringify({ type: "error", error })}\n\n`,
      ].join("");
      const step = { raw: { body, contentType: "text/event-stream" } };
      fake.next(step, step, step);
      const call = callOn(fake.url, way);
      await serve(call).catch(() => {});
      expect(call.summary.calls.at(-1)?.reason).toBe(reason);
      fake.reset();
    }
  },
);

const bodies: Readonly<Record<string, object>> = {
  "about the request": { type: "invalid_request_error", message: "max_tokens is too large" },
  "about the account": { type: "authentication_error", code: "invalid_api_key", message: said },
  "about the rate": { type: "rate_limit_error", code: "rate_limit_exceeded", message: said },
  "about the load": { type: "overloaded_error", message: said },
  "about itself": { type: "server_error", message: said },
};

const errors = ways
  .filter(({ stream }) => stream)
  .flatMap((way) => Object.entries(bodies).map(([what, error]) => [what, nameOf(way), way, error] as const));

test.each(errors)("an error %s that stands for a stream: %s", async (_what, _name, way, error) => {
  const body = JSON.stringify({ type: "error", error });
  const tell = async (stream: boolean) => {
    // Some upstreams send blank lines while they work at an answer.
    const sent = stream ? `${"\n".repeat(20)}${body}\n` : body;
    const raw = { raw: { body: sent, contentType: "application/json" }, faults: { chunkBytes: 16 } };
    fake.next(raw, raw, raw);
    const call = callOn(fake.url, { ...way, stream });
    const { code, message, retryAfterSeconds } = await refusal(call);
    const { tries, calls } = call.summary;
    fake.reset();
    const { settled } = call.meter;
    return { code, message, retryAfterSeconds, tries, faults: calls.map(({ fault }) => fault), settled };
  };
  expect(await tell(true)).toEqual(await tell(false));
});

/** What the upstream of this way answers where nothing fails. */
async function goodAnswer(way: Way): Promise<Readonly<Record<string, unknown>>> {
  fake.next(hello);
  const call = callOn(fake.url, { ...way, path: "relay", client: way.upstream });
  await serve(call);
  return JSON.parse(call.sink.text) as Record<string, unknown>;
}

test.each(ways.filter(({ stream }) => !stream).map((way) => [nameOf(way), way] as const))(
  "a whole answer with an error beside it: %s",
  async (_name, way) => {
    const answer = await goodAnswer(way);
    const body = JSON.stringify({ ...answer, error: { code: "server_error", message: said } });
    fake.next({ raw: { body, contentType: "application/json" } });
    const call = callOn(fake.url, way);
    const error = await refusal(call);
    expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
    expect(error.message).not.toContain(said);
    expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 11, output: 7 } }]);
  },
);

const partOf = { messages: "content", chat: "choices", responses: "output" } as const;

test.each(
  ways.flatMap((way) => [null, []].map((part) => [JSON.stringify(part), nameOf(way), way, part] as const)),
)("an error beside %s, in which nothing was said, is free: %s", async (_what, _name, way, part) => {
  const told = { [partOf[way.upstream]]: part, error: { code: "server_error", message: said } };
  const step = { raw: { body: JSON.stringify(told), contentType: "application/json" } };
  fake.next(step, step, step);
  const call = callOn(fake.url, way);
  const error = await refusal(call);
  fake.reset();
  expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
  expect(call.meter).toMatchObject({ settled: [], released: 1 });
});

const failedChoices: Readonly<Record<string, object>> = {
  "with the error": { finish_reason: "error", error: { code: "server_error", message: said } },
  "with the error and a good reason": { error: { code: "server_error", message: said } },
  "by its reason alone": { finish_reason: "error" },
  "by another provider's reason": { finish_reason: "insufficient_system_resource" },
};

test.each(
  ways
    .filter(({ stream, upstream }) => !stream && upstream === "chat")
    .flatMap((way) =>
      Object.entries(failedChoices).map(([what, failure]) => [what, nameOf(way), way, failure] as const),
    ),
)("a whole answer whose choice failed, %s: %s", async (_what, _name, way, failure) => {
  const answer = await goodAnswer(way);
  const body = JSON.stringify({
    ...answer,
    choices: (answer["choices"] as object[]).map((choice) => ({ ...choice, ...failure })),
  });
  fake.next({ raw: { body, contentType: "application/json" } });
  const call = callOn(fake.url, way);
  const error = await refusal(call);
  expect(error).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
  expect(error.message).not.toContain(said);
  expect(call.meter.settled).toMatchObject([{ status: "error", tokens: { input: 11, output: 7 } }]);
});

test.each(
  ways
    .filter(({ stream, upstream }) => stream && upstream === "chat")
    .map((way) => [nameOf(way), way] as const),
)("a failure that a chunk gives as its reason costs what the chunk reports: %s", async (_name, way) => {
  const usage = { prompt_tokens: 70, completion_tokens: 9, total_tokens: 79 };
  const body = [
    ...(streams.get("chat") ?? []).slice(0, 4),
    `data: ${JSON.stringify({ ...chunk, usage })}\n\n`,
  ].join("");
  fake.next({ raw: { body, contentType: "text/event-stream" } });
  const call = callOn(fake.url, way);
  await serve(call);
  expect(call.meter.settled).toMatchObject([
    { status: "error", estimated: false, tokens: { input: 70, output: 9 } },
  ]);
});

test.each(
  ways
    .filter(({ stream, upstream }) => stream && upstream === "chat")
    .map((way) => [nameOf(way), way] as const),
)("or what the chunk behind it reports: %s", async (_name, way) => {
  const usage = { prompt_tokens: 70, completion_tokens: 9, total_tokens: 79 };
  for (const end of ["data: [DONE]\n\n", ""]) {
    const body = [
      ...(streams.get("chat") ?? []).slice(0, 4),
      `data: ${JSON.stringify(chunk)}\n\n`,
      `data: ${JSON.stringify({ ...chunk, choices: [], usage })}\n\n`,
      end,
    ].join("");
    fake.next({ raw: { body, contentType: "text/event-stream" } });
    const call = callOn(fake.url, way);
    await serve(call);
    expect(call.sink.text).not.toContain("[DONE]");
    expect(call.summary.errorCode).toBe("upstream_error");
    expect(call.meter.settled).toMatchObject([
      { status: "error", estimated: false, tokens: { input: 70, output: 9 } },
    ]);
  }
});

test("with nothing behind it, it is told after the two seconds that a report is waited for, on every way", async () => {
  const body = [...(streams.get("chat") ?? []).slice(0, 4), `data: ${JSON.stringify(chunk)}\n\n`].join("");
  const timeouts = { connectMs: 1000, firstByteMs: 2000, streamIdleMs: 60_000, requestMs: 60_000 };
  const startedAt = performance.now();
  const asked = ways
    .filter(({ stream, upstream }) => stream && upstream === "chat")
    .map(async (way) => {
      fake.next({ raw: { body, contentType: "text/event-stream" }, faults: { stallAtByte: body.length } });
      const call = callOn(fake.url, way, { route: { timeouts } });
      await serve(call);
      expect(call.sink.text, nameOf(way)).toMatch(/"error":\{[^}]*"upstream_error"[^}]*\}.*\n\n$/);
      expect(call.sink.text).not.toMatch(/message_stop|response\.completed|"finish_reason":"|\[DONE\]/);
      expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
    });
  await Promise.all(asked);
  expect(performance.now() - startedAt).toBeLessThan(4_000);
}, 10_000);

test.each(
  ways
    .filter(({ stream, upstream }) => stream && upstream === "chat")
    .map((way) => [nameOf(way), way] as const),
)("it is told though comments without end come behind it: %s", async (_name, way) => {
  const body = [
    ...(streams.get("chat") ?? []).slice(0, 4),
    `data: ${JSON.stringify(chunk)}\n\n`,
    `: ${"x".repeat(1000)}\n\n`.repeat(400),
  ].join("");
  fake.next({ raw: { body, contentType: "text/event-stream" }, faults: { stallAtByte: body.length } });
  const call = callOn(fake.url, way);
  await serve(call);
  expect(call.sink.text).toMatch(/"error":\{[^}]*"upstream_error"[^}]*\}.*\n\n$/);
  expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
});

test.each(
  ways
    .filter(({ stream, upstream }) => stream && upstream === "chat")
    .map((way) => [nameOf(way), way] as const),
)("a first chunk with such a reason is a failure before the answer: %s", async (_name, way) => {
  const body = `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`;
  const step = { raw: { body, contentType: "text/event-stream" } };
  fake.next(step, step, step);
  const call = callOn(fake.url, way);
  expect(await refusal(call)).toMatchObject({ code: "upstream_error", kind: { status: 502 } });
  fake.reset();
  expect(call.meter).toMatchObject({ settled: [], released: 1 });
  expect(call.summary.calls.map(({ fault, reason }) => [fault, reason])).toEqual([
    ["server_error", "in_band_error"],
  ]);
});

test("a stream that ends with such a chunk has failed", async () => {
  const body = [...(streams.get("chat") ?? []).slice(0, 4), `data: ${JSON.stringify(chunk)}\n\n`].join("");
  fake.next({ raw: { body, contentType: "text/event-stream" } });
  const call = callOn(fake.url, { path: "relay", client: "chat", upstream: "chat", stream: true });
  await serve(call);
  expect(call.sink.text).toMatch(/"error":\{[^}]*"upstream_error"[^}]*\}\}\n\n$/);
  expect(call.sink.text).not.toMatch(/"finish_reason":"|\[DONE\]/);
  expect(call.meter.settled).toMatchObject([{ status: "error" }]);
});

describe("what an error is beside an answer depends on its value alone, as it does to official clients", () => {
  const values: [value: unknown, isError: boolean][] = [
    [null, false],
    [false, false],
    [0, false],
    ["", false],
    [true, true],
    [1, true],
    [said, true],
    [[], true],
    [{}, true],
    [{ message: said }, true],
  ];
  const asked = ways
    .filter(({ stream, upstream }) => !stream || upstream !== "messages")
    .flatMap((way) =>
      values.map(([value, isError]) => [JSON.stringify(value), nameOf(way), isError, value, way] as const),
    );

  test.each(asked)("%s: %s", async (_value, _name, isError, value, way) => {
    fake.next(hello);
    const good = callOn(fake.url, { ...way, path: "relay", client: way.upstream });
    await serve(good);
    const beside = (json: string) => JSON.stringify({ ...(JSON.parse(json) as object), error: value });
    const body = !way.stream
      ? beside(good.sink.text)
      : way.upstream === "chat"
        ? good.sink.text.replace(/(?<=^data: ).*"finish_reason":"stop".*$/m, beside)
        : good.sink.text.replace(
            /(?<=^data: )(\{"type":"response\.completed".*"response":)(.*)\}$/m,
            (_, head, response) => `${head}${beside(response)}}`,
          );
    expect(body).toContain(`"error":${JSON.stringify(value)}`);
    const contentType = way.stream ? "text/event-stream" : "application/json";
    fake.next({ raw: { body, contentType } });
    const call = callOn(fake.url, way);
    const failed = await serve(call).catch((error: unknown) => error);
    expect(call.meter.settled).toMatchObject([{ status: isError ? "error" : "ok" }]);
    expect(call.sink.text).not.toContain(said);
    if (!way.stream) expect(failed === undefined).toBe(!isError);
    else expect(/message_stop|response\.completed|\[DONE\]/.test(call.sink.text)).toBe(!isError);
  });
});
