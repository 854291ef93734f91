/**
 * The official SDKs' own loops in each cell, with a server tool beside the client's: they check more of an answer than what they
 * read, and send back what they were given.
 */
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import OpenAI from "openai";
import { ResponsesToolRunner } from "openai/helpers/responses-tool-runner";
import { zodFunction } from "openai/helpers/zod";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { callOf, routeTo, snapshotOf, toolPolicy, upstreamOf } from "../../test/fakes/inference.ts";
import { serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import type { Part } from "../../test/fakes/upstream/script.ts";
import { type Dialect, dialects } from "../dialects/dialect.ts";
import { messagesErrorBody } from "../dialects/errors.ts";
import { ApiError } from "../lib/api-error.ts";

const hit = { title: "T", url: "https://a.example/x", text: "Rain.", age: null };
const { fake, serve } = await serveOneUpstream(async () => ({
  kind: "hits",
  hits: [hit],
  posts: 0,
  profiles: 0,
}));

/** `fetch` of a client whose model is served by the fake upstream, which speaks `upstream`. */
const fetchOf =
  (client: Dialect, upstream: Dialect): typeof fetch =>
  async (input, init) => {
    const request = new Request(input, init);
    const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
    const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
    const call = callOf(client, snapshot, Buffer.from(await request.arrayBuffer()));
    try {
      await serve(call);
    } catch (error) {
      // The newest runner asks for a thread first, and repeats its turn without (dialects.md §B1).
      if (!(error instanceof ApiError) || error.code !== "thread_unsupported") throw error;
      return Response.json(messagesErrorBody(error, "req_test"), { status: 400 });
    }
    return new Response(call.sink.text, { headers: call.sink.headers });
  };

const [model, apiKey, maxRetries] = ["public-model", "sk-svc-test", 0];
const messages = [{ role: "user" as const, content: "How is the weather?" }];
const city = z.object({ city: z.string() });

const openai = (client: Dialect, upstream: Dialect) =>
  new OpenAI({ apiKey, maxRetries, baseURL: "http://gateway.invalid/v1", fetch: fetchOf(client, upstream) });
const anthropic = (upstream: Dialect) =>
  new Anthropic({
    apiKey,
    maxRetries,
    baseURL: "http://gateway.invalid",
    fetch: fetchOf("messages", upstream),
  });

/** Runs a loop; `asked` is told the cities. @returns the last text. */
type Runs = (upstream: Dialect, stream: boolean, asked: (city: string) => string) => Promise<string>;

const runsResponses =
  (eager: boolean): Runs =>
  async (upstream, stream, asked) => {
    const parameters = z.toJSONSchema(city);
    const weather = {
      tool: { type: "function" as const, name: "weather", parameters, strict: true },
      independent: true,
      execute: (args: Record<string, unknown>) => asked(String(args["city"])),
    };
    const runner = new ResponsesToolRunner({
      functions: [weather],
      ...(eager && { earlyExecution: { functions: ["weather"] } }),
    });
    const params = { model, input: "How is the weather?", tools: [{ type: "web_search" as const }] };
    const options = { stream, ...(eager && { eager }) };
    return (await runner.run(openai("responses", upstream), params, options)).output_text;
  };

const runners: Readonly<Record<string, Runs>> = {
  "chat.completions.runTools": async (upstream, stream, asked) => {
    const weather = zodFunction({ name: "weather", parameters: city, function: (args) => asked(args.city) });
    const params = { model, messages, web_search_options: {}, tools: [weather] };
    const { completions } = openai("chat", upstream).chat;
    const runner = stream ? completions.runTools({ ...params, stream }) : completions.runTools(params);
    return (await runner.finalContent()) ?? "";
  },
  ResponsesToolRunner: runsResponses(false),
  "ResponsesToolRunner that runs calls before the end": runsResponses(true),
  "beta.messages.toolRunner": async (upstream, stream, asked) => {
    const weather = betaZodTool({
      name: "weather",
      description: "Tells the weather of a city.",
      inputSchema: city,
      run: (args) => asked(args.city),
    });
    const search = { type: "web_search_20250305" as const, name: "web_search" as const };
    const params = { model, max_tokens: 100, messages, tools: [search, weather] };
    const runner = anthropic(upstream).beta.messages.toolRunner({ ...params, stream });
    const { content } = await runner.runUntilDone();
    return content.map((block) => (block.type === "text" ? block.text : "")).join("");
  },
};

const thinking: Part = { type: "thinking", text: "Hm.", signature: "sealed" };
const text = (said: string): Part => ({ type: "text", text: said });
const search: Part = { type: "tool", name: "web_search", input: { query: "rain" } };
const call = (name: string): Part => ({
  type: "tool",
  id: `call_${name}`,
  name: "weather",
  input: { city: name },
});
const cited = text("Rain, says [T](https://a.example/x).");

const turns: Readonly<Record<string, readonly (readonly Part[])[]>> = {
  "calls of its own, one and then two": [
    [thinking, text("Let me look."), call("Jakarta")],
    [thinking, call("Bandung"), call("Ubud")],
    [thinking, cited],
  ],
  "a search and then a call": [[thinking, text("Let me look."), search], [cited, call("Jakarta")], [cited]],
  "both in one turn": [
    [text("Let me look."), search, call("Jakarta")],
    [thinking, cited],
  ],
  "both, its own first, and another search": [[call("Jakarta"), search], [search], [cited]],
};

const cells = dialects.flatMap((upstream) =>
  Object.keys(turns).flatMap((what) => [false, true].map((stream) => ({ upstream, what, stream }))),
);

describe.each(Object.entries(runners))("%s", (name, runs) => {
  // Calls run early only in a stream.
  const own = cells.filter(({ stream }) => stream || !name.includes("before"));
  test.each(own)("over $upstream, $what, streamed: $stream", async ({ upstream, what, stream }) => {
    const steps = turns[what] ?? [];
    fake.next(...steps.map((parts) => ({ answer: { parts } })));
    const asked: string[] = [];
    const said = await runs(upstream, stream, (one) => {
      asked.push(one);
      return `Rain in ${one}`;
    });
    expect(said).toBe("Rain, says [T](https://a.example/x).");
    expect(fake.requests).toHaveLength(steps.length);
    const known = steps
      .flat()
      .flatMap((part) => (part.type === "tool" && part.name === "weather" ? [part.input] : []));
    expect(asked.map((one) => ({ city: one }))).toEqual(known);
    for (const one of asked) expect(fake.requests.at(-1)?.text).toContain(`Rain in ${one}`);
  });
});
