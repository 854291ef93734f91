/** Whole fetches of the largest pages, measured from the data plane's side. */
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { anyDomain } from "../../dataplane/tools/domains.ts";
import type { FetchOutcome } from "../../dataplane/tools/outcomes.ts";
import { ExtractionPool } from "../../dataplane/tools/web-fetch/extract/pool.ts";
import { fetchPage } from "../../dataplane/tools/web-fetch/fetch-page.ts";
import { PriorContext } from "../../dataplane/tools/web-fetch/prior-context.ts";
import { RobotsCache } from "../../dataplane/tools/web-fetch/robots-cache.ts";
import { leastOf, LoopTurns } from "../fakes/loop-turns.ts";
import { servedSites } from "../fakes/pages/serve-site.ts";
import { answer, type FakeSite, type Page } from "../fakes/pages/site.ts";

const MIB = 1024 * 1024;
const pool = new ExtractionPool();
const budget = new ByteBudget(1024 * MIB);
const serveSite = servedSites();
const serve = (page: Page) => serveSite({ "/": page });

beforeAll(() => pool.warm());
afterAll(() => pool.close());

function open(site: FakeSite): Promise<FetchOutcome> {
  const url = `http://site.example:${site.port}/`;
  const prior = new PriorContext();
  prior.addUrl(url);
  return fetchPage(
    {
      input: { url },
      organizationId: "org",
      domains: anyDomain,
      prior,
      maxContentTokens: null,
      useCache: true,
      pdf: true,
      lease: budget.pageLease("org"),
    },
    {
      source: { kind: "ToolPolicy", namespace: "default", name: "default", uid: "uid", generation: 1 },
      webFetch: {
        timeoutMs: 60_000,
        maxBytes: 10 * MIB,
        cacheTtlMs: 900_000,
        allowCidrs: ["127.0.0.1/32"],
        allowPorts: [site.port],
        proxy: null,
      },
    },
    {
      resolver: { resolve: () => Promise.resolve(["127.0.0.1"]) },
      pool,
      cache: { get: () => Promise.resolve(null), set: () => Promise.resolve() },
      robots: new RobotsCache(),
      clock: { now: () => 0 },
    },
    new AbortController().signal,
  );
}

const mixed = "Grün und 漢字, € 7 — ";
const text = mixed.repeat(Math.floor((10 * MIB) / Buffer.byteLength(mixed)));

describe("the largest pages do not hold up the event loop", () => {
  test.each<[string, Page]>([
    [
      "a PDF",
      answer(Buffer.concat([Buffer.from("%PDF-1.7\n"), Buffer.alloc(10 * MIB - 9, 1)]), {
        "content-type": "application/pdf",
      }),
    ],
    ["plain text", answer(Buffer.from(text), { "content-type": "text/plain" })],
    [
      "text in another charset",
      answer(Buffer.alloc(10 * MIB, 0xfc), { "content-type": "text/plain; charset=windows-1252" }),
    ],
    [
      "JSON",
      answer(Buffer.from(JSON.stringify({ text: text.slice(0, 4_000_000) })), {
        "content-type": "application/json",
      }),
    ],
    ["HTML", answer(Buffer.from(`<p>${text.slice(0, 5_000_000)}`))],
    [
      "compressed HTML",
      answer(
        gzipSync(
          Buffer.from(Array.from({ length: 200_000 }, (_, index) => `<p>${index} ${mixed}</p>`).join("")),
        ),
        { "content-encoding": "gzip" },
      ),
    ],
  ])(
    "%s of up to 10 MiB",
    async (_, page) => {
      const site = await serve(page);
      const longest = await leastOf(50, async () => {
        const turns = new LoopTurns();
        const outcome = await open(site);
        expect(outcome).toMatchObject({ kind: "page" });
        return turns.stop();
      });
      expect(longest).toBeLessThan(50);
    },
    120_000,
  );

  test("twenty at once neither, and memory comes back", async () => {
    const site = await serve(
      answer(Buffer.from(`<main>${"<p>word word word word word</p>".repeat(3_000)}</main>`)),
    );
    const before = process.memoryUsage.rss();
    const longest = await leastOf(50, async () => {
      const turns = new LoopTurns();
      const outcomes = await Promise.all(Array.from({ length: 20 }, () => open(site)));
      expect(outcomes.map(({ kind }) => kind)).toEqual(outcomes.map(() => "page"));
      return turns.stop();
    });
    expect(longest).toBeLessThan(50);
    expect(process.memoryUsage.rss() - before).toBeLessThan(200 * MIB);
  }, 180_000);
});
