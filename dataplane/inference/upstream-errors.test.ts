/** Upstreams that refuse, or that are not there: what the client sees instead. */
import { describe, expect, test } from "vitest";
import { bodyOf, hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { dialects } from "../dialects/dialect.ts";
import { dialectErrorFamily, errorStatus } from "../dialects/errors.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

describe.each(dialects)("%s", (dialect) => {
  const statuses: [number, number, number?][] = [
    [400, 400],
    [401, 502],
    [402, 502],
    [403, 502],
    [404, 502],
    [408, 504],
    [413, 413],
    [418, 502],
    [422, 400],
    [429, 429, 5],
    [500, 502],
    [503, 503, 5],
    [529, dialect === "messages" ? 529 : 503, 5],
    [302, 502],
  ];
  test.each(statuses)("rule 2.12: upstream status %i becomes %i", async (status, expected, retryAfter) => {
    fake.next({ error: { status, message: "key sk-live-secret at https://internal.example" } });
    const call = callTo(dialect, bodyOf(dialect));
    const error = await refusal(call);
    expect(errorStatus(dialectErrorFamily[dialect], error)).toBe(expected);
    expect(error.message).not.toMatch(/sk-live|internal\.example/);
    expect(error.retryAfterSeconds).toBe(retryAfter);
    expect(call.meter.released).toBe(1);
    expect(call.meter.settled).toEqual([]);
  });

  test("an upstream that is not there is 502, one that does not answer in time 504", async () => {
    const away = callTo(dialect, bodyOf(dialect), { upstream: { url: "http://127.0.0.1:1/v1/x" } });
    expect(await refusal(away)).toMatchObject({ code: "upstream_error" });
    fake.next(withFaults(hello, { hang: true }));
    const timeouts = { connectMs: 1000, firstByteMs: 80, streamIdleMs: 2000, requestMs: 10_000 };
    const hanging = callTo(dialect, bodyOf(dialect), { route: { timeouts } });
    expect(await refusal(hanging)).toMatchObject({ code: "timeout" });
    fake.next(withFaults(hello, { hang: true }));
    const whole = { connectMs: 1000, firstByteMs: null, streamIdleMs: 2000, requestMs: 80 };
    const late = callTo(dialect, bodyOf(dialect), { route: { timeouts: whole } });
    expect(await refusal(late)).toMatchObject({ code: "timeout" });
    expect(late.meter.released).toBe(1);
  });
});

describe("rule 2.12: our own key and address are taken out, whatever they look like", () => {
  const said = (host: string) => `temperature: upstream-secret is no key of ${host} (upstream-secret)`;
  const shown = "temperature: [key] is no key of [address] ([key])";
  const inBand = (host: string) => ({ type: "invalid_request_error", message: said(host) });

  test.each(dialects)("%s: with a status, and in a 200", async (dialect) => {
    const upstream = { credential: { id: "test/key", header: "authorization" } };
    const { host } = new URL(fake.url);
    fake.next(
      { error: { status: 400, message: said(host) } },
      { raw: { body: JSON.stringify({ type: "error", error: inBand(host) }) } },
    );
    for (const _ of ["status", "200"])
      expect((await refusal(callTo(dialect, bodyOf(dialect), { upstream }))).message).toBe(shown);
  });

  test.each(ways.filter(({ stream }) => stream).map((way) => [nameOf(way), way] as const))(
    "%s: within the stream",
    async (_name, way) => {
      const url = fake.url.replace("127.0.0.1", "localhost");
      const { host } = new URL(url);
      fake.next(withFaults(hello, { errorAtEvent: { event: 3, ...inBand(host) } }));
      const call = callOn(url, way);
      await serve(call);
      expect(call.sink.text).toMatch(/"error"/);
      expect(call.sink.text).not.toContain(host);
    },
  );
});

describe("rule 2.12: the model's name at the upstream is none that a client may see, in-band either", () => {
  const model = "vendor/their-own-name";
  const error = { type: "invalid_request_error", message: `${model} takes no images` };

  test.each(dialects)("%s: in a 200", async (dialect) => {
    fake.next({ raw: { body: JSON.stringify({ type: "error", error }) } });
    const { message } = await refusal(callTo(dialect, bodyOf(dialect), { upstream: { model } }));
    expect(message).toBe("public-model takes no images");
  });

  test.each(ways.filter(({ stream }) => stream).map((way) => [nameOf(way), way] as const))(
    "%s: within the stream",
    async (_name, way) => {
      fake.next(withFaults(hello, { errorAtEvent: { event: 3, ...error } }));
      const call = callOn(fake.url, way, { upstream: { model } });
      await serve(call);
      expect(call.sink.text).toMatch(/"error"/);
      expect(call.sink.text).not.toContain("their-own-name");
    },
  );
});

describe("rule 2.12: an error body that is too long to be read whole says what its beginning says", () => {
  const long = "word ".repeat(20_000);
  const after = (body: object, status = 400) => {
    fake.next({ raw: { status, body: JSON.stringify(body), contentType: "application/json" } });
    return refusal(callTo("chat", bodyOf("chat")));
  };

  test("a message that was cut", async () => {
    const error = await after({ error: { type: "invalid_request_error", message: `bad tool: ${long}` } });
    expect(error.code).toBe("invalid_request");
    expect(error.message).toMatch(/^bad tool: word word/);
  });

  test("a message before what was cut, with its field and code", async () => {
    const said = { message: "no such tool", param: "tools[0].type", code: "bad_tool", input: long };
    expect(await after({ error: said })).toMatchObject({
      code: "invalid_request",
      message: "no such tool",
      param: "tools[0].type",
      reportedCode: "bad_tool",
    });
  });

  test("a prompt that does not fit", async () => {
    const message = "maximum context length is 10 tokens, you requested 20 tokens";
    expect((await after({ error: { message, input: long } })).code).toBe("context_length_exceeded");
  });

  test("the fields that a validator names, whose values it repeats", async () => {
    const detail = [{ type: "extra_forbidden", loc: ["body", "seed"], msg: "no", input: long }];
    expect(await after({ detail }, 422)).toMatchObject({ code: "invalid_request", param: "seed" });
  });

  test("but never the half of a word, which may be that of a key, and nothing of our account", async () => {
    const secret = `x ${"y".repeat(70_000)}`;
    const cut = await after({ error: { message: secret } });
    expect(cut.message).toBe("x");
    const ours = await after({ error: { message: "Your credit balance is too low", input: long } });
    expect(ours.code).toBe("upstream_error");
  });
});
