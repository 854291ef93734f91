/** A Messages upstream that refuses keywords of a strict schema gets them of another dialect's client as words. */
import { expect, test } from "vitest";
import type { JsonObject } from "../dialects/messages/types.ts";
import { hello, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const refusedFor = (message: string) => ({
  raw: {
    status: 400,
    contentType: "application/json",
    body: JSON.stringify({ type: "error", error: { type: "invalid_request_error", message } }),
  },
});
const wide = {
  type: "object",
  properties: {
    age: { type: "integer", description: "Years.", minimum: 0, maximum: 150 },
    tags: { type: "array", items: { type: "string", maxLength: 9 }, minItems: 2, maxItems: 5 },
    one: { type: "array", items: { $ref: "#/$defs/shape" }, minItems: 1 },
    at: {
      anyOf: [
        { type: "string", format: "date-time" },
        { type: "string", format: "cron" },
      ],
    },
    maximum: { type: "string", enum: ["minimum"], default: "minimum" },
  },
  $defs: { shape: { oneOf: [{ type: "string", pattern: "^a" }, { type: "null" }] } },
  required: ["age", "tags", "one", "at", "maximum"],
  additionalProperties: false,
};
const plain = {
  type: "object",
  properties: {
    age: { type: "integer", description: "Years.\n\n{minimum: 0, maximum: 150}" },
    tags: {
      type: "array",
      items: { type: "string", description: "{maxLength: 9}" },
      description: "{minItems: 2, maxItems: 5}",
    },
    one: { type: "array", items: { $ref: "#/$defs/shape" }, minItems: 1 },
    at: {
      anyOf: [
        { type: "string", format: "date-time" },
        { type: "string", description: '{format: "cron"}' },
      ],
    },
    maximum: { type: "string", enum: ["minimum"], default: "minimum" },
  },
  $defs: { shape: { anyOf: [{ type: "string", description: '{pattern: "^a"}' }, { type: "null" }] } },
  required: ["age", "tags", "one", "at", "maximum"],
  additionalProperties: false,
};
const lostOf = (place: string) =>
  ["minimum", "maximum", "maxLength", "minItems", "maxItems", "format", "pattern", "oneOf"].map(
    (keyword) => `${place}.${keyword}`,
  );

type Client = "chat" | "responses";
const formatOf = (client: Client, schema: object) =>
  client === "chat"
    ? { response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } } }
    : { text: { format: { type: "json_schema", name: "n", schema, strict: true } } };
const toolOf = (client: Client, parameters: object, strict: boolean) => {
  const tool = { name: "f", parameters, strict };
  return {
    tools: [client === "chat" ? { type: "function", function: tool } : { type: "function", ...tool }],
  };
};
const way = (client: Client, path: "convert" | "tools" = "convert") =>
  ({ path, client, upstream: "messages", stream: false }) as const;
const sent = () => fake.requests.map(({ text }) => JSON.parse(text) as JsonObject);
const formats = () =>
  sent().map((body) => (body["output_config"] as { format: { schema: object } }).format.schema);
const parameters = () => sent().map((body) => (body["tools"] as { input_schema: object }[])[0]?.input_schema);
const droppedOf = ({ sink }: { sink: { headers: Readonly<Record<string, string>> } }) =>
  sink.headers["x-gapura-dropped"]?.split(", ").toSorted();

const refused = refusedFor(
  "output_config.format.schema: For 'integer' type, properties maximum, minimum are not supported",
);

test.each([way("chat"), way("responses"), way("chat", "tools")])(
  "structured output of $client on the way $path, later at once",
  async (taken) => {
    fake.reset();
    fake.next(refused, hello, hello);
    const first = callOn(fake.url, taken, { body: formatOf(taken.client, wide) });
    await serve(first);
    const later = callOn(fake.url, taken, { body: formatOf(taken.client, wide) });
    await serve({ ...later, snapshot: first.snapshot });
    expect(formats()).toEqual([wide, plain, plain]);
    const place = taken.client === "chat" ? "response_format.json_schema.schema" : "text.format.schema";
    expect(droppedOf(first)).toEqual(lostOf(place).toSorted());
    expect(droppedOf(later)).toEqual(lostOf(place).toSorted());
  },
);

test.each([way("chat"), way("responses")])("a strict tool of $client", async (taken) => {
  fake.reset();
  fake.next(
    refusedFor(
      "tools.0.custom: For 'array' type, 'minItems' values other than 0 or 1 are not supported (got: [2])",
    ),
    hello,
  );
  const call = callOn(fake.url, taken, { body: toolOf(taken.client, wide, true) });
  await serve(call);
  expect(parameters()).toEqual([wide, plain]);
  const place = taken.client === "chat" ? "tools.function.parameters" : "tools.parameters";
  expect(droppedOf(call)).toEqual(lostOf(place).toSorted());
});

test.each([
  "output_format.schema: For 'integer' type, property 'minimum' is not supported",
  "For 'array' type, property 'maxItems' is not supported.",
  "output_config.format.schema: For 'string' type, format 'cron' is not supported",
  "output_config.format.schema: Schema type 'oneOf' is not supported",
])("is told in the words: %s", async (message) => {
  fake.reset();
  fake.next(refusedFor(message), hello);
  await serve(callOn(fake.url, way("chat"), { body: formatOf("chat", wide) }));
  expect(formats()).toEqual([wide, plain]);
});

test("what it still refuses the client has to know, and of a tool that is not strict", async () => {
  for (const [body, times] of [
    [formatOf("chat", wide), 2],
    [toolOf("chat", wide, false), 1],
  ] as const) {
    fake.reset();
    fake.next(refused, refused);
    const error = await refusal(callOn(fake.url, way("chat"), { body }));
    expect(error.kind.status).toBe(400);
    expect(fake.requests).toHaveLength(times);
  }
});

test("what is refused of one client's schema takes nothing from another's that has none of it", async () => {
  const narrow = {
    type: "object",
    properties: { id: { type: "string", pattern: "^a" } },
    required: ["id"],
    additionalProperties: false,
  };
  fake.reset();
  fake.next(refused, hello, hello);
  const first = callOn(fake.url, way("chat"), { body: formatOf("chat", wide) });
  await serve(first);
  const other = callOn(fake.url, way("responses"), { body: formatOf("responses", narrow) });
  await serve({ ...other, snapshot: first.snapshot, headers: { "x-gapura-strict": "true" } });
  expect(formats()).toEqual([wide, plain, narrow]);
  expect(droppedOf(other)).toBeUndefined();
});

test("under strict the bounds that would be lost are named", async () => {
  fake.reset();
  fake.next(refused);
  const call = callOn(fake.url, way("chat"), { body: formatOf("chat", wide) });
  const error = await refusal({ ...call, headers: { "x-gapura-strict": "true" } });
  expect(error.kind.status).toBe(400);
  expect(error.message).toContain("response_format.json_schema.schema.minimum");
  expect(fake.requests).toHaveLength(1);
});
