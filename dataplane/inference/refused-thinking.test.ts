/** A Messages upstream whose model does not think where a tool is forced serves clients of the other dialects, who may ask for both. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const message = "Thinking may not be enabled when tool_choice forces tool use.";
const refused = {
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } }),
  },
};
const parameters = { type: "object", properties: {} };
const asking = {
  chat: {
    tools: [{ type: "function", function: { name: "clock", parameters } }],
    tool_choice: "required",
    reasoning_effort: "high",
  },
  responses: {
    tools: [{ type: "function", name: "clock", parameters, strict: false }],
    tool_choice: { type: "function", name: "clock" },
    reasoning: { effort: "high" },
  },
};
const wayOf = (client: "chat" | "responses") =>
  ({ path: "convert", client, upstream: "messages", stream: false }) as const;
const sent = () =>
  fake.requests.map(({ text }) => {
    const body = JSON.parse(text) as { thinking?: { type: string }; output_config?: object };
    return [body.thinking?.type, body.output_config];
  });

test.each(["chat", "responses"] as const)(
  "a %s client's request is asked again without thinking, later ones at once, and others keep it",
  async (client) => {
    fake.reset();
    fake.next(refused, hello, hello, hello);
    const first = callOn(fake.url, wayOf(client), { body: asking[client] });
    await serve(first);
    expect(first.sink.text).toContain("Hello");
    expect(first.sink.headers["x-gapura-dropped"]).toBeUndefined();
    for (const body of [asking[client], { ...asking[client], tool_choice: "auto" }])
      await serve({ ...callOn(fake.url, wayOf(client), { body }), snapshot: first.snapshot });
    const config = { effort: "high" };
    expect(sent()).toEqual([
      ["adaptive", config],
      ["disabled", config],
      ["disabled", config],
      ["adaptive", config],
    ]);
  },
);

test("strict gets the refusal", async () => {
  fake.reset();
  fake.next(refused);
  const call = callOn(fake.url, wayOf("chat"), { body: asking.chat });
  expect((await refusal({ ...call, headers: { "x-gapura-strict": "true" } })).message).toBe(message);
  expect(fake.requests).toHaveLength(1);
});

test("a Messages client has to know", async () => {
  fake.reset();
  fake.next(refused);
  const way = { path: "relay", client: "messages", upstream: "messages", stream: false } as const;
  const body = {
    tools: [{ name: "clock", input_schema: parameters }],
    tool_choice: { type: "any" },
    thinking: { type: "adaptive" },
  };
  expect((await refusal(callOn(fake.url, way, { body }))).message).toBe(message);
  expect(fake.requests).toHaveLength(1);
});
