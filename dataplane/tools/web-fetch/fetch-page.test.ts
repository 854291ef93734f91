import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { domainLists } from "../../../test/fakes/domain-lists.ts";
import { SocketWatch } from "../../../test/fakes/loopback-only.ts";
import { servedSites } from "../../../test/fakes/pages/serve-site.ts";
import {
  answer,
  cutOff,
  drip,
  endless,
  FakeSite,
  redirect,
  silent,
  type Page,
} from "../../../test/fakes/pages/site.ts";
import { ByteBudget, type ByteLease } from "../../lib/byte-budget.ts";
import type { ToolCache } from "../cache.ts";
import { anyDomain, type DomainLists } from "../domains.ts";
import type { FetchOutcome } from "../outcomes.ts";
import hostileUrls from "../url-guard/hostile-urls.json" with { type: "json" };
import type { Resolver } from "../url-guard/resolver.ts";
import { ExtractionPool } from "./extract/pool.ts";
import { fetchPage, type FetchPolicy, type FetchRequest } from "./fetch-page.ts";
import { PriorContext } from "./prior-context.ts";
import { RobotsCache } from "./robots-cache.ts";

const NOW = Date.UTC(2026, 10, 21, 12);
const pool = new ExtractionPool();
let watch: SocketWatch;

beforeAll(() => {
  watch = new SocketWatch();
  pool.warm();
});
afterAll(async () => {
  watch.stop();
  await pool.close();
});
afterEach(() => expect(watch.escaped).toEqual([]));
// Its hook runs before the one above: hooks are run from the last to the first.
const serve = servedSites();

/** Every name leads to the site's own address. */
const toLoopback: Resolver = { resolve: () => Promise.resolve(["127.0.0.1"]) };

/** A cache that a test can look into; the real one has its own test with a real Redis. */
class RecordingCache implements ToolCache {
  readonly entries = new Map<string, { value: Buffer; ttlMs: number }>();
  get(key: string): Promise<Buffer | null> {
    return Promise.resolve(this.entries.get(key)?.value ?? null);
  }
  set(_: string, key: string, value: Buffer, ttlMs: number): Promise<void> {
    this.entries.set(key, { value, ttlMs });
    return Promise.resolve();
  }
}

/** For pages that are nobody else's. */
const roomy = () => new ByteBudget(1e9).pageLease("org_a");

interface Options extends Partial<Omit<FetchRequest, "input">> {
  readonly policy?: Partial<FetchPolicy["webFetch"]>;
  readonly generation?: number;
  readonly cache?: ToolCache;
  readonly resolver?: Resolver;
  readonly robots?: RobotsCache;
  readonly signal?: AbortSignal;
}

/** Fetches with a policy that opens the site's address and port, and nothing else beyond the public internet. */
function open(site: FakeSite, url: unknown, options: Options = {}): Promise<FetchOutcome> {
  const prior = new PriorContext();
  if (typeof url === "string") prior.addUrl(url);
  const { policy, generation = 1, cache, resolver, robots, signal, ...request } = options;
  return fetchPage(
    {
      input: { url },
      organizationId: "org_a",
      domains: anyDomain,
      prior,
      maxContentTokens: null,
      useCache: true,
      pdf: false,
      lease: roomy(),
      ...request,
    },
    {
      source: { kind: "ToolPolicy", namespace: "default", name: "default", uid: "uid-1", generation },
      webFetch: {
        timeoutMs: 15_000,
        maxBytes: 1_000_000,
        cacheTtlMs: 900_000,
        allowCidrs: ["127.0.0.1/32"],
        allowPorts: [site.port],
        proxy: null,
        ...policy,
      },
    },
    {
      resolver: resolver ?? toLoopback,
      pool,
      cache: cache ?? new RecordingCache(),
      robots: robots ?? new RobotsCache(),
      clock: { now: () => NOW },
    },
    signal ?? new AbortController().signal,
  );
}

const codeOf = (outcome: FetchOutcome) => (outcome.kind === "error" ? outcome.code : "page");
const textOf = (outcome: FetchOutcome) =>
  outcome.kind === "page" && outcome.page.source.type === "text" ? outcome.page.source.text : outcome;
const local = (site: FakeSite, path = "/") => `http://site.example:${site.port}${path}`;

