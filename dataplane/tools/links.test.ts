import { describe, expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { codePoints } from "../lib/code-points.ts";
import { CitedSources, linkCitations } from "./links.ts";

function sources(...urls: string[]): CitedSources {
  const all = new CitedSources();
  for (const url of urls) all.add({ url, title: `Title of ${url}`, text: "snippet" });
  return all;
}

const spans = (text: string, known: CitedSources) =>
  linkCitations(text, known).map((link) => Array.from(text).slice(link.startIndex, link.endIndex).join(""));

describe("links to tool results become citations", () => {
  test("a link covers [title](url) whole, end exclusive", () => {
    expect(linkCitations("See [A](https://a.example/x).", sources("https://a.example/x"))).toMatchObject([
      { startIndex: 4, endIndex: 28, url: "https://a.example/x", title: "Title of https://a.example/x" },
    ]);
  });

  test("indexes count Unicode code points, not UTF-16 units", () => {
    const text = "😀😀 [é](https://a.example/) 😀";
    const [link] = linkCitations(text, sources("https://a.example/"));
    expect(link).toMatchObject({ startIndex: 3, endIndex: 3 + codePoints("[é](https://a.example/)") });
    expect(spans(text, sources("https://a.example/"))).toEqual(["[é](https://a.example/)"]);
  });

  test("a link whose url no tool result holds gives no citation", () => {
    expect(linkCitations("[A](https://b.example/)", sources("https://a.example/"))).toEqual([]);
  });

  test("a fragment written by the model is dropped: the url comes from the tool result", () => {
    expect(linkCitations("[A](https://a.example/p#part)", sources("https://a.example/p"))[0]?.url).toBe(
      "https://a.example/p",
    );
  });

  test("the link text stands in for a missing title", () => {
    const known = new CitedSources();
    known.add({ url: "https://a.example/", title: null, text: "" });
    expect(linkCitations("[My words](https://a.example/)", known)[0]?.title).toBe("My words");
  });

  test("rule 3.12: links may contain balanced parentheses", () => {
    const url = "https://en.example/wiki/Gate_(door)";
    expect(spans(`x ([Gate](${url})) y`, sources(url))).toEqual([`[Gate](${url})`]);
  });

  test.each(["https://a.example/?q[]=1", "https://a.example/a[1].html"])(
    "rule 3.12: square brackets of an address are part of it: %s",
    (url) => {
      const link = `[Gate](${url})`;
      expect(spans(`x ${link} y [C](${url}] [B](<${url}>)`, sources(url))).toEqual([link, `[B](<${url}>)`]);
    },
  );

  test("rule 3.12: brackets of an address may be percent-encoded in its link or in its result", () => {
    const [plain, encoded] = ["https://a.example/x_(y)?q[]=1", "https://a.example/x_%28y%29?q%5b%5D=1"];
    const [link] = linkCitations(`[Gate](${encoded})`, sources(plain));
    expect(link).toMatchObject({ startIndex: 0, endIndex: `[Gate](${encoded})`.length, url: plain });
    expect(linkCitations(`[Gate](${plain})`, sources(encoded))).toMatchObject([{ url: encoded }]);
    expect(linkCitations("[Gate](https://a.example/a%2Fb)", sources("https://a.example/a/b"))).toEqual([]);
  });

  test("rule 3.12: each link gives its own citation, also to the same url", () => {
    const url = "https://a.example/";
    expect(spans(`[1](${url})[2](${url}) [3](${url})`, sources(url))).toHaveLength(3);
  });

  test("the label of a link begins behind the link before it, and has at most 4,096 characters", () => {
    const known = sources("https://a.example/");
    const link = "[a](https://a.example/)";
    expect(spans(`[b ${link} c](https://a.example/)`, known)).toEqual([link]);
    expect(spans("[b [c](https://b.example/) c](https://a.example/)", known)).toHaveLength(1);
    expect(spans(`[${"a".repeat(4_095)}](https://a.example/)`, known)).toHaveLength(1);
    expect(spans(`[${"a".repeat(4_096)}](https://a.example/)`, known)).toEqual([]);
  });

  test("brackets within the label balance", () => {
    const url = "https://a.example/";
    expect(spans(`[a [b] c](${url})`, sources(url))).toEqual([`[a [b] c](${url})`]);
  });

  test("host case does not matter, path case does", () => {
    expect(spans("[A](https://A.Example/x)", sources("https://a.example/x"))).toHaveLength(1);
    expect(spans("[A](https://a.example/X)", sources("https://a.example/x"))).toHaveLength(0);
  });

  test("unclosed and hostile text is read in linear time", () => {
    const known = sources("https://a.example/");
    const before = computedMs();
    expect(linkCitations("](https://a.example/) ".repeat(100_000), known)).toEqual([]);
    expect(computedMs() - before).toBeLessThan(400);
    expect(linkCitations("[".repeat(100_000) + "](".repeat(100_000), known)).toEqual([]);
    expect(linkCitations("[a](https://a.example/[b]".repeat(20_000), known)).toEqual([]);
    expect(linkCitations("[a](https://a.example/", known)).toEqual([]);
    expect(linkCitations("[a](https://a.example/\n)", known)).toEqual([]);
  });
});
