/** Rule 2.2: what is lost on the way is named, and refused under strict; what is kept is neither. */
import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { type Dialect, dialects } from "./dialect.ts";
import { DropNotes } from "./losses.ts";
import type { JsonObject } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";

function write(client: Dialect, upstream: Dialect, more: JsonObject, notes: DropNotes): JsonObject {
  const user = [{ role: "user", content: "Hi" }];
  const body =
    client === "responses" ? { model: "m", input: user, ...more } : { model: "m", messages: user, ...more };
  const { request, carry } = requestCodecs[client].readRequest(body, openContext);
  const written = requestCodecs[upstream].writeRequest(request, carry, openTarget, notes);
  notes.judge();
  return written;
}

const user = (...content: JsonObject[]): JsonObject[] => [{ role: "user", content }];
const source = { type: "text", media_type: "text/plain", data: "Hello" };
const textDocument = user({ type: "document", title: "a.txt", source });
const pdf = (title?: string): JsonObject[] =>
  user({
    type: "document",
    source: { type: "base64", media_type: "application/pdf", data: "JVBERi0=" },
    ...(title !== undefined && { title }),
  });
/** An answer that cites a document, and a document that may be cited. */
const cited = [
  ...pdf(),
  {
    role: "assistant",
    content: [
      {
        type: "text",
        text: "It is 3.",
        citations: [{ type: "char_location", cited_text: "3", document_index: 0, document_title: null }],
      },
    ],
  },
  ...user({ type: "text", text: "And then?" }),
];
const citable = user({ type: "document", source, citations: { enabled: true } });
const encrypted = "reasoning.encrypted_content";
const logprobs = "message.output_text.logprobs";
const file = { filename: "a.txt", file_data: "data:text/plain;base64,SGVsbG8=" };

const prompt_cache_breakpoint = { mode: "explicit" };
const breakpointJson = '"prompt_cache_breakpoint":{"mode":"explicit"}';
const chatBreakpoint = "messages.content.prompt_cache_breakpoint";
const cachedText = (type: string): JsonObject => ({ type, text: "Hi", prompt_cache_breakpoint });
const cachedImage = { type: "image_url", image_url: { url: "https://a.example/" }, prompt_cache_breakpoint };
const cachedInstructions = [
  { role: "system", content: [cachedText("text")] },
  { role: "user", content: "Hi" },
];
const cachedResult = [
  { type: "function_call", call_id: "c", name: "a", arguments: "{}" },
  { type: "function_call_output", call_id: "c", output: [cachedText("input_text")] },
];
const searched = { web_search_options: {} };

/** What the SDKs' `parse` and `stream` helpers add to an answer, as a client sends it back. */
const parsedChat = {
  messages: [
    { role: "user", content: "Hi" },
    {
      role: "assistant",
      content: '{"a":1}',
      parsed: { a: 1 },
      tool_calls: [
        {
          id: "c",
          type: "function",
          function: { name: "f", arguments: '{"b":2}', parsed_arguments: { b: 2 } },
        },
      ],
    },
    { role: "tool", tool_call_id: "c", content: "r" },
  ],
};
const parsedResponses = {
  input: [
    { role: "user", content: "Hi" },
    { role: "assistant", content: [{ type: "output_text", text: '{"a":1}', parsed: { a: 1 } }] },
    { type: "function_call", call_id: "c", name: "f", arguments: '{"b":2}', parsed_arguments: { b: 2 } },
    { type: "function_call_output", call_id: "c", output: "r" },
  ],
};

/** A call of the form before `tools`, where the result has no id but a name. */
const legacyCall = (more: JsonObject = {}): JsonObject => ({
  messages: [
    { role: "user", content: "Hi", ...more },
    { role: "assistant", function_call: { name: "a", arguments: "{}" } },
    { role: "function", name: "a", content: "r" },
  ],
  functions: [{ name: "a" }],
});

/** A system turn that says until when it is shown. */
const shownUntil = (clear_at: string): JsonObject => ({
  messages: [...user({ type: "text", text: "Hi" }), { role: "system", content: "Be kind.", clear_at }],
});

