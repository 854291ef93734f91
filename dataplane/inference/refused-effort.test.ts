/** An upstream whose model does not know the effort asked for is asked for the nearest that it knows (dialects.md §D1). */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn, nameOf, type Way, ways } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const refusalOf = (way: Way) => ({
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({
      error: {
        message: "Unsupported value: it is not supported with the 'm' model. Supported values are: 'high'.",
        type: "invalid_request_error",
        param: way.upstream === "chat" ? "reasoning_effort" : "reasoning.effort",
        code: "unsupported_value",
      },
    }),
  },
});
const asking = (way: Way, effort: string) => {
  if (way.client === "chat") return { reasoning_effort: effort };
  if (way.client === "responses") return { reasoning: { effort } };
  return effort === "none" ? { thinking: { type: "disabled" } } : { output_config: { effort } };
};
const efforts = () =>
  fake.requests.map(({ text }) => /"(?:reasoning_)?effort":"(\w+)"/.exec(text)?.[1] ?? null);
const own = ways.filter(({ path, upstream }) => path !== "relay" && upstream !== "messages");

test.each(own.map((way) => [nameOf(way), way] as const))(
  "is asked for the nearest that it knows: %s",
  async (_name, way) => {
    for (const [effort, nearest] of [
      ["none", "low"],
      ["xhigh", "high"],
      ["max", "high"],
    ] as const) {
      fake.reset();
      fake.next(refusalOf(way), hello, hello);
      const first = callOn(fake.url, way, { body: asking(way, effort) });
      await serve(first);
      // The next request is not refused first, and what the model knows stays.
      await serve({ ...callOn(fake.url, way, { body: asking(way, "medium") }), snapshot: first.snapshot });
      expect(first.sink.text).toContain("Hello");
      expect(efforts()).toEqual([effort, nearest, "medium"]);
    }
  },
);

test.each([
  "This model does not support effort level 'max'. Supported levels: high, low, medium.",
  'output_config.effort "max" is not supported by model m; supported values: [high]',
  'level "max" not supported, valid levels: low, medium, high',
])("so is a Messages upstream that says: %s", async (message) => {
  for (const client of ["chat", "responses"] as const) {
    const way = { path: "convert", client, upstream: "messages", stream: false } as const;
    const body = JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } });
    fake.reset();
    fake.next({ raw: { status: 400, contentType: "application/json", body } }, hello, hello, hello);
    const first = callOn(fake.url, way, { body: asking(way, "max") });
    for (const effort of ["max", "max", "xhigh"])
      await serve({ ...callOn(fake.url, way, { body: asking(way, effort) }), snapshot: first.snapshot });
    expect(efforts()).toEqual(["max", "high", "high", "xhigh"]);
  }
});

test.each([
  ["max", "output_config.effort 'max' is not supported when thinking is disabled on this model."],
  ["max", "This model does not support effort level 'xhigh'."],
  ["max", "This model does not support the effort parameter."],
])("a Messages upstream that refuses %s otherwise is not asked again: %s", async (effort, message) => {
  const way = { path: "convert", client: "chat", upstream: "messages", stream: false } as const;
  const body = JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } });
  fake.reset();
  fake.next({ raw: { status: 400, contentType: "application/json", body } });
  expect((await refusal(callOn(fake.url, way, { body: asking(way, effort) }))).kind.status).toBe(400);
  expect(fake.requests).toHaveLength(1);
});

test("an effort that is refused says nothing of others: thinking stays off", async () => {
  const way = { path: "convert", client: "messages", upstream: "chat", stream: false } as const;
  fake.reset();
  fake.next(refusalOf(way), hello, hello);
  const first = callOn(fake.url, way, { body: asking(way, "max") });
  await serve(first);
  await serve({ ...callOn(fake.url, way, { body: asking(way, "none") }), snapshot: first.snapshot });
  expect(efforts()).toEqual(["max", "high", "none"]);
});

test("a model without any effort is not asked again", async () => {
  const way = { path: "convert", client: "messages", upstream: "chat", stream: false } as const;
  const message = "Unsupported parameter: 'reasoning_effort' is not supported with this model.";
  const error = { message, param: "reasoning_effort", code: "unsupported_parameter" };
  fake.next({ raw: { status: 400, contentType: "application/json", body: JSON.stringify({ error }) } });
  const refused = await refusal(callOn(fake.url, way, { body: asking(way, "max") }));
  expect(refused.kind.status).toBe(400);
  expect(fake.requests).toHaveLength(1);
});

test("strict gets the refusal, as does an effort that every model knows", async () => {
  const way = { path: "convert", client: "messages", upstream: "chat", stream: false } as const;
  for (const [effort, headers] of [
    ["max", { "x-gapura-strict": "true" }],
    ["medium", {}],
  ] as const) {
    fake.reset();
    fake.next(refusalOf(way));
    const call = callOn(fake.url, way, { body: asking(way, effort) });
    expect((await refusal({ ...call, headers })).kind.status).toBe(400);
    expect(fake.requests).toHaveLength(1);
  }
});
