/**
 * A law over every conversion and tool loop: what the official SDK puts together from a stream is the whole answer to
 * the same request, and costs as much. Text is cited and refused, thought before and between calls, cut at the limit and at
 * stop sequences; a Chat upstream says its parts in the one order that its whole answers have.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { runs } from "../../test/fakes/runs.ts";
import type { Part, Step } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, paths, type Way } from "../../test/fakes/ways.ts";
import { accumulated } from "../../test/grammar/sdk-judges.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { arrayOf, objectOf } from "../dialects/fields.ts";
import type { JsonObject, JsonValue } from "../dialects/messages/types.ts";
import type { RunTool } from "../tools/toolbox.ts";

const found: RunTool = async () => ({
  kind: "hits",
  hits: [{ url: "https://gates.example/", title: "Gates", text: "They are fast.", age: null }],
  posts: 0,
  profiles: 0,
});
const { fake, serve } = await serveOneUpstream(found);

/** Five stop sequences, of which Chat takes four. */
const stops = ["END", "1", "2", "3", "4"];
const words = ["a", "E", "N", "D", "END", "🦜", "\n", " ", "[Gates](https://gates.example/)"];
const text = fc.array(fc.constantFrom(...words), { minLength: 1, maxLength: 8 }).map((some) => some.join(""));
const cited = { start_index: 0, end_index: 1, url: "https://c.example/", title: "C" };
const citations: Record<Dialect, object[]> = {
  messages: [],
  chat: [{ type: "url_citation", url_citation: cited }],
  responses: [{ type: "url_citation", ...cited }],
};
const order: Part["type"][] = ["thinking", "text", "refusal", "tool"];

function partsOf(upstream: Dialect): fc.Arbitrary<Part[]> {
  const said = fc.record({
    type: fc.constant("text" as const),
    text,
    citations: fc.constantFrom([], citations[upstream]),
  });
  const thought = fc.record({ type: fc.constant("thinking" as const), text });
  const refused = fc.record({ type: fc.constant("refusal" as const), text });
  const called = fc.record({
    type: fc.constant("tool" as const),
    name: fc.constantFrom("look", "see"),
    input: fc.constantFrom<object>({}, { a: 1 }, { at: "🦜" }),
  });
  const part = fc.oneof<fc.WeightedArbitrary<Part>[]>(
    { weight: 4, arbitrary: said },
    { weight: 2, arbitrary: thought },
    { weight: 1, arbitrary: refused },
    { weight: 2, arbitrary: called },
  );
  const parts = fc.array(part, { minLength: 1, maxLength: 5 });
  if (upstream !== "chat") return parts;
  return parts.map((some) => some.toSorted((a, b) => order.indexOf(a.type) - order.indexOf(b.type)));
}

const names = ["look", "see"];
const parameters = { type: "object" };
const tools: Record<Dialect, object[]> = {
  messages: names.map((name) => ({ name, input_schema: parameters })),
  chat: names.map((name) => ({ type: "function", function: { name, parameters } })),
  responses: names.map((name) => ({ type: "function", name, parameters })),
};
const search: Record<Dialect, object[]> = {
  messages: [{ type: "web_search_20250305", name: "web_search" }],
  chat: [],
  responses: [{ type: "web_search" }],
};
const stopField: Record<Dialect, string | null> = {
  messages: "stop_sequences",
  chat: "stop",
  responses: null,
};

interface Said {
  readonly first: Part[];
  readonly second: Part[];
  readonly isCut: boolean;
  readonly isStopped: boolean;
  readonly usage: { input: number; cacheRead: number; output: number; reasoning: number };
  readonly deltaChars: number;
}

const saidBy = (way: Way): fc.Arbitrary<Said> =>
  fc
    .record({
      first: partsOf(way.upstream),
      second: partsOf(way.upstream),
      isCut: way.path === "tools" ? fc.constant(false) : fc.boolean(),
      isStopped: stopField[way.client] === null ? fc.constant(false) : fc.boolean(),
      usage: fc.record({
        input: fc.integer({ min: 60, max: 99 }),
        cacheRead: fc.nat(20),
        output: fc.integer({ min: 1, max: 50 }),
        reasoning: fc.nat(1),
      }),
      deltaChars: fc.integer({ min: 1, max: 9 }),
    })
    // A refusal that is cut is still a refusal only in a whole answer, where it is known to be one before (rule 2.4).
    .filter(
      ({ isStopped, first, second }) =>
        !isStopped || [...first, ...second].every(({ type }) => type !== "refusal"),
    );

