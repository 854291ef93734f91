/** Requests that are sent again without what the upstream rejected. */
import { describe, expect, test, vi } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
} from "../../test/fakes/inference.ts";
import {
  bodyOf,
  hello,
  sealedEncrypted,
  sealedSignature,
  serveOneUpstream,
  usage,
} from "../../test/fakes/one-upstream.ts";
import { sampleOrganization } from "../../test/fakes/sample-snapshot.ts";
import { text, toolCall } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, type Way, ways } from "../../test/fakes/ways.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

interface SentRequest {
  readonly system?: unknown;
  readonly instructions?: string;
  readonly messages?: readonly { readonly role: string; readonly content: unknown }[];
}

/** Whether the instruction stands before the conversation. */
function inFront({ system, instructions, messages }: SentRequest): boolean {
  const [leading] = messages ?? [];
  const before = [system, instructions, leading?.role === "system" ? leading.content : undefined];
  return JSON.stringify(before).includes("Be brief.");
}

const rejected = {
  messages: "messages.1.content.0: Invalid `signature` in `thinking` block",
  responses: "The encrypted content gAAA...ng== could not be verified.",
};
const withReasoning = {
  messages: {
    messages: [
      { role: "user", content: "Hi" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: sealedSignature("of-another-account") },
          { type: "text", text: "Hello" },
        ],
      },
      { role: "user", content: "And?" },
    ],
  },
  responses: {
    input: [
      { role: "user", content: "Hi" },
      {
        type: "reasoning",
        id: "rs_1",
        summary: [],
        encrypted_content: sealedEncrypted("rs_1", "of-another-account"),
      },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hello" }] },
      { role: "user", content: "And?" },
    ],
  },
};

test("rule 9.7: what is usual is learnt from answers that were asked for again, too", async () => {
  const source = { kind: "ModelRoute", namespace: "test", name: "m", uid: "again", generation: 1 } as const;
  const limits = { contextTokens: 200_000, maxOutputTokens: 64_000 };
  const estimate = async (more: object) => {
    const call = callTo("messages", bodyOf("messages", { max_tokens: 64_000, ...more }), {
      route: { source, limits },
    });
    vi.spyOn(call.snapshot, "organization").mockReturnValue(sampleOrganization("org_a", { hold: "typical" }));
    await serve(call);
    return call.meter.opened[0]?.estimate ?? 0n;
  };
  const long = text("Hello", { ...usage, output: 8_000 });
  fake.next({ error: { status: 400, message: rejected.messages } }, long, hello);
  await estimate(withReasoning.messages);
  // An output token costs two micro-credits.
  expect(await estimate({})).toBeGreaterThanOrEqual(16_000n);
});

describe.each(["messages", "responses"] as const)("rule 2.17: %s relayed", (dialect) => {
  test.each([false, true])("rejected reasoning is left out and asked again (stream: %s)", async (stream) => {
    fake.next({ error: { status: 400, message: rejected[dialect] } }, hello);
    const call = callTo(dialect, bodyOf(dialect, { ...withReasoning[dialect], stream }));
    await serve(call);
    expect(call.summary.servingPath).toBe("relay");
    expect(fake.requests).toHaveLength(2);
    expect(fake.requests[0]?.text).toContain("of-another-account");
    expect(fake.requests[1]?.text).not.toContain("of-another-account");
    expect(fake.requests[1]?.text).toContain("And?");
    expect(call.sink.text).toContain("Hello");
    expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
  });

  test("a tier that is refused, and then reasoning, are both left out", async () => {
    fake.next(
      { error: { status: 400, message: "service_tier: unknown field" } },
      { error: { status: 400, message: rejected[dialect] } },
      hello,
    );
    const call = callTo(dialect, bodyOf(dialect, withReasoning[dialect]));
    await serve(call);
    expect(fake.requests.map(({ text }) => text.includes("service_tier"))).toEqual([true, false, false]);
    expect(fake.requests.map(({ text }) => text.includes("of-another-account"))).toEqual([true, true, false]);
    expect(call.sink.text).toContain("Hello");
  });

  test("a request without reasoning is not asked again", async () => {
    fake.next({ error: { status: 400, message: rejected[dialect] } });
    const error = await refusal(callTo(dialect, bodyOf(dialect)));
    expect(error.kind.status).toBe(400);
    expect(fake.requests).toHaveLength(1);
  });
});

