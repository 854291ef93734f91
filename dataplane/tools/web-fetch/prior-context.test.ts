import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { leastOf, LoopTurns } from "../../../test/fakes/loop-turns.ts";
import { median } from "../../../test/bench/figures.ts";
import { PriorContext } from "./prior-context.ts";
import { computedMs } from "../../../test/fakes/computed.ts";

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
    [String.raw`{"url":"https:\/\/example.com\/a"}`, "https://example.com/a"],
    [String.raw`{"url":"https:\u002F\u002Fexample.com\u002Fa"}`, "https://example.com/a"],
    [String.raw`{"text":"see https:\/\/example.com\/a?b=1\u0026c=2, then"}`, "https://example.com/a?b=1&c=2"],
    [String.raw`{"url":"https://example.com/a?b=1\u0026c\u003d2"}`, "https://example.com/a?b=1&c=2"],
    ["\u2018https://example.com/a\u2019", "https://example.com/a"],
    ["\u00abhttps://example.com/a\u00bb.", "https://example.com/a"],
    ["Look at https://example.com/a\u2026", "https://example.com/a"],
    ["**https://example.com/a**", "https://example.com/a"],
    ["| https://example.com/a|b |", "https://example.com/a|b"],
    ["资料：https://example.com/a。谢谢", "https://example.com/a"],
    ["「https://example.com/a」", "https://example.com/a"],
    ["https://example.com/a#part", "https://example.com/a"],
    ["https://example.com/a", "https://example.com/a#other"],
    ["https://example.com/a,b;c", "https://example.com/a,b;c"],
    ["xhttps://example.com/a", "https://example.com/a"],
    ["https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"],
    ["See https://example.com/it's please", "https://example.com/it's"],
    ["[t](https://example.com/it's)", "https://example.com/it's"],
    ["Read https://example.com/o'/hosts'-guide", "https://example.com/o'/hosts'-guide"],
    ["'https://example.com/a', 'https://example.com/b'", "https://example.com/a"],
    ["'https://example.com/a'and more", "https://example.com/a"],
    ["`https://example.com/a`", "https://example.com/a"],
    [String.raw`{"url":"https:\/\/example.com\/it\u0027s"}`, "https://example.com/it's"],
    [String.raw`{\u0027url\u0027:\u0027https://example.com/a\u0027}`, "https://example.com/a"],
    ["https://example.com/北京（消歧义）。谢谢", "https://example.com/北京（消歧义）"],
    ["https://example.com/北京（是首都）", "https://example.com/北京"],
    ["（https://example.com/a）然后", "https://example.com/a"],
    ["见https://example.com/a，谢谢", "https://example.com/a"],
    ["见https://example.com/甲、乙", "https://example.com/甲、乙"],
    ["“https://example.com/a”", "https://example.com/a"],
    ["https://example.com/a、https://example.com/b、再见", "https://example.com/b"],
    ["Read https://example.com/smile).html please", "https://example.com/smile).html"],
    ["Read https://example.com/list]1", "https://example.com/list]1"],
    ["[t](https://example.com/a)and", "https://example.com/a"],
    ["<https://example.com/a|the page> in Slack", "https://example.com/a"],
    ["|name|https://example.com/a|2 pages|", "https://example.com/a"],
    ["name,https://example.com/a,2 pages", "https://example.com/a"],
    ["https://example.com/?ids=1,2,3,4,5,6,7,8", "https://example.com/?ids=1,2,3,4,5,6,7,8"],
    ["https://example.com/a;charset=utf-8", "https://example.com/a"],
    ["https://example.com’s pages", "https://example.com/"],
    ["see https://example.com/a\u2014then", "https://example.com/a"],
    ["\u00abhttps://example.com/a\u00bb: said", "https://example.com/a"],
    ["《https://example.com/a》是", "https://example.com/a"],
    ["https://example.com/a：说明", "https://example.com/a"],
    ["\u200fhttps://example.com/a\u200f ", "https://example.com/a"],
    ["https://example.com/a\u200b", "https://example.com/a"],
    ["https://example.com/می\u200cخواهم", "https://example.com/می\u200cخواهم"],
    ["&lt;a href=&quot;https://example.com/a&quot;&gt;", "https://example.com/a"],
    ["href=&#39;https://example.com/a&#39;", "https://example.com/a"],
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
    [String.raw`https:\/\/example.com\/a`, "https://example.com"],
    ["", "https://example.com/"],
  ])("%j does not show %s", (text, url) => {
    expect(shown(text).has(url)).toBe(false);
  });

  test.each([
    ["https://example.com/x_(y)", "https://example.com/x_%28y%29"],
    ["https://example.com/x_%28y%29", "https://example.com/x_(y)"],
    ["https://example.com/x_%28y%29", "https://example.com/x_(y%29#part"],
    ["https://example.com/a-b?c=~d", "https://example.com/%61%2Db?c=%7ed"],
    ["https://example.com/%C3%BC%2f", "https://example.com/\u00fc%2F"],
    ["https://example.com/?a[b]=it's!*", "https://example.com/?a%5Bb%5D=it%27s%21%2A"],
  ])("%s is found as it was shown when %s is asked for", (shownUrl, asked) => {
    expect(shown(shownUrl).find(asked)).toBe(shownUrl.replace("'", "%27"));
    const unpacked = new PriorContext(shown(shownUrl).pack());
    expect(unpacked.find(asked)).toBe(shownUrl.replace("'", "%27"));
  });

  test("of two spellings that were shown each is found as it is", () => {
    const prior = shown("https://example.com/x_%28y%29 https://example.com/x_(y)");
    for (const url of ["https://example.com/x_(y)", "https://example.com/x_%28y%29"])
      expect(prior.find(url)).toBe(url);
  });

  test("so is one of a large conversation when another spelling is shown later", () => {
    const prior = new PriorContext(shown("https://example.com/x_(y)").pack());
    prior.addUrl("https://example.com/x_%28y%29");
    for (const url of ["https://example.com/x_(y)", "https://example.com/x_%28y%29"])
      expect(prior.find(url)).toBe(url);
  });

  test.each(["https://example.com/a%2Fb", "https://example.com/a%3Fb", "https://example.com/a%26b"])(
    "%s is another address than the one with the mark itself",
    (url) => expect(shown(decodeURIComponent(url)).find(url)).toBeNull(),
  );

  test("what an earlier request opened is opened again in one spelling", () => {
    const prior = new PriorContext();
    prior.addOpenedUrl("https://example.com/%61_%28y)");
    expect(prior.find("https://example.com/%61_%28y)")).toBe("https://example.com/a_(y)");
  });

  test("a list without blanks shows every address in it", () => {
    const links = Array.from({ length: 9_000 }, (_, index) => `https://a.example/${index}`);
    const prior = shown(links.join("、"));
    expect(links.filter((link) => !prior.has(link))).toEqual([]);
  });

  test("known URLs are added as they are", () => {
    const prior = new PriorContext();
    prior.addUrl("https://example.com/a)#x");
    prior.addUrl("javascript:alert(1)");
    expect(prior.has("https://example.com/a)")).toBe(true);
    expect(prior.has("javascript:alert(1)")).toBe(false);
  });

  test("a text made of schemes is read in linear time", () => {
    const started = computedMs();
    shown("https://".repeat(125_000));
    shown(`https://${"a".repeat(1_000_000)}`);
    expect(computedMs() - started).toBeLessThan(3_000);
  });
});

