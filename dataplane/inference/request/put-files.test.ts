import { describe, expect, test } from "vitest";
import { inspectBody } from "../inspect/body.ts";
import { putFiles, type InlineFile } from "./put-files.ts";

const fileOf = (mimeType: string): InlineFile => ({
  id: "file_1",
  mimeType,
  filename: 'a "report".pdf',
  bytes: Buffer.from("text"),
});

const put = (block: string, mimeType = "application/pdf") => {
  const body = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[${block}]}]}`;
  const whole = putFiles(inspectBody("messages", Buffer.from(body)), [fileOf(mimeType)]).toString("utf8");
  // Nothing of it stands twice.
  inspectBody("messages", Buffer.from(whole));
  const { messages } = JSON.parse(whole) as { messages: { content: { title?: unknown }[] }[] };
  return messages[0]?.content[0];
};

describe("a document of Messages that is named by its id", () => {
  const source = '"source":{"type":"file","file_id":"file_1"}';

  test.each(["application/pdf", "text/plain"])("gets its file's name as its title (%s)", (type) => {
    expect(put(`{"type":"document",${source}}`, type)).toMatchObject({ title: 'a "report".pdf' });
    expect(put(`{${source} , "type":"document","context":"c"}`, type)).toMatchObject({
      title: 'a "report".pdf',
      context: "c",
    });
  });

  test("keeps the title that the client gives it", () => {
    expect(put(`{"type":"document",${source},"title":"Mine"}`)).toMatchObject({ title: "Mine" });
    expect(put(`{"t\\u0069tle":"Mine","type":"document",${source}}`)).toMatchObject({ title: "Mine" });
    expect(put(`{"type":"document","title":null,${source}}`)).toMatchObject({ title: null });
  });

  test("but not a picture, which has none", () => {
    expect(put(`{"type":"image",${source}}`, "image/png")).not.toHaveProperty("title");
  });
});
