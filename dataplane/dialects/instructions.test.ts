/** Tools that a Messages conversation defines in its middle, toward models that get all of their tools at once. */
import { describe, expect, test } from "vitest";
import { openContext, openTarget } from "../../test/fakes/request-edges.ts";
import { hoistSystemTurns } from "./instructions.ts";
import { DropNotes } from "./losses.ts";
import type { JsonObject } from "./messages/types.ts";
import { requestCodecs } from "./request-codecs.ts";

const input_schema = { type: "object", properties: { city: { type: "string" } } };
const addition = (definition: JsonObject): JsonObject => ({
  type: "tool_addition",
  tool: { type: "tool_definition", definition },
});
const reference = (type: string, name: string): JsonObject => ({
  type,
  tool: { type: "tool_reference", name },
});
const asked = (...content: JsonObject[]): JsonObject => ({
  model: "m",
  tools: [{ name: "clock", input_schema }],
  messages: [
    { role: "user", content: "Hi" },
    { role: "system", content },
    { role: "user", content: "And now?" },
  ],
});

function write(upstream: "chat" | "responses", body: JsonObject, notes: DropNotes): JsonObject {
  const { request, carry } = requestCodecs.messages.readRequest(body, openContext);
  const written = requestCodecs[upstream].writeRequest(request, carry, openTarget, notes);
  notes.judge();
  return written;
}

const namesIn = ({ tools }: JsonObject): unknown[] =>
  (tools as JsonObject[]).map((tool) => tool["name"] ?? (tool["function"] as JsonObject)["name"]);

const image = { type: "image", source: { type: "url", url: "https://example.com/a.png" } };
const imageRefused = expect.objectContaining({
  message: expect.stringContaining("image blocks in system turns") as string,
  code: "unsupported_content",
  param: "messages.1.content.1",
}) as Error;

test.each([
  ["where nothing but the instructions says so", "Answer in JSON.", "json_object", true],
  ["not where they do not", "Be brief.", "json_object", false],
  ["nor for text", "Answer in JSON.", "text", false],
])("Responses reads in the input alone that JSON is wanted: %s", (_where, told, type, moved) => {
  const asks = { role: "user", content: "Name a city." };
  const { request, carry } = requestCodecs.chat.readRequest(
    { model: "m", messages: [{ role: "system", content: told }, asks], response_format: { type } },
    openContext,
  );
  const written = requestCodecs.responses.writeRequest(request, carry, openTarget, new DropNotes(false));
  const turn = { type: "message", ...asks };
  if (moved) {
    expect(written["input"]).toEqual([{ type: "message", role: "developer", content: told }, turn]);
    expect(written).not.toHaveProperty("instructions");
  } else expect(written).toMatchObject({ instructions: told, input: [turn] });
});

