/** dialects.md §D3: an answer whose tool call the output limit cut names the limit as its end, on every way; the call is never run. */
import { describe, expect, test } from "vitest";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import type { Step } from "../../test/fakes/upstream/script.ts";
import { callOn, nameOf, ways } from "../../test/fakes/ways.ts";
import type { Dialect } from "../dialects/dialect.ts";

let ran = 0;
const { fake, refusal, serve } = await serveOneUpstream(async () => {
  ran += 1;
  return { kind: "hits", hits: [], posts: 0, profiles: 0 };
});

const usage = { input: 30, output: 40 };
const called = (name: string, input: string, more: object = { stop: "length" }): Step => ({
  answer: { parts: [{ type: "tool", name, input, id: "call_1" }], usage, deltaChars: 4, ...more },
});

/** Returns what the client reads: why the answer ended, and the arguments that came. */
function told(client: Dialect, stream: boolean, text: string): { end: unknown; args: string | undefined } {
  if (!stream) {
    const body = JSON.parse(text);
    if (client === "messages") return { end: body.stop_reason, args: JSON.stringify(body.content[0]?.input) };
    if (client === "chat") {
      const [choice] = body.choices;
      return { end: choice.finish_reason, args: choice.message.tool_calls?.[0]?.function.arguments };
    }
    return { end: body.incomplete_details?.reason, args: body.output[0]?.arguments };
  }
  const events = text
    .split("\n\n")
    .map((frame) => /^data: (\{.*)$/m.exec(frame)?.[1])
    .filter((data) => data !== undefined)
    .map((data) => JSON.parse(data));
  const joined = (piece: (event: never) => string | undefined) => events.map(piece as never).join("");
  if (client === "messages")
    return {
      end: events.findLast(({ type }) => type === "message_delta")?.delta.stop_reason,
      args: joined(({ delta }: { delta?: { partial_json?: string } }) => delta?.partial_json),
    };
  if (client === "chat")
    return {
      end: events.map(({ choices }) => choices[0]?.finish_reason).find((reason) => reason !== null),
      args: joined(
        ({ choices }: { choices: { delta: { tool_calls?: { function: { arguments: string } }[] } }[] }) =>
          choices[0]?.delta.tool_calls?.[0]?.function.arguments,
      ),
    };
  const { response } = events.at(-1);
  return { end: response.incomplete_details?.reason, args: response.output[0]?.arguments };
}

const limit = { messages: "max_tokens", chat: "length", responses: "max_output_tokens" };
const cut = '{"a":"lon';

describe.each(ways.filter(({ path }) => path !== "relay").map((way) => [nameOf(way), way] as const))(
  "%s",
  (_name, way) => {
    const { client, upstream, stream, path } = way;
    // A whole Messages answer holds inputs as objects, which do not show that they were cut.
    const isText = upstream !== "messages" || stream;

    test.each(upstream === "messages" ? [cut] : [cut, ""])("arguments %j", async (json) => {
      fake.next(called("lookup", json));
      const call = callOn(fake.url, way);
      await serve(call);
      const { end, args } = told(client, stream, call.sink.text);
      expect(end).toBe(limit[client]);
      if (path === "convert" && isText) expect(args).toBe(client === "messages" && !stream ? "{}" : json);
      if (client === "responses" && path === "convert" && isText)
        expect(call.sink.text).toMatch(/"type":"function_call","status":"incomplete"/);
      if (isText) expect(call.sink.text).not.toMatch(/"status":"completed"|event: error/);
      expect(call.meter.settled).toMatchObject([
        { status: "ok", estimated: false, tokens: { input: 30, output: 40 } },
      ]);
    });

    if (isText)
      test("broken arguments without the limit are still a fault (rule 2.7)", async () => {
        fake.next(called("lookup", cut, {}));
        const call = callOn(fake.url, way);
        if (!stream) return expect(await refusal(call)).toMatchObject({ code: "upstream_error" });
        await serve(call);
        expect(call.sink.text).toMatch(/data: \{("type":"error"|"error")/);
      });

    if (path === "tools")
      test("a server tool's call is not run", async () => {
        ran = 0;
        fake.next(called("web_search", '{"query":"gat'));
        const call = callOn(fake.url, way);
        await serve(call);
        expect([ran, fake.requests.length]).toEqual([0, 1]);
        expect(told(client, stream, call.sink.text).end).toBe(limit[client]);
      });
  },
);
