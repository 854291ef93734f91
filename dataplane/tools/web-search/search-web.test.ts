import { Agent } from "undici";
import { afterAll, describe, expect, test } from "vitest";
import { domainLists } from "../../../test/fakes/domain-lists.ts";
import {
  brave,
  broken,
  huge,
  placeless,
  searxng,
  slow,
  tavily,
  type FakeHit,
} from "../../../test/fakes/engines/engines.ts";
import { servedSites } from "../../../test/fakes/pages/serve-site.ts";
import { answer, FakeSite, type Page } from "../../../test/fakes/pages/site.ts";
import type { SearchEngine } from "../../config/schema.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import type { ToolCache } from "../cache.ts";
import type { UserLocation } from "../declaration-reader.ts";
import { anyDomain, type DomainLists } from "../domains.ts";
import type { SearchOutcome } from "../outcomes.ts";
import type { AskModel } from "./model-engine.ts";
import { searchWeb, type SearchDeps } from "./search-web.ts";

const dispatcher = new Agent();
const serve = servedSites();
afterAll(() => dispatcher.destroy());

class RecordingCache implements ToolCache {
  readonly entries = new Map<string, Buffer>();
  get(key: string): Promise<Buffer | null> {
    return Promise.resolve(this.entries.get(key) ?? null);
  }
  set(_: string, key: string, value: Buffer): Promise<void> {
    this.entries.set(key, value);
    return Promise.resolve();
  }
}

const noModel: AskModel = () => Promise.reject(new Error("no model here"));

interface Options extends Partial<Omit<SearchDeps, "dispatcher">> {
  readonly input?: unknown;
  readonly results?: number;
  readonly domains?: DomainLists;
  readonly location?: UserLocation | null;
  readonly timeoutMs?: number;
  readonly organizationId?: string;
  readonly generation?: number;
  readonly signal?: AbortSignal;
}

type HttpEngineType = "searxng" | "brave" | "tavily";

function search(
  where: { readonly port: number } | { readonly model: string },
  type: HttpEngineType | "model",
  options: Options = {},
): Promise<SearchOutcome> {
  const engine: SearchEngine =
    "port" in where
      ? {
          type: type as HttpEngineType,
          baseUrl: `http://127.0.0.1:${where.port}`,
          credential: type === "searxng" ? null : "key",
        }
      : { type: "model", model: where.model };
  const { generation = 1 } = options;
  return searchWeb(
    {
      input: "input" in options ? options.input : { query: "old bridges" },
      organizationId: options.organizationId ?? "org_a",
      options: {
        results: options.results ?? 5,
        domains: options.domains ?? anyDomain,
        location: options.location ?? null,
      },
    },
    {
      source: { kind: "ToolPolicy", namespace: "default", name: "default", uid: "uid-1", generation },
      webSearch: { engine, timeoutMs: options.timeoutMs ?? 5_000 },
    },
    {
      dispatcher,
      cache: options.cache ?? new RecordingCache(),
      credential: options.credential ?? ((id) => (id === "key" ? "s3cret" : undefined)),
      askModel: options.askModel ?? noModel,
    },
    options.signal ?? new AbortController().signal,
  );
}

const hits: readonly FakeHit[] = [
  {
    url: "https://a.example/one",
    title: "One &amp; <b>only</b>",
    text: "The <strong>old</strong> bridge.",
    age: "2026-01-02",
  },
  { url: "https://b.example/two", title: null, text: null },
];
const expected = [
  { url: "https://a.example/one", title: "One & only", text: "The old bridge.", age: "2026-01-02" },
  { url: "https://b.example/two", title: null, text: "", age: null },
];
const engines: readonly [HttpEngineType, (list: readonly FakeHit[]) => Record<string, Page>][] = [
  ["searxng", searxng],
  ["brave", brave],
  ["tavily", tavily],
];
const berlin: UserLocation = { city: "Berlin", region: "Berlin", country: "de", timezone: "Europe/Berlin" };