describe.each(["chat", "responses"] as const)("toward %s", (upstream) => {
  test("an image in a system turn is refused by its place, not left out", () => {
    const body = asked({ type: "text", text: "Look:" }, image);
    expect(() => write(upstream, body, new DropNotes(false))).toThrow(imageRefused);
  });

  test("a tool that comes in mid-conversation is one of the tools, and nothing is lost", () => {
    const body = asked(addition({ name: "weather", description: "Tells it.", input_schema }));
    const written = write(upstream, body, new DropNotes(true));
    expect(namesIn(written)).toEqual(["clock", "weather"]);
    expect(JSON.stringify(written)).toContain('"description":"Tells it."');
    expect(JSON.stringify(written)).not.toContain("tool_addition");
  });

  test("one that is only named changes nothing", () => {
    const body = asked(reference("tool_addition", "clock"));
    expect(namesIn(write(upstream, body, new DropNotes(true)))).toEqual(["clock"]);
  });

  test("one of a name that is there already takes its place", () => {
    const newer = { name: "clock", description: "Newer.", input_schema };
    const written = write(upstream, asked(addition(newer)), new DropNotes(true));
    expect(namesIn(written)).toEqual(["clock"]);
    expect(JSON.stringify(written["tools"])).toContain("Newer.");
  });

  test("one that is taken away is gone until it is added again", () => {
    const more = addition({ name: "weather", input_schema });
    const gone = [more, reference("tool_removal", "clock")];
    expect(namesIn(write(upstream, asked(...gone), new DropNotes(true)))).toEqual(["weather"]);
    const back = [...gone, reference("tool_addition", "clock")];
    expect(namesIn(write(upstream, asked(...back), new DropNotes(true)))).toEqual(["clock", "weather"]);
  });

  test("its odd name gets the alias that its calls have, and what is lost of it is named", () => {
    const name = "tool of the middle";
    const body = asked(addition({ name, input_schema, defer_loading: true }));
    const notes = new DropNotes(false);
    const [, alias] = namesIn(write(upstream, body, notes));
    expect(alias).toMatch(/^tool_of_the_middle_[0-9a-f]{16}$/);
    expect(notes.header()).toBe("messages.content.tool.definition.defer_loading");
  });

  test("members that ask for nothing are no loss, as among the tools", () => {
    const idle = {
      defer_loading: false,
      eager_input_streaming: false,
      input_examples: [],
      allowed_callers: ["direct"],
    };
    const body = asked(addition({ name: "weather", input_schema, ...idle }));
    expect(namesIn(write(upstream, body, new DropNotes(true)))).toEqual(["clock", "weather"]);
  });

  test("an odd name is found again where a turn or a tool search only names it", () => {
    const name = "tool of the middle";
    const body = asked(addition({ name, input_schema }), reference("tool_removal", name));
    expect(namesIn(write(upstream, body, new DropNotes(true)))).toEqual(["clock"]);
    const found = {
      ...body,
      tools: [{ name, input_schema }],
      messages: [
        { role: "user", content: "Hi" },
        { role: "assistant", content: [{ type: "tool_use", id: "t", name, input: {} }] },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "t", content: [{ type: "tool_reference", tool_name: name }] },
          ],
        },
      ],
    };
    const written = write(upstream, found, new DropNotes(true));
    expect(JSON.stringify(written)).toContain(`[tool ${String(namesIn(written)[0])}]`);
  });

  test("a typed tool is refused by its place, as among the tools", () => {
    const body = asked(addition({ type: "bash_20250124", name: "bash" }));
    expect(() => write(upstream, body, new DropNotes(false))).toThrow(
      expect.objectContaining({ code: "unsupported_tool", param: "messages.1.content.0.tool.definition" }),
    );
  });
});

describe("where an upstream takes no system turns", () => {
  const hoist = (body: JsonObject) => {
    const { request, carry } = requestCodecs.messages.readRequest(body, openContext);
    return hoistSystemTurns(request, carry);
  };

  test("an image in one is refused, not left out", () => {
    expect(() => hoist(asked({ type: "text", text: "Look:" }, image))).toThrow(imageRefused);
  });

  test("their tools are kept", () => {
    const hoisted = hoist(
      asked({ type: "text", text: "Be brief." }, addition({ name: "weather", input_schema })),
    );
    expect(hoisted?.system).toBe("Be brief.");
    expect(hoisted?.tools?.map(({ name }) => name)).toEqual(["clock", "weather"]);
  });

  test("no tool can be called when all were taken away", () => {
    const gone = asked(reference("tool_removal", "clock"));
    for (const choice of [{}, { tool_choice: { type: "auto" } }, { tool_choice: { type: "any" } }]) {
      // Without them a server may refuse the calls that were made before.
      const hoisted = hoist({ ...gone, ...choice });
      expect(hoisted?.tools?.map(({ name }) => name)).toEqual(["clock"]);
      expect(hoisted?.tool_choice).toEqual({ type: "none" });
    }
  });

  test("a toolset, which has no name, takes the place of one of its family alone", () => {
    const computer = { type: "computer_toolset_20260801" };
    const newer = { ...computer, configs: { wait: {} } };
    const browser = { type: "browser_toolset_20260801" };
    const asking = { ...asked(addition(browser), addition(newer)), tools: [computer] };
    expect(hoist(asking)?.tools).toEqual([newer, browser]);
    const gone = { ...asking, messages: asked(reference("tool_removal", "computer"))["messages"] ?? [] };
    expect(hoist({ ...gone, tools: [computer, browser] })?.tools).toEqual([browser]);
  });
});
