/**
 * Rules 10.1 to 10.3: each field that changes a price, where its tier has one: what reaches each upstream, what is
 * named, what is held and what is charged, on every path. Audio and images: priced-media.test.ts. Without a price:
 * unpriced.test.ts.
 */
import { describe, expect, test } from "vitest";
import { bodyOf, chargeOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { declaredSearch, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import type { Answer, Step } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import type { Route } from "../config/schema.ts";
import { type Dialect, dialects } from "../dialects/dialect.ts";

const { callTo, fake, serve, refusal } = await serveOneUpstream();

const names = ["priority", "flex", "fast", "us", "pro"] as const;
const times = { priority: 2n, flex: 1n, fast: 6n, us: 3n, pro: 4n } as const;
const serviceTiers = names.map((name) => ({ name, multiplier: name === "flex" ? "0.5" : `${times[name]}` }));
const { prices } = routeTo([]);
const route: Partial<Route> = { prices: { ...prices, serviceTiers } };

type Tiers = NonNullable<Answer["tiers"]>;
const usage = { input: 100, output: 50 };
const standardCost = 200n;
const hello = (tiers: Tiers = {}): Step => ({
  answer: { parts: [{ type: "text", text: "hello" }], usage, tiers },
});

const ways = ["whole", "streamed", "tools", "streamed tools", "batch"] as const;
type Way = (typeof ways)[number];

function asked(client: Dialect, upstream: Dialect, way: Way, more: object, headers = {}, around = route) {
  const tools = way.includes("tools") ? declaredSearch[client] : {};
  const body = bodyOf(client, { ...more, ...tools, ...(way.includes("streamed") && { stream: true }) });
  const served = routeTo([upstreamOf(fake.url, upstream)], {
    ...around,
    ...(way.includes("tools") && { toolPolicy: "p" }),
  });
  const call = callTo(client, body, { headers });
  const snapshot = snapshotOf([served], ["*"], {}, { p: toolPolicy });
  return { ...call, snapshot, ...(way === "batch" && { batchId: "batch_1" }) };
}

const sent = () => fake.requests.map(({ text }) => JSON.parse(text) as Record<string, unknown>);

/** The fields of dialects.md §I, each with the tier that it asks for and with where it stands in a body. */
const fields: readonly {
  client: Dialect;
  body: Record<string, unknown>;
  tier: keyof typeof times;
  named: string;
  /** Upstreams that know the field. */
  goesTo: readonly Dialect[];
  headers?: object;
}[] = [
  {
    client: "messages",
    body: { speed: "fast" },
    tier: "fast",
    named: "speed",
    goesTo: ["messages"],
    headers: { "anthropic-beta": "fast-mode-2026-02-01" },
  },
  {
    client: "messages",
    body: { inference_geo: "us" },
    tier: "us",
    named: "inference_geo",
    goesTo: ["messages"],
  },
  {
    client: "chat",
    body: { service_tier: "priority" },
    tier: "priority",
    named: "service_tier",
    goesTo: ["chat", "responses"],
  },
  {
    client: "chat",
    body: { service_tier: "flex" },
    tier: "flex",
    named: "service_tier",
    goesTo: ["chat", "responses"],
  },
  {
    client: "responses",
    body: { service_tier: "priority" },
    tier: "priority",
    named: "service_tier",
    goesTo: ["chat", "responses"],
  },
  {
    client: "responses",
    body: { reasoning: { mode: "pro" } },
    tier: "pro",
    named: "reasoning.mode",
    goesTo: ["responses"],
  },
];
const costOf = (tier: keyof typeof times) =>
  tier === "flex" ? standardCost / 2n : standardCost * times[tier];
const reportOf = (body: Record<string, unknown>): Tiers => {
  const { service_tier, speed, inference_geo } = body as Tiers;
  return {
    ...(service_tier !== undefined && { service_tier }),
    ...(speed !== undefined && { speed }),
    ...(inference_geo !== undefined && { inference_geo }),
  };
};

const cells = fields.flatMap((field) =>
  dialects.flatMap((upstream) =>
    ways
      .filter((way) => way !== "batch" || upstream === field.client)
      .map((way) => ({ ...field, upstream, way })),
  ),
);

describe.each(cells)(
  "$client $named to $upstream, $way",
  ({ client, body, tier, named, upstream, way, goesTo, headers = {} }) => {
    const goes = goesTo.includes(upstream);

    test("a tier with a price goes where it is known, and is charged as it is reported", async () => {
      fake.next(hello(goes ? reportOf(body) : {}));
      const call = asked(client, upstream, way, body, headers);
      await serve(call);
      const [first = {}] = sent();
      const drops = (call.sink.headers["x-gapura-dropped"] ?? "").split(", ");
      if (goes) {
        expect(first).toMatchObject(body);
        expect(drops).not.toContain(named);
        if (client === "messages" && named === "speed")
          expect(fake.requests[0]?.headers["anthropic-beta"]).toBe("fast-mode-2026-02-01");
      } else {
        expect(JSON.stringify(first)).not.toContain(`"${tier}"`);
        expect(drops).toContain(named);
      }
      expect(chargeOf(call)).toEqual({
        total: goes ? costOf(tier) : standardCost,
        serviceTier: goes ? tier : "standard",
        implausible: false,
      });
    });

    test("an answer that says nothing of it is charged as it was sent", async () => {
      // Chat and Responses report a tier always: `auto` is no report.
      fake.next(hello({ service_tier: "auto" }));
      const call = asked(client, upstream, way, body, headers);
      await serve(call);
      expect(chargeOf(call)).toMatchObject({
        total: goes ? costOf(tier) : standardCost,
        serviceTier: goes ? tier : "standard",
      });
    });

    test("under strict it is refused only where it would be left out", async () => {
      fake.next(hello());
      const call = asked(client, upstream, way, body, { ...headers, "x-gapura-strict": "true" });
      if (goes) await serve(call);
      else expect(await refusal(call)).toMatchObject({ code: "unsupported_parameter", param: named });
      expect(sent()).toHaveLength(goes ? 1 : 0);
    });
  },
);

describe.each(ways)("service_tier, %s", (way) => {
  test.each(["chat", "responses"] as const)(
    "%s: what is reported is charged, not what was sent",
    async (dialect) => {
      fake.next(hello({ service_tier: "default" }), hello({ service_tier: "flex" }));
      const refused = asked(dialect, dialect, way, { service_tier: "priority" });
      await serve(refused);
      expect(chargeOf(refused)).toEqual({ total: standardCost, serviceTier: "standard", implausible: false });
      const other = asked(dialect, dialect, way, { service_tier: "priority" });
      await serve(other);
      expect(chargeOf(other)).toEqual({ total: standardCost / 2n, serviceTier: "flex", implausible: false });
    },
  );

  test.each(dialects)(
    "%s: one without a price is flagged, and the dearest of what was sent holds",
    async (dialect) => {
      fake.next(hello({ service_tier: "turbo" }), hello({ service_tier: "turbo" }));
      const told = asked(dialect, dialect, way, dialect === "messages" ? {} : { service_tier: "flex" });
      await serve(told);
      expect(chargeOf(told)).toEqual({ total: standardCost, serviceTier: "standard", implausible: true });
      if (dialect === "messages") return;
      const dear = asked(dialect, dialect, way, { service_tier: "priority" });
      await serve(dear);
      expect(chargeOf(dear)).toEqual({
        total: 2n * standardCost,
        serviceTier: "priority",
        implausible: true,
      });
    },
  );

  test.each(dialects)(
    "%s: a request that leaves its tier open is charged by what the account chose",
    async (dialect) => {
      fake.next(hello({ service_tier: "priority" }));
      const call = asked(dialect, dialect, way, {}, { "x-gapura-strict": "true" });
      await serve(call);
      expect(sent()[0]).not.toHaveProperty("service_tier");
      expect(chargeOf(call)).toEqual({
        total: 2n * standardCost,
        serviceTier: "priority",
        implausible: false,
      });
    },
  );

  test.each(dialects)("%s: one that asks for the standard is told so upstream", async (dialect) => {
    fake.next(hello());
    const standard = dialect === "messages" ? "standard_only" : "default";
    const call = asked(dialect, dialect, way, { service_tier: standard });
    await serve(call);
    expect(sent()[0]).toMatchObject({ service_tier: standard });
    expect(chargeOf(call)).toMatchObject({ total: standardCost, serviceTier: "standard" });
  });

  test("several at once multiply", async () => {
    fake.next(hello({ speed: "fast", inference_geo: "us" }));
    const call = asked("messages", "messages", way, { speed: "fast", inference_geo: "us" });
    await serve(call);
    expect(chargeOf(call)).toMatchObject({ total: 18n * standardCost, serviceTier: "fast+us" });
  });
});

describe.each(ways)("the beta of a tier that is asked for, %s", (way) => {
  const fast = "fast-mode-2026-02-01";
  const refused = (message: string): Step => ({ error: { status: 400, message } });
  const named = `Unexpected value(s) \`${fast}\` for the \`anthropic-beta\` header.`;
  const toldBetas = () => fake.requests.map(({ headers }) => headers["anthropic-beta"]);

  test("is not left out where its upstream refuses it: the tier would be charged and not served", async () => {
    for (const message of [named, "invalid beta flag"]) {
      fake.reset();
      fake.next(refused(message), refused(message), hello());
      const headers = { "anthropic-beta": `${fast},other-1` };
      const call = asked("messages", "messages", way, { speed: "fast" }, headers);
      expect(await refusal(call)).toMatchObject({ code: "invalid_request", message });
      expect(toldBetas()).toEqual(message === named ? [`${fast},other-1`] : [`${fast},other-1`, fast]);
    }
  });

  test("is where the request does not ask for the tier", async () => {
    fake.next(refused(named), hello());
    const call = asked("messages", "messages", way, {}, { "anthropic-beta": `${fast},other-1` });
    await serve(call);
    expect(toldBetas()).toEqual([`${fast},other-1`, "other-1"]);
    expect(chargeOf(call)).toMatchObject({ total: standardCost, serviceTier: "standard" });
  });
});

test.each(["whole", "streamed"] as const)("each call of a tool loop by its own tier, %s", async (way) => {
  fake.next(
    {
      answer: {
        parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }],
        usage,
        tiers: { service_tier: "priority" },
      },
    },
    hello(),
  );
  const call = asked("chat", "chat", way === "whole" ? "tools" : "streamed tools", {});
  await serve(call);
  expect(chargeOf(call)).toMatchObject({ total: 3n * standardCost, serviceTier: "priority,standard" });
});