describe.each(engines)("%s", (type, fake) => {
  test("hits are read", async () => {
    expect(await search(await serve(fake(hits)), type)).toEqual({
      kind: "hits",
      hits: expected,
      posts: 0,
      profiles: 0,
    });
  });

  test("no hits are hits too", async () => {
    expect(await search(await serve(fake([])), type)).toEqual({
      kind: "hits",
      hits: [],
      posts: 0,
      profiles: 0,
    });
  });

  test("results are at most those wanted, snippets at most 1,000 characters, bad entries are skipped", async () => {
    const many = [
      { url: "javascript:alert(1)", title: "x", text: "x" },
      { url: "not a url", title: "x", text: "x" },
      { url: 7 as unknown as string },
      ...Array.from({ length: 40 }, (_, index) => ({
        url: `https://a.example/${index >> 1}`,
        title: {},
        text: "😀".repeat(5_000),
      })),
    ];
    for (const results of [5, 8, 10, 50]) {
      const outcome = await search(await serve(fake(many)), type, { results });
      const found = outcome.kind === "hits" ? outcome.hits : [];
      expect(found).toHaveLength(Math.min(results, 10));
      expect(new Set(found.map(({ url }) => url)).size).toBe(found.length);
      for (const { text, title } of found) {
        expect(text.length).toBeLessThanOrEqual(1_000);
        expect(text.isWellFormed()).toBe(true);
        expect(title).toBeNull();
      }
    }
  });

  test("domain lists hold for what the engine gives", async () => {
    const site = await serve(fake(hits));
    const urls = (outcome: SearchOutcome) =>
      outcome.kind === "hits" ? outcome.hits.map(({ url }) => url) : outcome;
    expect(urls(await search(site, type, { domains: domainLists(["b.example"]) }))).toEqual([
      "https://b.example/two",
    ]);
    expect(urls(await search(site, type, { domains: domainLists(null, ["b.example"]) }))).toEqual([
      "https://a.example/one",
    ]);
  });

  test.each(Object.entries(broken))("an engine that answers with %s is unavailable", async (name, page) => {
    const path = Object.keys(fake([]))[0] ?? "";
    const cache = new RecordingCache();
    const outcome = await search(await serve({ [path]: page }), type, { cache });
    expect(outcome).toMatchObject({ kind: "error", code: "unavailable" });
    expect(JSON.stringify(outcome)).not.toContain("s3cret");
    expect(cache.entries.size).toBe(0);
  });

  test("a slow engine, a huge one and one that is away are unavailable", async () => {
    const [path = "", page = broken.nothing] = Object.entries(fake(hits))[0] ?? [];
    const started = performance.now();
    expect(await search(await serve({ [path]: slow(page, 60_000) }), type, { timeoutMs: 150 })).toMatchObject(
      { code: "unavailable" },
    );
    expect(performance.now() - started).toBeLessThan(3_000);
    expect(await search(await serve({ [path]: huge }), type)).toMatchObject({ code: "unavailable" });
    const away = await FakeSite.start({});
    const { port } = away;
    await away.stop();
    expect(await search({ port }, type)).toMatchObject({ code: "unavailable" });
  });
});

