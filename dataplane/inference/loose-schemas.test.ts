/** Parameters of functions that Messages takes and OpenAI refuses, strict or not, unless what they leave open is said. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, serve } = await serveOneUpstream();

async function sentFor(upstream: "chat" | "responses", input_schema: object): Promise<unknown> {
  fake.next(hello);
  const call = callOn(
    fake.url,
    { path: "convert", client: "messages", upstream, stream: false },
    { body: { tools: [{ name: "f", input_schema }] } },
  );
  await serve(call);
  expect(call.sink.headers["x-gapura-dropped"]).toBeUndefined();
  const { tools } = JSON.parse(fake.requests[0]?.text ?? "") as {
    tools: [{ parameters?: object; function?: { parameters: object } }];
  };
  return tools[0].parameters ?? tools[0].function?.parameters;
}

test.each(["chat", "responses"] as const)(
  "an object without properties gets none toward %s",
  async (upstream) => {
    const $schema = "http://json-schema.org/draft-07/schema#";
    expect(await sentFor(upstream, { $schema, type: "object" })).toEqual({
      $schema,
      type: "object",
      properties: {},
    });
  },
);

test.each(["chat", "responses"] as const)(
  "a list without items gets any toward %s, wherever it stands",
  async (upstream) => {
    const schemaWith = (items: object) => ({
      type: "object",
      properties: {
        list: { type: "array", description: "Of anything.", ...items },
        maybe: { anyOf: [{ type: ["array", "null"], ...items }, { type: "object" }] },
        lists: { type: "array", items: { type: "array", ...items } },
        map: { type: "object", additionalProperties: { type: "array", ...items } },
        data: { enum: [{ type: "array" }], default: { type: "array" } },
        full: { type: "array", items: { type: "string" } },
      },
      $defs: { list: { type: "array", ...items } },
    });
    expect(await sentFor(upstream, schemaWith({}))).toEqual(schemaWith({ items: {} }));
  },
);