describe("what is passed on", () => {
  test("HTML becomes markdown with a title, absolute links and the time", async () => {
    const site = await serve({
      "/dir/page": answer(
        '<title>A  Page</title><h1>Head</h1><p>Text with <a href="../next?a=1">a link</a>.</p>',
      ),
    });
    expect(await open(site, local(site, "/dir/page#part"))).toEqual({
      kind: "page",
      cached: false,
      page: {
        url: local(site, "/dir/page"),
        title: "A Page",
        retrievedAt: "2026-11-21T12:00:00.000Z",
        source: { type: "text", text: `# Head\n\nText with [a link](${local(site, "/next?a=1")}).` },
      },
    });
  });

  test.each([
    ["application/json", '{"a": [1,  2]}'],
    ["application/ld+json; charset=utf-8", '{"a": "ü"}'],
    ["text/plain", "<b>not HTML</b>\n\n  kept"],
    ["text/csv", "a,b\n1,2\n"],
    ["text/xml", "<?xml version='1.0'?><a/>"],
    ["text/markdown", "# Title\n"],
  ])("%s is passed as it is", async (type, body) => {
    const site = await serve({ "/": answer(body, { "content-type": type }) });
    expect(textOf(await open(site, local(site)))).toBe(body);
  });

  test.each([
    "image/png",
    "application/zip",
    "application/octet-stream",
    "video/mp4",
    "application/javascript",
    "nonsense",
  ])("%s is an unsupported_content_type", async (type) => {
    const site = await serve({ "/": answer("x", { "content-type": type }) });
    expect(codeOf(await open(site, local(site)))).toBe("unsupported_content_type");
  });

  test("a PDF is passed whole to a model that reads PDF and refused otherwise, from the cache too", async () => {
    const pdf = Buffer.concat([Buffer.from("%PDF-1.7\n"), Buffer.alloc(5_000, 7)]);
    const site = await serve({ "/": answer(pdf, { "content-type": "application/pdf" }) });
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { cache }))).toBe("unsupported_content_type");
    for (const cached of [false, true]) {
      expect(await open(site, local(site), { cache, pdf: true, maxContentTokens: 10 })).toMatchObject({
        kind: "page",
        cached,
        page: { source: { type: "pdf", base64: pdf.toString("base64") } },
      });
    }
    expect(codeOf(await open(site, local(site), { cache }))).toBe("unsupported_content_type");
  });

  test("a body that only says to be a PDF is refused, and an untyped one is looked at", async () => {
    const site = await serve({
      "/fake": answer("<html>", { "content-type": "application/pdf" }),
      "/untyped": (_, response) => void response.writeHead(200).end("<!doctype html><p>hi"),
      "/binary": (_, response) => void response.writeHead(200).end(Buffer.alloc(10)),
    });
    expect(codeOf(await open(site, local(site, "/fake"), { pdf: true }))).toBe("unsupported_content_type");
    expect(textOf(await open(site, local(site, "/untyped")))).toBe("hi");
    expect(codeOf(await open(site, local(site, "/binary")))).toBe("unsupported_content_type");
  });

  test.each([["text/plain", "text/html"], ["text/html, text/html; charset=utf-8"]])(
    "a type that is told several times (%s) is the last",
    async (...types) => {
      const site = await serve({
        "/": (_, response) => {
          response.setHeader("content-type", types);
          response.end("<p>A <b>word</b></p>");
        },
      });
      // On a busy machine it is read without a DOM.
      expect(textOf(await open(site, local(site)))).toMatch(/^A (?:\*\*)?word/);
    },
  );

  test("text is cut at about 4 characters a token, never inside a character", async () => {
    const site = await serve({ "/": answer("abc😀defg", { "content-type": "text/plain" }) });
    expect(textOf(await open(site, local(site), { maxContentTokens: 1 }))).toBe("abc");
    expect(textOf(await open(site, local(site), { maxContentTokens: 2 }))).toBe("abc😀def");
    expect(textOf(await open(site, local(site), { maxContentTokens: 100 }))).toBe("abc😀defg");
  });

  test("the fetcher names itself and sends no cookies, also after a redirect that sets one", async () => {
    const site = await serve({
      "/": (_, response) => void response.writeHead(302, { location: "/next", "set-cookie": "a=b" }).end(),
      "/next": answer("ok"),
    });
    expect(textOf(await open(site, local(site)))).toBe("ok");
    expect(site.paths).toEqual(["/robots.txt", "/", "/next"]);
    for (const { headers } of site.asked) {
      expect(headers["user-agent"]).toBe("SvcFetch/1.0");
      expect(headers.cookie).toBeUndefined();
      expect(headers.referer).toBeUndefined();
    }
  });
});

