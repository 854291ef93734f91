import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeEntities, fitsDom, measure, plainText } from "./scan.ts";
import { runs } from "../../../../test/fakes/runs.ts";

describe("what decides about a DOM", () => {
  test.each([
    ["<p>a<p>b<p>c", { elements: 3, depth: 0 }],
    ["<div><div><div></div></div></div>", { elements: 3, depth: 3 }],
    ["<div>".repeat(20_000), { elements: 20_000, depth: 20_000 }],
    ["<br><img><hr>".repeat(10), { elements: 30, depth: 0 }],
    ["<ul><li><ul><li>x</ul></ul>", { elements: 4, depth: 2 }],
    ["</div></div><div>", { elements: 1, depth: 1 }],
    ["<script>'<div><div>'</script><div>", { elements: 2, depth: 1 }],
    ["<!-- <div><div> --><div>", { elements: 1, depth: 1 }],
    ["a < b <3 <> </ > x", { elements: 0, depth: 0 }],
    ['<a title="<div><div>">x</a>', { elements: 1, depth: 1, attributes: 1 }],
    ["<a b c=d e='f' g=\"h\" / i>", { elements: 1, attributes: 5 }],
    ['<a b="never closed><div>', { elements: 1, attributes: 1 }],
    ["<DIV><sPaN>", { elements: 2, depth: 2 }],
  ])("%j", (html, expected) => {
    expect(measure(html)).toMatchObject(expected);
  });

  test("scripts, styles and comments are cut, and nothing else is", () => {
    const html = "<p>a<script>b</script>c<!--d--><style>e</style><SCRIPT src=x>f</ScRiPt >g</p>";
    expect(measure(html).html).toBe("<p>acg</p>");
    expect(measure("<p>a<script>b").html).toBe("<p>a");
    expect(measure("plain").html).toBe("plain");
  });

  test.each([
    [2_000_001, "<p>"],
    [10, "<b></b>".repeat(50_001)],
    [10, "<div>".repeat(161)],
    [10, `${"<div>".repeat(150)}${"<b>x</b>".repeat(14_000)}`],
    [10, `<a ${"b ".repeat(257)}>`],
  ])("a page of %i bytes with %.20s… is too much", (bytes, html) => {
    expect(fitsDom(bytes, measure(html))).toBe(false);
  });
  test("an ordinary page is not", () => {
    expect(fitsDom(2_000_000, measure("<div><p>a</p></div>".repeat(20_000)))).toBe(true);
    expect(fitsDom(10, measure(`${"<div>".repeat(60)}${"<p><a href=x>y</a>".repeat(12_000)}`))).toBe(true);
  });
});

describe("text without a DOM", () => {
  const text = (html: string) => plainText(html, "https://example.com/dir/page").text;
  test.each([
    ["<h1>A</h1><h3>B</h3><p>one<p>two", "# A\n\n### B\n\none\n\ntwo"],
    ["<ul><li>one<li>two</ul>", "- one\n\n- two"],
    ["a <b>b</b>\n\n  c", "a b c"],
    ["a<br>b<br/>c", "a\nb\nc"],
    ["<a href='../x?a=1&amp;b=2'>link</a>", "[link](https://example.com/x?a=1&b=2)"],
    ["<a href=y>link</a>", "[link](https://example.com/dir/y)"],
    ["<a href='#top'>top</a> <a href='javascript:x()'>run</a> <a>none</a>", "top run none"],
    ["<a href=/x>never closed", "never closed"],
    ["<nav>menu</nav>text<footer>foot</footer>", "text"],
    ["<nav>never closed text", "never closed text"],
    ["<nav><nav>a</nav>b</nav>c", "c"],
    ["<script>x</script><style>y</style><noscript>z</noscript>t", "t"],
    ["1 &lt; 2 &amp;&amp; 3 &gt; 2 &#65;&#x42; &copy; &unknown; &", "1 < 2 && 3 > 2 AB © &unknown; &"],
    ["<table><tr><td>a<td>b</table>", "| a | b"],
    ["<textarea> a  b </textarea>", "a b"],
    ["", ""],
  ])("%j", (html, expected) => {
    expect(text(html)).toBe(expected);
  });

  test("the first title counts", () => {
    expect(
      plainText("<title> A &amp;\n B </title><svg><title>C</title></svg>", "https://example.com/").title,
    ).toBe("A & B");
    expect(plainText("<title></title>x", "https://example.com/").title).toBeNull();
  });

  test("numeric entities outside Unicode become replacement characters", () => {
    expect(decodeEntities("&#0;&#xD800;&#x110000;&#9999999;")).toBe("\ufffd\ufffd\ufffd\ufffd");
  });

  test("nothing throws, and no control element's text leaks, on any page", () => {
    const piece = fc.constantFrom(
      "<",
      ">",
      "</",
      "/>",
      "<!--",
      "-->",
      "<!",
      "<?",
      "&",
      "&#",
      ";",
      "'",
      '"',
      "=",
      " ",
      "\n",
      "a",
      "<a href=",
      "<p",
      "<nav>",
      "</nav>",
      "<script>",
      "</script>",
      "<title>",
      "</title>",
      "<li>",
      "<div>",
      "</div>",
      "\u0000",
      "\ud800",
      "é",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
        const html = pieces.join("");
        expect(measure(html).html.length).toBeLessThanOrEqual(html.length);
        expect(plainText(html, "https://example.com/").text).not.toMatch(/\n{3}/);
      }),
      { numRuns: runs(2_000) },
    );
  });
});
