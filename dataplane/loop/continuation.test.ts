import { describe, expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import type { Sealer } from "../dialects/codecs.ts";
import type { JsonValue } from "../dialects/messages/types.ts";
import type { ApiError } from "../lib/api-error.ts";
import { addResults } from "./add-results.ts";
import { restoreConversation } from "./continuation.ts";
import { resultForClient, searchCitation, type ToolOutcome } from "./results.ts";

/** Reversible and tied to an account, like the real one, but readable. */
const sealerOf = (account: string): Sealer => ({
  seal: (plain) => `${account}:${Buffer.from(plain).toString("base64url")}`,
  open: (sealed) =>
    sealed.startsWith(`${account}:`)
      ? Buffer.from(sealed.slice(account.length + 1), "base64url").toString()
      : null,
});
const sealer = sealerOf("acme");
const all = new Set(["web_search", "web_fetch", "x_search"] as const);

const hits: ToolOutcome = {
  kind: "hits",
  hits: [{ url: "https://a.example/", title: "A", text: "snippet", age: null }],
  posts: 0,
  profiles: 0,
};
const call = (id: string, name: "web_search" | "web_fetch" = "web_search") => ({
  id,
  name,
  input: { query: "q" },
});
const use = (id: string, name = "web_search"): JsonValue => ({
  type: "server_tool_use",
  id,
  name,
  input: { query: "q" },
});
const result = (id: string, outcome: ToolOutcome = hits, by = sealer) =>
  resultForClient(call(id), outcome, false, by) as unknown as JsonValue;
const text = (value: string): JsonValue => ({ type: "text", text: value });
const restore = (
  messages: JsonValue,
  declared: ReadonlySet<"web_search" | "web_fetch" | "x_search"> = all,
  citePages = false,
) => restoreConversation(messages, declared, citePages, sealer);
const toolResult = (id: string) =>
  expect.objectContaining({ type: "tool_result", tool_use_id: id }) as unknown;
const toolUse = (id: string) => expect.objectContaining({ type: "tool_use", id }) as unknown;

describe("a resent conversation", () => {
  test("one assistant message of several iterations becomes turns again", () => {
    const { messages } = restore([
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "sig" },
          use("srvtoolu_1"),
          use("srvtoolu_2"),
          result("srvtoolu_1"),
          result("srvtoolu_2"),
          text("so"),
          use("srvtoolu_3"),
          result("srvtoolu_3"),
          text("done"),
        ],
      },
      { role: "user", content: "more" },
    ]);
    expect(messages).toMatchObject([
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: [{ type: "thinking", signature: "sig" }, toolUse("srvtoolu_1"), toolUse("srvtoolu_2")],
      },
      { role: "user", content: [toolResult("srvtoolu_1"), toolResult("srvtoolu_2")] },
      { role: "assistant", content: [text("so"), toolUse("srvtoolu_3")] },
      { role: "user", content: [toolResult("srvtoolu_3")] },
      { role: "assistant", content: [text("done")] },
      { role: "user", content: "more" },
    ]);
  });

  test("an empty text, which upstreams refuse in a conversation, is left out, and still parts iterations", () => {
    const mine = { type: "tool_use", id: "toolu_1", name: "f", input: {} };
    const { messages } = restore([
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: [text(""), use("srvtoolu_1"), result("srvtoolu_1"), text(""), mine],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "42" }] },
      { role: "assistant", content: [use("srvtoolu_2"), result("srvtoolu_2"), text("")] },
      { role: "user", content: "more" },
    ]);
    expect(messages).toEqual([
      { role: "user", content: "hi" },
      { role: "assistant", content: [toolUse("srvtoolu_1")] },
      { role: "user", content: [toolResult("srvtoolu_1")] },
      { role: "assistant", content: [mine] },
      { role: "user", content: [toolResult("toolu_1")] },
      { role: "assistant", content: [toolUse("srvtoolu_2")] },
      { role: "user", content: [toolResult("srvtoolu_2"), text("more")] },
    ]);
  });

  describe("where the client ends a prefix to be cached", () => {
    const cache_control = { type: "ephemeral" };
    const marked = (block: JsonValue) => ({ ...(block as object), cache_control }) as JsonValue;

    test("it ends in the form that the model gets", () => {
      const { messages, own } = restore([
        {
          role: "assistant",
          content: [
            marked(use("srvtoolu_1")),
            marked(result("srvtoolu_1")),
            use("srvtoolu_2"),
            result("srvtoolu_2"),
          ],
        },
      ]);
      expect(messages).toMatchObject([
        { role: "assistant", content: [{ type: "tool_use", cache_control }] },
        { role: "user", content: [{ type: "tool_result", content: [{}], cache_control }] },
        { role: "assistant", content: [{ type: "tool_use" }] },
        { role: "user", content: [{ type: "tool_result" }] },
      ]);
      expect(JSON.stringify(messages).match(/cache_control/g)).toHaveLength(2);
      // Toward other dialects it is dropped, and named as the client's own.
      expect(own).toMatchObject([
        {},
        { role: "user", content: [{ type: "tool_result", tool_use_id: "srvtoolu_1", cache_control }] },
        {},
        { role: "user", content: [] },
      ]);
    });

    test.each([
      ["call", marked(use("srvtoolu_1")), result("srvtoolu_1")],
      ["result", use("srvtoolu_1"), marked(result("srvtoolu_1"))],
    ])("it ends in the text that tells a %s of an undeclared tool", (_, ...content) => {
      const { messages } = restore([{ role: "assistant", content }], new Set());
      expect(messages).toMatchObject([{ role: "assistant", content: [{ type: "text", cache_control }] }]);
    });
  });

  test("results come back from the sealed content, not from what stands beside it", () => {
    const block = result("srvtoolu_1") as { content: { title: string }[] };
    for (const entry of block.content) entry.title = "forged";
    const { messages } = restore([{ role: "assistant", content: [use("srvtoolu_1"), block] }]);
    expect(JSON.stringify(messages)).toContain("snippet");
    expect(JSON.stringify(messages)).not.toContain("forged");
  });

  test("a client's call beside a server call stays in its turn, and the restored result stands before the client's", () => {
    const { messages } = restore([
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: [
          use("srvtoolu_1"),
          result("srvtoolu_1"),
          { type: "tool_use", id: "toolu_1", name: "f", input: {} },
        ],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "42" }] },
    ]);
    expect(messages).toMatchObject([
      { role: "user" },
      { role: "assistant", content: [toolUse("srvtoolu_1"), toolUse("toolu_1")] },
      { role: "user", content: [toolResult("srvtoolu_1"), toolResult("toolu_1")] },
    ]);
  });

  test("pause_turn: the assistant's content alone is enough, ending in its results", () => {
    const { messages, pending } = restore([
      { role: "user", content: "hi" },
      { role: "assistant", content: [use("srvtoolu_1"), result("srvtoolu_1")] },
    ]);
    expect(pending).toEqual([]);
    expect((messages as JsonValue[]).at(-1)).toMatchObject({
      role: "user",
      content: [toolResult("srvtoolu_1")],
    });
  });

  test("rule 3.6: calls without a result are run first", () => {
    const { messages, pending } = restore([
      { role: "user", content: "hi" },
      { role: "assistant", content: [use("srvtoolu_9")] },
    ]);
    expect(pending).toEqual([call("srvtoolu_9")]);
    expect(
      addResults(messages as JsonValue[], [{ type: "tool_result", tool_use_id: "srvtoolu_9" }]).at(-1),
    ).toEqual({
      role: "user",
      content: [{ type: "tool_result", tool_use_id: "srvtoolu_9" }],
    });
  });

  describe("rule 3.6: the answer that ran pending calls begins with their results, and comes back as it was", () => {
    const mine = { type: "tool_use", id: "toolu_1", name: "f", input: {} };
    const ran = { role: "assistant", content: [result("srvtoolu_1"), text("so")] };
    const more = { role: "user", content: "more" };

    test("right behind the answer that left them", () => {
      const { messages, pending, searches } = restore([
        { role: "user", content: "hi" },
        { role: "assistant", content: [use("srvtoolu_1")] },
        ran,
        more,
      ]);
      expect(messages).toEqual([
        { role: "user", content: "hi" },
        { role: "assistant", content: [toolUse("srvtoolu_1")] },
        { role: "user", content: [toolResult("srvtoolu_1")] },
        { role: "assistant", content: [text("so")] },
        more,
      ]);
      expect(JSON.stringify(messages)).toContain("snippet");
      expect(pending).toEqual([]);
      expect(searches).toHaveLength(1);
    });

    test("behind the results of the client's own calls", () => {
      const { messages } = restore([
        { role: "user", content: "hi" },
        { role: "assistant", content: [use("srvtoolu_1"), mine] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "42" }] },
        ran,
        more,
      ]);
      expect(messages).toEqual([
        { role: "user", content: "hi" },
        { role: "assistant", content: [toolUse("srvtoolu_1"), mine] },
        { role: "user", content: [toolResult("srvtoolu_1"), toolResult("toolu_1")] },
        { role: "assistant", content: [text("so")] },
        more,
      ]);
    });

    test("of a tool that is not declared any more: told where the call stood", () => {
      const { messages } = restore(
        [
          { role: "user", content: "hi" },
          { role: "assistant", content: [use("srvtoolu_1")] },
          { role: "user", content: "go on" },
          ran,
          more,
        ],
        new Set(),
      );
      expect(messages).toEqual([
        { role: "user", content: "hi" },
        { role: "assistant", content: [text(expect.stringContaining("snippet") as string)] },
        { role: "user", content: "go on" },
        { role: "assistant", content: [text("so")] },
        more,
      ]);
    });

    test("a call stays where it stands, even one that names another", () => {
      const naming = { ...(use("srvtoolu_2") as object), tool_use_id: "srvtoolu_1" };
      const { pending } = restore([
        { role: "assistant", content: [use("srvtoolu_1")] },
        { role: "assistant", content: [naming] },
      ]);
      expect(pending.map(({ id }) => id)).toEqual(["srvtoolu_2"]);
    });

    test("one more result for the same call is still refused, in its own place", () => {
      expect(() => restore([{ role: "assistant", content: [use("srvtoolu_1")] }, ran, ran, more])).toThrow(
        expect.objectContaining({ param: "messages.2.content.0.tool_use_id" }) as ApiError,
      );
    });
  });

  test.each<[string, JsonValue[]]>([
    ["two turns of the user", ["more", "please"].map((content) => ({ role: "user", content }))],
    ["a system turn", ["user", "system"].map((role) => ({ role, content: "be brief" }))],
  ])("rule 3.6: a call is run first before %s too", (_, turns) => {
    const { messages, pending } = restore([{ role: "assistant", content: [use("srvtoolu_1")] }, ...turns]);
    expect(pending).toEqual([call("srvtoolu_1")]);
    const late = { type: "tool_result", tool_use_id: "srvtoolu_1" } as const;
    expect(addResults(messages as JsonValue[], [late]).slice(0, 2)).toMatchObject([
      { role: "assistant", content: [toolUse("srvtoolu_1")] },
      { role: "user", content: [late, {}] },
    ]);
  });

  test("a call of an older turn is answered in its place as never run", () => {
    const content = [use("srvtoolu_1"), use("srvtoolu_2"), result("srvtoolu_1"), text("later")];
    const { messages, pending } = restore([
      { role: "assistant", content },
      { role: "user", content: "hi" },
      { role: "assistant", content: [text("x")] },
    ]);
    expect(pending).toEqual([]);
    expect((messages as JsonValue[]).slice(0, 3)).toMatchObject([
      { role: "assistant", content: [toolUse("srvtoolu_1"), toolUse("srvtoolu_2")] },
      { role: "user", content: [toolResult("srvtoolu_2"), toolResult("srvtoolu_1")] },
      { role: "assistant", content: [text("later")] },
    ]);
  });

  test("rule 3.6: a call of a tool that is not declared any more is not run", () => {
    const content = [text("let me see"), use("srvtoolu_1"), use("srvtoolu_2", "web_fetch")];
    const { pending, messages } = restore([{ role: "assistant", content }], new Set(["web_fetch"] as const));
    expect(pending.map(({ id }) => id)).toEqual(["srvtoolu_2"]);
    expect(JSON.stringify(messages)).not.toContain("srvtoolu_1");
  });

  test.each([true, false])(
    "a page of an earlier answer can be cited as this request asks: %s",
    (citePages) => {
      const page = {
        url: "https://a.example/",
        title: "A",
        retrievedAt: "",
        source: { type: "text", text: "t" },
      };
      const opened = resultForClient(
        call("srvtoolu_1", "web_fetch"),
        { kind: "page", page } as ToolOutcome,
        !citePages,
        sealer,
      ) as unknown as JsonValue;
      const content = [use("srvtoolu_1", "web_fetch"), opened];
      const { messages } = restore([{ role: "assistant", content }], all, citePages);
      expect(JSON.stringify(messages)).toContain(`"citations":{"enabled":${citePages}}`);
      expect(JSON.stringify(messages)).not.toContain(`"citations":{"enabled":${!citePages}}`);
    },
  );

  test.each<[string, JsonValue[], unknown[]]>([
    [
      "text",
      [text("so"), result("srvtoolu_2")],
      [
        { role: "assistant", content: [text("so")] },
        { role: "user", content: "and?" },
      ],
    ],
    [
      "another call",
      [use("srvtoolu_3"), result("srvtoolu_2"), result("srvtoolu_3")],
      [
        { role: "assistant", content: [toolUse("srvtoolu_3")] },
        { role: "user", content: [toolResult("srvtoolu_3"), text("and?")] },
      ],
    ],
  ])("a result that stands behind %s belongs right after the turn of its call", (_what, late, after) => {
    const first = [use("srvtoolu_1"), use("srvtoolu_2"), result("srvtoolu_1")];
    const { messages, pending } = restore([
      { role: "assistant", content: [...first, ...late] },
      { role: "user", content: "and?" },
    ]);
    expect(messages).toEqual([
      { role: "assistant", content: [toolUse("srvtoolu_1"), toolUse("srvtoolu_2")] },
      { role: "user", content: [toolResult("srvtoolu_2"), toolResult("srvtoolu_1")] },
      ...after,
    ]);
    expect(pending).toEqual([]);
  });

  test("rule 3.4: blocks of a tool that is not declared are told to the model as text, never raw", () => {
    const { messages } = restore(
      [{ role: "assistant", content: [use("srvtoolu_1"), result("srvtoolu_1"), text("done")] }],
      new Set(),
    );
    expect(messages).toMatchObject([
      { role: "assistant", content: [{ type: "text" }, { type: "text", text: "\n\ndone" }] },
    ]);
    expect(JSON.stringify(messages)).toContain("snippet");
    expect(JSON.stringify(messages)).not.toContain("server_tool_use");
  });

  test("what is told as text is apart from what the model said, and from what is told beside it", () => {
    const told = '[web_search {"query":"q"}]\n- A (https://a.example/): snippet';
    const said = [text("I look."), use("srvtoolu_1"), use("srvtoolu_2")];
    const content = [...said, result("srvtoolu_1"), result("srvtoolu_2"), text("\nDone."), text(" All.")];
    const { messages } = restore([{ role: "assistant", content }], new Set());
    expect(messages).toEqual([
      {
        role: "assistant",
        content: ["I look.", `\n\n${told}`, `\n\n${told}`, "\n\nDone.", " All."].map(text),
      },
    ]);
    const first = restore(
      [{ role: "assistant", content: [use("srvtoolu_1"), result("srvtoolu_1")] }],
      new Set(),
    );
    expect(first.messages).toEqual([{ role: "assistant", content: [text(told)] }]);
  });

  test("our citations are taken off the text that goes back", () => {
    const cited = {
      ...(text("x") as object),
      citations: [searchCitation("https://a.example/", "A", "snippet", sealer)],
    };
    const { messages } = restore([{ role: "assistant", content: [cited] }]);
    expect(messages).toEqual([{ role: "assistant", content: [text("x")] }]);
  });

  test.each([{}, { encrypted_index: null }])("a document's citation has no index to check: %j", (index) => {
    const cited = { ...(text("x") as object), citations: [{ type: "char_location", ...index }] };
    const { messages } = restore([{ role: "assistant", content: [use("srvtoolu_1"), cited] }]);
    expect((messages as JsonValue[])[0]).toMatchObject({ content: [toolUse("srvtoolu_1"), text("x")] });
  });

  test("an ordinary conversation comes back as the very same value", () => {
    const messages = [
      { role: "user", content: "hi" },
      { role: "assistant", content: [text("x")] },
    ];
    expect(restore(messages).messages).toBe(messages);
  });
});