describe("charsets", () => {
  const encode = (text: string, encoding: "latin1" | "utf16le" | "utf8") => Buffer.from(text, encoding);
  test.each<[string, Buffer, string, string]>([
    ["header", encode("<p>grün", "latin1"), "text/html; charset=ISO-8859-1", "grün"],
    ["quoted header", encode("<p>grün", "latin1"), 'text/html; Charset="latin1"', "grün"],
    ["meta", encode('<meta charset="windows-1252"><p>10 \x80', "latin1"), "text/html", "10 €"],
    [
      "meta http-equiv",
      encode('<meta http-equiv="content-type" content="text/html; charset=iso-8859-15"><p>\xa4', "latin1"),
      "text/html",
      "€",
    ],
    ["UTF-8 BOM over the header", encode("\ufeff<p>grün", "utf8"), "text/html; charset=ISO-8859-1", "grün"],
    ["UTF-16 BOM", encode("\ufeff<p>grün", "utf16le"), "text/html", "grün"],
    ["nothing said, valid UTF-8", encode("<p>grün 漢字", "utf8"), "text/html", "grün 漢字"],
    ["nothing said, not UTF-8", encode("<p>gr\xfcn", "latin1"), "text/html", "grün"],
    ["Shift_JIS", Buffer.from([0x93, 0xfa, 0x96, 0x7b]), "text/plain; charset=Shift_JIS", "日本"],
    ["GBK", Buffer.from([0xc4, 0xe3, 0xba, 0xc3]), "text/plain; charset=gbk", "你好"],
    ["KOI8-R", Buffer.from([0xf0, 0xf2, 0xe9]), "text/plain; charset=koi8-r", "ПРИ"],
    ["unknown label", encode("grün", "utf8"), "text/plain; charset=nonsense", "grün"],
    ["replacement encoding", encode("gr\xfcn", "latin1"), "text/plain; charset=iso-2022-kr", "grün"],
    ["JSON", encode('"grün"', "utf8"), "application/json", '"grün"'],
    [
      "XML declaration",
      encode('<?xml version="1.0" encoding="iso-8859-1"?><a>ü</a>', "latin1"),
      "text/xml",
      '<?xml version="1.0" encoding="iso-8859-1"?><a>ü</a>',
    ],
    ["NUL", Buffer.from("a\0b"), "text/plain", "a\ufffdb"],
  ])("%s", async (_, body, type, expected) => {
    const site = await serve({ "/": answer(body, { "content-type": type }) });
    expect(textOf(await open(site, local(site)))).toBe(expected);
  });
});