/** Ways in which JSON, or JSON within JSON or a page, may write a text's addresses. */
const escapedWays: readonly (readonly [string, (url: string) => string])[] = [
  ["escaped slashes", (url) => `"${url.replaceAll("/", "\\/")}",`],
  ["JSON in JSON", (url) => `\\"url\\":\\"${url}\\",`],
  ["a line's end in JSON", (url) => `${url}\\n`],
  ["an escaped ampersand", (url) => `"${url.replaceAll("&", "\\u0026")}",`],
  ["escaped quotation marks", (url) => `\\u0022${url}\\u0022\\u003e`],
  ["an escaped colon", (url) => `"${url.replace(":", "\\u003a").replaceAll("/", "\\/")}",`],
  ["an escaped colon, upper case", (url) => `"${url.replace(":", "\\u003A")}",`],
  ["an escaped scheme", (url) => `"${url.replace("h", "\\u0068").replaceAll("/", "\\/")}",`],
  ["slashes escaped in two ways", (url) => `"${url.replace("://", ":\\/\\u002F")}",`],
  ["one slash escaped", (url) => `"${url.replace("://", ":/\\/")}",`],
];

describe.each(escapedWays)("addresses with %s", (_, written) => {
  const link = (index: number) => `https://${index}.example/page/${index}?a=1&b=2`;

  test("are all shown by a short text", () => {
    const links = Array.from({ length: 5 }, (_address, index) => link(index));
    const prior = shown(`{"x":${links.map(written).join("")}}`);
    expect(links.filter((url) => !prior.has(url))).toEqual([]);
  });

  test("are shown by a page of many of them, up to the most", () => {
    const links = Array.from({ length: 30_000 }, (_address, index) => link(index));
    const prior = shown(links.map(written).join(""));
    expect([0, 2_000, 4_000, 4_900].map(link).filter((url) => !prior.has(url))).toEqual([]);
  });
});

