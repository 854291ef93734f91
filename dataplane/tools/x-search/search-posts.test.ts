import { Agent } from "undici";
import { afterAll, describe, expect, test } from "vitest";
import { broken, huge, slow, x, type FakePost } from "../../../test/fakes/engines/engines.ts";
import { servedSites } from "../../../test/fakes/pages/serve-site.ts";
import { answer, type FakeSite } from "../../../test/fakes/pages/site.ts";
import type { SearchOutcome } from "../outcomes.ts";
import { postQuery, searchPosts, type PostOptions } from "./search-posts.ts";

const NOW = Date.UTC(2026, 10, 21, 12);
const dispatcher = new Agent();
const serve = servedSites();
afterAll(() => dispatcher.destroy());

const noOptions: PostOptions = { allowedHandles: [], excludedHandles: [], fromDate: null, toDate: null };

function search(
  site: FakeSite,
  options: Partial<PostOptions> = {},
  { input, timeoutMs = 5_000 }: { input?: unknown; timeoutMs?: number } = {
    input: { query: "harbour bridge" },
  },
): Promise<SearchOutcome> {
  return searchPosts(
    { input, options: { ...noOptions, ...options } },
    { xSearch: { engine: { baseUrl: `http://127.0.0.1:${site.port}/`, credential: "bearer" }, timeoutMs } },
    { dispatcher, credential: (id) => (id === "bearer" ? "s3cret" : undefined), clock: { now: () => NOW } },
    new AbortController().signal,
  );
}

const posts: readonly FakePost[] = [
  {
    id: "101",
    text: "The bridge is open &lt;3 &amp; free",
    author: "harbour",
    createdAt: "2026-11-20T08:00:00.000Z",
  },
  { id: "102", text: "second", author: "Tides" },
  { id: "103", text: "third", author: "harbour" },
];

