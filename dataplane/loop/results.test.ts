import { describe, expect, test } from "vitest";
import type { Sealer } from "../dialects/codecs.ts";
import { openHit, resultForClient, resultForModel, searchCitation } from "./results.ts";

const sealer: Sealer = {
  seal: (plain) => `sealed:${plain}`,
  open: (sealed) => (sealed.startsWith("sealed:") ? sealed.slice("sealed:".length) : null),
};
const call = { id: "srvtoolu_1", name: "web_search", input: { query: "gates" } } as const;
const hit = { url: "https://gates.example/new", title: "New gates", text: "Faster.", age: "2026-11-01" };
const found = { kind: "hits", hits: [hit], posts: 0, profiles: 0 } as const;

test("web_search_result: url, title, encrypted_content, page_age; the content opens to the whole hit again", () => {
  const { content } = resultForClient(call, found, false, sealer);
  expect(content).toEqual([
    {
      type: "web_search_result",
      url: hit.url,
      title: hit.title,
      encrypted_content: expect.stringMatching(/^sealed:/) as unknown,
      page_age: hit.age,
    },
  ]);
  const [first] = content as { encrypted_content: string }[];
  expect(openHit(first?.encrypted_content ?? "", sealer)).toEqual(hit);
});

test("a search without hits is an empty array, not an error", () => {
  const none = { ...found, hits: [] };
  expect(resultForClient(call, none, false, sealer)).toMatchObject({ content: [] });
  expect(resultForModel(call.id, none, false)).toMatchObject({ content: "The search found nothing." });
});

test.each([
  ["short", "short"],
  ["g".repeat(151), "g".repeat(150)],
  ["🏯".repeat(151), "🏯".repeat(150)],
])("cited_text at most 150 characters, none of them halved (%#)", (text, cited) => {
  expect(searchCitation(hit.url, hit.title, text, sealer)).toMatchObject({
    type: "web_search_result_location",
    cited_text: cited,
    encrypted_index: expect.stringMatching(/^sealed:/) as unknown,
  });
});

test("rule 3.10: the error text given to the model contains the code and one sentence of advice", () => {
  expect(resultForModel(call.id, { kind: "error", code: "query_too_long" }, false)).toEqual({
    type: "tool_result",
    tool_use_id: call.id,
    is_error: true,
    content: expect.stringMatching(/^query_too_long: [A-Z][^.]+\.$/) as unknown,
  });
});

test("rule 3.11: results go as search_result blocks with citations enabled, never with empty text", () => {
  const bare = { ...found, hits: [{ url: hit.url, title: null, text: "", age: null }] };
  expect(resultForModel(call.id, bare, false).content).toEqual([
    {
      type: "search_result",
      source: hit.url,
      title: hit.url,
      content: [{ type: "text", text: hit.url }],
      citations: { enabled: true },
    },
  ]);
});

describe("a page without words is told in words: upstreams refuse blank texts, and a model makes nothing of them", () => {
  const page = { url: "https://a.example/", title: null, retrievedAt: "2026-11-30T00:00:00.000Z" };
  const told = (text: string, title: string | null = null, citePages = true) =>
    resultForModel(
      call.id,
      { kind: "page", page: { ...page, title, source: { type: "text", text } } },
      citePages,
    ).content;

  test.each(["", " ", "\n\n\u00a0"])("%j", (text) => {
    expect(told(text)).toBe("The page has no text.");
    expect(told(text, "Loading", false)).toBe('The page has no text, only the title "Loading".');
  });

  test("one with words is a document", () => {
    expect(told("Words")).toMatchObject([{ type: "document", source: { data: "Words" } }]);
  });
});
