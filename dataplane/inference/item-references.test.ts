/** The bytes around references, without a store: everything that is asked for is found. */
import { expect, test } from "vitest";
import { callOf, snapshotOf } from "../../test/fakes/inference.ts";
import type { ToolCache } from "../tools/cache.ts";
import { withItemReferences } from "./item-references.ts";

const reasoning = (encrypted?: string) => ({
  type: "reasoning",
  id: "rs",
  summary: [],
  encrypted_content: encrypted,
});
const items: Record<string, object> = {
  empty: reasoning(),
  sealed: reasoning("abc"),
  message: { type: "message", id: "message", role: "assistant", content: [] },
};
/** Finds the item that the last part of the key names. */
const everything: ToolCache = {
  get: async (key) => {
    const item = items[key.split(":").at(-1)?.split("-")[0] ?? ""];
    return item === undefined ? null : Buffer.from(JSON.stringify(item));
  },
  set: async () => undefined,
};

async function resolve(body: string): Promise<string> {
  let seen = "";
  const serve = withItemReferences(
    async (call) => {
      seen = call.body.toString();
    },
    everything,
    async () => undefined,
  );
  await serve(callOf("responses", snapshotOf([]), body));
  return seen;
}
const reference = (id: string) => `{"type":"item_reference","id":"${id}"}`;
const user = '{"role":"user","content":"Hi"}';
const inputOf = (...elements: string[]) => `{"model":"m", "n": 1.0, "input": [ ${elements.join(" , ")} ]}`;

test("a reference becomes the item; every other byte stays", async () => {
  expect(await resolve(inputOf(user, reference("message"), user))).toBe(
    inputOf(user, JSON.stringify(items["message"]), user),
  );
  expect(await resolve(inputOf(reference("sealed"), user))).toBe(
    inputOf(JSON.stringify(items["sealed"]), user),
  );
});

test.each([
  [["empty-1", "U"], ["U"]],
  [["U", "empty-1"], ["U"]],
  [["U", "empty-1", "empty-2"], ["U"]],
  [
    ["U", "empty-1", "U"],
    ["U", "U"],
  ],
  [
    ["empty-1", "U", "empty-2", "empty-3", "U", "empty-4", "empty-5"],
    ["U", "U"],
  ],
  [
    ["U", "empty-1", "message", "empty-2"],
    ["U", "message"],
  ],
])("reasoning without content is taken out of %j", async (before, after) => {
  const elements = before.map((element) => (element === "U" ? user : reference(element)));
  const { input } = JSON.parse(await resolve(inputOf(...elements))) as { input: object[] };
  expect(input).toEqual(after.map((element) => (element === "U" ? JSON.parse(user) : items[element])));
});

test("an unknown reference stays for the refusal, and other bodies are not looked at", async () => {
  expect(await resolve(inputOf(reference("nobody")))).toBe(inputOf(reference("nobody")));
  expect(await resolve(inputOf(user))).toBe(inputOf(user));
});
