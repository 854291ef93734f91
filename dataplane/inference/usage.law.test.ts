/** Rule 10.6: the same answer costs the same on every way that it takes, however much of it its upstream reports. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import type { Answer, Part, ScriptedUsage } from "../../test/fakes/upstream/script.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { declaredSearch } from "../../test/fakes/inference.ts";
import { callOn, nameOf, ways, type Way } from "../../test/fakes/ways.ts";
import type { FinalUsage } from "../billing/meter.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { tokensOfWeight, weightOf } from "../dialects/output-estimate.ts";
import { runs } from "../../test/fakes/runs.ts";

const { fake, serve } = await serveOneUpstream();

/** Latin, Chinese, Japanese and Korean words, escapes of JSON, characters of four bytes. */
const words = fc
  .array(
    fc.constantFrom(
      "word ",
      "über ",
      "世界",
      "こんにちは",
      "안녕 ",
      "𠀀",
      "😀",
      '"quoted" ',
      "\\ ",
      "line\n",
      "{}",
      "！",
    ),
    { minLength: 1, maxLength: 30 },
  )
  .map((pieces) => pieces.join("").trim() || "word");

const parts: fc.Arbitrary<Part> = fc.oneof(
  words.map((text): Part => ({ type: "text", text })),
  words.map((text): Part => ({ type: "thinking", text, signature: "c2lnbmF0dXJl" })),
  fc.record({ query: words }).map((input): Part => ({ type: "tool", name: "mine", input })),
);

/** Thinking comes first and calls last, as models write. */
const order = ["thinking", "text", "tool"];
const answers = fc
  .record({
    parts: fc
      .array(parts, { minLength: 1, maxLength: 3 })
      .map((list) => list.toSorted((one, other) => order.indexOf(one.type) - order.indexOf(other.type))),
    deltaChars: fc.constantFrom(undefined, 1, 3, 1000),
  })
  .map(({ deltaChars, ...answer }): Answer =>
    deltaChars === undefined ? answer : { ...answer, deltaChars },
  );

const reports: Readonly<Record<string, ScriptedUsage>> = {
  wholly: { input: 30, output: 40, reasoning: 3 },
  "without its input": { input: 0, output: 40 },
  "without its output": { input: 30, output: 0 },
  "not at all": { input: 0, output: 0 },
};

const writtenTokens = ({ parts: list }: Answer): number =>
  tokensOfWeight(
    list.reduce((sum, part) => {
      if (part.type === "text" || part.type === "thinking") return sum + weightOf(part.text);
      return part.type === "tool" ? sum + weightOf(JSON.stringify(part.input)) : sum;
    }, 0),
  );

/** Beside the search: the tool that the answers call. */
const parameters = { type: "object" };
const withMine = {
  messages: { tools: [...declaredSearch.messages.tools, { name: "mine", input_schema: parameters }] },
  chat: { tools: [{ type: "function", function: { name: "mine", parameters } }] },
  responses: { tools: [...declaredSearch.responses.tools, { type: "function", name: "mine", parameters }] },
};

async function charge(
  way: Way,
): Promise<{ readonly charge: FinalUsage | undefined; readonly prompt: number }> {
  const call = callOn(fake.url, way, { body: way.path === "tools" ? withMine[way.client] : {} });
  await serve(call);
  return { charge: call.meter.settled[0], prompt: Math.ceil(call.body.length / 4) };
}

test.each(Object.entries(reports))(
  "an answer that is reported %s",
  async (_name, usage) => {
    await fc.assert(
      fc.asyncProperty(answers, async (answer) => {
        fake.reset();
        fake.next(...ways.map(() => ({ answer: { ...answer, usage } })));
        const costs = [];
        for (const way of ways) {
          const { charge: settled, prompt } = await charge(way);
          const { input, output } = settled?.tokens ?? { input: -1, output: -1 };
          costs.push([nameOf(way), usage.input === 0 ? input - prompt : input, output, settled?.estimated]);
        }
        const output = usage.output === 0 ? writtenTokens(answer) : usage.output;
        const isEstimated = usage.input === 0 || usage.output === 0;
        expect(costs).toEqual(ways.map((way) => [nameOf(way), usage.input ?? 0, output, isEstimated]));
      }),
      { numRuns: runs(12) },
    );
  },
  60_000,
);

const streamed = (upstream: Dialect) => ways.filter((way) => way.stream && way.upstream === upstream);

test.each(dialects)(
  "a stream of a %s upstream that breaks off, wherever that is",
  async (upstream) => {
    await fc.assert(
      fc.asyncProperty(answers, fc.integer({ min: 2, max: 12 }), async (answer, cutAtEvent) => {
        fake.reset();
        const step = { answer: { ...answer, usage: { input: 0, output: 0 } } };
        fake.next(...streamed(upstream).map(() => withFaults(step, { cutAtEvent })));
        const costs: (readonly [number, number | undefined])[] = [];
        for (const way of streamed(upstream)) {
          const { charge: settled, prompt } = await charge(way);
          costs.push([(settled?.tokens.input ?? -1) - prompt, settled?.tokens.output]);
        }
        expect(costs).toEqual(costs.map(() => costs[0]));
      }),
      { numRuns: runs(12) },
    );
  },
  60_000,
);