async function answer(way: Way, { first, second, isCut, isStopped, usage, deltaChars }: Said) {
  fake.reset();
  const call: Part[] =
    way.path === "tools" ? [{ type: "tool", name: "web_search", input: { query: "q" } }] : [];
  const steps: Step[] = [
    { answer: { parts: [...first, ...call], usage, deltaChars, ...(isCut && { stop: "length" }) } },
    { answer: { parts: second, usage, deltaChars } },
    { answer: { parts: [{ type: "text", text: "Over." }], usage } },
  ];
  fake.next(...steps);
  const field = stopField[way.client];
  const asked = callOn(fake.url, way, {
    body: {
      tools: [...tools[way.client], ...(way.path === "tools" ? search[way.client] : [])],
      ...(isStopped && field !== null && { [field]: stops }),
      ...(way.stream && way.client === "chat" && { stream_options: { include_usage: true } }),
    },
  });
  await serve(asked);
  const { text: wire } = asked.sink;
  const message = way.stream ? await accumulated[way.client](wire) : (JSON.parse(wire) as JsonObject);
  const [charge] = asked.meter.settled;
  return { message, charge: { tokens: charge?.tokens, status: charge?.status, tools: charge?.tools } };
}

/** Fields that differ each time, such as ids and seals, and fields that an SDK adds. */
const varying = new Set(
  `id created created_at completed_at call_id tool_use_id signature encrypted_content encrypted_index object parsed
   parsed_output parsed_arguments output_parsed output_text`.split(/\s+/),
);

function steady(value: JsonValue | undefined): JsonValue {
  if (Array.isArray(value)) return value.map(steady);
  const object = objectOf(value);
  if (object === null) return value ?? null;
  const kept = Object.entries(object).filter(([key]) => !varying.has(key));
  return Object.fromEntries(kept.map(([key, inner]) => [key, steady(inner)]));
}

/** What a stream can say of an answer: a refusal is its text, and its citations are those of the text (rule 2.15). */
const comparable: Record<Dialect, (message: JsonObject) => JsonValue> = {
  messages: steady,
  chat: ({ choices, usage, service_tier }) => {
    const [choice] = (arrayOf(choices) ?? []).map(objectOf);
    const { content, refusal, annotations, tool_calls } = objectOf(choice?.["message"]) ?? {};
    const reason = choice?.["finish_reason"] ?? null;
    const isRefused = reason === "content_filter";
    return steady({
      // What was said before a server tool ran stays text.
      text: [content, refusal].filter((said) => (said ?? "") !== "").join("\n\n"),
      cited: isRefused ? [] : (annotations ?? []),
      calls: tool_calls ?? [],
      reason,
      usage: usage ?? null,
      tier: service_tier ?? null,
    });
  },
  responses: ({ output, ...response }) => {
    const isRefused = objectOf(response["incomplete_details"])?.["reason"] === "content_filter";
    const plain = (part: JsonObject | null) => ({ text: part?.["text"] ?? part?.["refusal"] ?? "" });
    const items = (arrayOf(output) ?? []).map(objectOf).map((item) => {
      const content = arrayOf(item?.["content"]);
      return content === null || !isRefused
        ? item
        : { ...item, content: content.map((part) => plain(objectOf(part))) };
    });
    return steady({ ...response, output: items });
  },
};

const cells = paths
  .filter(({ path }) => path !== "relay")
  .map((way) => [nameOf({ ...way, stream: true }), way] as const);

test.each(cells)("%s", async (_name, way) => {
  await fc.assert(
    fc.asyncProperty(saidBy({ ...way, stream: true }), async (said) => {
      const whole = await answer({ ...way, stream: false }, said);
      const streamed = await answer({ ...way, stream: true }, said);
      const compared = comparable[way.client];
      const [one, other] = [compared(streamed.message), compared(whole.message)];
      // An upstream that is let go at a stop sequence has not reported yet.
      if (said.isStopped) for (const each of [one, other]) delete (each as JsonObject)["usage"];
      else expect(streamed.charge).toEqual(whole.charge);
      // Nor has it sent the citations that follow.
      if (said.isStopped) for (const each of [one, other]) delete (each as JsonObject)["cited"];
      expect(one).toEqual(other);
    }),
    { numRuns: runs(100) },
  );
});
