/**
 * Codex's compaction over every way on which an answer is converted: a trigger at the end of the input is answered with
 * one sealed item, which any upstream later gets as text. Relayed, both pass as they are.
 */
import { describe, expect, test } from "vitest";
import { bodyOf, sealerOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text, type Part, type Step } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import { framesOf } from "../../test/grammar/sse.ts";
import { streamFaults, vendorJudge } from "../../test/vendor/judge.ts";
import { dialects } from "../dialects/dialect.ts";
import { SEALED_PREFIX } from "../dialects/reasoning.ts";
import { COMPACTED_PREFIX, INSTRUCTION } from "../dialects/responses/compaction.ts";
import type { ApiError } from "../lib/api-error.ts";

const judge = await vendorJudge();
const { fake, serve, callTo } = await serveOneUpstream();

const trigger = { type: "compaction_trigger" };
const user = (content: string) => ({ type: "message", role: "user", content });
/** A turn as Codex sends it: a call that was run, and nothing after it. */
const history = [
  user("Paint the gate"),
  { type: "function_call", call_id: "call_1", name: "paint", arguments: `{"color":"red"}` },
  { type: "function_call_output", call_id: "call_1", output: "painted" },
];
const own = { type: "function", name: "paint", parameters: { type: "object" }, strict: false };
const search = { type: "web_search" };
const usage = { input: 40, output: 8 };
const SUMMARY = "The gate is painted red.";
const summary: Step = text(SUMMARY, usage);

interface Answered {
  readonly status: string;
  readonly output: { readonly id: string; readonly type: string; readonly encrypted_content: string }[];
}

/** Sends an input, and reads the answer; a stream's events are judged too. */
async function ask(way: Way, input: readonly object[], step: Step, more: object = {}) {
  fake.reset();
  fake.next(step);
  const tools = way.path === "tools" ? [own, search] : [own];
  const call = callOn(fake.url, way, { body: { input, tools, ...more } });
  await serve(call);
  const { text: wire } = call.sink;
  const upstream = fake.requests[0]?.json() as Record<string, unknown>;
  const told = { upstream, charge: call.meter.settled[0], headers: call.sink.headers, wire };
  if (!way.stream) {
    const answer = JSON.parse(wire) as Answered;
    expect(judge("ResponsesAnswer", answer)).toEqual([]);
    return { ...told, answer, events: [] };
  }
  expect(streamFaults(judge, "responses", wire)).toEqual([]);
  const events = framesOf(wire).flatMap(({ data }) => (data === "" ? [] : [JSON.parse(data)]));
  return { ...told, answer: events.at(-1).response as Answered, events };
}

const converted = ways.filter(({ client, path }) => client === "responses" && path !== "relay");
const messageText = (body: unknown) => JSON.stringify(body);

