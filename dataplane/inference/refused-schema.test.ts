/** A Messages upstream that takes closed schemas alone gets the schema of another dialect's client closed. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const refusedFor = (place: string) => ({
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({
      type: "error",
      error: {
        type: "invalid_request_error",
        message: `${place}For 'object' type, 'additionalProperties' must be explicitly set to false`,
      },
    }),
  },
});
const refused = refusedFor("output_config.format.schema: ");
const object = (properties: object, more: object = {}) => ({ type: "object", properties, ...more });
const open = object({ a: object({}), l: { type: "array", items: object({ b: { type: "string" } }) } });
const closed = { additionalProperties: false };
const shut = object(
  { a: object({}, closed), l: { type: "array", items: object({ b: { type: "string" } }, closed) } },
  closed,
);
const formatOf = (client: "chat" | "responses", schema: object) =>
  client === "chat"
    ? { response_format: { type: "json_schema", json_schema: { name: "n", schema } } }
    : { text: { format: { type: "json_schema", name: "n", schema } } };
const way = (client: "chat" | "responses", path: "convert" | "tools" = "convert") =>
  ({ path, client, upstream: "messages", stream: false }) as const;
const schemas = () =>
  fake.requests.map(
    ({ text }) =>
      (JSON.parse(text) as { output_config: { format: { schema: object } } }).output_config.format.schema,
  );

test.each([way("chat"), way("responses"), way("chat", "tools")])(
  "$client on the way $path, later at once",
  async (taken) => {
    fake.reset();
    fake.next(refused, hello, hello);
    const first = callOn(fake.url, taken, { body: formatOf(taken.client, open) });
    await serve(first);
    expect(first.sink.headers["x-gapura-dropped"]).toBeUndefined();
    const later = callOn(fake.url, taken, { body: formatOf(taken.client, open) });
    await serve({ ...later, snapshot: first.snapshot });
    expect(schemas()).toEqual([open, shut, shut]);
  },
);

test("what closing would change, or says how it is, stays", async () => {
  const parts = {
    map: { type: "object", additionalProperties: { type: "string" } },
    any: { type: "object" },
    one: { anyOf: [object({ c: {} }), { type: "null" }] },
  };
  fake.reset();
  fake.next(refused, hello);
  await serve(callOn(fake.url, way("chat"), { body: formatOf("chat", object(parts)) }));
  const one = { anyOf: [object({ c: {} }, closed), { type: "null" }] };
  expect(schemas()[1]).toEqual(object({ ...parts, one }, closed));
});

test.each([
  { allOf: [object({ a: {} })], properties: { b: {} } },
  { allOf: [{ $ref: "#/$defs/base" }, object({ b: {} })], $defs: { base: object({ a: {} }) } },
  { $ref: "#/$defs/base", properties: { b: {} }, $defs: { base: object({ a: {} }) } },
  object({ a: {} }, { anyOf: [object({ b: {} }), object({ c: {} })] }),
  object({ in: { items: object({ a: {} }, { oneOf: [object({ b: {} })] }) } }),
])(
  "one whose parts hold together stays: closed, each would refuse the others' properties: %j",
  async (schema) => {
    fake.reset();
    fake.next(refused, hello);
    await serve(callOn(fake.url, way("chat"), { body: formatOf("chat", schema) }));
    expect(schemas()).toEqual([schema, schema]);
  },
);

test("a schema that it still refuses the client has to know, and one of a tool", async () => {
  for (const answers of [[refused, refused], [refusedFor("tools.0.custom.input_schema: ")]]) {
    fake.reset();
    fake.next(...answers);
    const error = await refusal(callOn(fake.url, way("chat"), { body: formatOf("chat", open) }));
    expect(error.kind.status).toBe(400);
    expect(fake.requests).toHaveLength(answers.length);
  }
});
