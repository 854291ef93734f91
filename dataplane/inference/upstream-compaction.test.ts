/**
 * Rule 10.7: a compaction that a Messages upstream runs before it answers (`context_management`) is a call of its own.
 * Its tokens stand in `usage.iterations` alone, outside of the totals.
 */
import { describe, expect, test } from "vitest";
import { chargeOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { typedFrame } from "../../test/fakes/upstream/render.ts";
import { text, type ScriptedUsage } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import { promptOf } from "../billing/token-usage.ts";
import type { FinalUsage } from "../billing/meter.ts";
import { usageRow } from "../billing/ledger/usage-row.ts";

const { fake, serve } = await serveOneUpstream();

const compacting = { context_management: { edits: [{ type: "compact_20260112" }] } };
/** Context tokens of the fake route, and output limit of the fake request. */
const CONTEXT = 200_000;
const LIMIT = 100;

const charged = async (way: Way, usage: ScriptedUsage, said = "Hi") => {
  fake.next(text(said, usage));
  const call = callOn(fake.url, way, { body: compacting });
  await serve(call);
  const [settled] = call.meter.settled as [FinalUsage];
  return { call, settled };
};

const own = ways.filter(({ client, upstream }) => client === "messages" && upstream === "messages");

describe.each(own.map((way) => [nameOf(way), way] as const))("%s", (_name, way) => {
  test("it is charged beside the answer", async () => {
    const { call, settled } = await charged(way, {
      input: 23_000,
      output: 9,
      compactions: [{ input: 180_000, output: 35 }],
    });
    expect(settled).toMatchObject({ status: "ok", estimated: false, implausible: false });
    expect(settled.tokens).toMatchObject({ input: 203_000, output: 44 });
    expect(call.sink.text).toContain(way.path === "tools" ? '"input_tokens":203000' : '"input_tokens":23000');
  });

  test("an answer that is a compaction alone costs that alone", async () => {
    const { settled } = await charged(way, {
      input: 0,
      output: 0,
      compactions: [{ input: 900, output: 35 }],
    });
    expect(settled).toMatchObject({ estimated: false, tokens: { input: 900, output: 35 } });
  });

  test("one without tokens is no report of an answer (rule 10.6)", async () => {
    const zeros = { input: 0, output: 0 };
    const { settled } = await charged(way, { ...zeros, compactions: [zeros] }, "word ".repeat(40));
    expect(settled).toMatchObject({ estimated: true, tokens: { output: 50 } });
    expect(settled.tokens.input).toBeGreaterThan(0);
  });

  test("it is believed as far as one is possible (rule 7.9)", async () => {
    const absurd = { input: 1e30, output: 1e30 };
    const { settled } = await charged(way, { input: 10, output: 1, compactions: [absurd, absurd] });
    expect(settled.implausible).toBe(true);
    expect(promptOf(settled.tokens)).toBe(CONTEXT + 10);
    expect(settled.tokens.output).toBe(LIMIT + 1 + 1);
  });

  test("its text is output that was seen where nothing is reported (rule 10.6)", async () => {
    const summary = "word ".repeat(40);
    const message = { id: "msg_1", type: "message", role: "assistant", model: "m", stop_sequence: null };
    const block = { type: "compaction", content: summary, encrypted_content: null };
    const end = { stop_reason: "compaction", stop_sequence: null };
    const events = [
      { type: "message_start", message: { ...message, content: [], stop_reason: null, usage: null } },
      { type: "content_block_start", index: 0, content_block: { ...block, content: null } },
      {
        type: "content_block_delta",
        index: 0,
        delta: { ...block, type: "compaction_delta" },
      },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: end, usage: null },
      { type: "message_stop" },
    ];
    const whole = JSON.stringify({ ...message, ...end, content: [block] });
    fake.next({
      raw: way.stream
        ? {
            status: 200,
            contentType: "text/event-stream",
            body: events.map(({ type, ...more }) => typedFrame(type, more)).join(""),
          }
        : { status: 200, contentType: "application/json", body: whole },
    });
    const call = callOn(fake.url, way, { body: compacting });
    await serve(call);
    expect(call.meter.settled).toMatchObject([{ estimated: true, tokens: { output: summary.length / 4 } }]);
  });

  test("long prompts are dearer by the input of each (rule 10.3)", async () => {
    const { call, settled } = await charged(way, {
      input: 60,
      output: 1,
      compactions: [
        { input: 70, output: 1 },
        { input: 80, output: 1 },
      ],
    });
    const [opened] = call.meter.opened;
    if (opened === undefined) throw new Error("nothing was held");
    const { request } = opened;
    const cost = (inputOver: number) => {
      const tiers = [{ ...request.prices, input: "10", inputOver }];
      return usageRow({ ...request, prices: { ...request.prices, tiers } }, settled).cost.total;
    };
    expect(cost(100)).toBe(cost(1_000_000));
    expect(cost(50)).toBeGreaterThan(cost(100));
  });
});

test("what it may cost is held too", async () => {
  const way = { path: "relay", client: "messages", upstream: "messages", stream: false } as const;
  const prompt = "long ".repeat(1000);
  const body = { messages: [{ role: "user", content: prompt }] };
  const held = async (more: object) => {
    fake.next(text("Hi", { input: 1000, output: LIMIT, compactions: [{ input: 1000, output: LIMIT }] }));
    const call = callOn(fake.url, way, { body: { ...body, ...more } });
    await serve(call);
    return { call, estimate: call.meter.opened[0]?.estimate ?? 0n };
  };
  const { call, estimate } = await held(compacting);
  chargeOf(call);
  const clearing = { context_management: { edits: [{ type: "clear_tool_uses_20250919" }] } };
  expect(estimate).toBeGreaterThan((await held(clearing)).estimate);
  expect((await held({ context_management: null })).estimate).toBeLessThan(estimate);
});
