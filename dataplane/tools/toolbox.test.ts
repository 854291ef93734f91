import { Agent } from "undici";
import { afterAll, describe, expect, test } from "vitest";
import { broken, searxng, x } from "../../test/fakes/engines/engines.ts";
import { servedSites } from "../../test/fakes/pages/serve-site.ts";
import { answer, type FakeSite, type Page } from "../../test/fakes/pages/site.ts";
import { sampleRoute, sampleSource } from "../../test/fakes/sample-snapshot.ts";
import type { Policy } from "../config/schema.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import { ByteBudget, type ByteLease } from "../lib/byte-budget.ts";
import type { ToolCache } from "./cache.ts";
import type { RequestedTools } from "./declarations.ts";
import { anyDomain } from "./domains.ts";
import { createToolbox, type RunOutcome } from "./toolbox.ts";
import { ExtractionPool } from "./web-fetch/extract/pool.ts";
import { PriorContext } from "./web-fetch/prior-context.ts";
import { RobotsCache } from "./web-fetch/robots-cache.ts";

const dispatcher = new Agent();
const pool = new ExtractionPool();
const serve = servedSites();
/** Those of the last run. */
let site: FakeSite;
let kept: ByteLease[];
afterAll(async () => {
  await pool.close();
  await dispatcher.destroy();
});

const noCache: ToolCache = { get: () => Promise.resolve(null), set: () => Promise.resolve() };
const clock = { now: () => Date.UTC(2026, 10, 21) };

const everything: RequestedTools = {
  webSearch: { domains: anyDomain, maxUses: null, location: null, results: 5 },
  webFetch: { domains: anyDomain, maxUses: null, citations: false, maxContentTokens: null, useCache: true },
  xSearch: { maxUses: null, allowedHandles: null, excludedHandles: ["spam"], fromDate: null, toDate: null },
  maxToolCalls: null,
  forced: null,
};

interface Options {
  readonly tools?: Partial<RequestedTools>;
  readonly admit?: (organizationId: string, limit: number) => Promise<boolean>;
  readonly policy?: Partial<Policy>;
  readonly own?: number | null;
  /** The request may hold no more pages. */
  readonly full?: boolean;
}

async function run(
  name: ServerToolName,
  input: Record<string, string>,
  pages: Record<string, Page>,
  options: Options = {},
): Promise<RunOutcome> {
  site = await serve(pages);
  kept = [];
  const baseUrl = `http://127.0.0.1:${site.port}`;
  const policy: Policy = {
    source: sampleSource("ToolPolicy", "default"),
    webSearch: { engine: { type: "searxng", baseUrl, credential: null }, timeoutMs: 2_000 },
    webFetch: {
      timeoutMs: 2_000,
      maxBytes: 100_000,
      cacheTtlMs: 1_000,
      allowCidrs: ["127.0.0.1/32"],
      allowPorts: [site.port],
      proxy: null,
    },
    xSearch: { engine: { baseUrl, credential: "x-key" }, timeoutMs: 2_000 },
    callsPerMinute: 60,
    iterations: 8,
    parallelCalls: 4,
    ...options.policy,
  };
  const prior = new PriorContext();
  prior.addUrl(`${baseUrl}/page`);
  const toolbox = createToolbox({
    admit: options.admit ?? (() => Promise.resolve(true)),
    bodies: new ByteBudget(1e9),
    fetch: {
      resolver: { resolve: () => Promise.reject(new Error("no names here")) },
      pool,
      cache: noCache,
      robots: new RobotsCache(),
      clock,
    },
    search: { dispatcher, cache: noCache },
    posts: { dispatcher, clock },
  });
  const scope = {
    organization: { id: "org_a", toolCallsPerMinute: options.own ?? null },
    route: sampleRoute("m"),
    policy,
    tools: { ...everything, ...options.tools },
    prior,
    keep: (lease: ByteLease) => {
      if (options.full !== true) kept.push(lease);
      return options.full !== true;
    },
    credential: (id: string) => (id === "x-key" ? "s3cret" : undefined),
    askModel: () => Promise.reject(new Error("no model here")),
  };
  const given = Object.fromEntries(
    Object.entries(input).map(([key, value]) => [key, value.replace("BASE", baseUrl)]),
  );
  return await toolbox(name, given, scope, new AbortController().signal);
}

