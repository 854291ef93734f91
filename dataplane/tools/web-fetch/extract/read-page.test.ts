import { describe, expect, test } from "vitest";
import { computedMs } from "../../../../test/fakes/computed.ts";
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

describe("rule 7.6: blanks in lists are looked at once", () => {
  const read = (html: string) =>
    readPage({ ...job, plainOnly: false, url: "https://example.com/" }, Buffer.from(html));

  test.each([
    ["blank lines", "\n".repeat(2_500)],
    ["lines of a blank", "\n ".repeat(2_000)],
  ])("%s in a list's code", (_, blanks) => {
    read("<p>The parser's code is warm");
    const before = computedMs();
    expect(read(`<p>text<ul><li><pre>x${blanks}y</pre></ul>`).mode).toBe("markdown");
    expect(computedMs() - before).toBeLessThan(700);
  });

  test("lists and links read as before", () => {
    const { text } = read(
      "<p>text <ul><li>a<ul><li>b<br><br>- c</ul><li>d \n\n 1. e<li><pre>f\n \n  - g\n\nh</pre></ul>" +
        '<p><a href="/x"><h3>t</h3>\n<p>u\u00a0v </p> # w</a>',
    );
    expect(text).toBe(
      "text\n\n- a\n  - b\n\n    \\- c\n- d 1. e\n- ```\n  f\n    - g\n\n  h\n  ```\n\n" +
        "### [t](https://example.com/x)\n\n[u\u00a0v \\# w](https://example.com/x)",
    );
  });
});
