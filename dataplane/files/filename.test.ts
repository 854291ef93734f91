import { describe, expect, test } from "vitest";
import { attachment, mimeTypeOf, safeFilename } from "./filename.ts";

describe("rule 4.14: file names", () => {
  test.each([
    ["report.pdf", "report.pdf"],
    ["/etc/passwd", "passwd"],
    ["..\\..\\boot.ini", "boot.ini"],
    ["a/b\\c.txt", "c.txt"],
    ["evil\r\nx-header: 1.txt", "evilx-header: 1.txt"],
    ["nul\0byte.txt", "nulbyte.txt"],
    ["日本語 😀.txt", "日本語 😀.txt"],
    ["..", "unnamed.txt"],
    ["dir/", "unnamed.txt"],
    ["", "unnamed.txt"],
    [undefined, "unnamed.txt"],
    ["lone\ud800.txt", "lone\ufffd.txt"],
  ])("%j is kept as %j", (given, kept) => {
    expect(safeFilename(given, "text/plain")).toBe(kept);
  });

  test("a long name keeps its extension", () => {
    const name = safeFilename(`${"x".repeat(1_000)}.jsonl`, "text/plain");
    expect(Array.from(name)).toHaveLength(255);
    expect(name.endsWith(".jsonl")).toBe(true);
  });

  test("a download's header holds the exact name in ASCII only", () => {
    expect(attachment('a"b\\c 日本.txt')).toBe(
      `attachment; filename="a_b_c __.txt"; filename*=UTF-8''a%22b%5Cc%20%E6%97%A5%E6%9C%AC.txt`,
    );
  });
});

test.each([
  ["image/png", "x.bin", "image/png"],
  ["Text/Plain; charset=utf-8", "x", "text/plain"],
  ["application/octet-stream", "a.pdf", "application/pdf"],
  [undefined, "a.JSONL", "application/jsonl"],
  ["not a type", "a.unknown", "application/octet-stream"],
  ["text/html\r\nx: y", "a", "application/octet-stream"],
  [undefined, "a.constructor", "application/octet-stream"],
])("type %j of %j is %j", (given, name, type) => {
  expect(mimeTypeOf(given, name)).toBe(type);
});