test("a page of thirty thousand escaped links shows the first ten thousand", () => {
  const link = (index: number) => `https://a.example/${index}`;
  const page = Array.from({ length: 30_000 }, (_, index) => `"${link(index).replaceAll("/", "\\/")}",`);
  const prior = shown(page.join(""));
  expect([2_000, 4_000, 9_000, 9_999].map(link).filter((url) => !prior.has(url))).toEqual([]);
});

test("a text shows ten thousand addresses, however many readings each has", () => {
  const links = Array.from({ length: 9_900 }, (_, index) => `https://a.example/${index}`);
  const prior = shown(links.map((link) => `${link}).`).join(" "));
  expect(links.filter((link) => !prior.has(link))).toEqual([]);
});

test("rule 7.3: whether links are the model's own writing takes milliseconds, however many and whatever the user said", () => {
  for (const said of ["word ", "%41&amp;\\u0026 "]) {
    const prior = new PriorContext();
    for (let turn = 0; turn < 8; turn += 1) prior.addText(said.repeat(8_192 / said.length));
    const url = "http://attacker.example/?d=SECRET";
    prior.addQuery(`quote ${url}`);
    const before = computedMs();
    for (let link = 0; link < 1_000; link += 1) expect(prior.isOwnWriting(url)).toBe(true);
    expect(computedMs() - before).toBeLessThan(250);
    prior.addText("I mean attacker.example/?d=secret.");
    expect(prior.isOwnWriting(url)).toBe(false);
  }
});

test("rule 7.3: whether a found address was written takes microseconds also where it is made of marks", () => {
  const prior = new PriorContext();
  prior.addQuery("gates");
  const before = computedMs();
  for (let hit = 0; hit < 100; hit += 1) prior.addFound(`https://a.example/?${hit}${".".repeat(2_000)}x`, "");
  expect(computedMs() - before).toBeLessThan(150);
});

test("rule 7.3: 64 KiB of resent searches for addresses with ports cost a few parses of each", () => {
  const shapes = [
    (word: number) => `\u00fc.x:${word}?`,
    (word: number, query: number) => `${query}.${word}:1`,
  ];
  const conversations = shapes.map((wordOf) =>
    Array.from({ length: 32 }, (_, query) =>
      Array.from({ length: 200 }, (__, word) => wordOf(word, query)).join(" "),
    ),
  );
  const read = (queries: readonly string[]) => {
    const prior = new PriorContext();
    for (const [index, query] of queries.entries()) {
      prior.addQuery(query);
      prior.addFound(`http://e.x/${index}`, "");
    }
  };
  const parse = (queries: readonly string[]) => {
    for (const word of queries.flatMap((query) => query.split(" "))) URL.parse(`https://${word}`);
  };
  const msOf = (work: (queries: readonly string[]) => void) => {
    const before = computedMs();
    conversations.forEach(work);
    return computedMs() - before;
  };
  // In turns, so that who else uses the machine disturbs both alike.
  const ratios = Array.from({ length: 20 }, () => msOf(read) / msOf(parse));
  // It was 4 when this was written, and 10 when each word was parsed under both schemes and translated.
  expect(median(ratios)).toBeLessThan(7);
});

describe("rule 7.3: a page holds up nobody, whatever it is made of", () => {
  const MOST = 10_000_000;
  const filled = (piece: string | ((index: number) => string), length: number) =>
    Array.from({ length: Math.floor(MOST / length) }, (_, index) =>
      typeof piece === "string" ? piece : piece(index),
    ).join("");

  test.each([
    ["escaped slashes", filled("\\/", 2)],
    ["escaped letters", filled("\\u0026", 6)],
    ["marks", filled("://", 3)],
    ["escaped marks", filled(":\\/\\/", 5)],
    ["addresses", filled((index) => `http://a.example/${index}/abcdef `, 30)],
    ["escaped addresses", filled((index) => `http:\\/\\/a.example\\/${index}\\/abcdef `, 34)],
    ["addresses that are nothing but escapes", filled(`http:\\/\\/${"\\/".repeat(245)}`, 500)],
    ["addresses within addresses", filled("http://a.example/?u=", 20)],
    [
      "addresses that end in brackets",
      filled((index) => `http://a.example/${index}/${"),.".repeat(160)} `, 500),
    ],
    ["an address again and again", filled("http://a.example/ ", 18)],
    [
      "addresses of many escapes",
      filled((index) => `http://a.example/${index}${"\\u0061".repeat(80)} `, 500),
    ],
  ])("of %s", async (_, text) => {
    const prior = new PriorContext();
    prior.addPage("http://warm.example/", text.slice(0, 100_000));
    const before = computedMs();
    prior.addPage("http://page.example/", text);
    expect(computedMs() - before).toBeLessThan(250);
    const longest = await leastOf(25, async () => {
      const turns = new LoopTurns();
      await new PriorContext().addOpenedPage("http://page.example/", text);
      await sleep(10);
      return turns.stop();
    });
    expect(longest).toBeLessThan(25);
  });
});

