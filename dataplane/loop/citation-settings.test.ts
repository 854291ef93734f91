import { expect, test } from "vitest";
import type { ContentBlockParam, DocumentBlock, MessageParam } from "../dialects/messages/types.ts";
import { agreeOnCitations } from "./citation-settings.ts";
import { resultForModel } from "./results.ts";

const ours = new Set(["web_search", "web_fetch"] as const);
const hit = { url: "https://a.example/", title: "A", text: "words", age: null };
const found = resultForModel("s", { kind: "hits", hits: [hit], posts: 0, profiles: 0 }, false);
const opened = (citePages: boolean) => {
  const source = { type: "text", text: "page" } as const;
  return resultForModel(
    "f",
    { kind: "page", page: { url: hit.url, title: "P", retrievedAt: "", source } },
    citePages,
  );
};
const document = (enabled?: boolean): DocumentBlock => ({
  type: "document",
  source: { type: "text", media_type: "text/plain", data: "own" },
  ...(enabled === undefined ? {} : { citations: { enabled } }),
});
const result = (enabled?: boolean): ContentBlockParam => ({
  type: "search_result",
  source: "own",
  title: "Own",
  content: [{ type: "text", text: "own" }],
  ...(enabled === undefined ? {} : { citations: { enabled } }),
});
const conversation = (own: ContentBlockParam[], ...results: ContentBlockParam[]): MessageParam[] => [
  { role: "user", content: [...own, { type: "text", text: "Look it up." }] },
  {
    role: "assistant",
    content: [
      { type: "tool_use", id: "s", name: "web_search", input: {} },
      { type: "tool_use", id: "f", name: "web_fetch", input: {} },
    ],
  },
  { role: "user", content: results },
];
/** What the tools brought, as it is sent. */
const sent = (own: ContentBlockParam[], citePages: boolean) =>
  agreeOnCitations(conversation(own, found, opened(citePages)), ours)
    .flatMap(({ content }) => (typeof content === "string" ? [] : content))
    .flatMap((block) => (block.type === "tool_result" && Array.isArray(block.content) ? block.content : []))
    .map((block) => ("citations" in block ? [block.type, block.citations] : block));

const on = { enabled: true };
const off = { enabled: false };

test.each<[string, ContentBlockParam[], boolean, unknown[]]>([
  [
    "nothing of the client's own",
    [],
    false,
    [
      ["search_result", on],
      ["document", off],
    ],
  ],
  ["a cited document", [document(true)], false, [["search_result", on], { type: "text", text: "P\npage" }]],
  [
    "a cited document, cited pages",
    [document(true)],
    true,
    [
      ["search_result", on],
      ["document", on],
    ],
  ],
  [
    "a document that is not cited, cited pages",
    [document()],
    true,
    [
      ["search_result", on],
      ["document", off],
    ],
  ],
  [
    "documents that do not agree",
    [document(true), document(false)],
    true,
    [
      ["search_result", on],
      ["document", on],
    ],
  ],
  [
    "a search result that is not cited",
    [result()],
    false,
    [
      ["search_result", off],
      ["document", off],
    ],
  ],
  [
    "a cited search result",
    [result(true)],
    false,
    [
      ["search_result", on],
      ["document", off],
    ],
  ],
])("%s", (_, own, citePages, expected) => {
  expect(sent(own, citePages)).toEqual(expected);
});

test("what a client's own tool brought counts as the client's, and stays as it is", () => {
  const own: MessageParam[] = [
    { role: "assistant", content: [{ type: "tool_use", id: "c", name: "look_up", input: {} }] },
    {
      role: "user",
      content: [{ type: "tool_result", tool_use_id: "c", content: [result(false), document(true)] }],
    },
  ];
  const messages = [...own, ...conversation([], found, opened(false))];
  const agreed = agreeOnCitations(messages, ours);
  expect(agreed.slice(0, 2)).toEqual(own);
  expect(JSON.stringify(agreed.at(-1))).not.toContain('"enabled":true');
});

test("a page in PDF stays a document", () => {
  const source = { type: "pdf", base64: "AA==" } as const;
  const page = { url: hit.url, title: null, retrievedAt: "", source };
  const pdf = resultForModel("f", { kind: "page", page }, false);
  expect(JSON.stringify(agreeOnCitations(conversation([document(true)], pdf), ours).at(-1))).toContain(
    '"title":"https://a.example/","citations":{"enabled":true}',
  );
});