test.each(["chat", "responses"] as const)(
  "%s: a stream that breaks off is charged by the tier that it named",
  async (dialect) => {
    fake.next({
      answer: {
        parts: [{ type: "text", text: "hello there ".repeat(20) }],
        tiers: { service_tier: "priority" },
      },
      faults: { cutAtEvent: 10 },
    });
    const call = asked(dialect, dialect, "streamed", {});
    await serve(call);
    expect(chargeOf(call)).toMatchObject({ serviceTier: "priority" });
  },
);

test("a converted answer tells its client the tier", async () => {
  fake.next(hello({ service_tier: "priority" }));
  const call = asked("chat", "responses", "whole", { service_tier: "priority" });
  await serve(call);
  expect(JSON.parse(call.sink.text)).toMatchObject({ service_tier: "priority" });
});

describe.each(dialects)("a model that does not think, on %s", (upstream) => {
  test.each(ways.filter((way) => way !== "batch" || upstream === "responses"))(
    "is asked for no mode of thinking, and charged for none, %s",
    async (way) => {
      const { capabilities } = routeTo([]);
      const still = { capabilities: { ...capabilities, thinking: false } };
      for (const tiers of [serviceTiers, []]) {
        fake.reset();
        fake.next(hello());
        const body = { reasoning: { mode: "pro", effort: "high" } };
        const call = asked(
          "responses",
          upstream,
          way,
          body,
          {},
          { ...still, prices: { ...prices, serviceTiers: tiers } },
        );
        await serve(call);
        expect(JSON.stringify(sent())).not.toContain('"pro"');
        const drops = call.sink.headers["x-gapura-dropped"]?.split(", ") ?? [];
        expect(drops.filter((name) => name === "reasoning.mode")).toHaveLength(1);
        expect(chargeOf(call)).toEqual({ total: standardCost, serviceTier: "standard", implausible: false });
      }
    },
  );
});