describe.each(converted.map((way) => [nameOf(way), way] as const))("%s", (_, way) => {
  test("a summary has no log probabilities, and no upstream is asked for half of them", async () => {
    const include = ["message.output_text.logprobs"];
    const asked = await ask(way, [...history, trigger], summary, { top_logprobs: 3, include });
    expect(asked.answer.output).toMatchObject([{ type: "compaction" }]);
    expect(JSON.stringify(asked.upstream)).not.toContain("logprobs");
    expect(asked.headers["x-gapura-dropped"]).toBe("top_logprobs, include");
  });

  test("a trigger is answered with one sealed item, which the next request may hold", async () => {
    const forced = { tool_choice: "required", text: { format: { type: "json_object" } } };
    const thought: Part[] = [
      { type: "thinking", text: "What matters?" },
      { type: "text", text: SUMMARY },
    ];
    const asked = await ask(way, [...history, trigger], { answer: { parts: thought, usage } }, forced);
    const { answer, upstream, events } = asked;
    expect(answer).toMatchObject({ status: "completed", output: [{ type: "compaction" }] });
    const [item] = answer.output as [Answered["output"][0]];
    expect(item.id).toMatch(/^cmp_/);
    expect(item.encrypted_content.startsWith(COMPACTED_PREFIX)).toBe(true);
    expect(asked.wire).not.toContain("painted red");
    expect(asked.wire).not.toContain("What matters");
    expect(asked.headers["x-gapura-dropped"]).toBeUndefined();
    expect(asked.charge).toMatchObject({ iterations: 1, tokens: { input: 40, output: 8 } });
    if (way.stream) {
      const done = events.filter(({ type }) => type === "response.output_item.done");
      expect(done).toMatchObject([{ output_index: 0, item }]);
    }
    // The model has its tools, or its own history would make no sense to it, and is to call none.
    expect(messageText(upstream)).toContain(JSON.stringify(INSTRUCTION).slice(1, -1));
    expect(messageText(upstream)).toContain(`"name":"paint"`);
    const none = way.upstream === "messages" ? { type: "none" } : "none";
    expect(upstream["tool_choice"]).toEqual(none);
    expect(messageText(upstream)).not.toContain("json_object");

    const next = await ask(way, [user("Paint the gate"), item, user("And now?")], text("Blue."));
    const sent = messageText(next.upstream);
    expect(sent).toContain(`the following summary of it. Go on from there`);
    expect(sent).toContain(SUMMARY);
    expect(sent).not.toContain(COMPACTED_PREFIX);
    expect(next.answer.output).toMatchObject([{ type: "message" }]);
    // A compaction of what was compacted.
    const again = await ask(way, [item, user("Blue"), trigger], summary);
    expect(messageText(again.upstream)).toContain(SUMMARY);
    expect(again.answer.output).toMatchObject([{ type: "compaction" }]);
  });

  test("an answer without words makes no item: it would replace the conversation by nothing", async () => {
    const step: Step = { answer: { parts: [{ type: "tool", name: "paint", input: {} }], usage } };
    const { answer, charge } = await ask(way, [...history, trigger], step);
    expect(answer.output).toEqual([]);
    expect(charge).toMatchObject({ tokens: { input: 40, output: 8 } });
  });

  test("a summary that was cut short says so", async () => {
    const step: Step = { answer: { parts: [{ type: "text", text: "The ga" }], stop: "length", usage } };
    expect((await ask(way, [...history, trigger], step)).answer).toMatchObject({
      status: "incomplete",
      incomplete_details: { reason: "max_output_tokens" },
      output: [{ type: "compaction" }],
    });
  });

  test("what does not open is refused before any upstream is asked", async () => {
    const sealed = (plain: string, organization: string) =>
      COMPACTED_PREFIX + sealerOf(organization).seal(COMPACTED_PREFIX + plain);
    for (const encrypted_content of [
      sealed(SUMMARY, "org_b"),
      `${sealed(SUMMARY, "org_a").slice(0, -4)}AAAA`,
      "gAAAAABmade-by-a-provider",
      // Something else that was sealed for this organization, as reasoning is.
      COMPACTED_PREFIX + sealerOf("org_a").seal(SUMMARY),
    ]) {
      const refused = ask(way, [{ type: "compaction", encrypted_content }, user("Go on")], summary);
      await expect(refused).rejects.toMatchObject({
        code: "invalid_request_error",
        param: "input[0].encrypted_content",
      } satisfies Partial<ApiError>);
    }
    await expect(ask(way, [trigger, user("Go on")], summary)).rejects.toMatchObject({
      param: "input[0].type",
    });
    expect(fake.requests).toHaveLength(0);
  });
});

test("what was compacted over one dialect goes on over any other", async () => {
  const [way] = converted as [Way];
  const { answer } = await ask(way, [...history, trigger], summary);
  for (const upstream of dialects) {
    fake.reset();
    fake.next(text("Blue."));
    const call = callOn(
      fake.url,
      { path: "relay", client: "responses", upstream, stream: false },
      { body: { input: [...answer.output, user("And now?")] } },
    );
    await serve(call);
    const sent = JSON.stringify(fake.requests[0]?.json());
    expect(sent).toContain(SUMMARY);
    expect(sent).not.toContain(COMPACTED_PREFIX);
  }
});

describe("relayed", () => {
  test("a trigger passes, and the provider's item comes back to it", async () => {
    const made = { id: "cmp_1", type: "compaction", encrypted_content: "gAAA==" };
    fake.next({ answer: { parts: [{ type: "raw", value: made }] } });
    const first = callTo("responses", bodyOf("responses", { input: [user("Hi"), { ...trigger, id: "t" }] }));
    await serve(first);
    expect(fake.requests[0]?.json()).toMatchObject({ input: [user("Hi"), { ...trigger, id: "t" }] });
    const { output } = JSON.parse(first.sink.text) as Answered;
    expect(output).toMatchObject([{ type: "compaction" }]);
    expect(output[0]?.encrypted_content).not.toBe("gAAA==");

    fake.next(text("B"));
    await serve(callTo("responses", bodyOf("responses", { input: [...output, user("Go on")] })));
    expect(fake.requests[1]?.json()).toMatchObject({ input: [made, user("Go on")] });
  });

  test("what its provider could not open is refused as it is where the request is converted", async () => {
    const reasoning = { type: "reasoning", summary: [], encrypted_content: "gapura_damaged" };
    for (const encrypted_content of ["gAAA==", SEALED_PREFIX + sealerOf("org_b").seal("x")]) {
      const input = [reasoning, { encrypted_content, type: "compaction" }, user("Go on")];
      const call = callTo("responses", bodyOf("responses", { input }));
      await expect(serve(call)).rejects.toMatchObject({
        code: "invalid_request_error",
        param: "input[1].encrypted_content",
      } satisfies Partial<ApiError>);
      expect(call.meter).toMatchObject({ settled: [], released: 1 });
    }
    expect(fake.requests).toHaveLength(0);
  });
});