/** A tool with the properties `a` and `b`. */
const text = { type: "string" };
const closed = { type: "object", properties: { a: text, b: text }, additionalProperties: false };
const strictTool = (required: string[]): JsonObject => ({
  tools: [{ name: "t", strict: true, input_schema: { ...closed, required } }],
});
const strictFunction = {
  tools: [
    { type: "function", function: { name: "t", strict: true, parameters: { ...closed, required: ["a"] } } },
  ],
};

test("reasoning that Codex sends without its id goes to an account of one's own without one", () => {
  const reasoning = { type: "reasoning", summary: [], encrypted_content: "gAAA==" };
  const body = { model: "m", input: [reasoning, ...user({ type: "input_text", text: "Hi" })] };
  const { request, carry } = requestCodecs.responses.readRequest(body, openContext);
  const own = { ...openTarget, ownAccount: true };
  const { input } = requestCodecs.responses.writeRequest(request, carry, own, new DropNotes(true));
  expect((input as JsonObject[])[0]).toEqual(reasoning);
});

describe("kept, so that strict has nothing to refuse", () => {
  test.each<[string, Dialect, Dialect, JsonObject, string]>([
    ["a document's title", "messages", "chat", { messages: textDocument }, '"text":"a.txt"'],
    ["a document's title", "messages", "responses", { messages: textDocument }, '"text":"a.txt"'],
    ["a text file's name", "chat", "responses", { messages: user({ type: "file", file }) }, '"text":"a.txt"'],
    [
      "a text file's name",
      "responses",
      "chat",
      { input: user({ type: "input_file", ...file }) },
      '"text":"a.txt"',
    ],
    ["a PDF's title", "messages", "chat", { messages: pdf("Report") }, '"filename":"Report.pdf"'],
    ["a PDF's title", "messages", "responses", { messages: pdf("Report.PDF") }, '"filename":"Report.PDF"'],
    ["a PDF without a title", "messages", "chat", { messages: pdf("") }, '"filename":"document.pdf"'],
    ["a PDF without a title", "messages", "responses", { messages: pdf() }, '"filename":"document.pdf"'],
    ["a stop sequence", "chat", "messages", { stop: ["", "END"] }, '"stop_sequences":["END"]'],
    [
      "what is included anyway",
      "responses",
      "messages",
      { include: [encrypted, "web_search_call.action.sources"] },
      '"content":"Hi"',
    ],
    ["a cache breakpoint", "chat", "responses", { messages: user(cachedText("text")) }, breakpointJson],
    ["a cache breakpoint", "responses", "chat", { input: user(cachedText("input_text")) }, breakpointJson],
    [
      "a cache breakpoint",
      "responses",
      "responses",
      { input: user(cachedText("input_text")) },
      breakpointJson,
    ],
    ["that of an image", "chat", "responses", { messages: user(cachedImage) }, breakpointJson],
    ["log probabilities", "responses", "responses", { include: [encrypted, logprobs] }, logprobs],
    [
      "the alternatives of log probabilities",
      "responses",
      "responses",
      { include: [logprobs], top_logprobs: 2 },
      '"top_logprobs":2',
    ],
    ["the name of a function's result", "chat", "messages", legacyCall(), '"type":"tool_result"'],
    ["strict with a closed schema", "messages", "chat", strictTool(["a", "b"]), '"strict":true'],
    ["strict with a closed schema", "messages", "responses", strictTool(["a", "b"]), '"strict":true'],
    ["strict as an OpenAI client says it", "chat", "responses", strictFunction, '"strict":true'],
    ["what a helper has parsed", "chat", "messages", parsedChat, '"input":{"b":2}'],
    ["what a helper has parsed", "chat", "responses", parsedChat, '"arguments":"{\\"b\\":2}"'],
    ["what a helper has parsed", "responses", "messages", parsedResponses, '"input":{"b":2}'],
    ["what a helper has parsed", "responses", "chat", parsedResponses, '"arguments":"{\\"b\\":2}"'],
    ["what an earlier answer cites", "messages", "chat", { messages: cited }, '"content":"It is 3."'],
    ["what an earlier answer cites", "messages", "responses", { messages: cited }, "It is 3."],
    ["a system turn that stays", "messages", "chat", shownUntil("never"), "Be kind."],
    ["a system turn that stays", "messages", "responses", shownUntil("never"), "Be kind."],
    ["all else beside a foreign field's null", "messages", "chat", { stop: null }, '"content":"Hi"'],
    ["all else beside a foreign field's null", "chat", "responses", { system: null }, '"content":"Hi"'],
    ["all else beside a foreign field's null", "responses", "messages", { stop: null }, '"content":"Hi"'],
  ])("%s, from %s to %s", (_what, client, upstream, more, written) => {
    expect(JSON.stringify(write(client, upstream, more, new DropNotes(true)))).toContain(written);
  });
});