describe("betas that an upstream refuses", () => {
  const betas = "new-2026-12-01, claude-code-20250219,interleaved-thinking-2025-05-14";
  const unexpected =
    "Unexpected value(s) `new-2026-12-01`, `interleaved-thinking-2025-05-14` for the `anthropic-beta` header.";
  const both = "anthropic-beta:new-2026-12-01, anthropic-beta:interleaved-thinking-2025-05-14";
  const refusing = (message: string) => ({ error: { status: 400, message } });
  const toldBetas = () => fake.requests.map(({ headers }) => headers["anthropic-beta"]);

  test.each(ways.filter(({ client, upstream }) => client === "messages" && upstream === "messages"))(
    "are left out and named, and nothing else is: $path, stream: $stream",
    async ({ path, stream }) => {
      fake.next(refusing(unexpected), hello);
      const tools = path === "tools" ? declaredSearch.messages : {};
      const body = bodyOf("messages", { ...withReasoning.messages, ...tools, stream });
      const route = routeTo([upstreamOf(fake.url, "messages")], { toolPolicy: "test/default" });
      const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
      const call = callOf("messages", snapshot, body, { "anthropic-beta": betas });
      await serve(call);
      expect(call.summary.servingPath).toBe(path);
      expect(toldBetas()).toEqual([betas, "claude-code-20250219"]);
      for (const { text } of fake.requests) expect(text).toContain("of-another-account");
      expect(call.sink.headers["x-gapura-dropped"]).toBe(both);
      expect(call.sink.text).toContain("Hello");
      expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
    },
  );

  test("go all where none is named", async () => {
    fake.next(refusing("invalid beta flag"), hello);
    const call = callTo("messages", bodyOf("messages"), { headers: { "anthropic-beta": "a-1,b-2" } });
    await serve(call);
    expect(toldBetas()).toEqual(["a-1,b-2", undefined]);
    expect(call.sink.headers["x-gapura-dropped"]).toBe("anthropic-beta:a-1, anthropic-beta:b-2");
  });

  test.each([
    ["a-1,a-1-b", "The beta header a-1-b is unknown.", "a-1", "anthropic-beta:a-1-b"],
    ["a-1, ,b-2,", "Unknown beta value: a-1.", "b-2", "anthropic-beta:a-1"],
    ["a-1,,b-2", "invalid beta flag", undefined, "anthropic-beta:a-1, anthropic-beta:b-2"],
  ])("are told apart: %s, %s", async (sent, message, left, dropped) => {
    fake.next(refusing(message), hello);
    const call = callTo("messages", bodyOf("messages"), { headers: { "anthropic-beta": sent } });
    await serve(call);
    expect(toldBetas()).toEqual([sent, left]);
    expect(call.sink.headers["x-gapura-dropped"]).toBe(dropped);
  });

  test("cost no reasoning under strict, whatever words their names hold", async () => {
    fake.next(refusing(unexpected), hello);
    const headers = { "anthropic-beta": betas, "x-gapura-strict": "true" };
    const error = await refusal(callTo("messages", bodyOf("messages", withReasoning.messages), { headers }));
    expect(error).toMatchObject({ code: "invalid_request", message: unexpected });
    expect(fake.requests).toHaveLength(1);
  });

  test.each([
    ["under strict", { "anthropic-beta": betas, "x-gapura-strict": "true" }],
    ["without betas", {}],
  ])("the refusal is the client's %s", async (_when, headers) => {
    fake.next(refusing(unexpected));
    const error = await refusal(callTo("messages", bodyOf("messages"), { headers }));
    expect(error).toMatchObject({ code: "invalid_request", message: unexpected });
    expect(fake.requests).toHaveLength(1);
  });

  test("are tried again in the next request", async () => {
    fake.next(refusing(unexpected), hello, hello);
    for (const _ of [1, 2])
      await serve(callTo("messages", bodyOf("messages"), { headers: { "anthropic-beta": betas } }));
    expect(toldBetas()).toEqual([betas, "claude-code-20250219", betas]);
  });
});

