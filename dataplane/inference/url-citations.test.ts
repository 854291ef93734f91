/** Rule 2.1: citations of web pages by an upstream that searches by itself cross between Chat and Responses. */
import { describe, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../../test/fakes/inference.ts";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { framesOf } from "../../test/grammar/sse.ts";
import { streamFaults, vendorJudge } from "../../test/vendor/judge.ts";
import { vendorType } from "../../test/vendor/vendor-type.ts";
import type { Dialect } from "../dialects/dialect.ts";
import type { JsonObject } from "../dialects/messages/types.ts";

const judge = await vendorJudge();
const { fake, serve } = await serveOneUpstream();

interface Cited {
  readonly start_index: number;
  readonly end_index: number;
  readonly url: string;
  readonly title: string;
}
/** A text with the citations that count in it. */
interface Said {
  readonly text: string;
  readonly cited: readonly Cited[];
}
type Client = Exclude<Dialect, "messages">;

const model = "upstream-model";
const first: Said = {
  text: "Seen 🦜 there.",
  cited: [{ start_index: 5, end_index: 6, url: "https://birds.example/", title: "Birds" }],
};
const second: Said = {
  text: " And here.",
  cited: [
    { start_index: 1, end_index: 4, url: "https://a.example/?b=1", title: "Ä" },
    { start_index: 5, end_index: 9, url: "https://c.example/", title: "" },
  ],
};
/** Both texts as one, with the second one's citations moved: the parrot is one character. */
const joined: Said = {
  text: first.text + second.text,
  cited: [
    ...first.cited,
    ...second.cited.map((one) => ({
      ...one,
      start_index: one.start_index + 13,
      end_index: one.end_index + 13,
    })),
  ],
};

const flat = (one: Cited) => ({ type: "url_citation", ...one });
const nested = (one: Cited) => ({ type: "url_citation", url_citation: one });
const fileCitation = { type: "file_citation", file_id: "file_1", filename: "a", index: 1 };

const chunk = (choice: object): string =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, ...choice }] })}\n\n`;
const event = (type: string, more: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;

function chatWhole({ text, cited }: Said): object {
  const message = { role: "assistant", content: text, refusal: null, annotations: cited.map(nested) };
  return {
    id: "c",
    object: "chat.completion",
    created: 1,
    model,
    choices: [{ index: 0, message, finish_reason: "stop" }],
    usage: { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6 },
  };
}

const callChunk = (name: string, args: string): string =>
  chunk({
    delta: {
      tool_calls: [{ id: `call_${args.length}`, type: "function", function: { name, arguments: args } }],
    },
  });
const chatEnd = [chunk({ delta: {}, finish_reason: "stop" }), "data: [DONE]\n\n"];
const chatStream = ({ text, cited }: Said): string[] => [
  chunk({ delta: { role: "assistant", content: "" } }),
  chunk({ delta: { content: text } }),
  chunk({ delta: { annotations: cited.map(nested) } }),
  ...chatEnd,
];

function responsesWhole(said: readonly Said[]) {
  const content = said.map(({ text, cited }) => ({
    type: "output_text",
    text,
    annotations: [...cited.map(flat), fileCitation],
    logprobs: [],
  }));
  return {
    id: "r",
    object: "response",
    status: "completed",
    model,
    output: [{ id: "m", type: "message", status: "completed", role: "assistant", content }],
    usage: { input_tokens: 3, output_tokens: 3, total_tokens: 6 },
  };
}

/** @param told where the citations stand: in events of their own, or only in the finished part. */
function responsesStream(said: readonly Said[], told: "events" | "part"): string[] {
  const response = responsesWhole(said);
  const [item] = response.output;
  return [
    event("response.created", { response: { ...response, status: "in_progress", output: [], usage: null } }),
    event("response.output_item.added", { output_index: 0, item: { ...item, content: [] } }),
    ...said.flatMap(({ text, cited }, content_index) => {
      const place = { item_id: "m", output_index: 0, content_index };
      return [
        event("response.output_text.delta", { ...place, delta: text, logprobs: [] }),
        ...(told === "part" ? [] : cited).map((one, annotation_index) =>
          event("response.output_text.annotation.added", {
            ...place,
            annotation_index,
            annotation: flat(one),
          }),
        ),
        event("response.output_text.done", { ...place, text, logprobs: [] }),
        event("response.content_part.done", { ...place, part: item?.content[content_index] }),
      ];
    }),
    event("response.output_item.done", { output_index: 0, item }),
    event("response.completed", { response }),
  ];
}

async function answer(client: Dialect, upstream: Dialect, script: object | string[], body: JsonObject = {}) {
  const isStream = Array.isArray(script);
  fake.next({
    raw: isStream
      ? { body: script.join(""), contentType: "text/event-stream" }
      : { body: JSON.stringify(script) },
  });
  const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, upstream)])]);
  const call = callOf(client, snapshot, bodyOf(client, { ...body, stream: isStream }));
  await serve(call);
  const { text } = call.sink;
  expect(
    isStream ? streamFaults(judge, client, text) : judge(vendorType(client, "Answer"), JSON.parse(text)),
  ).toEqual([]);
  return text;
}

const objectsIn = (wire: string) =>
  wire.startsWith("{")
    ? [JSON.parse(wire)]
    : framesOf(wire).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));

/** All citations of a Chat answer. */
const chatCitations = (wire: string): unknown =>
  objectsIn(wire).flatMap(({ choices }) =>
    choices.flatMap(
      (choice: { message?: JsonObject; delta?: JsonObject }) =>
        (choice.message ?? choice.delta)?.["annotations"] ?? [],
    ),
  );

/** Citations of each content part of a Responses answer. */
function partCitations(wire: string): unknown {
  const last = objectsIn(wire).at(-1);
  return (last.response ?? last).output.flatMap(({ content }: { content?: { annotations: unknown }[] }) =>
    (content ?? []).map(({ annotations }) => annotations),
  );
}

describe("a Responses client of a Chat upstream", () => {
  test.each([
    ["whole", chatWhole(joined)],
    ["streamed", chatStream(joined)],
  ])("is told the citations, %s", async (_how, script) => {
    expect(partCitations(await answer("responses", "chat", script))).toEqual([joined.cited.map(flat)]);
  });

  test("each has an event of its own, before its text is done", async () => {
    const events = objectsIn(await answer("responses", "chat", chatStream(joined)));
    const types = events.map(({ type }) => type);
    const added = events.filter(({ type }) => type === "response.output_text.annotation.added");
    expect(added.map(({ annotation }) => annotation)).toEqual(joined.cited.map(flat));
    expect(added.map(({ annotation_index: index }) => index)).toEqual([0, 1, 2]);
    expect(types.lastIndexOf("response.output_text.annotation.added")).toBeLessThan(
      types.indexOf("response.output_text.done"),
    );
  });

  test("indexes count in the part: a text after reasoning is another one", async () => {
    const script = [
      chunk({ delta: { role: "assistant", content: first.text } }),
      chunk({ delta: { reasoning_content: "Hm." } }),
      chunk({ delta: { content: second.text } }),
      chunk({ delta: { annotations: joined.cited.slice(1).map(nested) } }),
      ...chatEnd,
    ];
    expect(partCitations(await answer("responses", "chat", script))).toEqual([[], second.cited.map(flat)]);
  });

  test("those of all texts may come at the end: each stands in its own", async () => {
    const script = [
      chunk({ delta: { role: "assistant", content: first.text } }),
      chunk({ delta: { reasoning_content: "Hm." } }),
      chunk({ delta: { content: second.text } }),
      callChunk("look", "{}"),
      chunk({ delta: { annotations: joined.cited.map(nested) } }),
      chunk({ delta: {}, finish_reason: "tool_calls" }),
      "data: [DONE]\n\n",
    ];
    const wire = await answer("responses", "chat", script);
    expect(partCitations(wire)).toEqual([first.cited.map(flat), second.cited.map(flat)]);
    const added = objectsIn(wire).filter(({ type }) => type === "response.output_text.annotation.added");
    // The first text was done: its citations stand in the last event alone.
    expect(added.map(({ annotation }) => annotation)).toEqual(second.cited.map(flat));
  });

  test("they may come before their text, as a search does", async () => {
    const [role = "", said = "", cited = "", ...end] = chatStream(joined);
    const wire = await answer("responses", "chat", [role, cited, said, ...end]);
    expect(partCitations(wire)).toEqual([joined.cited.map(flat)]);
  });

  test("each may come in a chunk of its own, before and behind the text", async () => {
    const [role = "", said = "", _cited, ...end] = chatStream(joined);
    const [one = "", two = "", three = ""] = joined.cited.map((cited) =>
      chunk({ delta: { annotations: [nested(cited)] } }),
    );
    const wire = await answer("responses", "chat", [role, one, two, said, three, ...end]);
    expect(partCitations(wire)).toEqual([joined.cited.map(flat)]);
  });

  test.each([
    ["a call", [callChunk("look", '{"at":"it"}'), callChunk("look", '{"at":"more"}')]],
    ["reasoning and a call", [chunk({ delta: { reasoning_content: "Hm." } }), callChunk("look", "{}")]],
  ])("they may come behind %s, which waits for them", async (_what, between) => {
    const [role = "", said = "", cited = ""] = chatStream(joined);
    const end = [chunk({ delta: {}, finish_reason: "tool_calls" }), "data: [DONE]\n\n"];
    const wire = await answer("responses", "chat", [role, said, ...between, cited, ...end]);
    expect(partCitations(wire)).toEqual([joined.cited.map(flat)]);
  });

  test("pieces may part a character, which counts once", async () => {
    const [role = "", , , ...end] = chatStream(joined);
    const [high = "", low = ""] = ["Seen \ud83e", "\udd9c there. And here."].map((content) =>
      chunk({ delta: { content } }),
    );
    const halves = [
      role,
      high,
      low,
      chunk({ delta: { reasoning_content: "Hm." } }),
      chunk({ delta: { content: "!" } }),
    ];
    const behind = nested({ start_index: 23, end_index: 24, url: "https://d.example/", title: "" });
    const wire = await answer("responses", "chat", [
      ...halves,
      chunk({ delta: { annotations: [behind] } }),
      ...end,
    ]);
    expect(partCitations(wire)).toEqual([
      [],
      [{ ...flat(behind.url_citation), start_index: 0, end_index: 1 }],
    ]);
  });

  test("one that a list tells twice is told once, whole as streamed", async () => {
    const twice = { ...joined, cited: [...joined.cited, ...joined.cited.slice(1)] };
    for (const script of [chatWhole(twice), chatStream(twice)])
      expect(partCitations(await answer("responses", "chat", script))).toEqual([joined.cited.map(flat)]);
  });

  test("a list that comes again with each chunk is told once", async () => {
    const [role = "", ...end] = chatStream(joined);
    const again = [first.text, second.text].map((content) =>
      chunk({ delta: { content, annotations: joined.cited.map(nested) } }),
    );
    const wire = await answer("responses", "chat", [role, ...again, ...end.slice(1)]);
    expect(partCitations(wire)).toEqual([joined.cited.map(flat)]);
  });

  test("nor do they grow without end while no text comes", async () => {
    const [role = "", _said, _cited, ...end] = chatStream(first);
    const [late = ""] = chatStream(first).slice(1);
    const many = Array.from({ length: 9 }, (_, index) =>
      chunk({
        delta: {
          annotations: [
            nested({
              start_index: 0,
              end_index: 1,
              url: `https://${index}.example/${"a".repeat(900_000)}`,
              title: "",
            }),
          ],
        },
      }),
    );
    const [told] = partCitations(
      await answer("responses", "chat", [role, ...many, late, ...end]),
    ) as unknown[][];
    expect(told).toHaveLength(4);
  });

  test("there are no more of them than a whole answer may have", async () => {
    const [role = "", said = "", _cited, ...end] = chatStream(first);
    const many = Array.from({ length: 1_500 }, (_, index) =>
      chunk({
        delta: {
          annotations: [
            nested({ start_index: 0, end_index: 1, url: `https://a.example/${index}`, title: "" }),
          ],
        },
      }),
    );
    const [told] = partCitations(
      await answer("responses", "chat", [role, said, ...many, ...end]),
    ) as unknown[][];
    expect(told).toHaveLength(1_000);
  });

  test("what is no citation of a page is left out", async () => {
    const odd = [
      null,
      5,
      fileCitation,
      { type: "url_citation" },
      { type: "url_citation", url_citation: { url: 5 } },
    ];
    const script: string[] = chatStream(joined).toSpliced(2, 1, chunk({ delta: { annotations: odd } }));
    expect(partCitations(await answer("responses", "chat", script))).toEqual([[]]);
  });
});

