/** A data plane's inference with its tools, over HTTP: real stores and money, scripted upstreams, engines and pages. */
import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
import type { Dispatcher } from "undici";
import type { Policy, Route } from "../../dataplane/config/schema.ts";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { redisToolCache } from "../../dataplane/tools/cache.ts";
import { redisCallLimit } from "../../dataplane/tools/call-limit.ts";
import { createToolbox } from "../../dataplane/tools/toolbox.ts";
import { dnsResolver } from "../../dataplane/tools/url-guard/resolver.ts";
import { ExtractionPool } from "../../dataplane/tools/web-fetch/extract/pool.ts";
import { RobotsCache } from "../../dataplane/tools/web-fetch/robots-cache.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { searxng, x } from "../fakes/engines/engines.ts";
import { answer, FakeSite, type Page } from "../fakes/pages/site.ts";
import {
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
  sampleUpstream,
  sha256,
} from "../fakes/sample-snapshot.ts";
import { sdkClients } from "../fakes/sdk-clients.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import type { ReadRequest } from "../fakes/upstream/read-request.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { makeOrganization, Plane } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

export const organization = "org_tools";
/** Keys beside `sampleKeys.inference`: another one of the same organization, and another organization's. */
export const otherKeys = { same: sampleKeys.suspended, foreign: sampleKeys.narrow } as const;
const otherOrganization = "org_other";
/** Micro-credits that the organization begins with. */
export const granted = 1_000_000_000_000n;
export const hit = { url: "https://gates.example/new", title: "New gates", text: "Gates are now faster." };
const post = { id: "1", text: "Gates are faster now", author: "gatekeeper" };
export const final = `They are faster, says [the report](${hit.url}#top).`;

export const question = "Please search for gates.";
export const thanks = "Thank you.";

export const howOften = (whole: string, part: string): number => whole.split(part).length - 1;

/** What makes `lookingUp` call each tool, by the dialects that have it. */
export const bodies: Record<Dialect, Record<string, object>> = {
  messages: {
    search: {
      max_tokens: 500,
      messages: [{ role: "user", content: question }],
      tools: [{ type: "web_search_20260318", name: "web_search" }],
    },
    posts: {
      max_tokens: 500,
      messages: [{ role: "user", content: "Posts about gates" }],
      tools: [{ type: "x_search_20261005", name: "x_search" }],
    },
    page: {
      max_tokens: 500,
      messages: [{ role: "user", content: "Open {page}" }],
      tools: [{ type: "web_fetch_20260318", name: "web_fetch" }],
    },
  },
  chat: {
    search: { messages: [{ role: "user", content: question }], web_search_options: {} },
    page: { messages: [{ role: "user", content: "Open {page}" }], web_search_options: {} },
  },
  responses: {
    search: { input: question, tools: [{ type: "web_search" }] },
    posts: { input: "Posts about gates", tools: [{ type: "x_search" }] },
    page: { input: "Open {page}", tools: [{ type: "web_search" }] },
  },
};

/**
 * A model that looks things up when it is told to ("search …", "posts …", "open URL"), then answers with a link,
 * and otherwise says that it is welcome.
 */
export function lookingUp({ question, rounds, tools, toolChoice }: ReadRequest): Step {
  const offered = new Set(toolChoice === "none" ? [] : tools.map(({ name }) => name));
  const call = (name: string, input: object): Step => ({
    answer: {
      parts: [
        { type: "text", text: "Let me look." },
        { type: "tool", name, input },
      ],
    },
  });
  const url = /https?:\/\/\S+/.exec(question)?.[0];
  if (rounds > 0) return text(final);
  if (/^open/i.test(question) && url !== undefined && offered.has("web_fetch"))
    return call("web_fetch", { url });
  if (/^posts/i.test(question) && offered.has("x_search")) return call("x_search", { query: question });
  if (/search/i.test(question) && offered.has("web_search")) return call("web_search", { query: question });
  return text("You are welcome.");
}

export interface ToolsWorld extends AsyncDisposable {
  readonly server: TestServer;
  readonly upstream: FakeUpstream;
  readonly site: FakeSite;
  readonly plane: Plane;
  readonly anthropic: Anthropic;
  readonly openai: OpenAI;
  /** Base URL of the pages that may be opened: `/page`. */
  readonly pages: string;
  /** Sends a body to the path of its dialect; `{page}` in it, which no sealed contents hold by chance, stands for the URL of `/page`. */
  send(dialect: Dialect, body: object, more?: SendOptions): Promise<Response>;
  /** What the newest request to the upstream held. */
  lastSent(): string;
}