describe.each(["responses", "chat"] as const)(
  "a %s client of a model without encrypted reasoning",
  (client) => {
    test.each([
      "Encrypted content is not supported with this model.",
      "Invalid value: 'reasoning.encrypted_content'.",
      "include[0]: unknown value",
    ])("is asked again without it: %s", async (message) => {
      fake.next({ error: { status: 400, message } }, hello);
      const items = { keep: () => undefined, find: async () => [] };
      const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, "responses")])]);
      const call = { ...callOf(client, snapshot, bodyOf(client)), items };
      await serve(call);
      expect(fake.requests.map(({ text }) => text.includes("encrypted_content"))).toEqual([true, false]);
      expect(call.sink.text).toContain("Hello");
    });
  },
);

describe("in a tool loop", () => {
  const refusing = (message: string) => ({ error: { status: 400, message } });
  const askedOf = () => fake.requests.map(({ text }) => text.includes("encrypted_content"));
  const loops = (which: (way: Way) => boolean) =>
    ways.filter((way) => way.path === "tools" && which(way)).map((way) => [nameOf(way), way] as const);

  test.each(loops(({ upstream }) => upstream === "responses"))(
    "a model without encrypted reasoning is asked again without it, and in later iterations: %s",
    async (_, way) => {
      const search = toolCall("web_search", { query: "q" });
      fake.next(refusing("Encrypted content is not supported with this model."), search, hello);
      const call = callOn(fake.url, way);
      await serve(call);
      expect(askedOf()).toEqual([true, false, false]);
      expect(call.sink.text).toContain("Hello");
      expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: 2 }]);
    },
  );

  test.each(loops(({ client }) => client !== "responses"))(
    "an upstream that takes no system turn in the middle gets it in front, and in later iterations: %s",
    async (_, way) => {
      const search = toolCall("web_search", { query: "q" });
      fake.next(refusing('Unexpected role "system"'), search, hello);
      const turn = (role: string, content: string) => ({ role, content });
      const messages = [turn("user", "hi"), turn("system", "Be brief."), turn("user", "go on")];
      const call = callOn(fake.url, way, { body: { messages } });
      await serve(call);
      expect(fake.requests.map(({ json }) => inFront(json() as SentRequest))).toEqual([false, true, true]);
      expect(call.sink.text).toContain("Hello");
    },
  );

  test.each(loops(() => true))(
    "an upstream's refusal of something else is the client's: %s",
    async (_, way) => {
      fake.next(refusing("role: input should be nicer"));
      expect(await refusal(callOn(fake.url, way))).toMatchObject({ code: "invalid_request" });
      expect(fake.requests).toHaveLength(1);
    },
  );
});

