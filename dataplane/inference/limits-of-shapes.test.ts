/** Rule 7.4: counts of things inside a body have limits, found while the body is scanned, and named with their path. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { checkLine } from "../batches/create/check-line.ts";
import { DistinctTexts } from "../batches/create/distinct-texts.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { ApiError } from "../lib/api-error.ts";
import { bodyLimits } from "../lib/body-limits.ts";
import { MAX_FIELD_BYTES } from "../lib/json-fields.ts";
import { readJsonObject } from "../lib/json-read.ts";
import { inspectBody } from "./inspect/body.ts";

const list = (count: number, item: string) => `[${Array.from({ length: count }, () => item).join(",")}]`;
const nested = (depth: number) => `${'{"a":'.repeat(depth - 1)}{}${"}".repeat(depth - 1)}`;
const wide = (keys: number) => `{${Array.from({ length: keys }, (_, index) => `"k${index}":0`).join(",")}}`;

/** Writes a body with the conversation `content`, followed by the members `more`. */
const body = (dialect: Dialect, more: string, content = '[{"role":"user","content":"x"}]') =>
  `{"model":"m","max_tokens":9,"${dialect === "responses" ? "input" : "messages"}":${content}${more === "" ? "" : `,${more}`}}`;

function judged(read: () => unknown): string {
  try {
    read();
    return "served";
  } catch (error) {
    return error instanceof ApiError ? `${error.kind.status} ${error.message}` : String(error);
  }
}
const judge = (dialect: Dialect, text: string) => judged(() => inspectBody(dialect, Buffer.from(text)));

const part: Record<Dialect, string> = {
  messages: '{"type":"text","text":"x"}',
  chat: '{"type":"text","text":"x"}',
  responses: '{"type":"input_text","text":"x"}',
};
const message = '{"role":"user","content":"x"}';

describe.each(dialects)("%s", (dialect) => {
  const field = dialect === "responses" ? "input" : "messages";
  const here = dialect === "messages" ? `${field}.0.content` : `${field}[0].content`;

  test("messages", () => {
    const { messages } = bodyLimits;
    expect(judge(dialect, body(dialect, "", list(messages, message)))).toBe("served");
    expect(judge(dialect, body(dialect, "", list(messages + 1, message)))).toBe(
      `400 ${field}: more than 100000 messages or input items`,
    );
  });

  test("content blocks of one message", () => {
    const of = (count: number) => `{"role":"user","content":${list(count, part[dialect])}}`;
    const { blocks } = bodyLimits;
    expect(judge(dialect, body(dialect, "", `[${of(blocks)},${of(blocks)}]`))).toBe("served");
    expect(judge(dialect, body(dialect, "", `[${of(blocks + 1)}]`))).toBe(
      `400 ${here}: more than 10000 content blocks in one message`,
    );
  });

  test("tools", () => {
    const tool = '{"type":"function","name":"f","function":{"name":"f"}}';
    const client = dialect === "messages" ? '{"name":"f","input_schema":{}}' : tool;
    expect(judge(dialect, body(dialect, `"tools":${list(bodyLimits.tools, client)}`))).toBe("served");
    expect(judge(dialect, body(dialect, `"tools":${list(bodyLimits.tools + 1, client)}`))).toBe(
      "400 tools: more than 4096 tools",
    );
  });

  test("keys of one object, read or skipped", () => {
    const { keys } = bodyLimits;
    for (const name of ["metadata", "extra", "tool_choice"]) {
      expect(judge(dialect, body(dialect, `"${name}":${wide(keys)}`))).toBe("served");
      expect(judge(dialect, body(dialect, `"${name}":${wide(keys + 1)}`))).toMatch(
        new RegExp(`^400 ${name}: More than 100000 keys in one object at position \\d+\\.$`),
      );
    }
    const top = body(dialect, wide(keys).slice(1, -1));
    expect(judge(dialect, top)).toMatch(/^400 The request body: More than 100000 keys in one object/);
  });

  test("depth, the body being the first level", () => {
    const { depth } = bodyLimits;
    for (const name of ["metadata", "extra"]) {
      expect(judge(dialect, body(dialect, `"${name}":${nested(depth - 1)}`))).toBe("served");
      expect(judge(dialect, body(dialect, `"${name}":${nested(depth)}`))).toMatch(
        new RegExp(`^400 ${name}(\\.a){19}: Nested more than 128 levels deep at position \\d+\\.$`),
      );
    }
    expect(judge(dialect, "[".repeat(10_000_000))).toMatch(/^400 .*must be a JSON object|128 levels/);
  });
});

test("blocks within tool results count for their message", () => {
  const result = `{"type":"tool_result","tool_use_id":"t","content":${list(99, part.messages)}}`;
  const of = (count: number) => body("messages", "", `[{"role":"user","content":${list(count, result)}}]`);
  expect(judge("messages", of(100))).toBe("served");
  expect(judge("messages", of(101))).toMatch(/^400 messages\.0\.content: more than 10000 /);
});

test("tools among the input items count with the others", () => {
  const tool = '{"type":"function","name":"f"}';
  const added = `[{"type":"additional_tools","tools":${list(4_000, tool)}},{"role":"user","content":"x"}]`;
  expect(judge("responses", body("responses", `"tools":${list(97, tool)}`, added))).toBe(
    "400 tools: more than 4096 tools",
  );
});

test("files and items that are named", () => {
  const references = list(bodyLimits.references + 1, '{"type":"item_reference","id":"a"}');
  expect(judge("responses", body("responses", "", references))).toBe(
    "400 input[10000]: more than 10000 references to files and items",
  );
});

test("small bodies of other resources, and lines of a batch", () => {
  expect(judged(() => readJsonObject(Buffer.from(`{"a":[${nested(127)}]}`)))).toMatch(
    /^400 a\[0\]\.a.*128 levels/,
  );
  expect(judged(() => readJsonObject(Buffer.from(`{"a":${wide(100_001)}}`)))).toMatch(
    /^400 a: More than 100000 keys/,
  );
  const line = (field: string, inner: string) =>
    checkLine(
      Buffer.from(
        `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{},"${field}":{"x":${inner}}}`,
      ),
      1,
      "chat",
      new DistinctTexts(),
    );
  expect(line("note", nested(126)).kind).toBe("item");
  expect(line("note", nested(127))).toMatchObject({
    kind: "invalid",
    error: { message: expect.stringMatching(/128 levels/) },
  });
  expect(line("note", wide(100_001))).toMatchObject({
    error: { message: expect.stringMatching(/100000 keys/) },
  });
});

test("rule 4.7: what a line asks for is judged when it runs", () => {
  for (const inner of [nested(1_000), wide(100_001)])
    expect(
      checkLine(
        Buffer.from(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"x":${inner}}}`),
        1,
        "chat",
        new DistinctTexts(),
      ).kind,
    ).toBe("item");
});

test("docs/reference/limits.md tells them all", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/reference/limits.md"), "utf8");
  const told = Array.from(page.matchAll(/\| ([\d,]+) \| `(\w+)` \|/g), ([, most = "", name]) => [
    name,
    Number(most.replaceAll(",", "")),
  ]);
  expect(Object.fromEntries(told)).toEqual(bodyLimits);
  expect(page).toContain(`its \`custom_id\` may have ${MAX_FIELD_BYTES / 1024} KiB`);
});
