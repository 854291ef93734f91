import { describe, expect, test } from "vitest";
import { readPage } from "./read-page.ts";

const job = { kind: "html", charset: null, domTimeoutMs: 60_000 } as const;

describe.each([
  ["with a DOM", false],
  ["without", true],
])("%s", (_, plainOnly) => {
  const read = (html: string) =>
    readPage({ ...job, plainOnly, url: "https://example.com/" }, Buffer.from(html));

  test("a title is as long as a search result's", () => {
    const { title } = read(`<title>${"long ".repeat(100_000)}</title><p>x`);
    expect(title).toMatch(/^long long .*…$/);
    expect(title).toHaveLength(300);
  });
});