describe("a changed, damaged or foreign blob gives 400 naming its place", () => {
  const foreign = result("srvtoolu_1", hits, sealerOf("other"));
  const damaged = JSON.parse(JSON.stringify(result("srvtoolu_1")).replace("acme:ey", "acme:xx")) as JsonValue;
  const swapped = structuredClone(result("srvtoolu_1")) as { content: { encrypted_content: string }[] };
  const cite = searchCitation("https://a.example/", "A", "c", sealer);
  if (cite.type === "web_search_result_location" && swapped.content[0])
    swapped.content[0].encrypted_content = cite.encrypted_index;

  test.each<[string, JsonValue[], string]>([
    ["foreign result", [use("srvtoolu_1"), foreign], "messages.0.content.1.content.0.encrypted_content"],
    ["damaged result", [use("srvtoolu_1"), damaged], "messages.0.content.1.content.0.encrypted_content"],
    [
      "an index in a result's place",
      [use("srvtoolu_1"), swapped],
      "messages.0.content.1.content.0.encrypted_content",
    ],
    [
      "a foreign index",
      [
        {
          type: "text",
          text: "x",
          citations: [{ type: "web_search_result_location", encrypted_index: "zzz" }],
        },
      ],
      "messages.0.content.0.citations.0.encrypted_index",
    ],
    ...[5, null, ["x"], {}, true, undefined].map((index): [string, JsonValue[], string] => [
      `an index that is ${JSON.stringify(index)}`,
      [
        {
          type: "text",
          text: "x",
          citations: [
            {
              type: "web_search_result_location",
              url: "https://a.example/",
              ...(index !== undefined && { encrypted_index: index }),
            },
          ],
        },
      ],
      "messages.0.content.0.citations.0.encrypted_index",
    ]),
    ["a result without its call", [result("srvtoolu_1")], "messages.0.content.0.tool_use_id"],
    ["an unknown tool", [use("srvtoolu_1", "code_execution")], "messages.0.content.0.name"],
  ])("%s", (_name, content, param) => {
    expect(() => restore([{ role: "assistant", content }])).toThrow(
      expect.objectContaining({ code: "invalid_request_error", param }) as ApiError,
    );
  });
});