describe("rule 3.15: size, time and damage", () => {
  const big = Buffer.alloc(3_000_000, "a");
  const noise = Buffer.from(
    Array.from({ length: 10_000 }, (_, index) => Math.imul(index, 0x9e3779b1) >>> 13),
  );
  const half = (bytes: Buffer) => bytes.subarray(0, bytes.length / 2);
  const text = { "content-type": "text/plain" };
  test.each<[string, Page]>([
    ["a body over the limit", answer(big, text)],
    ["an endless body", endless("text/html")],
    [
      "an announced length over the limit",
      (_, response) => void response.writeHead(200, { ...text, "content-length": "99999999" }).write("a"),
    ],
    ["a gzip bomb", answer(gzipSync(Buffer.alloc(50_000_000)), { ...text, "content-encoding": "gzip" })],
    [
      "a brotli bomb",
      answer(brotliCompressSync(Buffer.alloc(50_000_000)), { ...text, "content-encoding": "br" }),
    ],
    [
      "a deflate bomb",
      answer(deflateSync(Buffer.alloc(50_000_000)), { ...text, "content-encoding": "deflate" }),
    ],
    [
      "a zstd bomb",
      answer(zstdCompressSync(Buffer.alloc(50_000_000)), { ...text, "content-encoding": "zstd" }),
    ],
    [
      "a bomb inside a bomb",
      answer(gzipSync(gzipSync(Buffer.alloc(50_000_000))), { ...text, "content-encoding": "gzip, gzip" }),
    ],
    ["a damaged coding", answer("not gzip", { ...text, "content-encoding": "gzip" })],
    ...Object.entries({
      gzip: gzipSync,
      deflate: deflateSync,
      br: brotliCompressSync,
      zstd: zstdCompressSync,
    }).map(([coding, packed]): [string, Page] => [
      `half of ${coding}`,
      answer(half(packed(noise)), { ...text, "content-encoding": coding }),
    ]),
    [
      "half of a coding in another",
      answer(brotliCompressSync(half(gzipSync(noise))), { ...text, "content-encoding": "gzip, br" }),
    ],
    ["a coding that nobody knows", answer("x", { ...text, "content-encoding": "compress" })],
    ["a prototype's name as a coding", answer("x", { ...text, "content-encoding": "constructor" })],
    ["three codings", answer("x", { ...text, "content-encoding": "gzip, gzip, gzip" })],
    ["a broken connection", cutOff],
    [
      "an endless head",
      (request) => {
        const { socket } = request;
        socket.write("HTTP/1.1 200 OK\r\n");
        const timer = setInterval(() => socket.write(`x: ${"y".repeat(10_000)}\r\n`), 1);
        socket.on("close", () => clearInterval(timer)).on("error", () => undefined);
      },
    ],
    ["no HTTP at all", (request) => void request.socket.end("SSH-2.0-OpenSSH_9.9\r\n")],
    ["a 404", answer("gone", {}, 404)],
    ["a 500", answer("broken", {}, 500)],
    ["a 304 that nobody asked for", answer("", {}, 304)],
  ])("%s: url_not_accessible, and not cached", async (_, page) => {
    const site = await serve({ "/": page });
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { cache }))).toBe("url_not_accessible");
    expect(cache.entries.size).toBe(0);
  });

  test.each<[string, Page]>([
    ["gzip", answer(gzipSync("hello"), { ...text, "content-encoding": "gzip" })],
    ["x-gzip", answer(gzipSync("hello"), { ...text, "content-encoding": "X-GZIP" })],
    ["deflate", answer(deflateSync("hello"), { ...text, "content-encoding": "deflate" })],
    ["bare deflate", answer(deflateRawSync("hello"), { ...text, "content-encoding": "deflate" })],
    ["br", answer(brotliCompressSync("hello"), { ...text, "content-encoding": "br" })],
    ["zstd", answer(zstdCompressSync("hello"), { ...text, "content-encoding": "zstd" })],
    ["two", answer(brotliCompressSync(gzipSync("hello")), { ...text, "content-encoding": "gzip, br" })],
    ["identity", answer("hello", { ...text, "content-encoding": "identity" })],
  ])("the coding %s is undone", async (_, page) => {
    const site = await serve({ "/": page });
    expect(textOf(await open(site, local(site)))).toBe("hello");
  });

  test.each<[string, Page]>([
    ["a site that never answers", silent],
    ["a slow drip", drip(20)],
  ])("%s: unavailable, and not cached", async (_, page) => {
    const site = await serve({ "/robots.txt": answer("", {}, 404), "/": page });
    const cache = new RecordingCache();
    const started = performance.now();
    expect(codeOf(await open(site, local(site), { cache, policy: { timeoutMs: 300 } }))).toBe("unavailable");
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(cache.entries.size).toBe(0);
  });

  test("nobody listening, and a name that does not resolve: url_not_accessible", async () => {
    const site = await serve({});
    const gone = await FakeSite.start({});
    await gone.stop();
    expect(codeOf(await open(site, `http://site.example:${site.port}/x`))).toBe("url_not_accessible");
    const nowhere: Resolver = { resolve: () => Promise.reject(new Error("ENOTFOUND")) };
    expect(codeOf(await open(site, local(site), { resolver: nowhere }))).toBe("url_not_accessible");
  });

  test("a caller that gave up gets its own reason", async () => {
    const site = await serve({ "/": silent });
    const controller = new AbortController();
    const opening = open(site, local(site), { signal: controller.signal });
    setTimeout(() => controller.abort(new Error("client is gone")), 50);
    await expect(opening).rejects.toThrow("client is gone");
  });
});

