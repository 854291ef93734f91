/** Rules 2.15 and 3.12 where a model calls a tool that nobody has: the client sees no call between what was said. */
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../../test/fakes/one-upstream.ts";
import { toolCall, type Part, type Step } from "../../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways, type Way } from "../../../test/fakes/ways.ts";
import { arrayOf, objectOf } from "../../dialects/fields.ts";
import type { JsonObject } from "../../dialects/messages/types.ts";

const { fake, serve } = await serveOneUpstream(() =>
  Promise.resolve({ kind: "hits", hits: [], posts: 0, profiles: 0 }),
);

const stray: Part = { type: "tool", name: "functions.open", input: {} };
const saying = (text: string): Step => ({ answer: { parts: [{ type: "text", text }] } });
const straying = (text: string): Step => ({ answer: { parts: [{ type: "text", text }, stray] } });
const refusing = (text: string): Step => ({ answer: { parts: [{ type: "refusal", text }] } });

async function served(way: Way, steps: readonly Step[]): Promise<string> {
  fake.next(...steps);
  const call = callOn(fake.url, way);
  await serve(call);
  expect(call.meter.settled).toMatchObject([{ status: "ok", iterations: steps.length }]);
  return call.sink.text;
}

const events = (sse: string): JsonObject[] =>
  [...sse.matchAll(/^data: (\{.*)$/gm)].map(([, json = ""]) => JSON.parse(json) as JsonObject);

const ofClient = (client: Way["client"]) =>
  ways
    .filter((way) => way.path === "tools" && way.client === client)
    .map((way) => [nameOf(way), way] as const);

describe("rule 3.12: exactly one blank line stands between, and none behind", () => {
  const said = async (way: Way, steps: readonly Step[]) => {
    const body = await served(way, steps);
    const choices = (way.stream ? events(body) : [JSON.parse(body) as JsonObject]).flatMap(
      (one) => arrayOf(one["choices"]) ?? [],
    );
    return choices
      .map((choice) => objectOf(objectOf(choice)?.[way.stream ? "delta" : "message"])?.["content"] ?? "")
      .join("");
  };
  test.each(ofClient("chat"))("%s", async (_name, way) => {
    expect(await said(way, [straying("Let me look.\n"), saying("\n\nHere.")])).toBe("Let me look.\n\nHere.");
    expect(await said(way, [straying("Let me look."), straying(" \n"), saying("Here.")])).toBe(
      "Let me look.\n\nHere.",
    );
    expect(await said(way, [straying("Let me look."), saying(" ")])).toBe("Let me look.");
  });
});

describe("no message of a Responses client has a part of blanks alone, and a refusal is the last iteration's", () => {
  const output = async (way: Way, steps: readonly Step[]) => {
    const body = await served(way, steps);
    const answer = way.stream
      ? objectOf(events(body).at(-1)?.["response"])
      : (JSON.parse(body) as JsonObject);
    return (arrayOf(answer?.["output"]) ?? []).map((item) =>
      (arrayOf(objectOf(item)?.["content"]) ?? []).map((part) => {
        const { text, refusal } = objectOf(part) ?? {};
        return text ?? { refusal };
      }),
    );
  };
  test.each(ofClient("responses"))("%s", async (_name, way) => {
    expect(await output(way, [straying("Let me look."), saying("Here.")])).toEqual([
      ["Let me look."],
      ["Here."],
    ]);
    // In a stream a refusal is text (rule 2.15).
    const refused = way.stream ? "No." : { refusal: "No." };
    expect(await output(way, [straying("Let me look."), refusing("No.")])).toEqual([
      ["Let me look."],
      [refused],
    ]);
  });
});

test.each(ofClient("messages"))(
  "the last of too many such calls is followed by an answer: %s",
  async (_name, way) => {
    const strays = Array.from({ length: 8 }, () => straying("Let me look."));
    expect(await served(way, [...strays, saying("Here.")])).toMatch(/Here\..*"stop_reason":"end_turn"/s);
    expect(fake.requests).toHaveLength(9);
  },
);

const paused: Readonly<Record<string, readonly Step[]>> = {
  "what was said": [straying("Let me look."), { error: { status: 500 } }],
  nothing: [{ answer: { parts: [stray] } }, { error: { status: 500 } }],
  "a result and what was said": [
    toolCall("web_search", { query: "gates" }),
    straying("Let me look."),
    { error: { status: 500 } },
  ],
  "too many of them": [
    ...Array.from({ length: 8 }, () => straying("Let me look.")),
    { error: { status: 500 } },
  ],
};
const wholes = ofClient("messages").filter(([, { stream }]) => !stream);

test.each(
  Object.entries(paused).flatMap(([what, steps]) => wholes.map((way) => [what, ...way, steps] as const)),
)(
  "pause_turn behind such a call and %s: the client goes on with the content as it is (%s)",
  async (_what, _name, way, steps) => {
    fake.next(...steps);
    const first = callOn(fake.url, way);
    await serve(first);
    const { stop_reason, content, usage } = JSON.parse(first.sink.text) as JsonObject;
    expect(stop_reason).toBe("pause_turn");
    expect(JSON.stringify(content)).not.toContain("functions");
    expect(objectOf(usage)?.["server_tool_use"]).toMatchObject({
      web_search_requests: steps.length === 3 ? 1 : 0,
    });
    const messages = [
      { role: "user", content: "hi" },
      { role: "assistant", content },
    ];
    fake.next(saying("Here."));
    const second = callOn(fake.url, way, { body: { messages } });
    await serve(second);
    expect(second.sink.text).toMatch(/Here\..*"stop_reason":"end_turn"/s);
  },
);

test.each(ofClient("messages"))(
  "a tool that a system turn defines is the client's: %s",
  async (_name, way) => {
    const definition = { name: "mine", input_schema: { type: "object", properties: {} } };
    const messages = [
      { role: "user", content: "hi" },
      { role: "system", content: [{ type: "tool_addition", tool: { type: "tool_definition", definition } }] },
    ];
    fake.next({ answer: { parts: [{ type: "tool", name: "mine", input: { a: 1 } }] } });
    const call = callOn(fake.url, way, { body: { messages } });
    await serve(call);
    expect(call.sink.text).toMatch(/"name":"mine".*"stop_reason":"tool_use"/s);
    expect(fake.requests).toHaveLength(1);
  },
);
