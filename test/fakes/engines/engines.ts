/**
 * Search engines and X for tests, in the wire forms of service.md "Engines". Each is a page of a `FakeSite`, so that the
 * site's log shows what it was asked; `slow`, `broken` and `huge` are the ways in which engines fail.
 */
import { buffer } from "node:stream/consumers";
import { answer, endless, type Page } from "../pages/site.ts";

export interface FakeHit {
  readonly url: string;
  readonly title?: unknown;
  readonly text?: unknown;
  readonly age?: unknown;
}

const json = (body: unknown, status = 200) =>
  answer(JSON.stringify(body), { "content-type": "application/json" }, status);

export const searxng = (hits: readonly FakeHit[]): Record<string, Page> => ({
  "/search": json({
    results: hits.map(({ url, title, text, age }) => ({
      url,
      title,
      content: text,
      publishedDate: age,
      engine: "x",
    })),
  }),
});

export const brave = (hits: readonly FakeHit[]): Record<string, Page> => ({
  "/res/v1/web/search": json({
    type: "search",
    web: {
      results: hits.map(({ url, title, text, age }) => ({ url, title, description: text, page_age: age })),
    },
  }),
});

/** Notes the bodies that it was sent. */
export function tavily(hits: readonly FakeHit[], bodies: unknown[] = []): Record<string, Page> {
  const page = json({
    results: hits.map(({ url, title, text, age }) => ({
      url,
      title,
      content: text,
      published_date: age,
      score: 1,
    })),
  });
  return { "/search": noting(bodies, page) };
}

/** Answers 422 as long as the request names a place. */
export const placeless =
  (page: Page): Page =>
  (request, response) =>
    (request.url?.includes("country=") === true ? json({ error: "country" }, 422) : page)(request, response);

export interface FakePost {
  readonly id: string;
  readonly text: string;
  readonly author: string;
  readonly createdAt?: string;
}

/** X's recent and full-archive search; authors are included once each. */
export function x(posts: readonly FakePost[]): Record<string, Page> {
  const authors = [...new Set(posts.map(({ author }) => author))];
  const page = json({
    ...(posts.length === 0
      ? {}
      : {
          data: posts.map(({ id, text, author, createdAt }) => ({
            id,
            text,
            author_id: `u-${author}`,
            created_at: createdAt,
          })),
          includes: {
            users: authors.map((name) => ({ id: `u-${name}`, username: name, name: name.toUpperCase() })),
          },
        }),
    meta: { result_count: posts.length },
  });
  return { "/2/tweets/search/recent": page, "/2/tweets/search/all": page };
}

/** Waits before it answers. */
export const slow =
  (page: Page, delayMs: number): Page =>
  (request, response) => {
    const timer = setTimeout(() => page(request, response), delayMs);
    response.on("close", () => clearTimeout(timer));
  };

export const broken = {
  html: answer("<html>sorry</html>"),
  truncated: answer('{"results": [{"url": "https://a.exam', { "content-type": "application/json" }),
  nothing: answer("", { "content-type": "application/json" }),
  null: json(null),
  otherShape: json({ results: "none", web: 7, data: {} }),
  unauthorized: json({ error: "bad key" }, 401),
  limited: json({ error: "slow down" }, 429),
  failing: json({ error: "oops" }, 500),
} as const satisfies Record<string, Page>;

/** Sends JSON that never ends. */
export const huge: Page = endless("application/json");

function noting(bodies: unknown[], page: Page): Page {
  return (request, response) => {
    void buffer(request).then((bytes) => {
      bodies.push(JSON.parse(bytes.toString("utf8")));
      page(request, response);
    });
  };
}
