/** Old items of server tools are not sent again (service.md "Conversations"); texts that they stood between stay apart. */
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { text } from "../../test/fakes/upstream/script.ts";
import { callOn } from "../../test/fakes/ways.ts";
import { type Dialect, dialects } from "../dialects/dialect.ts";

const { fake, serve } = await serveOneUpstream();

const said = (...texts: string[]) => ({
  type: "message",
  role: "assistant",
  content: texts.map((part) => ({ type: "output_text", text: part, annotations: [] })),
});
const user = (content: string) => ({ role: "user", content });
const search = { type: "web_search_call", id: "ws_1", status: "completed", action: { query: "gates" } };
const thought = { type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }] };

interface Turn {
  readonly role?: string;
  readonly content?: string | readonly { readonly text?: string }[];
}

/** Returns all text that the upstream gets as the assistant's. */
async function toldOf(upstream: Dialect, items: readonly object[]): Promise<string> {
  fake.next(text("Hello"));
  const body = { input: [user("Hi"), ...items, user("And now?")] };
  await serve(callOn(fake.url, { path: "tools", client: "responses", upstream, stream: false }, { body }));
  const sent = JSON.parse(fake.requests[0]?.text ?? "") as Record<string, Turn[]>;
  const turns = (upstream === "responses" ? sent["input"] : sent["messages"]) ?? [];
  return turns
    .filter(({ role }) => role === "assistant")
    .flatMap(({ content }) => (typeof content === "string" ? [{ text: content }] : (content ?? [])))
    .map((part) => part.text ?? "")
    .join("");
}

const cases: [string, readonly object[], string][] = [
  ["a blank line, where an item stood", [said("look"), search, said("ans")], "look\n\nans"],
  ["one, where several stood", [said("look"), search, search, said("ans")], "look\n\nans"],
  ["one, where reasoning stood as well", [said("look"), search, thought, said("ans")], "look\n\nans"],
  [
    "no more than one",
    [said("look\n"), search, said("\nans"), search, said("more\n\n")],
    "look\n\nans\n\nmore\n\n",
  ],
  ["nothing between parts that citations split", [said("lo", "ok"), search, said("a", "ns")], "look\n\nans"],
  ["nothing, where nothing stood", [said("look"), said("ans")], "lookans"],
  ["nothing before the first text", [search, said("ans")], "ans"],
];

test.each(
  cases.flatMap(([what, items, told]) => dialects.map((upstream) => [what, upstream, items, told] as const)),
)("%s (%s)", async (_what, upstream, items, told) => {
  expect(await toldOf(upstream, items)).toBe(told);
});

test.each(dialects)(
  "a session that may not search any more goes on, and sends none of it (%s)",
  async (upstream) => {
    fake.reset();
    fake.next(text("Hello"));
    const body = {
      input: [user("Hi"), said("look"), search, said("ans"), user("And now?")],
      tools: [{ type: "web_search", external_web_access: false }],
    };
    const call = callOn(
      fake.url,
      { path: "convert", client: "responses", upstream, stream: false },
      { body },
    );
    await serve(call);
    expect(JSON.parse(call.sink.text)).toMatchObject({ status: "completed", output: [{ type: "message" }] });
    const sent = fake.requests[0]?.text ?? "";
    expect(sent).toContain("look");
    expect(sent).toContain("ans");
    expect(sent).not.toContain("search");
  },
);

test.each(dialects)("nothing from one turn to the next (%s)", async (upstream) => {
  expect(await toldOf(upstream, [said("look"), search, user("Go on"), said("ans")])).toBe("lookans");
});
