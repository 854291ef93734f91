/** Rule 7.9: what an upstream reports is believed only as far as it is possible, on every way that an answer takes. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text, toolCall, type ScriptedUsage } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import { callsOf, noTokens, promptOf, sumTokens } from "../billing/token-usage.ts";
import type { FinalUsage } from "../billing/meter.ts";
import { plausibleUsage, readChatUsage, readMessagesUsage, readResponsesUsage } from "../dialects/usage.ts";
import { metrics } from "../telemetry/metrics.ts";

const { fake, serve } = await serveOneUpstream(async () => ({
  kind: "hits",
  hits: [],
  posts: 0,
  profiles: 0,
}));

/** Context tokens of the fake route. */
const CONTEXT = 200_000;
/** Output limit of the fake request. */
const LIMIT = 100;
/** "Hi" is one token. */
const SEEN = 1;

const implausible = async () => {
  const { values } = await metrics.implausibleUsage.get();
  return values.find(({ labels }) => labels.model === "public-model" && labels.upstream === "primary")?.value;
};

const absurd: readonly (readonly [string, ScriptedUsage])[] = [
  ["1e30 tokens in all", { input: 1e30, output: 1e30 }],
  ["1e30 tokens of output", { input: 10, output: 1e30 }],
  ["1e30 tokens read from a cache", { input: 1e30, cacheRead: 1e30, output: 2 }],
  ["1e30 tokens written to a cache", { input: 1e30, cacheWrite1h: 1e30, output: 2 }],
  ["a token more than the context holds", { input: CONTEXT + 1, output: 1 }],
  ["reasoning without end", { input: 10, output: 1e18, reasoning: 1e18 }],
];

describe.each(ways.map((way) => [nameOf(way), way] as const))("%s", (_name, way) => {
  test.each(absurd)("%s are cut to what is possible, and the charge says so", async (_what, usage) => {
    const before = (await implausible()) ?? 0;
    fake.next(text("Hi", usage));
    const call = callOn(fake.url, way);
    await serve(call);
    const [charge] = call.meter.settled as [FinalUsage];
    expect(charge).toMatchObject({ status: "ok", implausible: true });
    expect(promptOf(charge.tokens)).toBe(Math.min(CONTEXT, usage.input ?? 0));
    expect(charge.tokens.output).toBeLessThanOrEqual(LIMIT + SEEN);
    expect(charge.tokens.reasoning).toBeLessThanOrEqual(charge.tokens.output);
    for (const { tokens } of call.meter.observed) {
      expect(promptOf(tokens)).toBeLessThanOrEqual(CONTEXT);
      expect(tokens.output).toBeLessThanOrEqual(LIMIT + SEEN);
    }
    expect(await implausible()).toBe(before + 1);
    if (way.path !== "relay") expect(call.sink.text).not.toMatch(/\de\+\d\d/);
  });

  test("the most that is possible is believed to the token", async () => {
    fake.next(text("Hi", { input: CONTEXT, output: LIMIT, reasoning: 40 }));
    const call = callOn(fake.url, way);
    await serve(call);
    const [charge] = call.meter.settled as [FinalUsage];
    expect(charge).toMatchObject({ implausible: false, estimated: false, tokens: { output: LIMIT } });
    expect(promptOf(charge.tokens)).toBe(CONTEXT);
  });

  test("output beyond the limit is believed as far as it was seen", async () => {
    const written = "word ".repeat(400);
    fake.next(text(written, { input: 10, output: 100_000 }));
    const call = callOn(fake.url, way);
    await serve(call);
    const [charge] = call.meter.settled as [FinalUsage];
    expect(charge.implausible).toBe(true);
    const seen = written.length / 4;
    expect(charge.tokens.output).toBe(LIMIT + seen);
  });
});

test.each(
  ways.filter(({ path, stream }) => path === "tools" && stream).map((way) => [nameOf(way), way] as const),
)("each iteration counts by itself: %s", async (_name, way) => {
  const { answer } = toolCall("web_search", { query: "x" }) as { answer: object & { parts: [] } };
  fake.next(
    { answer: { ...answer, usage: { input: 1e30, output: 10 } } },
    text("Hi", { input: 7, output: 3 }),
  );
  const call = callOn(fake.url, way);
  await serve(call);
  const [charge] = call.meter.settled as [FinalUsage];
  expect(charge).toMatchObject({ implausible: true, iterations: 2, tokens: { output: 13 } });
  expect(promptOf(charge.tokens)).toBe(CONTEXT + 7);
});