test.each([
  ["a result", result("srvtoolu_a")],
  ["a call", use("srvtoolu_a")],
  ["a sealed citation", { type: "text", text: "x", citations: [{ encrypted_index: "acme:e30" }] }],
])("rule 3.4: %s in a user's message is refused, never forwarded", (_, block) => {
  expect(() => restore([{ role: "user", content: [text("hi"), block] }])).toThrow(
    /messages\W*0\W*content\W*1/,
  );
});

describe("rule 7.4: the largest conversations are read in linear time", () => {
  const lists = [1, 2, 3, 4].map((list) =>
    Array.from({ length: 10_000 }, (_, index) => `srvtoolu_${list}_${index}`),
  );
  const calls = lists.map((ids) => ({ role: "assistant", content: ids.map((id) => use(id)) }));
  const failed = (id: string): JsonValue => result(id, { kind: "error", code: "unavailable" });
  const results = lists.map((ids) => ({ role: "assistant", content: ids.map(failed) }));
  const said = { role: "user", content: "x" };

  test.each<[string, JsonValue[]]>([
    ["calls whose results come late", [...calls, ...results, said]],
    ["calls that were never run", [...calls, said, { role: "assistant", content: "x" }, said]],
    [
      "user turns behind a result",
      [
        { role: "assistant", content: [use("srvtoolu_0"), failed("srvtoolu_0")] },
        ...Array.from({ length: 40_000 }, () => said),
      ],
    ],
  ])("%s", (_, messages) => {
    const before = computedMs();
    restore(messages);
    expect(computedMs() - before).toBeLessThan(2_000);
  });
});

test("rule 7.10: no turn leaves more calls pending than one answer may hold", () => {
  const turn = (count: number) => [
    { role: "user", content: "hi" },
    {
      role: "assistant",
      content: Array.from({ length: count }, (_, index) => ({
        type: "server_tool_use",
        id: `srvtoolu_${index}`,
        name: "web_search",
        input: { query: "q" },
      })),
    },
  ];
  expect(restore(turn(1_024)).pending).toHaveLength(1_024);
  expect(() => restore(turn(1_025))).toThrow(
    /messages\.1\.content: has more than 1024 calls without results/,
  );
});