describe("rule 7.2: pages count in the budget of bodies", () => {
  const text = { "content-type": "text/plain" };

  /** A site whose page `/slow` has sent so much, and ends once it is let. */
  async function slowSite(bytes: number) {
    const ends: (() => void)[] = [];
    const site = await serve({
      "/robots.txt": answer("", {}, 404),
      "/slow": (_, response) => {
        response.writeHead(200, text).write("a".repeat(bytes));
        ends.push(() => response.end());
      },
      "/small": answer("small", text),
    });
    return {
      site,
      end: () => {
        for (const end of ends.splice(0)) end();
      },
    };
  }

  test("as they come, for their organization and in all; without room they are unavailable", async () => {
    const budget = new ByteBudget(1_000_000);
    const leases: ByteLease[] = [];
    const { site, end } = await slowSite(240_000);
    const ask = (path: string, organizationId = "org_a") => {
      const lease = budget.pageLease(organizationId);
      leases.push(lease);
      return open(site, local(site, path), { organizationId, lease });
    };
    const slow = [ask("/slow"), ask("/slow")];
    await vi.waitFor(() => expect(budget.used).toBe(480_000));
    leases[leases.push(budget.pageLease("org_b")) - 1]?.take(100_000);
    expect(codeOf(await ask("/small"))).toBe("unavailable");
    expect(codeOf(await ask("/small", "org_b"))).toBe("page");
    end();
    expect((await Promise.all(slow)).map(codeOf)).toEqual(["page", "page"]);
    // Those that were brought are held until their requests are over.
    expect(budget.used).toBe(580_000 + "small".length);
    for (const lease of leases) lease.release();
    expect(budget.used).toBe(0);
  });

  test.each<[string, Page]>([
    [
      "a compressed one by what it unpacks to",
      answer(gzipSync("ab".repeat(200_000)), { ...text, "content-encoding": "gzip" }),
    ],
    [
      "one that unpacks twice",
      answer(brotliCompressSync(gzipSync("ab".repeat(200_000))), { ...text, "content-encoding": "gzip, br" }),
    ],
    ["HTML", answer(`<p>${"word ".repeat(80_000)}`)],
    [
      "a PDF",
      answer(Buffer.concat([Buffer.from("%PDF-1.7\n"), Buffer.alloc(400_000)]), {
        "content-type": "application/pdf",
      }),
    ],
  ])("%s, and what fails gives its room back", async (_, page) => {
    const budget = new ByteBudget(300_000);
    const other = budget.lease("org_b");
    other.take(1);
    const site = await serve({ "/": page });
    const lease = budget.pageLease("org_a");
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { lease, pdf: true, cache }))).toBe("unavailable");
    expect([budget.used, cache.entries.size]).toEqual([1, 0]);
    // One body always fits into an idle process.
    other.release();
    expect(codeOf(await open(site, local(site), { lease, pdf: true, cache }))).toBe("page");
    expect(budget.used).toBeGreaterThan(300_000);
  });

  test("a page of the cache counts too", async () => {
    const site = await serve({ "/": answer("a".repeat(1_000), text) });
    const budget = new ByteBudget(500);
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { cache }))).toBe("page");
    budget.lease("org_b").take(1);
    const lease = budget.pageLease("org_a");
    expect(codeOf(await open(site, local(site), { cache, lease }))).toBe("unavailable");
    expect(codeOf(await open(site, local(site), { cache, lease, maxContentTokens: 100 }))).toBe("page");
    expect(budget.used).toBe(401);
  });

  test.each<[string, Page, Options]>([
    ["cut off", cutOff, {}],
    ["late", drip(20), { policy: { timeoutMs: 300 } }],
    ["too large", endless("text/plain"), {}],
  ])("one that is %s gives its room back", async (_, page, options) => {
    const budget = new ByteBudget(10_000_000);
    const site = await serve({ "/robots.txt": answer("", {}, 404), "/": page });
    const outcome = await open(site, local(site), { ...options, lease: budget.pageLease("org_a") });
    expect([outcome.kind, budget.used]).toEqual(["error", 0]);
  });

  test("so does one that nobody waits for any more", async () => {
    const budget = new ByteBudget(1_000_000);
    const { site } = await slowSite(300_000);
    const gone = new AbortController();
    const opening = open(site, local(site, "/slow"), {
      lease: budget.pageLease("org_a"),
      signal: gone.signal,
    });
    await vi.waitFor(() => expect(budget.used).toBe(300_000));
    gone.abort(new Error("client is gone"));
    await expect(opening).rejects.toThrow("client is gone");
    expect(budget.used).toBe(0);
  });
});