describe("what engines are asked", () => {
  test("SearXNG: query, format, page, and a language for a place", async () => {
    const site = await serve(searxng(hits));
    await search(site, "searxng");
    await search(site, "searxng", { location: berlin });
    expect(site.paths).toEqual([
      "/search?q=old+bridges&format=json&pageno=1",
      "/search?q=old+bridges&format=json&pageno=1&language=de-DE",
    ]);
  });

  test("Brave: query, count, key, and the place in its fields", async () => {
    const site = await serve(brave(hits));
    await search(site, "brave", { results: 8, location: { ...berlin, city: "München", region: "東京" } });
    const [asked] = site.asked;
    expect(asked?.path).toBe("/res/v1/web/search?q=old+bridges&count=8&country=DE");
    expect(asked?.headers).toMatchObject({
      "x-subscription-token": "s3cret",
      "x-loc-city": "München",
      "x-loc-country": "de",
      "x-loc-timezone": "Europe/Berlin",
    });
    expect(asked?.headers["x-loc-state-name"]).toBeUndefined();
  });

  test("Tavily: query, results, domains and country in the body, key as bearer", async () => {
    const bodies: unknown[] = [];
    const site = await serve(tavily(hits, bodies));
    await search(site, "tavily", { domains: domainLists(["a.example/docs"]), location: berlin, results: 10 });
    await search(site, "tavily", { domains: domainLists(null, ["b.example", "c.example/path"]) });
    expect(bodies).toEqual([
      { query: "old bridges", max_results: 10, include_domains: ["a.example"], country: "germany" },
      { query: "old bridges", max_results: 5, exclude_domains: ["b.example"] },
    ]);
    expect(site.asked[0]?.headers.authorization).toBe("Bearer s3cret");
  });

  test("SearXNG without hits whose own engines did not answer knows nothing: unavailable, and not kept", async () => {
    const cache = new RecordingCache();
    const answering = (results: unknown[]) =>
      answer(JSON.stringify({ results, unresponsive_engines: [["brave", "timeout"]] }));
    const outcome = await search(await serve({ "/search": answering([]) }), "searxng", { cache });
    expect(outcome).toMatchObject({ kind: "error", code: "unavailable" });
    expect(cache.entries.size).toBe(0);
    const some = await search(
      await serve({ "/search": answering([{ url: "https://a.example/" }]) }),
      "searxng",
    );
    expect(some).toMatchObject({ kind: "hits", hits: [{ url: "https://a.example/" }] });
  });

  test.each([
    [1, ["google", "wikipedia"], "hits"],
    [1, ["google"], "hits"],
    [4, ["wikipedia", "wikidata"], "error"],
    [1, [], "error"],
  ] as const)(
    "SearXNG without hits, %d of whose engines are silent while %j answered: %s",
    async (silent, answered, kind) => {
      const timings = answered.flatMap((name, at) => [
        `total_${at}_${name};dur=21.5`,
        `load_${at}_${name};dur=20`,
      ]);
      const body = {
        results: [],
        unresponsive_engines: Array.from({ length: silent }, () => ["b", "CAPTCHA"]),
      };
      const page = answer(JSON.stringify(body), {
        "server-timing": ["total;dur=30.1", "render;dur=0", ...timings].join(", "),
      });
      expect(await search(await serve({ "/search": page }), "searxng")).toMatchObject({ kind });
    },
  );

  test("an engine that refuses the place is asked without it", async () => {
    const [[path, page] = ["", broken.nothing]] = Object.entries(brave(hits));
    const site = await serve({ [path]: placeless(page) });
    expect(await search(site, "brave", { location: berlin })).toMatchObject({ kind: "hits" });
    expect(site.asked).toHaveLength(2);
  });

  test("domains become site operators where they fit", async () => {
    const site = await serve(searxng(hits));
    await search(site, "searxng", { domains: domainLists(["a.example", "b.example/x"]) });
    await search(site, "searxng", { domains: domainLists(null, ["b.example"]) });
    await search(site, "searxng", {
      domains: domainLists(Array.from({ length: 11 }, (_, index) => `d${index}.example`)),
    });
    expect(site.paths.map((path) => new URL(path, "http://x").searchParams.get("q"))).toEqual([
      "old bridges (site:a.example OR site:b.example)",
      "old bridges -site:b.example",
      "old bridges",
    ]);
  });
});

