/** A Responses upstream whose account gets no summaries of reasoning serves Messages clients, who never asked for them by name. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const verified = "Your organization must be verified to generate reasoning summaries.";
const refusing = (error: object) => ({
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({ error: { type: "invalid_request_error", param: null, code: null, ...error } }),
  },
});
const refused = refusing({ message: verified, param: "reasoning.summary", code: "unsupported_value" });
const ways = (["convert", "tools"] as const).map(
  (path) => ({ path, client: "messages", upstream: "responses", stream: false }) as const,
);
const [converted] = ways as unknown as [(typeof ways)[number]];
const summaries = () =>
  fake.requests.map(({ text }) => (JSON.parse(text) as { reasoning?: object }).reasoning);
const body = { thinking: { type: "adaptive" }, output_config: { effort: "high" } };

test.each(ways)("on the way $path it is asked again without, and later at once", async (way) => {
  fake.reset();
  fake.next(refused, hello, hello);
  const first = callOn(fake.url, way, { body });
  await serve(first);
  expect(first.sink.text).toContain("Hello");
  expect(first.sink.headers["x-gapura-dropped"]).toBeUndefined();
  await serve({ ...callOn(fake.url, way, { body }), snapshot: first.snapshot });
  const without = { effort: "high" };
  expect(summaries()).toEqual([{ ...without, summary: "auto" }, without, without]);
});

test.each([
  {
    message: `${verified} Please go to: https://platform.example/settings and click on Verify Organization.`,
  },
  { message: "Unsupported parameter: 'reasoning.summary' is not supported with this model." },
])("told as $message", async (error) => {
  fake.reset();
  fake.next(refusing(error), hello);
  await serve(callOn(fake.url, converted, { body: { thinking: { type: "adaptive" } } }));
  expect(summaries()).toEqual([{ summary: "auto" }, undefined]);
});

test("a client that asked for summaries is told, and refused under strict", async () => {
  const asking = { ...body, thinking: { type: "adaptive", display: "summarized" } };
  fake.reset();
  fake.next(refused, hello);
  const call = callOn(fake.url, converted, { body: asking });
  await serve(call);
  expect(call.sink.headers["x-gapura-dropped"]).toBe("thinking.display");
  fake.reset();
  fake.next(refused);
  const strict = { ...callOn(fake.url, converted, { body: asking }), headers: { "x-gapura-strict": "true" } };
  expect((await refusal(strict)).message).toContain("thinking.display");
});

// It is about the gateway's account, which no client is told of (rule 2.12).
test("a Responses client, who asks by name, is not served without", async () => {
  fake.reset();
  fake.next(refused);
  const way = { path: "tools", client: "responses", upstream: "responses", stream: false } as const;
  const call = callOn(fake.url, way, { body: { reasoning: { effort: "high", summary: "auto" } } });
  expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
  expect(fake.requests).toHaveLength(1);
});