describe("rule 3.14: robots.txt is obeyed, on redirect targets too", () => {
  const page = { "/": answer("page"), "/private": answer("secret"), "/go": redirect("/private") };
  const rules = answer("User-agent: *\nDisallow: /private", { "content-type": "text/plain" });

  test.each<[string, Page, string, string]>([
    ["a rule", rules, "/private", "url_not_accessible"],
    ["no rule", rules, "/", "page"],
    ["a rule for the redirect's target", rules, "/go", "url_not_accessible"],
    [
      "own group",
      answer("User-agent: *\nDisallow: /\nUser-agent: SvcFetch\nDisallow: /x"),
      "/private",
      "page",
    ],
    ["404 allows", answer("", {}, 404), "/private", "page"],
    ["403 allows", answer("", {}, 403), "/private", "page"],
    ["429 allows", answer("", {}, 429), "/private", "page"],
    ["500 denies", answer("", {}, 500), "/", "url_not_accessible"],
    ["503 denies", answer("", {}, 503), "/", "url_not_accessible"],
    ["a time-out denies", silent, "/", "url_not_accessible"],
    ["a broken file denies", cutOff, "/", "url_not_accessible"],
    ["a redirected file counts", redirect("/robots2.txt"), "/private", "url_not_accessible"],
    ["a file redirected for ever is no file", redirect("/robots.txt"), "/private", "page"],
    ["a file redirected inside denies", redirect("http://10.0.0.1/robots.txt"), "/", "url_not_accessible"],
    ["an endless file counts as far as it was read", endless("text/plain"), "/private", "page"],
    [
      "a compressed file counts",
      answer(gzipSync("User-agent: *\nDisallow: /"), { "content-encoding": "gzip" }),
      "/",
      "url_not_accessible",
    ],
  ])("%s", async (_, robots, path, expected) => {
    const site = await serve({ ...page, "/robots.txt": robots, "/robots2.txt": rules });
    expect(
      codeOf(
        await open(site, local(site, path), { policy: { timeoutMs: robots === silent ? 1_000 : 15_000 } }),
      ),
    ).toBe(expected);
    expect(site.paths.includes("/private") && expected !== "page").toBe(false);
  });

  test("the file is read once per origin, and again after a failure", async () => {
    const site = await serve({ ...page, "/robots.txt": rules });
    const robots = new RobotsCache();
    for (let time = 0; time < 3; time += 1) await open(site, local(site), { robots, useCache: false });
    expect(site.paths).toEqual(["/robots.txt", "/", "/", "/"]);
    // Rule 7.14: another organization's request takes as long as if nobody had been here.
    await open(site, local(site), { robots, useCache: false, organizationId: "org_b" });
    expect(site.paths).toEqual(["/robots.txt", "/", "/", "/", "/robots.txt", "/"]);
    const broken = await serve({ ...page, "/robots.txt": answer("", {}, 500) });
    for (let time = 0; time < 2; time += 1) await open(broken, local(broken), { robots });
    expect(broken.paths).toEqual(["/robots.txt", "/robots.txt"]);
  });
});

describe("redirects", () => {
  const chain = (length: number) =>
    Object.fromEntries([
      ...Array.from({ length }, (_, index) => [
        `/${index}`,
        redirect(index + 1 === length ? "/end" : `/${index + 1}`),
      ]),
      ["/end", answer("end")],
    ]) as Record<string, Page>;

  test.each([301, 302, 303, 307, 308])("%i is followed", async (status) => {
    const site = await serve({ "/": redirect("/end", status), "/end": answer("end") });
    expect(await open(site, local(site))).toMatchObject({ kind: "page", page: { url: local(site, "/end") } });
  });
  test("5 are followed, the 6th is not", async () => {
    const site = await serve(chain(6));
    expect(codeOf(await open(site, local(site, "/1")))).toBe("page");
    expect(codeOf(await open(site, local(site, "/0")))).toBe("url_not_accessible");
  });
  test.each([
    [
      "no target",
      (_: unknown, response: { writeHead(status: number): { end(): void } }) => response.writeHead(302).end(),
    ],
    ["a target that is no URL", redirect("http://[")],
    ["another scheme", redirect("file:///etc/passwd")],
    ["a loop", redirect("/")],
  ])("%s: url_not_accessible", async (_, page) => {
    const site = await serve({ "/": page });
    expect(codeOf(await open(site, local(site)))).toBe("url_not_accessible");
  });
  test("a target with blanks and raw octets on the same site is followed", async () => {
    const site = await serve({ "/": redirect("/a b?c=d e"), "/a%20b": answer("end") });
    expect(textOf(await open(site, local(site)))).toBe("end");
  });
  test("a target in UTF-8 that nobody encoded is followed, on the same site and on another", async () => {
    const written = Buffer.from("/café").toString("latin1");
    const pages = { "/": redirect(written), "/caf%C3%A9": answer("end"), "/away": redirect(written) };
    const other = await serve(pages);
    const site = await serve({ ...pages, "/away": redirect(local(other, written)) });
    expect(textOf(await open(site, local(site)))).toBe("end");
    const ports = [site.port, other.port];
    expect(textOf(await open(site, local(site, "/away"), { policy: { allowPorts: ports } }))).toBe("end");
  });

  test("redirects to hostile targets make no connection", async () => {
    const victim = await serve({ "/": answer("inside") }, "127.0.0.2");
    const targets = hostileUrls
      .map((url) => url.replaceAll("PORT", String(victim.port)))
      // A header cannot carry these octets; a target without authority leads back to the site itself.
      .filter((url) => /^[\t\u0020-\u007e\u00a0-\u00ff]+$/.test(url) && /^\s*[a-z+-]+:.+/i.test(url));
    expect(targets.length).toBeGreaterThan(250);
    const pages = Object.fromEntries(targets.map((target, index) => [`/${index}`, redirect(target)]));
    const site = await serve(pages);
    const inner: Resolver = {
      resolve: (name) => Promise.resolve([name === "site.example" ? "127.0.0.1" : "127.0.0.2"]),
    };
    const robots = new RobotsCache();
    const results = new Map<string, string>();
    for (const [index, target] of targets.entries()) {
      const outcome = await open(site, local(site, `/${index}`), {
        resolver: inner,
        robots,
        policy: { allowPorts: [site.port, victim.port] },
      });
      results.set(target, codeOf(outcome));
    }
    expect([...results].filter(([, code]) => code !== "url_not_accessible")).toEqual([]);
    expect(victim.connections).toBe(0);
  });

  test("a name that turns inside between two hops is refused at the second", async () => {
    const victim = await serve({ "/": answer("inside") }, "127.0.0.2");
    const site = await serve({ "/": redirect(`http://rebind.example:${victim.port}/`) });
    let asked = 0;
    const rebinding: Resolver = {
      resolve: (name) => {
        if (name !== "rebind.example") return Promise.resolve(["127.0.0.1"]);
        asked += 1;
        return Promise.resolve([asked === 1 ? "127.0.0.1" : "127.0.0.2"]);
      },
    };
    const policy = { allowPorts: [site.port, victim.port] };
    expect(codeOf(await open(site, local(site), { resolver: rebinding, policy }))).toBe("url_not_accessible");
    expect(victim.connections).toBe(0);
  });
});