describe("the query", () => {
  test.each<[unknown, string]>([
    [undefined, "invalid_tool_input"],
    [null, "invalid_tool_input"],
    ["old bridges", "invalid_tool_input"],
    [{}, "invalid_tool_input"],
    [{ query: 7 }, "invalid_tool_input"],
    [{ query: "" }, "invalid_tool_input"],
    [{ query: " \n\t " }, "invalid_tool_input"],
    [{ query: "a".repeat(401) }, "query_too_long"],
    [{ query: "😀".repeat(401) }, "query_too_long"],
    [{ query: "a".repeat(10_000_000) }, "query_too_long"],
  ])("%.60j is refused without a call", async (input, code) => {
    const site = await serve(searxng(hits));
    expect(await search(site, "searxng", { input })).toMatchObject({ kind: "error", code });
    expect(site.asked).toEqual([]);
  });

  test("400 characters are served, blanks and control characters become single blanks", async () => {
    const site = await serve(searxng(hits));
    expect(await search(site, "searxng", { input: { query: "😀".repeat(400) } })).toMatchObject({
      kind: "hits",
    });
    await search(site, "searxng", { input: { query: " a\n\u0000b\ud800 " } });
    expect(new URL(site.paths[1] ?? "", "http://x").searchParams.get("q")).toBe("a b\ufffd");
  });
});

describe("the search cache", () => {
  test("is keyed by organization, policy generation, query and options", async () => {
    const site = await serve(searxng(hits));
    const cache = new RecordingCache();
    const first = await search(site, "searxng", { cache });
    expect(await search(site, "searxng", { cache })).toEqual(first);
    expect(site.asked).toHaveLength(1);
    await search(site, "searxng", { cache, organizationId: "org_b" });
    await search(site, "searxng", { cache, generation: 2 });
    await search(site, "searxng", { cache, results: 8 });
    await search(site, "searxng", { cache, domains: domainLists(["a.example"]) });
    await search(site, "searxng", { cache, input: { query: "new bridges" } });
    expect(site.asked).toHaveLength(6);
    expect(cache.entries.size).toBe(6);
  });
});