describe("rules 4.3 and 10.2: an empty answer to a batch's request costs its prompt at the tier that was sent", () => {
  const empty = withFaults(hello(), { empty: true });
  const cells = dialects.flatMap((client) =>
    (["whole", "tools"] as const).map((way) => [client, way] as const),
  );

  test.each(cells)("%s, %s", async (client, way) => {
    const more = { service_tier: "priority" };
    const run = async (batchId: string | null) => {
      fake.next(empty);
      const call = { ...asked(client, client, way, more), batchId };
      expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
      return call;
    };
    expect((await run(null)).meter).toMatchObject({ settled: [], released: 1 });
    const item = await run("batch_1");
    const prompt = Math.ceil(item.body.length / 4);
    expect(item.meter.settled).toMatchObject([
      { status: "error", estimated: true, iterations: 1, tokens: { input: prompt, output: 0 } },
    ]);
    expect(chargeOf(item)).toMatchObject({ total: BigInt(prompt) * times.priority, serviceTier: "priority" });
  });

  test.each(cells)(
    "one that breaks off before anything came is free, and may be asked for again: %s, %s",
    async (client, way) => {
      // The retries fail as well.
      fake.next(
        ...Array.from({ length: 5 }, () => withFaults(hello(), { cutAtByte: 0, delayFirstByteMs: 30 })),
      );
      const call = { ...asked(client, client, way, {}), batchId: "batch_1" };
      expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
      expect(call.meter).toMatchObject({ settled: [], released: 1 });
    },
  );

  test.each(dialects)("%s, in a later iteration, which fails the request", async (client) => {
    const search = { type: "tool", name: "web_search", input: { query: "gates" } } as const;
    fake.next({ answer: { parts: [search], usage, tiers: { service_tier: "priority" } } }, empty);
    const call = { ...asked(client, client, "tools", { service_tier: "priority" }), batchId: "batch_1" };
    expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
    const [settled] = call.meter.settled;
    expect(settled).toMatchObject({ status: "error", estimated: true, iterations: 2 });
    expect(settled?.tokens.input).toBeGreaterThan(100);
    expect(chargeOf(call).serviceTier).toBe("priority");
  });
});