describe("refusals before the network", () => {
  test.each([
    [undefined, "invalid_tool_input"],
    [null, "invalid_tool_input"],
    [7, "invalid_tool_input"],
    ["", "invalid_tool_input"],
    ["not a url", "invalid_tool_input"],
    ["http://", "invalid_tool_input"],
    [["http://site.example/"], "invalid_tool_input"],
    [`http://site.example/${"a".repeat(231)}`, "url_too_long"],
    [`http://site.example/${"a".repeat(100_000)}`, "url_too_long"],
    ["ftp://site.example/", "url_not_accessible"],
    ["http://127.0.0.2/", "url_not_accessible"],
    ["http://169.254.169.254/latest/meta-data/", "url_not_accessible"],
    ["http://[::1]/", "url_not_accessible"],
    ["http://user@site.example/", "url_not_accessible"],
    ["http://site.example:22/", "url_not_accessible"],
  ])("%j is %s", async (url, code) => {
    const site = await serve({});
    expect(codeOf(await open(site, url))).toBe(code);
    expect(site.connections).toBe(0);
  });

  test.each([["x"], [null], [[]], [{}], [{ URL: "http://site.example/" }]])(
    "input %j is invalid_tool_input",
    async (input) => {
      const site = await serve({});
      expect(codeOf(await open(site, "", { input } as Options))).toBe("invalid_tool_input");
    },
  );

  test("250 characters are not too long, whatever they are made of", async () => {
    const site = await serve({});
    const url = `${local(site)}${"😀".repeat(250 - local(site).length)}`;
    expect(codeOf(await open(site, url))).toBe("url_not_accessible");
    expect(site.paths).toHaveLength(2);
    expect(codeOf(await open(site, `${url}a`))).toBe("url_too_long");
  });

  test("rule 3.13: a URL that never appeared is url_not_in_prior_context", async () => {
    const site = await serve({ "/": answer("page"), "/other": answer("other") });
    const prior = new PriorContext();
    prior.addText(`see ${local(site)}.`);
    expect(codeOf(await open(site, local(site, "/other"), { prior }))).toBe("url_not_in_prior_context");
    expect(site.connections).toBe(0);
    expect(codeOf(await open(site, local(site, "/#part"), { prior }))).toBe("page");
  });

  test("rule 7.11: a URL asked for in another spelling is fetched as it was shown", async () => {
    const asked: (string | undefined)[] = [];
    const site = await serve({
      "/x_(y)": (request, response) => {
        asked.push(request.url);
        response.writeHead(200, { "content-type": "text/plain" }).end("page");
      },
    });
    const prior = new PriorContext();
    prior.addText(`see ${local(site, "/x_(y)")}`);
    expect(codeOf(await open(site, local(site, "/%78_%28y%29"), { prior }))).toBe("page");
    expect(asked).toEqual(["/x_(y)"]);
  });

  test("domain lists hold for the URL, for every redirect target and for cached pages", async () => {
    const moving = await serve({
      "/": (request, response) =>
        request.headers.host?.startsWith("other")
          ? void response.writeHead(200, { "content-type": "text/html" }).end("end")
          : void response
              .writeHead(302, { location: `http://other.example:${request.socket.localPort}/` })
              .end(),
    });
    const cache = new RecordingCache();
    const judge = async (domains: DomainLists) =>
      codeOf(await open(moving, local(moving), { domains, cache }));
    expect(await judge(domainLists(["nowhere.example"]))).toBe("url_not_allowed");
    expect(moving.connections).toBe(0);
    expect(await judge(domainLists(["site.example"]))).toBe("url_not_allowed");
    expect(await judge(domainLists(null, ["other.example"]))).toBe("url_not_allowed");
    expect(cache.entries.size).toBe(0);
    expect(await judge(anyDomain)).toBe("page");
    expect(cache.entries.size).toBe(1);
    expect(await judge(domainLists(["site.example"]))).toBe("url_not_allowed");
    expect(await judge(domainLists(null, ["other.example"]))).toBe("url_not_allowed");
    expect(await judge(domainLists(["site.example", "other.example"]))).toBe("page");
  });
});

