/** A model that refuses after a server tool ran: what earlier iterations said is text, and keeps its citations. */
import { expect, test } from "vitest";
import { testCarry, testContext } from "../../test/grammar/convert.ts";
import { answerCodecs } from "./answer-codecs.ts";
import type { EarlyEvent } from "./codecs.ts";
import type { ContentBlock, JsonObject, MessagesResponse } from "./messages/types.ts";

const url = "https://gates.example/new";
const said = `They are faster, says [a report](${url}).`;
const cited = { type: "url_citation", start_index: 22, end_index: 59, url, title: "A report" } as const;
const annotate = (text: string) => (text.includes(url) ? [cited] : []);

const searched: ContentBlock[] = [
  { type: "text", text: said },
  { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "gates" } },
  { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] },
];

function answer(last: ContentBlock[], explanation: string | null = null): MessagesResponse {
  return {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "m",
    content: [...searched, ...last],
    stop_reason: "refusal",
    stop_sequence: null,
    stop_details: { type: "refusal", category: null, explanation },
    usage: { input_tokens: 1, output_tokens: 1 },
  };
}

function written(dialect: "chat" | "responses", response: MessagesResponse): JsonObject {
  const carry = testCarry(dialect, {}, { serverTools: true });
  return answerCodecs[dialect].writeResponse(response, carry, testContext(), annotate);
}

test.each([
  ["in its own words", answer([{ type: "text", text: "I can't say more." }]), "I can't say more."],
  ["without a word of its own", answer([], "Not allowed."), "Not allowed."],
])("rule 2.15: Responses has a refusal %s for the last iteration alone", (_, response, refusal) => {
  const output = written("responses", response)["output"];
  expect(output).toMatchObject([
    { type: "message", content: [{ type: "output_text", text: said, annotations: [cited] }] },
    { type: "web_search_call" },
    { type: "message", status: "incomplete", content: [{ type: "refusal", refusal }] },
  ]);
});

test.each([
  ["in its own words", answer([{ type: "text", text: "I can't say more." }]), "I can't say more."],
  ["without a word of its own", answer([], "Not allowed."), "Not allowed."],
])("rule 2.15: Chat has a refusal %s for the last iteration alone", (_, response, refusal) => {
  const { type, ...place } = cited;
  expect(written("chat", response)["choices"]).toMatchObject([
    {
      finish_reason: "content_filter",
      message: { content: said, refusal, annotations: [{ type, url_citation: place }] },
    },
  ]);
});

test("rule 2.15: Chat has no content where nothing was said before the refusal", () => {
  const response = answer([{ type: "text", text: "I can't." }]);
  const silent = { ...response, content: response.content.filter((_, index) => index > 0) };
  expect(written("chat", silent)["choices"]).toMatchObject([
    { message: { content: null, refusal: "I can't.", annotations: [] } },
  ]);
});

/** Everything that a stream of this answer says, its events joined. */
function streamed(dialect: "chat" | "responses", { content, stop_details }: MessagesResponse): string {
  const writer = answerCodecs[dialect].writeStream(
    testCarry(dialect, {}, { serverTools: true }),
    testContext(),
    annotate,
  );
  const events = content.flatMap((block, index): EarlyEvent[] => [
    {
      type: "content_block_start",
      index,
      content_block: block.type === "text" ? { ...block, text: "" } : block,
    },
    ...(block.type === "text"
      ? [
          {
            type: "content_block_delta" as const,
            index,
            delta: { type: "text_delta" as const, text: block.text },
          },
        ]
      : []),
    { type: "content_block_stop", index },
  ]);
  const delta = { stop_reason: "refusal" as const, stop_sequence: null, stop_details: stop_details ?? null };
  const usage = { input_tokens: 1, output_tokens: 1 };
  return [...events, { type: "message_delta" as const, delta, usage }]
    .map((event) => writer.write(event))
    .join("");
}

test.each(["chat", "responses"] as const)(
  "rule 2.15: a stream of %s tells why the last iteration says nothing",
  (dialect) => {
    const bytes = streamed(dialect, answer([], "Not allowed."));
    expect(bytes).toContain(dialect === "chat" ? '"\\n\\nNot allowed."' : '"Not allowed."');
    expect(streamed(dialect, answer([{ type: "text", text: "No." }], "Not allowed."))).not.toContain(
      "allowed",
    );
  },
);

test("rule 2.15: blanks alone behind a tool are no refusal of Chat's, streamed or whole", () => {
  const response = answer([{ type: "text", text: "\n" }], "Not allowed.");
  expect(written("chat", response)["choices"]).toMatchObject([
    { message: { content: said, refusal: "Not allowed." } },
  ]);
  expect(streamed("chat", response)).toContain('"\\n\\nNot allowed."');
});

test("rule 2.15: a refusal of Chat's has no line breaks before it that a stream leaves out", () => {
  const response = answer([{ type: "text", text: "\n\nI can't." }]);
  expect(written("chat", response)["choices"]).toMatchObject([{ message: { refusal: "I can't." } }]);
  expect(streamed("chat", response)).toContain('"\\n\\nI can\'t."');
});
