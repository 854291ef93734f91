import { describe, expect, test } from "vitest";
import { PriorContext } from "./prior-context.ts";

function shown(text: string): PriorContext {
  const prior = new PriorContext();
  prior.addText(text);
  return prior;
}

describe("rule 3.13: prior context is the whole URL, a fragment aside", () => {
  test.each([
    ["Read https://example.com/a please", "https://example.com/a"],
    ["https://example.com", "https://example.com/"],
    ["HTTPS://Example.com/A", "https://example.com/A"],
    ["See https://example.com/a.", "https://example.com/a"],
    ["See https://example.com/a...", "https://example.com/a"],
    ["(https://example.com/a)", "https://example.com/a"],
    ["(see https://example.com/a).", "https://example.com/a"],
    ["[t](https://example.com/a_(b)).Then", "https://example.com/a_(b)"],
    ["<https://example.com/a?b=1&c=2>", "https://example.com/a?b=1&c=2"],
    ['<a href="https://example.com/a?b=1&amp;c=2">', "https://example.com/a?b=1&c=2"],
    ['{"url":"https://example.com/a","x":1}', "https://example.com/a"],
    ['{"text":"https://example.com/a\\nnext"}', "https://example.com/a"],
    ["**https://example.com/a**", "https://example.com/a"],
    ["| https://example.com/a|b |", "https://example.com/a|b"],
    ["资料：https://example.com/a。谢谢", "https://example.com/a"],
    ["「https://example.com/a」", "https://example.com/a"],
    ["https://example.com/a#part", "https://example.com/a"],
    ["https://example.com/a", "https://example.com/a#other"],
    ["https://example.com/a,b;c", "https://example.com/a,b;c"],
    ["xhttps://example.com/a", "https://example.com/a"],
    ["https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"],
    ["http://one.example/ http://two.example/x", "http://two.example/x"],
  ])("%j shows %s", (text, url) => {
    expect(shown(text).has(url)).toBe(true);
  });

  test.each([
    ["https://example.com/a", "https://example.com/"],
    ["https://example.com/", "https://example.com/a"],
    ["https://example.com/a", "https://example.com/a?leak=secret"],
    ["https://example.com/a?x=1", "https://example.com/a"],
    ["https://example.com/ab", "https://example.com/a"],
    ["https://example.com/a", "http://example.com/a"],
    ["https://example.com/a", "https://example.com:8443/a"],
    ["https://example.com/a", "https://sub.example.com/a"],
    ["example.com/a", "https://example.com/a"],
    ["ftp://example.com/a", "ftp://example.com/a"],
    ["https://example.com/a", "not a url"],
    ["https:// example.com/a", "https://example.com/a"],
    ["", "https://example.com/"],
  ])("%j does not show %s", (text, url) => {
    expect(shown(text).has(url)).toBe(false);
  });

  test("known URLs are added as they are", () => {
    const prior = new PriorContext();
    prior.addUrl("https://example.com/a)#x");
    prior.addUrl("javascript:alert(1)");
    expect(prior.has("https://example.com/a)")).toBe(true);
    expect(prior.has("javascript:alert(1)")).toBe(false);
  });

  test("a text made of schemes is read in linear time", () => {
    const started = performance.now();
    shown("https://".repeat(125_000));
    shown(`https://${"a".repeat(1_000_000)}`);
    expect(performance.now() - started).toBeLessThan(3_000);
  });
});