describe("a Chat client of a Responses upstream", () => {
  test.each([
    ["whole", responsesWhole([first, second])],
    ["streamed", responsesStream([first, second], "events")],
    ["streamed, told by the finished part alone", responsesStream([first, second], "part")],
  ])("is told the citations, %s", async (_how, script) => {
    expect(chatCitations(await answer("chat", "responses", script))).toEqual(joined.cited.map(nested));
  });

  test("those that the message's own end alone tells", async () => {
    const script = responsesStream([first, second], "part").map((sent) =>
      sent.includes("response.output_item.done")
        ? sent
        : sent.replaceAll(/"annotations":\[[^\]]*\]/g, '"annotations":[]'),
    );
    expect(chatCitations(await answer("chat", "responses", script))).toEqual(joined.cited.map(nested));
  });

  test.each([
    ["a call", { type: "function_call", id: "fc", call_id: "call_1", name: "look", arguments: "{}" }],
    ["reasoning", { type: "reasoning", id: "rs", summary: [{ type: "summary_text", text: "Hm." }] }],
    [
      "a text",
      { type: "message", id: "m2", role: "assistant", content: [{ type: "output_text", text: "!" }] },
    ],
  ])("those that the last event alone tells, behind %s", async (_what, behind) => {
    const script = responsesStream([first, second], "part").map((sent) =>
      sent.includes("response.completed")
        ? sent
        : sent.replaceAll(/"annotations":\[[^\]]*\]/g, '"annotations":[]'),
    );
    const done = event("response.output_item.done", { output_index: 1, item: behind });
    script.splice(
      -1,
      1,
      done,
      (script.at(-1) ?? "").replace('}],"usage"', `},${JSON.stringify(behind)}],"usage"`),
    );
    expect(script.at(-1)).toContain(behind.id);
    for (const stop of [{}, { stop: "!?" }])
      expect(chatCitations(await answer("chat", "responses", script, stop))).toEqual(
        joined.cited.map(nested),
      );
  });

  test("pieces may part a character, which counts once", async () => {
    const script = responsesStream([first, second], "part").flatMap((sent) => {
      if (!sent.includes("output_text.delta") || !sent.includes("🦜")) return [sent];
      const [before = "", behind = ""] = sent.split("🦜 there.");
      const [from = ""] = before.split("Seen ");
      return [`${from}Seen \\ud83e${behind}`, `${from}\\udd9c there.${behind}`];
    });
    expect(chatCitations(await answer("chat", "responses", script))).toEqual(joined.cited.map(nested));
  });

  test("one may come before the text of its part", async () => {
    const script = responsesStream([first, second], "events");
    const at = script.findLastIndex((sent) => sent.includes("output_text.delta"));
    const [text = "", cited = ""] = script.slice(at, at + 2);
    script.splice(at, 2, cited, text);
    expect(chatCitations(await answer("chat", "responses", script))).toEqual(joined.cited.map(nested));
  });

  test("there are no more of them than a part of a whole answer may have", async () => {
    const cited = Array.from({ length: 1_500 }, (_, index) => ({
      start_index: 0,
      end_index: 1,
      url: `https://a.example/${index}`,
      title: "",
    }));
    const script = responsesStream([{ text: first.text, cited }], "events");
    expect(chatCitations(await answer("chat", "responses", script))).toHaveLength(1_000);
  });

  test("they come in one chunk before the one with the reason of the end", async () => {
    const chunks = objectsIn(await answer("chat", "responses", responsesStream([first, second], "events")));
    const at = chunks.findIndex(({ choices }) => choices[0]?.delta.annotations !== undefined);
    expect(chunks[at + 1].choices[0].finish_reason).toBe("stop");
  });

  test("an answer that is cut at a stop sequence keeps those of what is left", async () => {
    const wire = await answer("chat", "responses", responsesWhole([joined]), { stop: " And" });
    expect(chatCitations(wire)).toEqual(first.cited.map(nested));
  });
});

