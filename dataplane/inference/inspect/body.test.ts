import { describe, expect, test } from "vitest";
import { blocks, items, lookAt } from "../../../test/fakes/look-at.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { ApiError } from "../../lib/api-error.ts";
import { inspectBody } from "./body.ts";

test("of a model's name no more is told than any model's may have", () => {
  const { model } = inspectBody("chat", Buffer.from(`{"model":"${"m".repeat(5_000)}","messages":[{}]}`));
  expect(model).toBe("m".repeat(1_000));
});

describe("basic shape", () => {
  const shapes: [Dialect, string, string][] = [
    ["messages", "", "invalid_request undefined"],
    ["messages", " \n ", "invalid_request undefined"],
    ["chat", "[]", "invalid_type undefined"],
    ["chat", '"text"', "invalid_type undefined"],
    ["chat", "{", "invalid_request undefined"],
    ["chat", '{"model":"a","model":"b"}', "invalid_request undefined"],
    ["chat", "{}", "missing_parameter messages"],
    ["responses", '{"model":"a"}', "missing_parameter input"],
    ["responses", '{"model":"a","input":null}', "missing_parameter input"],
    ["responses", '{"model":"a","input":""}', "invalid_value input"],
    ["responses", '{"model":"a","input":[]}', "invalid_value input"],
    ["responses", '{"model":"a","input":7}', "invalid_type input"],
    ["chat", '{"model":"a","messages":[]}', "invalid_value messages"],
    ["chat", '{"model":"a","messages":"hi"}', "invalid_type messages"],
    ["chat", '{"messages":[{}]}', "missing_parameter model"],
    ["chat", '{"model":null,"messages":[{}]}', "missing_parameter model"],
    ["chat", '{"model":5,"messages":[{}]}', "invalid_type model"],
    ["chat", '{"model":"","messages":[{}]}', "invalid_value model"],
    ["chat", '{"model":"a","messages":[{}],"stream":"true"}', "invalid_type stream"],
    ["chat", '{"model":"a","messages":[{}],"stream":1}', "invalid_type stream"],
    ["chat", '{"model":"a","messages":[{}],"max_tokens":1.5}', "invalid_type max_tokens"],
    [
      "chat",
      '{"model":"a","messages":[{}],"max_completion_tokens":"5"}',
      "invalid_type max_completion_tokens",
    ],
    ["chat", '{"model":"a","messages":[{}],"max_tokens":0}', "invalid_value max_tokens"],
    ["chat", '{"model":"a","messages":[{}],"n":0}', "invalid_value n"],
    ["chat", '{"model":"a","messages":[{}],"n":1000}', "invalid_value n"],
    ["chat", '{"model":"a","messages":[{}],"n":"2"}', "invalid_type n"],
    ["messages", '{"model":"a","messages":[{}],"max_tokens":-1}', "invalid_value max_tokens"],
    ["chat", '{"model":"a","messages":[{}],"stream_options":3}', "invalid_type stream_options"],
    ["responses", '{"model":"a","input":"x","stream_options":"x"}', "invalid_type stream_options"],
    [
      "chat",
      '{"model":"a","messages":[{}],"stream_options":{"include_usage":1}}',
      "invalid_type stream_options.include_usage",
    ],
    ["responses", '{"model":"a","input":"x","max_output_tokens":true}', "invalid_type max_output_tokens"],
  ];
  test.each(shapes)("rule 1.4: %s %j", (dialect, body, expected) => {
    let seen = "served";
    try {
      inspectBody(dialect, Buffer.from(body));
    } catch (error) {
      seen = error instanceof ApiError ? `${error.code} ${error.param}` : String(error);
    }
    expect(seen).toBe(expected);
  });

  test("rule 1.17: null counts as absent", () => {
    const inspected = lookAt("chat", {
      stream: null,
      n: null,
      max_tokens: null,
      tools: null,
      tool_choice: null,
    });
    expect(inspected).toMatchObject({ stream: false, choices: 1, limits: [], tools: [], toolChoice: null });
    expect(lookAt("messages", { max_tokens: 0 }).limits).toMatchObject([{ value: 0 }]);
  });

  test("an escaped spelling of a key is that key", () => {
    const body = String.raw`{"\u006dodel":"a","messages":[{"role":"user","content":"x"}],"\u0073tream":true}`;
    expect(inspectBody("chat", Buffer.from(body))).toMatchObject({ model: "a", stream: true });
  });

  test("a byte order mark is not part of the body", () => {
    expect(inspectBody("responses", Buffer.from('\uFEFF{"model":"a","input":"x"}')).body.toString()).toBe(
      '{"model":"a","input":"x"}',
    );
  });
});

describe("counting for the hold", () => {
  const data = "A".repeat(3000);
  test.each([
    [
      "messages",
      blocks({ type: "image", source: { type: "base64", media_type: "image/png", data } }),
      3002,
      1,
      0,
    ],
    ["messages", blocks({ type: "document", source: { type: "text", data } }), 0, 0, 1],
    [
      "messages",
      blocks({ type: "tool_result", content: [{ type: "image", source: { type: "base64", data } }] }),
      3002,
      1,
      0,
    ],
    ["chat", blocks({ type: "image_url", image_url: { url: `data:image/png;base64,${data}` } }), 3024, 1, 0],
    ["chat", blocks({ type: "image_url", image_url: { url: `https://x/${data}` } }), 0, 1, 0],
    ["chat", blocks({ type: "file", file: { file_data: data } }), 3002, 0, 1],
    [
      "responses",
      items({ role: "user", content: [{ type: "input_image", image_url: `data:image/png;base64,${data}` }] }),
      3024,
      1,
      0,
    ],
    [
      "responses",
      items({ type: "function_call_output", output: [{ type: "input_file", file_data: data }] }),
      3002,
      0,
      1,
    ],
  ] as [Dialect, object, number, number, number][])(
    "rule 1.8: %s media is not text (%#)",
    (dialect, more, mediaBytes, images, documents) => {
      expect(lookAt(dialect, more).content).toMatchObject({ mediaBytes, images, documents });
    },
  );
});
