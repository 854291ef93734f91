/** Schemas of Messages clients toward Chat and Responses, whose strict mode refuses much of what Messages takes. */
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

interface Sent {
  readonly schema: object;
  readonly strict: boolean;
}
/** As each dialect sends it, by what the schema is for. */
const sentTo = {
  chat: {
    format: (body: { response_format: { json_schema: Sent } }): Sent => body.response_format.json_schema,
    tool: ({ tools: [tool] }: { tools: [{ function: { parameters: object; strict: boolean } }] }): Sent => ({
      schema: tool.function.parameters,
      strict: tool.function.strict,
    }),
  },
  responses: {
    format: (body: { text: { format: Sent } }): Sent => body.text.format,
    tool: ({ tools: [tool] }: { tools: [{ parameters: object; strict: boolean }] }): Sent => ({
      schema: tool.parameters,
      strict: tool.strict,
    }),
  },
};
const uses = {
  format: (schema: object) => ({ output_config: { format: { type: "json_schema", schema } } }),
  tool: (schema: object) => ({ tools: [{ name: "f", input_schema: schema, strict: true }] }),
};
const names = { format: "output_config.format.schema", tool: "tools.input_schema" };
const closed = (properties: object) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});

const cases = (["chat", "responses"] as const).flatMap((upstream) =>
  (["format", "tool"] as const).map((use) => ({ upstream, use })),
);
describe.each(cases)("a $use toward $upstream", ({ upstream, use }) => {
  const callWith = (schema: object) =>
    callOn(
      fake.url,
      { path: "convert", client: "messages", upstream, stream: false },
      { body: uses[use](schema) },
    );
  const send = async (schema: object) => {
    fake.reset();
    fake.next(hello);
    const call = callWith(schema);
    await serve(call);
    const read = sentTo[upstream][use] as (body: unknown) => Sent;
    const { schema: sent, strict } = read(JSON.parse(fake.requests[0]?.text ?? ""));
    return { schema: sent, strict, dropped: call.sink.headers["x-gapura-dropped"] };
  };

  test("of Anthropic's SDK, whose literals have no types, is strict", async () => {
    const { schema } = zodOutputFormat(
      z.object({ kind: z.literal("a"), unit: z.enum(["C", "F"]), mixed: z.literal([1, 2.5, null, true]) }),
    );
    const { properties } = schema as { properties: object };
    expect(properties).toMatchObject({ kind: { const: "a" }, unit: { enum: ["C", "F"] } });
    expect(JSON.stringify(properties)).not.toContain('"type"');
    expect(await send(schema)).toEqual({
      schema: closed({
        kind: { const: "a", type: "string" },
        unit: { enum: ["C", "F"], type: "string" },
        mixed: { enum: [1, 2.5, null, true], type: ["integer", "number", "null", "boolean"] },
      }),
      strict: true,
    });
  });

  const wide = closed({
    page: { type: "string", format: "uri" },
    name: { type: "string", minLength: 1, default: "x", format: "email", pattern: "^a" },
    one: { oneOf: [{ type: "integer", minimum: 1 }, { type: "null" }] },
  });
  const lost = ["format", "minLength", "default", "oneOf"].map((keyword) => `${names[use]}.${keyword}`);

  test("with keywords that strict mode refuses is strict, and has them in words", async () => {
    const { dropped, ...sent } = await send(wide);
    expect(sent).toEqual({
      schema: closed({
        page: { type: "string", description: '{format: "uri"}' },
        name: {
          type: "string",
          format: "email",
          pattern: "^a",
          description: '{minLength: 1, default: "x"}',
        },
        one: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }] },
      }),
      strict: true,
    });
    expect(dropped).toBe(lost.join(", "));
  });

  test("with these is refused under x-gapura-strict", async () => {
    fake.reset();
    const call = callWith(wide);
    const error = await refusal({ ...call, headers: { "x-gapura-strict": "true" } });
    expect(error.message).toContain(lost.join(", "));
    expect(fake.requests).toHaveLength(0);
  });

  test.each([
    closed({ any: {} }),
    closed({ any: { description: "whatever" } }),
    closed({ all: { allOf: [{ type: "string" }] } }),
    closed({ list: { type: "array", items: {} } }),
    closed({ list: { type: "array", items: [{ type: "string" }] } }),
    closed({ map: { type: "object", patternProperties: { a: { type: "string" } } } }),
    closed({ not: { type: "string", not: { const: "x" } } }),
    closed({ any: true }),
    {
      ...closed({ one: { $ref: "#/$defs/one", description: "Of two." } }),
      $defs: { one: { type: "string" } },
    },
    { ...closed({ one: { $ref: "#/$defs/one", default: "a" } }), $defs: { one: { type: "string" } } },
  ])("that strict mode refuses is not strict, and stays as it is: %j", async (schema) => {
    expect(await send(schema)).toEqual({
      schema,
      strict: false,
      ...(use === "tool" && { dropped: "tools.strict" }),
    });
  });
});