test.each<[Client, object | string[]]>([
  ["chat", chatWhole(joined)],
  ["chat", chatStream(joined)],
  ["responses", responsesWhole([joined])],
  ["responses", responsesStream([joined], "events")],
])("a Messages client of a %s upstream sees the text alone", async (upstream, script) => {
  const wire = await answer("messages", upstream, script);
  expect(wire).toContain("Seen 🦜 there.");
  expect(wire).not.toContain("birds.example");
  expect(wire).not.toContain("annotations");
});

test.each<[Client, unknown]>(
  (["chat", "responses"] as const).flatMap((client) =>
    [null, 5, "x", {}, [flat(first.cited[0] as Cited)]].map((value): [Client, unknown] => [client, value]),
  ),
)("a Messages upstream has no such fields: a %s client is shown nothing of %j", async (client, value) => {
  const block = { type: "text", text: first.text, annotations: value, logprobs: value };
  const message = {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model,
    content: [{ type: "text", text: "So: " }, block],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 3, output_tokens: 3 },
  };
  const wire = await answer(client, "messages", message);
  expect(wire).toContain("Seen 🦜 there.");
  expect(client === "chat" ? chatCitations(wire) : partCitations(wire)).toEqual(
    client === "chat" ? [] : [[], []],
  );
});