test.each(["chat", "responses"] as const)(
  "rule 2.9: strict with an optional property is false to %s, which would refuse the schema",
  (upstream) => {
    const written = write("messages", upstream, strictTool(["a"]), new DropNotes(false));
    expect(JSON.stringify(written)).toContain('"strict":false');
  },
);

test("under strict every field that would be dropped is named, the first as `param`", () => {
  const more = {
    top_k: 5,
    inference_geo: "us",
    service_tier: "auto",
    messages: user({ type: "text", text: "x" }),
  };
  const named = new DropNotes(false);
  write("messages", "chat", more, named);
  const names = (named.header() ?? "").split(", ");
  expect(names.length).toBeGreaterThan(1);
  expect(() => write("messages", "chat", more, new DropNotes(true))).toThrow(
    expect.objectContaining({
      param: names[0],
      message: expect.stringContaining(`${names.join(", ")}: `) as string,
    }),
  );
});

/** The only tool is taken away before the choice among what is left. */
const chosenOfNone = (tool_choice: JsonObject): JsonObject => ({
  tools: [{ name: "a", input_schema: { type: "object" } }],
  tool_choice,
  messages: [
    ...user({ type: "text", text: "x" }),
    { role: "system", content: [{ type: "tool_removal", tool: { type: "tool_reference", name: "a" } }] },
  ],
});

test.each(["auto", "none"])("a tool_choice %s without tools asks for nothing", (type) => {
  for (const upstream of ["chat", "responses"] as const) {
    const notes = new DropNotes(false);
    write("messages", upstream, { tool_choice: { type } }, notes);
    expect(notes.header()).toBeNull();
  }
});

test.each(["messages", "responses"] as const)(
  "rule 2.17: reasoning of an answer of ours may come back, also under strict, to %s",
  (upstream) => {
    const said = { role: "assistant", content: "Hello", reasoning_content: "Hm." };
    const messages = [...user({ type: "text", text: "x" }), said, ...user({ type: "text", text: "y" })];
    const notes = new DropNotes(true);
    expect(JSON.stringify(write("chat", upstream, { messages }, notes))).toContain("Hello");
    expect(notes.header()).toBeNull();
  },
);

describe("a call that is demanded without any tool is refused, as by each vendor", () => {
  test.each<[Dialect, JsonObject]>([
    ["messages", { tool_choice: { type: "any" } }],
    ["messages", { tool_choice: { type: "any" }, tools: [] }],
    ["messages", { tool_choice: { type: "tool", name: "a" } }],
    ["chat", { tool_choice: "required" }],
    ["chat", { tool_choice: { type: "function", function: { name: "a" } }, tools: [] }],
    ["responses", { tool_choice: "required", tools: [] }],
    ["responses", { tool_choice: { type: "function", name: "a" } }],
  ])("from %s: %j", (client, more) => {
    for (const upstream of dialects)
      expect(() => write(client, upstream, more, new DropNotes(false))).toThrow(
        expect.objectContaining({
          code: "invalid_value",
          param: expect.stringContaining("tool_choice") as string,
        }),
      );
  });

  test("a tool that a system turn defines may be chosen", () => {
    const tool = { type: "tool_definition", definition: { name: "a", input_schema: { type: "object" } } };
    const turns = [
      ...user({ type: "text", text: "x" }),
      { role: "system", content: [{ type: "tool_addition", tool }] },
    ];
    const asked = { tool_choice: { type: "any" }, messages: turns };
    expect(write("messages", "chat", asked, new DropNotes(true))).toMatchObject({ tool_choice: "required" });
  });
});

