import { Readability } from "@mozilla/readability";
import fc from "fast-check";
import { JSDOM } from "jsdom";
import { expect, test } from "vitest";
import { ArticleFinder } from "./article.ts";
import { readPage } from "./read-page.ts";
import { runs } from "../../../../test/fakes/runs.ts";
import { computedMs } from "../../../../test/fakes/computed.ts";

interface Inner {
  _getTextDensity(element: Element, tags: readonly string[]): number;
  _getAllNodesWithTag(node: Element, tags: readonly string[]): Iterable<Element>;
}
const original = Readability.prototype as unknown as Inner;

const tags = ["SPAN", "LI", "UL", "DIV", "P", "H2"];
const html = fc
  .array(
    fc.oneof(
      fc.constantFrom("<div>", "</div>", "<ul><li>", "</ul>", "<p>", "<span>", "</span>", "<h2>", "</h2>"),
      fc.constantFrom(" ", "\n\n", "\u00a0", "<!-- x -->", "a", "two  words ", " b\n", "<br>"),
    ),
    { maxLength: 60 },
  )
  .map((parts) => parts.join(""));

test("the cheap functions say what Readability's own do", () => {
  const { document } = new JSDOM("").window;
  const finder = new ArticleFinder(document);
  const { body } = document;
  fc.assert(
    fc.property(html, fc.subarray(tags, { minLength: 1 }), (text, some) => {
      body.innerHTML = text;
      const found = [...original._getAllNodesWithTag.call(finder, body, some)];
      expect(finder._getAllNodesWithTag(body, some)).toEqual(found);
      // What the original asks for below it is the same in both.
      expect(finder._getTextDensity(body, some)).toBeCloseTo(
        original._getTextDensity.call(finder, body, some),
        10,
      );
    }),
    { numRuns: runs(300) },
  );
}, 60_000);

test("rule 7.6: four kilobytes of nested lists are no longer worth five seconds", () => {
  const page = Buffer.from("<ul><li>item".repeat(150));
  const job = { kind: "html", charset: null, url: "https://example.com/", plainOnly: false } as const;
  readPage({ ...job, domTimeoutMs: 60_000 }, Buffer.from("<p>The parser's code is warm"));
  const before = computedMs();
  expect(readPage({ ...job, domTimeoutMs: 60_000 }, page).mode).toBe("markdown");
  expect(computedMs() - before).toBeLessThan(2_500);
  // The finding was deeper still.
  expect(readPage({ ...job, domTimeoutMs: 60_000 }, Buffer.from("<ul><li>x".repeat(500))).mode).toBe("plain");
});