describe("a Chat upstream that does not know a field of our own", () => {
  const [converted] = ways.filter(
    ({ path, client, upstream }) => path === "convert" && client === "messages" && upstream === "chat",
  ) as [Way];
  const json = (status: number, body: unknown) => ({
    raw: { status, contentType: "application/json", body: JSON.stringify(body) },
  });
  /** Refuses unknown fields as Mistral does: with a status whose message no client gets. */
  const strict = (...names: string[]) =>
    json(422, {
      object: "error",
      message: {
        detail: names.map((name) => ({
          type: "extra_forbidden",
          loc: ["body", ...name.split(".")],
          msg: "Extra inputs are not permitted",
          input: true,
        })),
      },
      type: "invalid_request_error",
      param: null,
      code: null,
    });
  const fields = ["service_tier", "stream_options", "user", "max_completion_tokens", "max_tokens"];
  const sentFields = () =>
    fake.requests.map(({ text }) => fields.filter((name) => text.includes(`"${name}":`)));

  const named = ways
    .filter(({ upstream, stream }) => upstream === "chat" && stream)
    .map((way) => [nameOf(way), way] as const);

  test.each(named)(
    "is asked again without all that it refused, and gets it no more: %s",
    async (_name, way) => {
      // Fields that the client itself wrote stay in a relayed request.
      const isOurs = way.path !== "relay";
      const refused = ["service_tier", "stream_options.include_usage"];
      fake.next(strict(...refused, ...(isOurs ? ["max_completion_tokens", "user"] : [])), hello, hello);
      const body = way.client === "messages" ? { metadata: { user_id: "u" } } : { user: "u" };
      const first = callOn(fake.url, way, { body });
      await serve(first);
      await serve({ ...callOn(fake.url, way, { body }), snapshot: first.snapshot });
      expect(first.sink.text).toContain("Hello");
      expect(first.sink.headers).not.toHaveProperty("x-gapura-dropped");
      expect(first.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
      const without = isOurs ? ["max_tokens"] : ["user", "max_completion_tokens"];
      expect(sentFields()).toEqual([fields.slice(0, 4), without, without]);
    },
  );

  test.each([{ include_usage: true, include_obfuscation: "no" }, { include_usage: true }])(
    "what a client itself says stays, and that it is refused is its answer: %o",
    async (options) => {
      fake.next(strict("stream_options"), strict("stream_options"));
      const call = callTo("chat", bodyOf("chat", { stream: true, stream_options: options }));
      expect((await refusal(call)).kind.status).toBe(400);
      expect(fake.requests.map(({ json: sent }) => sent())).toMatchObject([{ stream_options: options }]);
    },
  );

  test("a client's own word goes to an upstream that refused ours, too", async () => {
    fake.next(strict("stream_options"), hello, hello);
    const first = callTo("chat", bodyOf("chat", { stream: true }));
    await serve(first);
    const body = bodyOf("chat", { stream: true, stream_options: { include_usage: true } });
    await serve({ ...callTo("chat", body), snapshot: first.snapshot });
    expect(fake.requests.map(({ text }) => text.includes("stream_options"))).toEqual([true, false, true]);
  });

  test.each([
    { error: { message: "Invalid value.", param: "stream_options", code: null } },
    { error: { message: "No.", param: "stream_options.include_usage", code: "unknown_parameter" } },
    { error: { message: "Unrecognized request argument supplied: stream_options", param: null } },
    { error: { message: "Unrecognized request arguments supplied: stream_options, user" } },
    { error: { message: "Unknown parameter: 'stream_options'." } },
    { error: { message: "property 'stream_options' is unsupported" } },
    { error: { message: "stream_options: Extra inputs are not permitted" } },
    { error: { message: "Extra inputs are not permitted, field: 'stream_options', value: {}" } },
    { message: "Unsupported parameter: 'stream_options' is not supported with this model." },
    { error: { message: "stream_options is not supported" } },
    { error: { message: "The parameter `stream_options` is not supported by this model." } },
    {
      error: { message: 'Invalid JSON payload received. Unknown name "stream_options": Cannot find field.' },
    },
    { error: { message: "unknown field `stream_options`, expected one of `model`, `messages`" } },
    { detail: [{ type: "value_error.extra", loc: ["body", "stream_options"], msg: "extra" }] },
  ])("is believed where it names the field: %j", async (body) => {
    fake.next(json(400, body), hello);
    await serve(callOn(fake.url, { ...converted, stream: true }));
    expect(sentFields().map((sent) => sent.includes("stream_options"))).toEqual([true, false]);
  });

  const detail = (loc: unknown[], input: unknown, type = "extra_forbidden") => ({
    detail: [{ type, loc, msg: "Extra inputs are not permitted", input }],
  });
  test.each([
    [400, { error: { message: "Unsupported image: https://a.example/stream_options" } }],
    [400, { error: { message: "Unknown value 'Unknown parameter: stream_options'" } }],
    [400, { error: { message: "Unknown role: 'x'\nUnknown parameter: 'stream_options'" } }],
    [400, { error: { message: "Failed.", failed_generation: "Unknown parameter: 'stream_options'." } }],
    [400, { error: { message: "max_completion_tokens: 200000 is not allowed, the limit is 4096" } }],
    [400, { error: { message: "Too large.", param: "max_completion_tokens", code: "invalid_value" } }],
    [422, detail(["body", "max_completion_tokens"], 200_000, "less_than_equal")],
    [422, detail(["body", "messages", 0, "stream_options"], true)],
    [422, detail(["body", "messages", 0], detail(["body", "stream_options"], true))],
    [422, detail(["body", "messages", 0], '"loc":["body","user"]')],
  ])("is not believed for words that may be a client's: %i %j", async (status, body) => {
    fake.next(json(status, body));
    const call = callOn(fake.url, { ...converted, stream: true }, { body: { metadata: { user_id: "u" } } });
    expect((await refusal(call)).kind.status).toBe(400);
    expect(fake.requests).toHaveLength(1);
  });

  test("one that names a field at a time, and then refuses a system turn, serves", async () => {
    const system = { error: { status: 400, message: "System message must be at the beginning." } };
    const own = ["service_tier", "stream_options", "max_completion_tokens", "user"];
    fake.next(...own.map((name) => strict(name)), system, hello);
    const messages = [
      { role: "user", content: "Hi" },
      { role: "system", content: "Be brief." },
      { role: "user", content: "And?" },
    ];
    const body = { messages, metadata: { user_id: "u" } };
    const call = callOn(fake.url, { ...converted, stream: true }, { body });
    await serve(call);
    expect(call.sink.text).toContain("Hello");
    expect(sentFields().at(-1)).toEqual(["max_tokens"]);
  });

  test("a limit that is too large is the client's to know", async () => {
    const message = "Invalid 'max_completion_tokens': integer above maximum value.";
    fake.next({ error: { status: 400, message } });
    const call = callOn(fake.url, converted);
    expect((await refusal(call)).kind.status).toBe(400);
    expect(fake.requests).toHaveLength(1);
  });
});

describe("a Chat upstream that takes metadata only with what is stored", () => {
  const message = "The 'metadata' parameter is only allowed when 'store' is enabled.";
  const own = ways.filter(({ upstream, client }) => upstream === "chat" && client !== "messages");
  const named = own.map((way) => [nameOf(way), way] as const);
  const body = { metadata: { team: "ml" }, store: true };

  test.each(named)("is asked again without, which is named, and gets it no more: %s", async (_name, way) => {
    fake.next({ error: { status: 400, message } }, hello, hello);
    const first = callOn(fake.url, way, { body });
    await serve(first);
    const second = { ...callOn(fake.url, way, { body }), snapshot: first.snapshot };
    await serve(second);
    expect(fake.requests.map(({ text }) => text.includes('"metadata":'))).toEqual([true, false, false]);
    for (const { sink } of [first, second]) {
      expect(sink.text).toContain("Hello");
      expect(sink.headers["x-gapura-dropped"]).toBe("metadata");
    }
  });

  test.each(named)("is not asked again under strict: %s", async (_name, way) => {
    fake.next({ error: { status: 400, message } });
    const call = { ...callOn(fake.url, way, { body }), headers: { "x-gapura-strict": "true" } };
    expect(await refusal(call)).toMatchObject({ code: "unsupported_parameter", param: "metadata" });
    expect(fake.requests).toHaveLength(1);
  });
});