export interface SendOptions {
  readonly signal?: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface WorldOptions {
  readonly route?: Partial<Route>;
  readonly policy?: Partial<Policy>;
  /** Stands before each engine and page. */
  readonly around?: (page: Page) => Page;
  /** Further pages of the site. */
  readonly pages?: Readonly<Record<string, Page>>;
  readonly script?: (request: ReadRequest) => Step;
  /** Micro-credits that the organization begins with. */
  readonly granted?: bigint;
  /** Tool calls that the organization may make in a minute; unlimited when absent. */
  readonly callsPerMinute?: number;
}

/**
 * Models `m-messages`, `m-chat` and `m-responses`, named for the dialect that their upstream speaks; `m-uncited` over
 * Messages, which does not cite documents; and, over Chat, `m-off` without a ToolPolicy, `m-pages` with pages only (its
 * search tools have no engine), and `m-deaf`, which cannot call tools.
 */
export async function startToolsWorld(options: WorldOptions = {}): Promise<ToolsWorld> {
  const around = options.around ?? ((page) => page);
  const served = {
    ...searxng([hit]),
    ...x([post]),
    "/page": linkingPage,
    "/linked": linkingPage,
    ...options.pages,
  };
  const site = await FakeSite.start(
    Object.fromEntries(Object.entries(served).map(([path, page]) => [path, around(page)])),
  );
  const upstream = await startUpstream({ fallback: options.script ?? lookingUp });
  const database = await freshDatabase();
  const redis = await freshRedis();
  const plane = await Plane.open(
    { redisUrl: redis.url, postgresUrl: database.url },
    { recheckKey: async () => ({ keyEpoch: 1, projectId: "proj_test", limits: [] }) },
  );
  await makeOrganization(plane.pool, organization, options.granted ?? granted);
  await makeOrganization(plane.pool, otherOrganization, granted);
  const dispatcher = newUpstreamDispatcher();
  const pool = new ExtractionPool();
  const server = await serving({ plane, dispatcher, pages: pool, site, upstream, options });
  const pages = `http://127.0.0.1:${site.port}`;
  return {
    server,
    upstream,
    site,
    plane,
    pages,
    send: (dialect, body, more = {}) =>
      server.fetch(dialectPath[dialect], {
        method: "POST",
        ...more,
        headers: { "content-type": "application/json", ...more.headers },
        body: JSON.stringify(body).replaceAll("{page}", `${pages}/page`),
      }),
    lastSent: () => upstream.requests.at(-1)?.text ?? "",
    ...sdkClients(server.url, sampleKeys.inference),
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await dispatcher.destroy();
      await pool.close();
      await upstream.close();
      await site.stop();
      await closeStores(plane, redis, database);
    },
  };
}

const linkingPage = answer(
  '<title>A page</title><article><p>About gates. See <a href="/linked">more of them</a>.</p></article>',
);

interface Parts {
  readonly plane: Plane;
  readonly dispatcher: Dispatcher;
  readonly pages: ExtractionPool;
  readonly site: FakeSite;
  readonly upstream: FakeUpstream;
  readonly options: WorldOptions;
}

function serving({ plane, dispatcher, pages, site, upstream, options }: Parts): Promise<TestServer> {
  const cache = redisToolCache(plane.redis);
  const runTool = createToolbox({
    admit: redisCallLimit(plane.redis),
    bodies: new ByteBudget(1e9),
    fetch: { resolver: dnsResolver(), pool: pages, cache, robots: new RobotsCache(), clock: systemClock },
    search: { dispatcher, cache },
    posts: { dispatcher, clock: systemClock },
  });
  const serve = createServe(
    new Upstreams(dispatcher),
    sealing([{ id: "test", key: Buffer.alloc(32, 7) }]),
    runTool,
  );
  const fixed = snapshotOver(upstream.url, site.port, options);
  return startTestServer([inferenceRoutes({ meter: plane.holds, serve })], { snapshot: () => fixed });
}

function snapshotOver(
  upstreamUrl: string,
  sitePort: number,
  { route, policy, callsPerMinute }: WorldOptions,
) {
  const baseUrl = `http://127.0.0.1:${sitePort}`;
  const tools: Policy = {
    source: sampleSource("ToolPolicy", "default"),
    webSearch: { engine: { type: "searxng", baseUrl, credential: null }, timeoutMs: 15_000 },
    webFetch: {
      timeoutMs: 20_000,
      maxBytes: 10_485_760,
      cacheTtlMs: 900_000,
      allowCidrs: ["127.0.0.1/32"],
      allowPorts: [sitePort],
      proxy: null,
    },
    xSearch: { engine: { baseUrl, credential: null }, timeoutMs: 30_000 },
    callsPerMinute: 60,
    iterations: 8,
    parallelCalls: 4,
    ...policy,
  };
  const { capabilities } = sampleRoute("m");
  const routeTo = (dialect: Dialect, name: string = dialect, more: Partial<Route> = {}) =>
    sampleRoute(`m-${name}`, {
      upstreams: [
        sampleUpstream({
          dialect,
          url: upstreamUrl + dialectPath[dialect],
          model: `upstream-${dialect}`,
          ...(dialect === "chat" ? { propagateTrace: true } : {}),
        }),
      ],
      toolPolicy: "default/default",
      limits: { contextTokens: 200_000, maxOutputTokens: 2_000 },
      capabilities: { ...capabilities, documentCitations: dialect === "messages" },
      ...route,
      ...more,
    });
  const pages: Policy = {
    ...tools,
    source: sampleSource("ToolPolicy", "pages"),
    webSearch: { engine: null, timeoutMs: 15_000 },
    xSearch: { engine: null, timeoutMs: 30_000 },
  };
  return sampleSnapshot(
    sampleRouting(1, {
      routes: [
        ...dialects.map((dialect) => routeTo(dialect)),
        routeTo("messages", "uncited", { capabilities }),
        routeTo("chat", "off", { toolPolicy: null }),
        routeTo("chat", "pages", { toolPolicy: "default/pages" }),
        routeTo("chat", "deaf", { capabilities: { ...capabilities, toolCalling: false } }),
      ],
      policies: { "default/default": tools, "default/pages": pages },
      organizations: [
        sampleOrganization(organization, {
          toolCallsPerMinute: callsPerMinute ?? 1_000_000,
          apiKeys: [keyOf("ci", sampleKeys.inference), keyOf("second", otherKeys.same)],
        }),
        sampleOrganization(otherOrganization, { apiKeys: [keyOf("ci", otherKeys.foreign)] }),
      ],
    }),
  );
}

const keyOf = (name: string, key: string) => ({
  name,
  sha256: sha256(key),
  hint: key.slice(0, 14),
  project: "default",
});

async function closeStores(plane: Plane, redis: TestStore, database: TestDatabase): Promise<void> {
  await plane.close();
  await redis[Symbol.asyncDispose]();
  await database.drop();
}
