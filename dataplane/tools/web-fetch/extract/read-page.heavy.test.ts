import { describe, expect, test } from "vitest";
import { readPage } from "./read-page.ts";

const job = { kind: "html", charset: null, domTimeoutMs: 60_000 } as const;
const MIB = 1024 * 1024;

describe.each([
  ["with a DOM", false],
  ["without", true],
])("%s", (_, plainOnly) => {
  const read = (html: string, url: string) => readPage({ ...job, plainOnly, url }, Buffer.from(html));

  test("short links below a long address make no text of tens of megabytes", () => {
    const url = `https://example.com/${"d".repeat(3_000)}/page`;
    const { text } = read("<p>begin</p>" + "<a href=x>y</a> ".repeat(6_000), url);
    expect(text.startsWith("begin")).toBe(true);
    expect(text.length).toBeGreaterThan(4 * MIB - 4_000);
    expect(text.length).toBeLessThanOrEqual(4 * MIB);
  }, 60_000);
});
