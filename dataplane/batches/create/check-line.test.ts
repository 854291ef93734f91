import { describe, expect, test } from "vitest";
import { checkLine, lineText } from "./check-line.ts";
import { DistinctTexts } from "./distinct-texts.ts";
import { readLines } from "./read-lines.ts";

const good = '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}';
const check = (line: string | Buffer, number = 7, ids = new DistinctTexts()) =>
  checkLine(lineText(Buffer.from(line), number), number, "chat", ids);
const withField = (name: string, value: string) => {
  const fields: Record<string, string> = {
    custom_id: '"a"',
    method: '"POST"',
    url: '"/v1/chat/completions"',
    body: "{}",
    [name]: value,
  };
  return `{${Object.entries(fields)
    .filter(([, text]) => text !== "")
    .map(([key, text]) => `"${key}":${text}`)
    .join(",")}}`;
};

/** An object with so many levels of nesting, itself among them, and a bracket in a text. */
const deep = (levels: number) => `{"]":${"[".repeat(levels - 1)}"[}"${"]".repeat(levels - 1)}}`;

describe("lines that are served", () => {
  test.each([
    ["a plain one", good],
    ["CRLF's CR in front of the end", `${good}\r`],
    ["unknown fields", good.replace("{", '{"note":1,"__proto__":{"x":1},')],
    ["white space around", ` \t${good} `],
    ["a body of any content", withField("body", '{"model":7,"x":[1e400,"\\ud800","\\u0000"]}')],
    ["a body of the greatest depth", withField("body", deep(128))],
    ["a body beyond it, which fails when it runs", withField("body", deep(5000))],
    ["an id with blanks", withField("custom_id", '"a b\\n"')],
    ["a long id", withField("custom_id", `"${"x".repeat(5000)}"`)],
    ["the longest id", withField("custom_id", `"${"x".repeat(64 * 1024)}"`)],
    ["an id with a NUL", withField("custom_id", '"\\u0000"')],
    ["an id that is a lone surrogate", withField("custom_id", '"\\ud800"')],
  ])("rule 4.9: %s", (_name, line) => {
    expect(check(line)).toMatchObject({ kind: "item" });
  });

  test("rule 4.12: the body stays byte for byte, the id comes back as it was", () => {
    const body = '{ "x" : "\\u0000\\ud800", "big": 12345678901234567890 }';
    const checked = check(withField("body", body).replace('"a"', '"\\ud800\\u0000é"'));
    expect(checked.kind === "item" && checked.item.body.toString()).toBe(body);
    expect(checked.kind === "item" && checked.item.customId).toBe('"\\ud800\\u0000é"');
  });

  test.each([
    ["as it is written", '{"a":{"model":"other"},"mod\\u0065l":"m\\u0031"}', "m1"],
    ["none", '{"a":{"model":"other"}}', undefined],
    ["no text", '{"model":{"model":"m"}}', undefined],
    ["named twice", '{"model":"m","model":"m"}', undefined],
    ["longer than any", `{"model":"${"m".repeat(64 * 1024 + 1)}"}`, undefined],
    ["beside what is too deep", `{"model":"m","x":${deep(5000)}}`, undefined],
  ])("the model that the body names: %s", (_name, body, model) => {
    expect(check(withField("body", body))).toMatchObject({ kind: "item", item: { model } });
  });

  test.each(["", " ", "\t", "\r", " \r"])("%j is blank", (line) => {
    expect(check(line)).toEqual({ kind: "blank" });
  });

  test("a byte order mark may stand before the first line, and only there", () => {
    const marked = Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from(good)]);
    expect(check(marked, 1).kind).toBe("item");
    expect(check(marked, 2).kind).toBe("invalid");
  });
});