describe("rule 3.16: the page cache", () => {
  test("a second fetch comes from the cache, for 15 minutes, under organization, policy, generation and URL", async () => {
    const site = await serve({ "/": answer("<p>one"), "/b": answer("<p>two") });
    const cache = new RecordingCache();
    expect(await open(site, local(site), { cache })).toMatchObject({ cached: false });
    expect(await open(site, local(site, "/#x"), { cache })).toMatchObject({ cached: true });
    expect([...cache.entries.values()].map(({ ttlMs }) => ttlMs)).toEqual([900_000]);
    expect(await open(site, local(site), { cache, organizationId: "org_b" })).toMatchObject({
      cached: false,
    });
    expect(await open(site, local(site), { cache, generation: 2 })).toMatchObject({ cached: false });
    expect(await open(site, local(site, "/b"), { cache })).toMatchObject({ cached: false });
    expect(cache.entries.size).toBe(4);
  });

  test("use_cache: false refetches and renews the cache", async () => {
    let version = 0;
    const site = await serve({ "/": (_, response) => void response.end(`version ${(version += 1)}`) });
    const cache = new RecordingCache();
    expect(textOf(await open(site, local(site), { cache }))).toBe("version 1");
    expect(textOf(await open(site, local(site), { cache, useCache: false }))).toBe("version 2");
    expect(textOf(await open(site, local(site), { cache }))).toBe("version 2");
  });

  test("a cached page's hops are judged again", async () => {
    const site = await serve({ "/": redirect("/end"), "/end": answer("end") });
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { cache }))).toBe("page");
    const [entry] = cache.entries.values();
    const kept = JSON.parse(entry?.value.toString() ?? "") as { hops: string[] };
    expect(kept.hops).toEqual([local(site, "/"), local(site, "/end")]);
    kept.hops[1] = "http://169.254.169.254/";
    for (const key of cache.entries.keys())
      cache.entries.set(key, { value: Buffer.from(JSON.stringify(kept)), ttlMs: 1 });
    expect(codeOf(await open(site, local(site), { cache }))).toBe("url_not_accessible");
  });

  test("the cache keeps the whole page, whatever the first reader wanted of it", async () => {
    const site = await serve({ "/": answer("abcdefgh", { "content-type": "text/plain" }) });
    const cache = new RecordingCache();
    expect(textOf(await open(site, local(site), { cache, maxContentTokens: 1 }))).toBe("abcd");
    expect(textOf(await open(site, local(site), { cache }))).toBe("abcdefgh");
  });

  test("pages over 1 MiB are not kept", async () => {
    const site = await serve({ "/": answer("a".repeat(1_100_000), { "content-type": "text/plain" }) });
    const cache = new RecordingCache();
    expect(codeOf(await open(site, local(site), { cache, policy: { maxBytes: 2_000_000 } }))).toBe("page");
    expect(cache.entries.size).toBe(0);
  });
});
