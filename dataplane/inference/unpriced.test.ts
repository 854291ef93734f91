/** Rule 10.1: a field or header that makes an upstream charge more never goes there without a price, on any path. */
import { describe, expect, test } from "vitest";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { declaredSearch, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import type { Route } from "../config/schema.ts";
import { type Dialect, dialects } from "../dialects/dialect.ts";

const { callTo, fake, serve, refusal } = await serveOneUpstream();

/** Aggregators know the fields of each dialect in every other. */
const dearer = {
  service_tier: "flex",
  speed: "fast",
  inference_geo: "us",
  reasoning: { mode: "pro", effort: "low" },
};
const dropped = ["service_tier", "speed", "inference_geo", "reasoning.mode"];
const standard = { messages: "standard_only", chat: "default", responses: "default" };
const account = {
  user_profile_id: "u",
  workspace_id: "w",
  fallbacks: [{ model: "other" }],
  billing_policy: {},
  fallback_credit_token: "t",
  diagnostics: {},
  models: ["dearest/model"],
  provider: { order: ["dearest"] },
  plugins: [{ id: "web" }],
  search_parameters: { mode: "on" },
  enable_search: true,
  multi_agent: { enabled: true, max_concurrent_subagents: 50 },
  background_options: { completion_window: "8h" },
};

/** Go and .NET read names in any case, and protobuf in camel case too; of two that are one to them the last counts. */
const lookalikes = {
  Model: "dearest/model",
  MODELS: ["dearest/model"],
  serviceTier: "priority",
  Service_Tier: "priority",
  ſpeed: "fast",
  Max_ToKens: 1_000_000,
  maxCompletionTokens: 1_000_000,
  Store: true,
  N: 100,
};

const ways = dialects.flatMap((client) =>
  dialects.flatMap((upstream) =>
    (["whole", "streamed", "tools"] as const).map((way) => ({ client, upstream, way })),
  ),
);

/** A request of this client to this upstream, alone or in a tool loop. */
function asked(
  client: Dialect,
  upstream: Dialect,
  way: "whole" | "streamed" | "tools",
  more: object,
  headers = {},
  changes: Partial<Route> = {},
) {
  const tools = way === "tools" ? declaredSearch[client] : {};
  const body = bodyOf(client, { ...more, ...tools, ...(way === "streamed" && { stream: true }) });
  const route = routeTo([upstreamOf(fake.url, upstream)], {
    ...changes,
    ...(way === "tools" && { toolPolicy: "p" }),
  });
  const call = callTo(client, body, { headers });
  return { ...call, snapshot: snapshotOf([route], ["*"], {}, { p: toolPolicy }) };
}
const sent = () => fake.requests.map(({ text: sentText }) => JSON.parse(sentText) as Record<string, unknown>);

describe.each(ways)("$client to $upstream, $way", ({ client, upstream, way }) => {
  test("dearer tiers stay here and are named, and the upstream is told its standard one", async () => {
    fake.next(text("hello"));
    const call = asked(client, upstream, way, dearer);
    await serve(call);
    const [body = {}] = sent();
    expect(body["service_tier"]).toBe(standard[upstream]);
    expect(body).not.toHaveProperty("speed");
    expect(body).not.toHaveProperty("inference_geo");
    expect(JSON.stringify(body)).not.toContain('"pro"');
    const named = String(call.sink.headers["x-gapura-dropped"]).split(", ");
    expect(named).toEqual(expect.arrayContaining(dropped));
  });

  test("under strict they are refused", async () => {
    const error = await refusal(asked(client, upstream, way, dearer, { "x-gapura-strict": "true" }));
    expect(error).toMatchObject({ code: "unsupported_parameter" });
    expect(dropped).toContain(error.param);
    expect(sent()).toEqual([]);
  });

  test.each([{}, { service_tier: "auto" }])(
    "with %o the standard tier is neither a drop nor refused",
    async (more) => {
      fake.next(text("hello"));
      const call = asked(client, upstream, way, more, { "x-gapura-strict": "true" });
      await serve(call);
      expect(sent()[0]?.["service_tier"]).toBe(standard[upstream]);
      expect(call.sink.headers).not.toHaveProperty("x-gapura-dropped");
    },
  );
});

describe.each(ways)("$client to $upstream, $way", ({ client, upstream, way }) => {
  test("fields that name an account, or whom it shall pay, never go", async () => {
    fake.next(text("hello"));
    const call = asked(client, upstream, way, account);
    await serve(call);
    for (const name of Object.keys(account)) expect(sent()[0]).not.toHaveProperty(name);
    const named = String(call.sink.headers["x-gapura-dropped"]).split(", ");
    expect(named.toSorted()).toEqual(Object.keys(account).toSorted());
  });

  test("a field that a server takes for another one never goes", async () => {
    fake.next(text("hello"));
    const call = asked(client, upstream, way, lookalikes);
    await serve(call);
    for (const name of Object.keys(lookalikes)) expect(sent()[0]).not.toHaveProperty([name]);
    const named = String(call.sink.headers["x-gapura-dropped"]).split(", ");
    const told = Object.keys(lookalikes).map((name) => name.replaceAll(/[^A-Za-z_]/g, "_"));
    expect(named).toEqual(expect.arrayContaining(told));
  });

  test("nor does such a member, or one that names another answer", async () => {
    fake.next(text("hello"));
    const prompt_cache_options = { ComparisonResponseId: "resp_1", comparison_response_id: "resp_2" };
    const call = asked(client, upstream, way, { reasoning: { Mode: "pro" }, prompt_cache_options });
    await serve(call);
    expect(JSON.stringify(sent()[0])).not.toMatch(/"Mode"|resp_/);
    if (client !== upstream) return;
    const members = Object.keys(prompt_cache_options).map((name) => `prompt_cache_options.${name}`);
    expect(String(call.sink.headers["x-gapura-dropped"]).split(", ").toSorted()).toEqual(
      [...members, "reasoning.Mode"].toSorted(),
    );
  });

  test("tiers that have a price go where the field is the client's own dialect's, and are named elsewhere", async () => {
    fake.next(text("hello"));
    const { prices } = routeTo([]);
    const serviceTiers = ["flex", "fast", "us", "pro"].map((name) => ({ name, multiplier: "2" }));
    const call = asked(client, upstream, way, dearer, {}, { prices: { ...prices, serviceTiers } });
    await serve(call);
    const { reasoning, ...body } = sent()[0] ?? {};
    const named = (call.sink.headers["x-gapura-dropped"] ?? "").split(", ");
    const goes = client === upstream;
    expect(body["speed"]).toBe(goes ? "fast" : undefined);
    expect(body["inference_geo"]).toBe(goes ? "us" : undefined);
    expect((reasoning as { mode?: string } | undefined)?.mode).toBe(goes ? "pro" : undefined);
    for (const name of ["speed", "inference_geo"]) expect(named.includes(name)).toBe(!goes);
  });
});

describe.each(ways.filter(({ client }) => client !== "messages"))(
  "$client to $upstream, $way",
  ({ client, upstream, way }) => {
    test("rule 2.10: the id of another answer never goes, and what else stands beside it does", async () => {
      fake.next(text("hello"));
      const cached = { mode: "explicit", ttl: "30m" };
      const prompt_cache_options = { ...cached, comparison_response_id: "resp_1" };
      const call = asked(client, upstream, way, { prompt_cache_options });
      await serve(call);
      expect(sent()[0]?.["prompt_cache_options"]).toEqual(upstream === "messages" ? undefined : cached);
      expect(String(call.sink.headers["x-gapura-dropped"]).split(", ")).toContain(
        "prompt_cache_options.comparison_response_id",
      );
    });
  },
);

describe.each(["whole", "tools"] as const)("Messages, %s", (way) => {
  test("betas of dearer prices stay here by name", async () => {
    fake.next(text("hello"));
    const beta = { "anthropic-beta": "context-1m-2025-08-07,interleaved-thinking-2025-05-14" };
    const call = asked("messages", "messages", way, {}, beta);
    await serve(call);
    expect(fake.requests[0]?.headers["anthropic-beta"]).toBe("interleaved-thinking-2025-05-14");
    expect(call.sink.headers["x-gapura-dropped"]).toBe("anthropic-beta:context-1m-2025-08-07");
  });
});

test("the beta of long prompts goes where these have a price", async () => {
  fake.next(text("hello"));
  const { prices } = routeTo([]);
  const route = { prices: { ...prices, tiers: [{ ...prices, inputOver: 200_000 }] } };
  const headers = { "anthropic-beta": "context-1m-2025-08-07" };
  const call = callTo("messages", bodyOf("messages"), { route, headers });
  await serve(call);
  expect(fake.requests[0]?.headers["anthropic-beta"]).toBe("context-1m-2025-08-07");
  expect(call.sink.headers).not.toHaveProperty("x-gapura-dropped");
});

describe("rule 10.5: audio and other outputs have no price", () => {
  const audio = { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } };
  test.each([
    ["chat", { messages: [{ role: "user", content: [audio] }] }, "messages[0].content[0].type"],
    ["responses", { input: [{ role: "user", content: [audio] }] }, "input[0].content[0].type"],
    ["messages", { modalities: ["text", "image"] }, "modalities"],
    ["responses", { modalities: ["audio"] }, "modalities"],
    ["chat", { modalities: ["text", "audio"], audio: { voice: "alloy", format: "wav" } }, "modalities"],
  ] as const)("%s %o", async (dialect, more, param) => {
    const error = await refusal(callTo(dialect, bodyOf(dialect, more)));
    expect(error).toMatchObject({ code: "unsupported_content", param });
    expect(sent()).toEqual([]);
  });

  test("text alone may be asked for", async () => {
    fake.next(text("hello"));
    await serve(callTo("chat", bodyOf("chat", { modalities: ["text"] })));
    expect(sent()).toHaveLength(1);
  });
});