const search = searxng([{ url: "https://a.example/", title: "A", text: "about a" }]);
const posts = x([
  { id: "1", text: "hello", author: "harbour" },
  { id: "2", text: "buy", author: "spam" },
]);

describe("the toolbox", () => {
  test("runs each tool with its engine under the request's declarations", async () => {
    expect(await run("web_search", { query: "a" }, search)).toMatchObject({
      kind: "hits",
      hits: [{ url: "https://a.example/" }],
    });
    expect(await run("x_search", { query: "a" }, posts)).toMatchObject({
      kind: "hits",
      posts: 1,
      profiles: 1,
    });
    expect(
      await run(
        "web_fetch",
        { url: "BASE/page" },
        { "/page": answer("hi", { "content-type": "text/plain" }) },
      ),
    ).toMatchObject({
      kind: "page",
      page: { source: { text: "hi" } },
    });
  });

  test("rule 7.2: what counts a page's bytes is kept for it, and nothing of what failed", async () => {
    const pages = { "/page": answer("hi", { "content-type": "text/plain" }) };
    await run("web_fetch", { url: "BASE/page" }, pages);
    expect(kept.map(({ bytes }) => bytes)).toEqual([2]);
    expect(await run("web_fetch", { url: "BASE/page" }, pages, { full: true })).toEqual({
      kind: "error",
      code: "unavailable",
    });
    await run("web_fetch", { url: "BASE/page" }, {});
    expect(kept).toEqual([]);
  });

  test("the account's own limit counts, else the policy's; beyond it nothing runs", async () => {
    const limits: number[] = [];
    const admit = (_: string, limit: number) => {
      limits.push(limit);
      return Promise.resolve(limit !== 7);
    };
    expect(await run("web_search", { query: "a" }, search, { admit })).toMatchObject({ kind: "hits" });
    expect(await run("web_search", { query: "a" }, search, { admit, own: 7 })).toEqual({
      kind: "error",
      code: "too_many_requests",
    });
    expect(limits).toEqual([60, 7]);
    expect(site.asked).toEqual([]);
  });

  test("without the counter nothing runs", async () => {
    const admit = () => Promise.reject(new Error("no store"));
    expect(await run("x_search", { query: "a" }, posts, { admit })).toEqual({
      kind: "error",
      code: "unavailable",
    });
    expect(site.asked).toEqual([]);
  });

  test.each<[ServerToolName, Options]>([
    ["web_search", { tools: { webSearch: null } }],
    ["web_fetch", { tools: { webFetch: null } }],
    ["x_search", { tools: { xSearch: null } }],
    ["web_search", { policy: { webSearch: null } }],
    ["web_search", { policy: { webSearch: { engine: null, timeoutMs: 1 } } }],
    ["web_fetch", { policy: { webFetch: null } }],
    ["x_search", { policy: { xSearch: { engine: null, timeoutMs: 1 } } }],
    ["web_search", { policy: { webSearch: { engine: { type: "model", model: "gone" }, timeoutMs: 1_000 } } }],
  ])("%s under %j is unavailable", async (name, options) => {
    expect(await run(name, { query: "a", url: "BASE/page" }, {}, options)).toMatchObject({
      kind: "error",
      code: "unavailable",
    });
  });

  test("a broken engine is unavailable, a bad input is named", async () => {
    expect(await run("web_search", { query: "a" }, { "/search": broken.failing })).toMatchObject({
      code: "unavailable",
    });
    expect(await run("web_search", { q: "a" }, search)).toMatchObject({ code: "invalid_tool_input" });
    expect(await run("web_fetch", { url: "https://never.example/" }, {})).toMatchObject({
      code: "url_not_in_prior_context",
    });
  });
});