describe("x_search", () => {
  test("posts are results, titled by handle and start of the post; two posts of one author are one profile (rule 3.17)", async () => {
    const site = await serve(x(posts));
    expect(await search(site)).toEqual({
      kind: "hits",
      posts: 3,
      profiles: 2,
      hits: [
        {
          url: "https://x.com/harbour/status/101",
          title: "@harbour: The bridge is open <3 & free",
          text: "The bridge is open <3 & free",
          age: "2026-11-20T08:00:00.000Z",
        },
        { url: "https://x.com/Tides/status/102", title: "@Tides: second", text: "second", age: null },
        { url: "https://x.com/harbour/status/103", title: "@harbour: third", text: "third", age: null },
      ],
    });
    const [asked] = site.asked;
    const url = new URL(asked?.path ?? "", "http://x");
    expect(url.pathname).toBe("/2/tweets/search/recent");
    expect(Object.fromEntries(url.searchParams)).toMatchObject({
      query: "harbour bridge",
      max_results: "10",
      expansions: "author_id",
    });
    expect(asked?.headers.authorization).toBe("Bearer s3cret");
  });

  describe("X takes queries of 512 characters, and longer ones of some", () => {
    const handles = Array.from(
      { length: 20 },
      (_, index) => `fifteenletters${String.fromCharCode(97 + index)}`,
    );
    const input = { query: "q".repeat(300) };
    const asked = (site: FakeSite) =>
      new URL(site.paths[0] ?? "", "http://x").searchParams.get("query") ?? "";

    test("excluded handles that do not fit are left out, and their posts too", async () => {
      const site = await serve(x([...posts, { id: "104", text: "last", author: handles[19] ?? "" }]));
      const outcome = await search(site, { excludedHandles: handles }, { input });
      expect(outcome).toMatchObject({ kind: "hits", posts: 3 });
      expect(asked(site).length).toBeLessThanOrEqual(512);
      expect(asked(site)).toContain(`-from:${handles[0]}`);
      expect(asked(site)).not.toContain(handles[19]);
    });

    test("one that is refused with its allowed handles is told to be too long", async () => {
      const refusing = answer('{"errors":[]}', {}, 400);
      const pages = { "/2/tweets/search/recent": refusing };
      const long = await serve(pages);
      expect(await search(long, { allowedHandles: handles }, { input })).toMatchObject({
        kind: "error",
        code: "query_too_long",
      });
      for (const handle of handles) expect(asked(long)).toContain(`from:${handle}`);
      expect(await search(await serve(pages), { allowedHandles: handles.slice(0, 2) })).toMatchObject({
        kind: "error",
        code: "unavailable",
      });
    });
  });

  test("no posts are no fault, and at most 10 are taken", async () => {
    expect(await search(await serve(x([])))).toEqual({ kind: "hits", hits: [], posts: 0, profiles: 0 });
    const many = Array.from({ length: 30 }, (_, index) => ({
      id: String(index),
      text: "x".repeat(5_000),
      author: `a${index}`,
    }));
    const outcome = await search(await serve(x(many)));
    expect(outcome).toMatchObject({ kind: "hits", posts: 10, profiles: 10 });
    expect(outcome.kind === "hits" && outcome.hits.every(({ text }) => text.length <= 1_000)).toBe(true);
    expect(outcome).toMatchObject({
      hits: [{ title: `@a0: ${"x".repeat(79)}…` }, ...many.slice(1, 10).map(() => ({}))],
    });
  });

  test("a post that is told twice is one post, and takes no other's place", async () => {
    const twice = Array.from({ length: 10 }, (_, index) => ({
      id: String(index),
      text: `post ${index}`,
      author: "harbour",
    })).flatMap((post) => [post, post]);
    const outcome = await search(await serve(x(twice)));
    expect(outcome).toMatchObject({ kind: "hits", posts: 10, profiles: 1 });
    const texts = outcome.kind === "hits" ? outcome.hits.map(({ text }) => text) : [];
    expect(texts).toEqual(Array.from({ length: 10 }, (_, index) => `post ${index}`));
  });

  test.each<[Partial<PostOptions>, string, Record<string, string>]>([
    [{}, "recent", {}],
    [{ fromDate: "2026-11-20" }, "recent", { start_time: "2026-11-20T00:00:00.000Z" }],
    [
      { fromDate: "2026-11-20", toDate: "2026-11-20" },
      "recent",
      { start_time: "2026-11-20T00:00:00.000Z", end_time: "2026-11-21T00:00:00.000Z" },
    ],
    [{ toDate: "2026-11-21" }, "recent", {}],
    [{ toDate: "2027-01-01" }, "recent", {}],
    [{ fromDate: "2026-11-14" }, "all", { start_time: "2026-11-14T00:00:00.000Z" }],
    [{ fromDate: "2026-11-15" }, "recent", { start_time: "2026-11-15T00:00:00.000Z" }],
    [{ toDate: "2026-10-01" }, "all", { end_time: "2026-10-02T00:00:00.000Z" }],
    [
      { fromDate: "2024-01-01", toDate: "2024-02-29" },
      "all",
      { start_time: "2024-01-01T00:00:00.000Z", end_time: "2024-03-01T00:00:00.000Z" },
    ],
  ])("the dates %j ask the %s archive", async (options, archive, times) => {
    const site = await serve(x(posts));
    await search(site, options);
    const url = new URL(site.paths[0] ?? "", "http://x");
    expect(url.pathname).toBe(`/2/tweets/search/${archive}`);
    const { start_time: start, end_time: end } = Object.fromEntries(url.searchParams);
    expect(JSON.parse(JSON.stringify({ start_time: start, end_time: end }))).toEqual(times);
  });

  test("days that have not come have no posts, and nobody is asked", async () => {
    const site = await serve(x(posts));
    for (const options of [{ fromDate: "2026-11-22" }, { fromDate: "2026-11-20", toDate: "2026-11-18" }]) {
      expect(await search(site, options)).toEqual({ kind: "hits", hits: [], posts: 0, profiles: 0 });
    }
    expect(site.asked).toEqual([]);
  });

  test.each<[string, Partial<PostOptions>, string]>([
    ["a b", { allowedHandles: ["nasa"] }, "(a b) from:nasa"],
    ["a OR b", { allowedHandles: ["nasa", "esa"] }, "(a OR b) (from:nasa OR from:esa)"],
    ["a", { excludedHandles: ["spam", "bots"] }, "(a) -from:spam -from:bots"],
    ["a) OR (from:evil", { allowedHandles: ["nasa"] }, "(a OR from:evil) from:nasa"],
    ['a" OR from:evil', { excludedHandles: ["evil"] }, "(a OR from:evil) -from:evil"],
    ["a OR (b c)", { allowedHandles: ["nasa"] }, "(a OR (b c)) from:nasa"],
    ["a) OR (b", {}, "a) OR (b"],
  ])("the query %j under %j", (query, options, whole) => {
    expect(postQuery(query, { ...noOptions, ...options })).toBe(whole);
  });

  test("handle lists hold for what X gives, whatever the query did", async () => {
    const site = await serve(x(posts));
    expect(await search(site, { allowedHandles: ["tides"] })).toMatchObject({
      posts: 1,
      profiles: 1,
      hits: [{ text: "second" }],
    });
    expect(await search(site, { excludedHandles: ["HARBOUR"] })).toMatchObject({
      posts: 1,
      hits: [{ text: "second" }],
    });
  });

  test.each(Object.entries(broken))("an answer with %s is unavailable", async (_, page) => {
    const outcome = await search(await serve({ "/2/tweets/search/recent": page }));
    expect(outcome).toMatchObject({ kind: "error", code: "unavailable" });
    expect(JSON.stringify(outcome)).not.toContain("s3cret");
  });

  test("an answer that holds nothing but errors is unavailable", async () => {
    const failing = answer(JSON.stringify({ errors: [{ title: "Operational Disconnect" }] }));
    const outcome = await search(await serve({ "/2/tweets/search/recent": failing }));
    expect(outcome).toMatchObject({ kind: "error", code: "unavailable" });
  });

  test("what is no post or no author is skipped, the others count", async () => {
    const mixed = answer(
      JSON.stringify({
        data: [
          null,
          { id: "a/b", text: "no id" },
          { id: "post_1-a", text: "one", author_id: 7, created_at: 7 },
          { id: "2" },
          { id: "3", text: "three", author_id: "u-tides" },
        ],
        includes: {
          users: [{ id: "u-odd", username: "not a name" }, 5, { id: "u-tides", username: "Tides" }],
        },
      }),
    );
    expect(await search(await serve({ "/2/tweets/search/recent": mixed }))).toEqual({
      kind: "hits",
      posts: 2,
      profiles: 1,
      hits: [
        { url: "https://x.com/i/status/post_1-a", title: "@unknown: one", text: "one", age: null },
        { url: "https://x.com/Tides/status/3", title: "@Tides: three", text: "three", age: null },
      ],
    });
  });

  test("a slow answer and a huge one are unavailable", async () => {
    const path = "/2/tweets/search/recent";
    expect(
      await search(
        await serve({ [path]: slow(answer("{}"), 60_000) }),
        {},
        { input: { query: "a" }, timeoutMs: 100 },
      ),
    ).toMatchObject({ code: "unavailable" });
    expect(await search(await serve({ [path]: huge }))).toMatchObject({ code: "unavailable" });
  });

  test.each<[unknown, string]>([
    [null, "invalid_tool_input"],
    [{ query: " " }, "invalid_tool_input"],
    [{ query: "a".repeat(401) }, "query_too_long"],
  ])("the input %.40j is refused without a call", async (input, code) => {
    const site = await serve(x(posts));
    expect(await search(site, {}, { input })).toMatchObject({ kind: "error", code });
    expect(site.asked).toEqual([]);
  });
});