test.each(["whole", "tools"] as const)(
  "%s: a request that is refused without a tier as well says nothing about its upstream",
  async (way) => {
    const stranger = asked("chat", "chat", way, {});
    const neighbour = { ...asked("chat", "chat", way, {}), snapshot: stranger.snapshot };
    const refused = { error: { status: 400, message: "Unknown parameter: 'service_tier'." } };
    fake.next(refused, refused, text("hello"));
    expect(await refusal(stranger)).toMatchObject({ code: "invalid_request" });
    await serve(neighbour);
    expect(sent().map((body) => body["service_tier"])).toEqual(["default", undefined, "default"]);
  },
);

test.each(["whole", "tools"] as const)(
  "%s: an upstream that knows no tiers is asked again without, and told none from then on",
  async (way) => {
    const message = "service_tier: extra inputs are not permitted";
    const first = asked("chat", "chat", way, {});
    const again = { ...asked("chat", "chat", way, {}), snapshot: first.snapshot };
    fake.next({ error: { status: 400, message } }, text("hello"), text("hello"));
    await serve(first);
    await serve(again);
    expect(sent().map((body) => body["service_tier"])).toEqual(["default", undefined, undefined]);
    expect(first.meter.settled).toMatchObject([{ status: "ok", iterations: 1 }]);
  },
);
