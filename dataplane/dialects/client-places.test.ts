import { expect, test } from "vitest";
import { clientPlaces } from "./client-places.ts";
import type { JsonObject } from "./messages/types.ts";

const user = (content: JsonObject[string]): JsonObject => ({ role: "user", content });
const text = (words: string): JsonObject => ({ type: "text", text: words });
const call: JsonObject = { type: "tool_use", id: "t", name: "f", input: {} };

const cases: Record<string, [JsonObject, JsonObject, object]> = {
  "a text that became a part": [
    { messages: [user("hi"), user([text("a")])] },
    { messages: [user([text("hi")]), user("a")] },
    { messages: 2 },
  ],
  "a turn that was added behind": [
    { messages: [user("hi")] },
    { messages: [user("hi"), user("!")] },
    { messages: 1 },
  ],
  "a turn that went": [
    { messages: [user("a"), { role: "assistant", content: "b" }, user("c")] },
    { messages: [user("a"), user("c")] },
    { messages: 1 },
  ],
  "a part that became another": [
    { messages: [{ role: "assistant", content: [{ ...call, type: "server_tool_use" }] }] },
    { messages: [{ role: "assistant", content: [call] }] },
    { messages: 0 },
  ],
  "instructions by their other name, and calls without words": [
    {
      messages: [
        { role: "developer", content: "x" },
        { role: "assistant", content: null, tool_calls: [] },
      ],
    },
    {
      messages: [
        { role: "system", content: "x" },
        { role: "assistant", content: "", tool_calls: [] },
      ],
    },
    { messages: 2 },
  ],
  "tools in another order": [
    { tools: [{ name: "a" }, { type: "web_search_20250305", name: "web_search" }, { name: "b" }] },
    { tools: [{ name: "a" }, { name: "b" }, { name: "web_search" }] },
    { tools: 1 },
  ],
  "functions of Chat": [
    { tools: [{ type: "function", function: { name: "a" } }] },
    { tools: [{ type: "function", function: { name: "a", strict: false } }] },
    { tools: 1 },
  ],
  "a string where entries may be": [{ input: "hi" }, { input: [user("hi")] }, { input: 0 }],
};
test.for(Object.entries(cases))("%s", ([, [client, written, places]]) => {
  expect(clientPlaces(client, written)).toMatchObject(places);
});
