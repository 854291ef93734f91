/** An upstream's refusal names a place of its own request: Chat and Responses clients get theirs, or none. */
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { callOn } from "../../test/fakes/ways.ts";

const { fake, refusal } = await serveOneUpstream();

const parameters = { type: "object" };
const url = "data:image/png;base64,AAAA";
const schema = { type: "object", properties: {}, additionalProperties: false };
const fields = { temperature: 0.5 };
const bodies = {
  chat: {
    ...fields,
    reasoning_effort: "low",
    verbosity: "low",
    stop: ["END"],
    response_format: { type: "json_schema", json_schema: { name: "a", schema } },
    tools: ["look", "see"].map((name) => ({ type: "function", function: { name, parameters } })),
    messages: [
      { role: "system", content: "Be kind." },
      { role: "user", content: "Look" },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c", type: "function", function: { name: "look", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "c", content: "seen" },
      {
        role: "user",
        content: [
          { type: "text", text: "And" },
          { type: "image_url", image_url: { url } },
        ],
      },
    ],
  },
  responses: {
    ...fields,
    reasoning: { effort: "low" },
    text: { verbosity: "low", format: { type: "json_schema", name: "a", schema } },
    tools: ["look", "see"].map((name) => ({ type: "function", name, parameters })),
    input: [
      { role: "system", content: "Be kind." },
      { role: "user", content: "Look" },
      { type: "function_call", call_id: "c", name: "look", arguments: "{}" },
      { type: "function_call_output", call_id: "c", output: "seen" },
      {
        role: "user",
        content: [
          { type: "input_text", text: "And" },
          { type: "input_image", image_url: url },
        ],
      },
    ],
  },
};

/** Paths in the request of the upstream, with the client's; null: the client has none, or it is not certain. */
const cases: readonly [path: string, chat: string | null, responses: string | null][] = [
  [
    "messages.2.content.2.image.source.base64.data",
    "messages[4].content[1].image_url",
    "input[4].content[1]",
  ],
  ["messages.2.content.1.text", null, null],
  ["messages.1.content.0.tool_use.id", null, null],
  ["messages.2", null, null],
  ["tools.1.custom.input_schema", "tools[1].function", "tools[1]"],
  ["tools.2.custom.input_schema", null, null],
  ["max_tokens", "max_completion_tokens", "max_output_tokens"],
  ["temperature", "temperature", "temperature"],
  ["top_p", null, null],
  ["stop_sequences.0", "stop", null],
  ["output_config.format.schema", "response_format", "text.format"],
  ["output_config.effort", "reasoning_effort", "reasoning.effort"],
  ["thinking.type", null, null],
];

for (const path of ["convert", "tools"] as const)
  for (const [index, client] of (["chat", "responses"] as const).entries())
    test.each(cases)(`${path}, ${client}: %s`, async (place, ...names) => {
      fake.next({ error: { status: 400, message: `${place}: is odd` } });
      const way = { path, client, upstream: "messages", stream: false } as const;
      const { tools, ...body } = bodies[client];
      const search = path === "tools" && client === "responses" ? [{ type: "web_search" }] : [];
      const call = callOn(fake.url, way, { body: { ...body, tools: [...tools, ...search] } });
      const { message, param } = await refusal(call);
      expect({ message, param: param ?? null }).toEqual({ message: "is odd", param: names[index] ?? null });
    });

/** `param` in the request of the upstream, with the client's. */
const fromChat: readonly [told: string, param: string | null][] = [
  ["max_output_tokens", "max_completion_tokens"],
  ["reasoning.effort", "reasoning_effort"],
  ["text.format.schema", "response_format"],
  ["text.verbosity", "verbosity"],
  ["tools[1].parameters", "tools[1].function"],
  ["tools[2].parameters", null],
  ["temperature", "temperature"],
  ["input[4].content[1]", null],
  ["top_p", "top_p"],
];
const fromResponses: readonly [told: string, param: string | null][] = [
  ["max_completion_tokens", "max_output_tokens"],
  ["max_tokens", "max_output_tokens"],
  ["reasoning_effort", "reasoning.effort"],
  ["response_format.json_schema.schema", "text.format"],
  ["verbosity", "text.verbosity"],
  ["tools[1].function.parameters", "tools[1]"],
  ["messages[3].content", null],
];
for (const [client, upstream, told] of [
  ["chat", "responses", fromChat],
  ["responses", "chat", fromResponses],
] as const)
  test.each(told)(`${client} to ${upstream}: %s`, async (place, param) => {
    const error = { message: "Odd.", type: "invalid_request_error", param: place, code: null };
    fake.next({ raw: { status: 400, contentType: "application/json", body: JSON.stringify({ error }) } });
    const way = { path: "convert", client, upstream, stream: false } as const;
    const refused = await refusal(callOn(fake.url, way, { body: bodies[client] }));
    expect({ message: refused.message, param: refused.param ?? null }).toEqual({ message: "Odd.", param });
  });