/** Line, code, param. */
const malformed: readonly (readonly [string, string, string | null])[] = [
  ["x", "invalid_json_line", null],
  ["{", "invalid_json_line", null],
  [withField("body", deep(5000).slice(0, -2)), "invalid_json_line", null],
  [withField("note", deep(5000)), "invalid_json_line", null],
  ["}", "invalid_json_line", null],
  ["{}}", "invalid_json_line", null],
  ["{} {}", "invalid_json_line", null],
  ["{'a':1}", "invalid_json_line", null],
  ['{"a":1,}', "invalid_json_line", null],
  ['{"a" 1}', "invalid_json_line", null],
  ['{"a":}', "invalid_json_line", null],
  ['{"a":undefined}', "invalid_json_line", null],
  ['{"a":NaN}', "invalid_json_line", null],
  ['{"a":+1}', "invalid_json_line", null],
  ['{"a":.5}', "invalid_json_line", null],
  ['{"a":01}', "invalid_json_line", null],
  ['{"a":"\\x"}', "invalid_json_line", null],
  ['{"a":"\\u12"}', "invalid_json_line", null],
  ['{"a":"\t"}', "invalid_json_line", null],
  ['{"a":"', "invalid_json_line", null],
  ["{a:1}", "invalid_json_line", null],
  ["// comment", "invalid_json_line", null],
  [`${good} trailing`, "invalid_json_line", null],
  [`${good}${good}`, "invalid_json_line", null],
  [`[${good}]`, "invalid_json_line", null],
  ["null", "invalid_json_line", null],
  ["1", "invalid_json_line", null],
  ['"text"', "invalid_json_line", null],
  ["true", "invalid_json_line", null],
  [withField("body", '{"x":[}'), "invalid_json_line", null],
  [withField("body", `${"[".repeat(300)}${"]".repeat(300)}`), "invalid_json_line", null],
  [good.replace('"custom_id"', '"custom_id":"b","custom_id"'), "invalid_json_line", null],
  [good.replace('"body"', '"body":{},"body"'), "invalid_json_line", null],
  ["{}", "missing_required_parameter", "custom_id"],
  [withField("custom_id", ""), "missing_required_parameter", "custom_id"],
  [withField("custom_id", "null"), "missing_required_parameter", "custom_id"],
  [withField("method", ""), "missing_required_parameter", "method"],
  [withField("method", "null"), "missing_required_parameter", "method"],
  [withField("url", ""), "missing_required_parameter", "url"],
  [withField("url", "null"), "missing_required_parameter", "url"],
  [withField("body", ""), "missing_required_parameter", "body"],
  [withField("body", "null"), "missing_required_parameter", "body"],
  [withField("custom_id", "1"), "invalid_type", "custom_id"],
  [withField("custom_id", "true"), "invalid_type", "custom_id"],
  [withField("custom_id", "{}"), "invalid_type", "custom_id"],
  [withField("custom_id", '["a"]'), "invalid_type", "custom_id"],
  [withField("custom_id", '""'), "invalid_value", "custom_id"],
  [withField("method", '"GET"'), "invalid_method", "method"],
  [withField("method", '"post"'), "invalid_method", "method"],
  [withField("method", '""'), "invalid_method", "method"],
  [withField("method", "1"), "invalid_method", "method"],
  [withField("url", '"/v1/responses"'), "invalid_url", "url"],
  [withField("url", '"/v1/embeddings"'), "invalid_url", "url"],
  [withField("url", '"v1/chat/completions"'), "invalid_url", "url"],
  [withField("url", '"/v1/chat/completions/"'), "invalid_url", "url"],
  [withField("url", '"/v1/chat/completions?x=1"'), "invalid_url", "url"],
  [withField("url", '"http://x/v1/chat/completions"'), "invalid_url", "url"],
  [withField("url", '""'), "invalid_url", "url"],
  [withField("url", "{}"), "invalid_url", "url"],
  [withField("body", "[]"), "invalid_type", "body"],
  [withField("body", '"{}"'), "invalid_type", "body"],
  [withField("body", "1"), "invalid_type", "body"],
  [withField("body", "false"), "invalid_type", "body"],
  [good.slice(0, -1), "invalid_json_line", null],
  [good.slice(1), "invalid_json_line", null],
];

describe("malformed lines", () => {
  test.each(malformed)("%s is %s", (line, code, param) => {
    const checked = check(line);
    expect(checked).toMatchObject({ kind: "invalid", error: { code, param, line: 7 } });
    expect(checked.kind === "invalid" && checked.error.message).toContain("line 7");
  });

  test.each([
    ["1", "invalid_type", "custom_id must be a string. (line 7)"],
    ["{}", "invalid_type", "custom_id must be a string. (line 7)"],
    [`"${"x".repeat(64 * 1024 + 1)}"`, "invalid_value", "custom_id is longer than 64 KiB. (line 7)"],
    [`"${"\\u0041".repeat(11_000)}"`, "invalid_value", "custom_id is longer than 64 KiB. (line 7)"],
  ])("what is wrong with an id is said (%#)", (id, code, message) => {
    expect(check(withField("custom_id", id))).toMatchObject({ error: { code, message, param: "custom_id" } });
  });

  test("bytes that are not UTF-8", () => {
    expect(check(Buffer.from([0x7b, 0xff, 0x7d]))).toMatchObject({ error: { code: "invalid_json_line" } });
  });

  test("an id that was there before, however it is written", () => {
    const ids = new DistinctTexts();
    expect(check(good, 1, ids).kind).toBe("item");
    expect(check(good.replace('"a"', '"\\u0061"'), 2, ids)).toMatchObject({
      error: { code: "duplicate_custom_id", line: 2 },
    });
    expect(check(good.replace('"a"', `"${"x".repeat(100)}"`), 3, ids).kind).toBe("item");
    expect(check(good.replace('"a"', `"${"x".repeat(100)}"`), 4, ids).kind).toBe("invalid");
    expect(check(good.replace('"a"', '"\\ud800"'), 5, ids).kind).toBe("item");
    expect(check(good.replace('"a"', '"\\ud801"'), 6, ids).kind).toBe("item");
  });
});

describe("physical lines", () => {
  async function lines(text: string, size: number, most = 1000): Promise<[number, string | null][]> {
    async function* source(): AsyncIterable<Buffer> {
      const whole = Buffer.from(text);
      for (let at = 0; at < whole.length; at += size) yield whole.subarray(at, at + size);
    }
    const found: [number, string | null][] = [];
    for await (const { number, bytes } of readLines(source(), most))
      found.push([number, bytes === null ? null : bytes.toString()]);
    return found;
  }

  test.each([1, 2, 3, 100])("rule 4.10: blank ones are counted, read in pieces of %d bytes", async (size) => {
    expect(await lines("a\r\n\nb\n\r\nc", size)).toEqual([
      [1, "a"],
      [3, "b"],
      [5, "c"],
    ]);
    expect(await lines("\n \r\n\t\n  a \n \n ", size)).toEqual([[4, "  a "]]);
    expect(await lines("a\n", size)).toEqual([[1, "a"]]);
    expect(await lines("", size)).toEqual([]);
    expect(await lines(`a\n${"x".repeat(50)}\nb`, size, 10)).toEqual([
      [1, "a"],
      [2, null],
      [3, "b"],
    ]);
    expect(await lines(`a\n${" ".repeat(50)}\nb\n${" ".repeat(50)}c`, size, 10)).toEqual([
      [1, "a"],
      [3, "b"],
      [4, null],
    ]);
  });
});