describe("dropped, so that it is named, and refused under strict", () => {
  test.each<[string, Dialect, Dialect, JsonObject, string]>([
    ["a stop sequence of whitespace", "chat", "messages", { stop: "\n\n" }, "stop"],
    ["one stop sequence of whitespace among others", "chat", "messages", { stop: ["END", " "] }, "stop"],
    ["logprobs", "responses", "messages", { include: [logprobs] }, "include"],
    ["results of a search", "responses", "chat", { include: ["web_search_call.results"] }, "include"],
    ["the name of a user", "chat", "messages", legacyCall({ name: "Ada" }), "messages.name"],
    ["a cache breakpoint", "chat", "messages", { messages: user(cachedText("text")) }, chatBreakpoint],
    ["that of instructions", "chat", "responses", { messages: cachedInstructions }, chatBreakpoint],
    ["that of a search", "chat", "chat", { ...searched, messages: user(cachedText("text")) }, chatBreakpoint],
    [
      "that of a call's result",
      "responses",
      "chat",
      { input: cachedResult },
      "input.output.prompt_cache_breakpoint",
    ],
    ["a choice among tools that went", "messages", "chat", chosenOfNone({ type: "any" }), "tool_choice"],
    [
      "a choice among tools that went",
      "messages",
      "responses",
      chosenOfNone({ type: "tool", name: "a" }),
      "tool_choice",
    ],
    ["citations that are asked for", "messages", "chat", { messages: citable }, "messages.content.citations"],
    ["the end of a system turn", "messages", "chat", shownUntil("next_user_message"), "messages.clear_at"],
    ["strict with an optional property", "messages", "chat", strictTool(["a"]), "tools.strict"],
    ["strict with an optional property", "messages", "responses", strictTool(["a"]), "tools.strict"],
  ])("%s, from %s to %s", (_what, client, upstream, more, field) => {
    const notes = new DropNotes(false);
    write(client, upstream, more, notes);
    expect(notes.header()).toBe(field);
    expect(() => write(client, upstream, more, new DropNotes(true))).toThrow(
      expect.objectContaining({ code: "unsupported_parameter", param: field }),
    );
  });
});

test("no alternatives of log probabilities is what Chat refuses to be told without these", () => {
  const written = write("responses", "chat", { top_logprobs: 0 }, new DropNotes(true));
  expect(written).not.toHaveProperty("top_logprobs");
  expect(write("responses", "chat", { top_logprobs: 2 }, new DropNotes(true))).toMatchObject({
    logprobs: true,
    top_logprobs: 2,
  });
});

test("what a content part calls its role says nothing of its turn", () => {
  const part = (role: string) => ({ ...cachedText("text"), role });
  const named = (messages: JsonObject[]) => {
    const notes = new DropNotes(false);
    write("chat", "responses", { messages }, notes);
    return notes.header();
  };
  expect(named(user(part("assistant")))).toBe("messages.content.role");
  const instructions = { role: "system", content: [part("user")] };
  expect(named([instructions, ...user(part("user"))])).toBe(`${chatBreakpoint}, messages.content.role`);
});

test("a lifetime of a cache that Chat does not have stays behind, and is named", () => {
  const written = (client: Dialect, upstream: Dialect, ttl: string) => {
    const notes = new DropNotes(false);
    const request = { prompt_cache_options: { mode: "explicit", ttl } };
    return [write(client, upstream, request, notes)["prompt_cache_options"], notes.header()];
  };
  const both = { mode: "explicit", ttl: "30m" };
  expect(written("responses", "chat", "30m")).toEqual([both, null]);
  expect(written("responses", "chat", "12h")).toEqual([{ mode: "explicit" }, "prompt_cache_options.ttl"]);
  expect(written("chat", "responses", "12h")).toEqual([{ ...both, ttl: "12h" }, null]);
});

test("a field of which only known members cross is named whole where it is something else", () => {
  for (const value of ["24h", 5, ["24h"]])
    for (const upstream of ["messages", "responses"] as const) {
      const notes = new DropNotes(false);
      const written = write("chat", upstream, { prompt_cache_options: value, reasoning: value }, notes);
      expect(written["prompt_cache_options"]).toBeUndefined();
      expect(notes.header()).toBe("reasoning, prompt_cache_options");
    }
  write("chat", "responses", { prompt_cache_options: {}, reasoning: null }, new DropNotes(true));
});
