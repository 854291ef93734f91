/** Rule 2.1: log probabilities, which Messages cannot hold, cross between Chat and Responses, whole and streamed. */
import { describe, expect, test } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
} from "../../test/fakes/inference.ts";
import { bodyOf, sealerOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { framesOf } from "../../test/grammar/sse.ts";
import { streamFaults, vendorJudge } from "../../test/vendor/judge.ts";
import { vendorType } from "../../test/vendor/vendor-type.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { readLogprobs } from "../dialects/logprobs.ts";
import type { JsonObject } from "../dialects/messages/types.ts";
import { COMPACTED_PREFIX } from "../dialects/responses/compaction.ts";

const judge = await vendorJudge();
const { fake, serve } = await serveOneUpstream(async () => ({
  kind: "hits",
  hits: [],
  posts: 0,
  profiles: 0,
}));

type Client = Exclude<Dialect, "messages">;
const cells: [Client, Client][] = [
  ["chat", "responses"],
  ["responses", "chat"],
  // Converted, as it holds a summary that was sealed here.
  ["responses", "responses"],
];
const compacted = {
  type: "compaction",
  encrypted_content: COMPACTED_PREFIX + sealerOf("org_a").seal(`${COMPACTED_PREFIX}They greet.`),
};
const resent = { input: [compacted, { type: "message", role: "user", content: "Say hello" }] };

const tokenOf = (token: string, logprob: number) => ({ token, bytes: [...Buffer.from(token)], logprob });
const logprobOf = (token: string, logprob: number) => ({
  ...tokenOf(token, logprob),
  top_logprobs: [tokenOf(token, logprob), tokenOf("Ä", -4.25)],
});
const tokens = [logprobOf("Grüß", -0.25), logprobOf(" Gott", -1.5), logprobOf("!", -0.0625)];
const text = "Grüß Gott!";
const wishes: Record<Client, JsonObject> = {
  chat: { logprobs: true, top_logprobs: 2 },
  responses: { include: ["message.output_text.logprobs"], top_logprobs: 2 },
};

const model = "upstream-model";
const chunk = (choice: object): string =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, ...choice }] })}\n\n`;
const event = (type: string, more: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
const part = { type: "output_text", text, annotations: [], logprobs: tokens };
const item = { id: "m", type: "message", status: "completed", role: "assistant", content: [part] };
const response = {
  id: "r",
  object: "response",
  status: "completed",
  model,
  output: [item],
  usage: { input_tokens: 3, output_tokens: 3, total_tokens: 6 },
};
const place = { item_id: "m", output_index: 0, content_index: 0 };
/** What a delta says of a token: its own dialect's is without bytes. */
const bare = ({ token, logprob, top_logprobs: top }: (typeof tokens)[number]) => ({
  token,
  logprob,
  top_logprobs: top.map((one) => ({ token: one.token, logprob: one.logprob })),
});

const wholes: Record<Client, object> = {
  chat: {
    id: "c",
    object: "chat.completion",
    created: 1,
    model,
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: text, refusal: null },
        logprobs: { content: tokens, refusal: null },
        finish_reason: "stop",
      },
    ],
    usage: { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6 },
  },
  responses: response,
};
const streams: Record<Client, string[]> = {
  chat: [
    chunk({ delta: { role: "assistant", content: "" }, logprobs: null }),
    ...tokens.map((one) =>
      chunk({ delta: { content: one.token }, logprobs: { content: [one], refusal: null } }),
    ),
    chunk({ delta: {}, finish_reason: "stop", logprobs: null }),
    "data: [DONE]\n\n",
  ],
  responses: [
    event("response.created", { response: { ...response, status: "in_progress", output: [], usage: null } }),
    event("response.output_item.added", { output_index: 0, item: { ...item, content: [] } }),
    ...tokens.map((one) =>
      event("response.output_text.delta", { ...place, delta: one.token, logprobs: [bare(one)] }),
    ),
    event("response.output_text.done", { ...place, text, logprobs: tokens }),
    event("response.output_item.done", { output_index: 0, item }),
    event("response.completed", { response }),
  ],
};

async function answer(client: Client, upstream: Dialect, body: JsonObject, script: object | string[]) {
  const raw = Array.isArray(script)
    ? { body: script.join(""), contentType: "text/event-stream" }
    : { body: JSON.stringify(script) };
  fake.next({ raw });
  const snapshot = snapshotOf([routeTo([upstreamOf(fake.url, upstream)])]);
  const call = callOf(
    client,
    snapshot,
    bodyOf(client, {
      ...(client === upstream && resent),
      ...body,
      stream: Array.isArray(script),
    }),
  );
  await serve(call);
  const { text: wire, headers } = call.sink;
  const faults = Array.isArray(script)
    ? streamFaults(judge, client, wire)
    : judge(vendorType(client, "Answer"), JSON.parse(wire));
  expect(faults).toEqual([]);
  return { wire, dropped: headers["x-gapura-dropped"], asked: fake.requests[0]?.json() };
}

/** Returns all log probabilities of an answer. */
function told(client: Client, wire: string): unknown {
  const objects = wire.startsWith("{")
    ? [JSON.parse(wire)]
    : framesOf(wire).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));
  if (client === "chat")
    return objects.flatMap(({ choices }) =>
      choices.flatMap(
        (choice: { logprobs: { content: unknown[] } | null }) => choice.logprobs?.content ?? [],
      ),
    );
  const last = objects.at(-1);
  return (last.response ?? last).output[0].content[0].logprobs;
}

describe.each(cells)("a %s client of a %s upstream", (client, upstream) => {
  test("asks for log probabilities in the upstream's own way, losing nothing", async () => {
    const { asked, dropped } = await answer(client, upstream, wishes[client], wholes[upstream]);
    expect(asked).toMatchObject(
      upstream === "chat"
        ? { logprobs: true, top_logprobs: 2 }
        : { include: ["reasoning.encrypted_content", "message.output_text.logprobs"], top_logprobs: 2 },
    );
    expect(dropped).toBeUndefined();
  });

  test("is told those of a whole answer", async () => {
    const { wire } = await answer(client, upstream, wishes[client], wholes[upstream]);
    expect(told(client, wire)).toEqual(tokens);
  });

  test("is told those of a stream beside their text", async () => {
    const { wire } = await answer(client, upstream, wishes[client], streams[upstream]);
    expect(told(client, wire)).toEqual(tokens);
    const deltas = framesOf(wire).flatMap(({ data }) => {
      if (!data.startsWith("{")) return [];
      const { choices, type, delta, logprobs } = JSON.parse(data);
      if (type === "response.output_text.delta") return [[delta, logprobs]];
      return choices?.[0]?.delta.content ? [[choices[0].delta.content, choices[0].logprobs.content]] : [];
    });
    expect(deltas).toEqual(tokens.map((one) => [one.token, [one]]));
  });

  test("is told none that it did not ask for", async () => {
    for (const script of [wholes[upstream], streams[upstream]]) {
      fake.reset();
      const { wire, asked } = await answer(client, upstream, {}, script);
      expect(wire).not.toContain("-0.0625");
      expect(JSON.stringify(asked)).not.toContain("logprobs");
    }
  });
});

test("what is longer than any token is none, also where its bytes are not told", () => {
  const token = { token: "a", bytes: [97], logprob: -1, top_logprobs: [] };
  const long = { token: "a".repeat(1_025), logprob: -1 };
  expect(readLogprobs([long, { ...token, top_logprobs: [long] }])).toEqual([token]);
});

test("text that only the end of a Responses stream tells has its tokens too", async () => {
  const script = streams.responses.filter((one) => !one.startsWith("event: response.output_text.delta"));
  const { wire } = await answer("chat", "responses", wishes.chat, script);
  expect(told("chat", wire)).toEqual(tokens);
});

test("so has text whose tokens only its end tells, with a stop sequence that does not come", async () => {
  const script = streams.responses.map((one) =>
    one.startsWith("event: response.output_text.delta")
      ? one.replace(/"logprobs":.*\}/, '"logprobs":[]}')
      : one,
  );
  for (const stop of [{}, { stop: "###" }, { stop: "!!" }]) {
    fake.reset();
    const { wire } = await answer("chat", "responses", { ...wishes.chat, ...stop }, script);
    expect(told("chat", wire)).toEqual(tokens);
  }
});

test("tokens of a call are not told as the text's before it", async () => {
  const call = { index: 0, id: "call_1", type: "function", function: { name: "f", arguments: "{}" } };
  const script = [
    ...streams.chat.slice(0, -2),
    chunk({ delta: { tool_calls: [call] }, logprobs: { content: [logprobOf("<call>", -3)], refusal: null } }),
    chunk({ delta: {}, finish_reason: "tool_calls", logprobs: null }),
    "data: [DONE]\n\n",
  ];
  const tools = [{ type: "function", name: "f", parameters: { type: "object" } }];
  const { wire } = await answer("responses", "chat", { ...wishes.responses, tools }, script);
  expect(told("responses", wire)).toEqual(tokens);
});

test("an answer that is cut at a stop sequence keeps the tokens of what is left", async () => {
  for (const script of [wholes.responses, streams.responses]) {
    fake.reset();
    const { wire } = await answer("chat", "responses", { ...wishes.chat, stop: "!" }, script);
    expect(told("chat", wire)).toEqual(tokens.slice(0, 2));
  }
});

test("with server tools they are dropped by name, toward any upstream", async () => {
  for (const upstream of ["chat", "responses", "messages"] as const) {
    fake.reset();
    const route = routeTo([upstreamOf(fake.url, upstream)], { toolPolicy: "test/default" });
    const snapshot = snapshotOf([route], ["*"], {}, { "test/default": toolPolicy });
    for (const client of ["chat", "responses"] as const) {
      fake.next({ answer: { parts: [{ type: "text", text: "Hello" }] } });
      const body = bodyOf(client, { ...declaredSearch[client], ...wishes[client] });
      const call = callOf(client, snapshot, body);
      await serve(call);
      expect(call.sink.status).toBe(200);
      expect(call.sink.headers["x-gapura-dropped"]).toBe(
        client === "chat" ? "logprobs, top_logprobs" : "top_logprobs, include",
      );
    }
    for (const request of fake.requests) expect(JSON.stringify(request.json())).not.toContain("logprobs");
  }
});
