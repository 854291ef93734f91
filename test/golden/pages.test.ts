/**
 * What the page fetcher makes of pages of different kinds. Each folder of `pages/` is one case: add `source.html`,
 * run with `-u`, and read the new `expected.md` before committing it.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { PriorContext } from "../../dataplane/tools/web-fetch/prior-context.ts";
import { readPage } from "../../dataplane/tools/web-fetch/extract/read-page.ts";

const folder = join(import.meta.dirname, "pages");
const cases = readdirSync(folder);

const known = new Map<string, ReturnType<typeof readPage>>();
/** Each page is read once in each way: that is most of the work here. */
function read(name: string, plainOnly: boolean) {
  const key = `${name} ${plainOnly}`;
  const before = known.get(key);
  if (before !== undefined) return before;
  const bytes = readFileSync(join(folder, name, "source.html"));
  const url = "https://www.example.com/guide/page.html?from=test";
  const page = readPage({ kind: "html", charset: null, url, plainOnly, domTimeoutMs: 10_000 }, bytes);
  known.set(key, page);
  return page;
}

describe("pages become markdown", () => {
  test("the corpus has at least 30 kinds of pages", () => {
    expect(cases.length).toBeGreaterThanOrEqual(30);
  });

  test.each(cases)("%s", async (name) => {
    const page = read(name, false);
    expect(page.mode).toBe("markdown");
    await expect(`title: ${page.title ?? "(none)"}\n\n${page.text}\n`).toMatchFileSnapshot(
      join(folder, name, "expected.md"),
    );
  });

  test.each(cases)("rule 3.13: every link in %s may be opened next", (name) => {
    for (const plainOnly of [false, true]) {
      const { text } = read(name, plainOnly);
      const prior = new PriorContext();
      prior.addText(text);
      for (const [, url = ""] of text.matchAll(/\]\((https?:(?:[^()\s]|\([^()\s]*\))*)\)/g)) {
        expect({ url, known: prior.has(url) }).toEqual({ url, known: true });
      }
    }
  });

  test.each(cases)("%s has no script, style or relative link, with a DOM or without", (name) => {
    for (const plainOnly of [false, true]) {
      const { text } = read(name, plainOnly);
      expect(text).not.toMatch(/<script|window\.|color:red|javascript:/);
      expect(text).not.toMatch(/\]\((?!https?:|mailto:)[^)\s]*\)/);
    }
  });
});
