/** Annotations of links to what tools found: a stream's are those of the whole answer (service.md "Citations in Responses and Chat"). */
import { expect, test } from "vitest";
import { serveOneUpstream } from "../../../test/fakes/one-upstream.ts";
import { callOn, nameOf, paths } from "../../../test/fakes/ways.ts";
import { framesOf } from "../../../test/grammar/sse.ts";
import type { RunTool } from "../../tools/toolbox.ts";

const found: RunTool = async () => ({
  kind: "hits",
  hits: [{ url: "https://gates.example/", title: "Gates", text: "They are fast.", age: null }],
  posts: 0,
  profiles: 0,
});
const { fake, serve } = await serveOneUpstream(found);
const link = "[Gates](https://gates.example/)";

/** The places of all annotations, by content part. */
function cited(client: string, wire: string): unknown {
  const objects = wire.startsWith("{")
    ? [JSON.parse(wire)]
    : framesOf(wire).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));
  if (client === "chat")
    return objects.flatMap(({ choices }) =>
      choices.flatMap(
        ({ delta, message }: { delta?: { annotations?: [] }; message?: { annotations?: [] } }) =>
          (delta ?? message)?.annotations?.map(
            ({ url_citation: { start_index, end_index } }: { url_citation: Record<string, number> }) => [
              start_index,
              end_index,
            ],
          ) ?? [],
      ),
    );
  const last = objects.at(-1);
  return (last.response ?? last).output.flatMap(
    ({ content }: { content?: { annotations: { start_index: number; end_index: number }[] }[] }) =>
      content?.map(({ annotations }) => annotations.map((one) => [one.start_index, one.end_index])) ?? [],
  );
}

const cells = paths
  .filter(({ path, client }) => path === "tools" && client !== "messages")
  .map((way) => [nameOf({ ...way, stream: false }), way] as const);

test.each(cells)("a link that stands before the search which finds it: %s", async (_name, way) => {
  for (const stream of [false, true]) {
    fake.reset();
    fake.next(
      {
        answer: {
          parts: [
            { type: "text", text: `I know ${link}.` },
            { type: "tool", name: "web_search", input: { query: "gates" } },
          ],
        },
      },
      { answer: { parts: [{ type: "text", text: `See ${link}.` }] } },
    );
    const call = callOn(fake.url, { ...way, stream });
    await serve(call);
    // A content part of Responses ends before the next search; in Chat the whole answer is one text.
    const [before, after] = [7, 4].map((at) => [at, at + link.length]);
    const moved = [`I know ${link}.\n\nSee `.length, `I know ${link}.\n\nSee ${link}`.length];
    expect(cited(way.client, call.sink.text)).toEqual(
      way.client === "chat" ? [before, moved] : [[], [after]],
    );
  }
});

const ask = { role: "user", content: "And the old ones?" };
const cite = { start_index: 0, end_index: 3, url: "https://old.example/", title: "Old gates" };
/** What an earlier turn found and cited. */
const earlier: Readonly<Record<string, object>> = {
  chat: {
    messages: [
      { role: "assistant", content: "Old", annotations: [{ type: "url_citation", url_citation: cite }] },
      ask,
    ],
  },
  responses: {
    input: [
      {
        type: "web_search_call",
        id: "ws_1",
        status: "completed",
        action: {
          type: "search",
          query: "gates",
          sources: ["https://old.example/", "https://gates.example/"].map((url) => ({ type: "url", url })),
        },
      },
      {
        type: "message",
        role: "assistant",
        content: [{ type: "output_text", text: "Old", annotations: [{ type: "url_citation", ...cite }] }],
      },
      ask,
    ],
  },
};

/** The URLs and titles of all annotations. */
const titled = (wire: string) =>
  Array.from(
    wire.matchAll(/"url":"(https:\/\/(?:old|gates)\.example\/)","title":"([^"]*)"/g),
    ([, url, title]) => `${url} ${title}`,
  );

test.each(cells)("a link to what an earlier turn found is cited: %s", async (_name, way) => {
  for (const stream of [false, true]) {
    fake.reset();
    fake.next(
      { answer: { parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }] } },
      { answer: { parts: [{ type: "text", text: `See ${link} and [these](https://old.example/#x).` }] } },
    );
    const call = callOn(fake.url, { ...way, stream }, { body: earlier[way.client] ?? {} });
    await serve(call);
    // A stream of Responses tells each several times.
    expect([...new Set(titled(call.sink.text))].sort()).toEqual([
      "https://gates.example/ Gates",
      "https://old.example/ Old gates",
    ]);
  }
});