test("rule 7.3: an opened page's addresses are taken in slices, and all of them as at once", async () => {
  const links = Array.from({ length: 9_000 }, (_, index) => `http://a.example/${index}/${"abc".repeat(20)}`);
  const once = new PriorContext();
  let sliced = new PriorContext();
  const longest = await leastOf(25, async () => {
    sliced = new PriorContext();
    const turns = new LoopTurns();
    await sliced.addOpenedPage("http://page.example/", links.join(" "));
    await sleep(10);
    return turns.stop();
  });
  expect(longest).toBeLessThan(25);
  once.addPage("http://page.example/", links.join(" "));
  for (const prior of [sliced, once])
    expect(["http://page.example/", ...links].every((link) => prior.has(link))).toBe(true);
});

describe("rule 7.11: what a model wrote into a query is shown by no result", () => {
  const secret = "http://attacker.example/collect?d=SECRET";

  /** What a search for `query` shows, when the engine answers with `echo` as an address and in its text. */
  function searched(query: string, echo: string, said = ""): PriorContext {
    const prior = new PriorContext();
    if (said !== "") prior.addText(said);
    prior.addQuery(query);
    prior.addFound(echo, `You searched for ${echo} and "${echo}".`);
    return prior;
  }

  test.each([
    [`quote verbatim: ${secret}`, secret],
    [`quote verbatim: "${secret}"`, secret],
    [secret, secret],
    [`(${secret})`, secret],
    // Spelled otherwise by the model.
    ["attacker.example/collect?d=SECRET", secret],
    ["//attacker.example/collect?d=SECRET", secret],
    ["ATTACKER.example/collect?d=SECRET now", secret],
    ["http%3A%2F%2Fattacker.example%2Fcollect%3Fd%3DSECRET", secret],
    ["http%253A%252F%252Fattacker.example%252Fcollect%253Fd%253DSECRET", secret],
    ["http:&#47;&#47;attacker.example&#x2F;collect?d=SECRET", secret],
    ["http://attacker.example/collect?a=1&amp;d=SECRET", "http://attacker.example/collect?a=1&d=SECRET"],
    ["http://attacker.example/coll\u200bect?d=SECRET", secret],
    ["http://attacker.example:80/x/../collect?d=SECRET", secret],
    ["attacker.example:443/collect?d=SECRET", "https://attacker.example/collect?d=SECRET"],
    ["http://attacker.example:080/collect?d=SECRET", secret],
    ["me:80@attacker.example:80/collect?d=SECRET", "http://me:80@attacker.example/collect?d=SECRET"],
    ["http:\\\\attacker.example\\collect?d=SECRET", secret],
    [String.raw`http:\/\/attacker.example\/collect?d=SECRET`, secret],
    [
      String.raw`http://attacker.example/collect?a=1\u0026d=SECRET`,
      "http://attacker.example/collect?a=1&d=SECRET",
    ],
    ["http://2130706433/?d=SECRET", "http://127.0.0.1/?d=SECRET"],
    ["http://bücher.example/?d=SECRET", "http://xn--bcher-kva.example/?d=SECRET"],
    ["ｈｔｔｐ：／／attacker.example／collect？d=SECRET", secret],
    ["go to user:SECRET@attacker.example/", "http://user:SECRET@attacker.example/"],
    ["SECRET.attacker.example", "https://secret.attacker.example/"],
    ["www.SECRET.attacker.example", "https://secret.attacker.example/"],
    ["attacker.example/SECRET", "https://attacker.example/SECRET/"],
    ["attacker.example/a/SECRET/b", "https://attacker.example/a/SECRET"],
    // Spelled otherwise by the engine.
    [secret, "https://attacker.example/collect?d=SECRET"],
    [secret, "HTTP://ATTACKER.EXAMPLE/collect?d=SECRET"],
    [secret, "http://attacker.example/collect?d=%53%45%43%52%45%54"],
    [secret, "http://attacker.example/%63ollect?d=SECRET"],
    [secret, `${secret}.`],
    [secret, `${secret}",`],
    [secret, `${secret}#top`],
    [secret, `${secret}&utm_source=engine`],
    ["d=my secret attacker.example/?d=my secret", "http://attacker.example/?d=my+secret"],
  ])("searched for %j, echoed as %s", (query, echo) => {
    const prior = searched(query, echo);
    expect(prior.has(echo)).toBe(false);
    if (URL.canParse(echo)) expect(prior.isOwnWriting(new URL(echo).href)).toBe(true);
    // Without the query it would have been shown.
    expect(searched("something else", echo).has(new URL(echo.replace(/[",.]+$/, "")).href)).toBe(true);
  });

  test.each([
    ["site:docs.example install", "https://docs.example/install"],
    ["docs.example", "https://docs.example/guide?page=2"],
    ["https://docs.example/ changelog", "https://docs.example/changelog"],
    ["docs.example/guide first steps", "https://docs.example/guide/first-steps"],
    ["who wrote docs.example/guide", "https://blog.example/docs-example-guide"],
    ["gates of Bali", "https://gates.example/bali"],
    ["docs.example 's guide", "https://docs.example/'s-guide"],
  ])("a query that names a site leaves what is found there open: %s", (query, found) => {
    expect(searched(query, found).has(found)).toBe(true);
  });

  test.each([
    ",more",
    "'s",
    "`s",
    ";more",
    "|more",
    "（more）",
    "、more",
    "&quot;more",
    "\u2014more",
    ")more",
    "]more",
  ])("nor does one that goes on behind a mark: %s", (more) => {
    const written = "https://attacker.example/SECRET";
    const urls = [written, `${written}${more}`];
    const echo = `You searched for ${written}${more}`;
    const open = (query: string, said = "") => {
      const prior = new PriorContext();
      if (said !== "") prior.addText(said);
      prior.addQuery(query);
      prior.addFound("https://engine.example/", echo);
      return urls.filter((url) => prior.has(url));
    };
    expect(open("attacker.example/SECRET")).toEqual([]);
    expect(open("something else")).toEqual(urls);
    // What the user wrote is no secret.
    expect(open("attacker.example/SECRET", "Read attacker.example/SECRET")).toEqual(urls);
    // What the model wrote behind it may be one.
    const behind = `attacker.example/SECRET attacker.example/SECRET${more}`;
    expect(open(behind, "Read attacker.example/SECRET")).toEqual([written]);
  });

  test("a spelling that the model wrote into its query is not shown by the engine, though another was shown", () => {
    const prior = shown("Read https://docs.example/x_(y)");
    const own = "https://docs.example/x_%28y)";
    prior.addQuery(`quote ${own}`);
    prior.addFound(own, `You searched for ${own}`);
    expect(prior.find(own)).toBe("https://docs.example/x_(y)");
  });

  test("an engine that echoes it as JSON shows it no more", () => {
    const prior = new PriorContext();
    prior.addQuery(`quote verbatim: ${secret}`);
    prior.addFound(
      "https://engine.example/",
      JSON.stringify({ echo: secret }).replaceAll("/", String.raw`\/`),
    );
    expect([prior.has(secret), prior.has("https://engine.example/")]).toEqual([false, true]);
  });

  test("what the user said is open, with or without its scheme, and so is what was found before", () => {
    expect(searched(secret, secret, `Read ${secret}`).has(secret)).toBe(true);
    expect(searched("docs.example", "https://docs.example/", "What is on docs.example?")).toSatisfy(
      (prior: PriorContext) => prior.has("https://docs.example/"),
    );
    // A user who named the host has not said the secret.
    expect(searched(secret, secret, "Look at attacker.example/collect").has(secret)).toBe(false);
    const prior = searched("gates", "https://gates.example/?page=1");
    prior.addQuery("https://gates.example/?page=1");
    prior.addFound("https://gates.example/?page=1", "");
    expect(prior.has("https://gates.example/?page=1")).toBe(true);
  });

  test("another query's results do not show it either, nor does a query of any length or kind take long", () => {
    const prior = new PriorContext();
    prior.addQuery(secret);
    prior.addQuery("something else");
    prior.addFound(secret, secret);
    expect(prior.has(secret)).toBe(false);
    const started = computedMs();
    for (const query of ["%25".repeat(100_000), "&amp;".repeat(50_000), "a.b ".repeat(50_000), "\ud800"]) {
      prior.addQuery(query);
      prior.addFound(secret, query);
    }
    expect(computedMs() - started).toBeLessThan(2_000);
  });
});