test.each(ways.filter(({ upstream }) => upstream === "chat").map((way) => [nameOf(way), way] as const))(
  "tokens of audio and of images are part of what is believed: %s",
  async (_name, way) => {
    fake.next(text("Hi", { input: 1e30, output: 1e30, audio: [1e30, 5], images: 1e30 }));
    const call = callOn(fake.url, way);
    await serve(call);
    const [charge] = call.meter.settled as [FinalUsage];
    const { output } = charge.tokens;
    expect(charge.implausible).toBe(true);
    expect(charge.tokens).toMatchObject({ audioInput: CONTEXT, audioOutput: 5, imageOutput: output - 5 });
  },
);

test("n choices may use n times the limit", async () => {
  const way = { path: "relay", client: "chat", upstream: "chat", stream: false } as const;
  for (const [output, believed] of [
    [300, 300],
    [1e9, 302],
  ] as const) {
    fake.next(text("Hi", { input: 10, output }));
    const call = callOn(fake.url, way, { body: { n: 3 } });
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ tokens: { output: believed } }]);
  }
});

test("a stream that breaks off is charged no more than what is possible either", async () => {
  for (const way of ways.filter(({ stream }) => stream)) {
    fake.next(
      withFaults(text("one two three four five six", { input: 1e30, output: 1e30 }), { cutAtEvent: 5 }),
    );
    const call = callOn(fake.url, way);
    await serve(call);
    const [charge] = call.meter.settled as [FinalUsage];
    expect(promptOf(charge.tokens)).toBeLessThanOrEqual(CONTEXT);
    expect(charge.tokens.output).toBeLessThanOrEqual(LIMIT + 10);
  }
});

test("whatever is reported, what is believed is whole, not negative and possible", () => {
  const number = fc.oneof(
    fc.double(),
    fc.constantFrom(-1, 0, 0.5, 1e30, 1e308, -1e30, "1e9", null, undefined, {}, [7], true),
    fc.nat(300_000),
  );
  const details = fc.record({ cached_tokens: number, cache_write_tokens: number, reasoning_tokens: number });
  const reports = fc.record({
    input_tokens: number,
    output_tokens: number,
    cache_read_input_tokens: number,
    cache_creation_input_tokens: number,
    cache_creation: fc.oneof(
      fc.record({ ephemeral_5m_input_tokens: number, ephemeral_1h_input_tokens: number }),
      number,
    ),
    output_tokens_details: fc.oneof(fc.record({ thinking_tokens: number, reasoning_tokens: number }), number),
    input_tokens_details: details,
    prompt_tokens: number,
    completion_tokens: number,
    total_tokens: number,
    prompt_tokens_details: details,
    completion_tokens_details: details,
  });
  const types = fc.constantFrom("compaction", "compaction", "compaction", "message");
  const compacted = fc.array(fc.record({ report: reports, type: types }), { maxLength: 20, size: "max" });
  fc.assert(
    fc.property(reports, compacted, fc.nat(50), (report, parts, seen) => {
      const iterations = parts.map((part) => ({ ...part.report, type: part.type }));
      const read = [
        readMessagesUsage({ ...report, iterations }, null),
        readChatUsage(report),
        readResponsesUsage(report),
      ];
      for (const usage of read) {
        if (usage === null) continue;
        const [answer, ...compactions] = callsOf(
          plausibleUsage(usage, { input: CONTEXT, output: LIMIT }, () => seen),
        );
        for (const tokens of [answer ?? noTokens, compactions.reduce(sumTokens, noTokens)]) {
          for (const count of Object.values(tokens) as number[]) {
            expect(Number.isSafeInteger(count)).toBe(true);
            expect(count).toBeGreaterThanOrEqual(0);
          }
          expect(promptOf(tokens)).toBeLessThanOrEqual(CONTEXT);
          expect(tokens.output).toBeLessThanOrEqual(LIMIT + seen);
          expect(tokens.reasoning).toBeLessThanOrEqual(tokens.output);
        }
      }
    }),
  );
});