describe("the Model engine", () => {
  const answers = {
    messages: {
      content: [
        { type: "server_tool_use", name: "web_search", input: {} },
        {
          type: "web_search_tool_result",
          content: [
            {
              type: "web_search_result",
              url: "https://a.example/one",
              title: "One",
              encrypted_content: "x",
              page_age: "May 1, 2026",
            },
            { type: "web_search_result", url: "https://b.example/two", title: "Two", encrypted_content: "x" },
          ],
        },
        {
          type: "text",
          text: "One is old.",
          citations: [{ url: "https://a.example/one", title: "One", cited_text: "It is old." }],
        },
      ],
    },
    responses: {
      output: [
        {
          type: "web_search_call",
          action: { type: "search", sources: [{ type: "url", url: "https://b.example/two" }] },
        },
        {
          type: "message",
          content: [
            {
              type: "output_text",
              text: "Found:\n- [One](https://a.example/one) is old.\n",
              annotations: [
                {
                  type: "url_citation",
                  url: "https://a.example/one",
                  title: "One",
                  start_index: 9,
                  end_index: 37,
                },
              ],
            },
          ],
        },
      ],
    },
    chat: {
      choices: [
        {
          message: {
            content: "One is old.",
            annotations: [
              {
                type: "url_citation",
                url_citation: { url: "https://a.example/one", title: "One", start_index: 0, end_index: 3 },
              },
            ],
          },
        },
      ],
    },
  };

  test.each(["messages", "responses", "chat"] as const)(
    "reads the results and citations of a %s answer",
    async (dialect) => {
      const outcome = await search({ model: "search-model" }, "model", {
        askModel: (model, build) => {
          expect(model).toBe("search-model");
          expect(JSON.stringify(build(dialect))).toContain("old bridges");
          return Promise.resolve({ dialect, body: answers[dialect] });
        },
      });
      expect(outcome.kind === "hits" && outcome.hits).toContainEqual(
        expect.objectContaining({
          url: "https://a.example/one",
          title: "One",
          text: expect.stringMatching(/is old\.$/) as string,
        }),
      );
    },
  );

  const failedResult = {
    type: "web_search_tool_result",
    content: { type: "web_search_tool_result_error", error_code: "unavailable" },
  };
  const says = { type: "message", content: [{ type: "output_text", text: "Sorry.", annotations: [] }] };
  test.each<[string, Dialect, object]>([
    ["a search that failed", "messages", { content: [failedResult, { type: "text", text: "Sorry." }] }],
    [
      "a search that failed",
      "responses",
      { status: "completed", output: [{ type: "web_search_call", status: "failed" }, says] },
    ],
    ["an answer that failed", "responses", { status: "failed", error: { code: "server_error" }, output: [] }],
  ])("%s in a %s answer is unavailable, and not kept as one without hits", async (_, dialect, body) => {
    const cache = new RecordingCache();
    const askModel: AskModel = () => Promise.resolve({ dialect, body });
    const outcome = await search({ model: "m" }, "model", { askModel, cache });
    expect(outcome).toMatchObject({ kind: "error", code: "unavailable" });
    expect(cache.entries.size).toBe(0);
  });

  test("what an answer cites is found also where its results are left out", async () => {
    const cited = { url: "https://a.example/", title: "A", cited_text: "So it is." };
    const body = {
      content: [{ type: "web_search_tool_result" }, { type: "text", text: "It is.", citations: [cited] }],
    };
    const askModel: AskModel = () => Promise.resolve({ dialect: "messages", body });
    const outcome = await search({ model: "m" }, "model", { askModel });
    expect(outcome).toMatchObject({ kind: "hits", hits: [{ url: "https://a.example/" }] });
  });

  test("one of several searches that found nothing is no failure", async () => {
    const body = { content: [{ type: "web_search_tool_result", content: [] }, failedResult] };
    const askModel: AskModel = () => Promise.resolve({ dialect: "messages", body });
    expect(await search({ model: "m" }, "model", { askModel })).toMatchObject({ kind: "hits", hits: [] });
  });

  test("declares the dialect's own search with lists and place", async () => {
    const built: unknown[] = [];
    const askModel: AskModel = (_, build) => {
      built.push(build("messages"), build("responses"), build("chat"));
      return Promise.resolve({ dialect: "chat", body: answers.chat });
    };
    await search({ model: "m" }, "model", {
      askModel,
      domains: domainLists(["a.example/x*y"]),
      location: { region: "Berlin", country: "de", timezone: "Europe/Berlin" },
    });
    const place = { type: "approximate", region: "Berlin", country: "de", timezone: "Europe/Berlin" };
    expect(built).toMatchObject([
      { tools: [{ type: "web_search_20250305", allowed_domains: ["a.example/x*y"], user_location: place }] },
      {
        store: false,
        tools: [
          { type: "web_search", filters: { allowed_domains: ["a.example/x*y"] }, user_location: place },
        ],
      },
      {
        web_search_options: {
          user_location: {
            type: "approximate",
            approximate: { region: "Berlin", country: "de", timezone: "Europe/Berlin" },
          },
        },
      },
    ]);
  });

  test.each([[null], ["text"], [{}], [{ content: "no blocks" }], [{ choices: [] }]])(
    "an answer of %j is unavailable",
    async (body) => {
      for (const dialect of ["messages", "responses", "chat"] as const) {
        const askModel: AskModel = () => Promise.resolve({ dialect, body });
        expect(await search({ model: "m" }, "model", { askModel })).toMatchObject({ code: "unavailable" });
      }
    },
  );

  test("a model that fails or takes too long is unavailable", async () => {
    expect(await search({ model: "m" }, "model")).toMatchObject({ code: "unavailable" });
    const askModel: AskModel = (_model, _build, signal) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason as Error)),
      );
    expect(await search({ model: "m" }, "model", { askModel, timeoutMs: 50 })).toMatchObject({
      code: "unavailable",
      detail: "timed out",
    });
  });
});

test("a caller that gave up gets its own reason", async () => {
  const [[path, page] = ["", broken.nothing]] = Object.entries(searxng(hits));
  const site = await serve({ [path]: slow(page, 60_000) });
  const controller = new AbortController();
  const searching = search(site, "searxng", { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("client is gone")), 50);
  await expect(searching).rejects.toThrow("client is gone");
});
