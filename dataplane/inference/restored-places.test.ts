/** Resent blocks of server tools become turns of their own: an error about another turn names it as the client has it. */
import { expect, test } from "vitest";
import { hello, serveOneUpstream, sealerOf } from "../../test/fakes/one-upstream.ts";
import { routeTo } from "../../test/fakes/inference.ts";
import { withFaults } from "../../test/fakes/upstream/server.ts";
import { callOn } from "../../test/fakes/ways.ts";
import { dialects } from "../dialects/dialect.ts";
import { resultForClient } from "../loop/results.ts";

const { fake, refusal, serve } = await serveOneUpstream();

const search = { id: "srvtoolu_1", name: "web_search", input: { query: "gates" } } as const;
const hit = { url: "https://a.example/", title: "A", text: "about gates", age: null };
const found = resultForClient(
  search,
  { kind: "hits", hits: [hit], posts: 0, profiles: 0 },
  false,
  sealerOf("org_a"),
);
const messages = (last: object) => [
  { role: "user", content: "Search" },
  {
    role: "assistant",
    content: [{ type: "server_tool_use", ...search }, found, { type: "text", text: "Found." }],
  },
  { role: "user", content: [last] },
];
const image = (mediaType: string) => ({
  type: "image",
  source: { type: "base64", media_type: mediaType, data: "AAAA" },
});

for (const path of ["tools", "convert"] as const)
  for (const upstream of dialects) {
    const way = { path, client: "messages", upstream, stream: false } as const;
    const errorOf = (last: object, route = {}) =>
      refusal(callOn(fake.url, way, { body: { messages: messages(last) }, route }));

    test(`${path}, over a ${upstream} upstream: what cannot be read`, async () => {
      const param = "messages.2.content.0.source.media_type";
      const error = await errorOf(image("image/bmp"));
      expect(error).toMatchObject({ code: "invalid_value", param });
      expect(error.message).toContain(`${param}: `);
      expect(await errorOf({ type: "tool_result", tool_use_id: "toolu_x", content: "x" })).not.toMatchObject({
        param: expect.stringMatching(/^messages\.[^2]/),
      });
    });

    if (upstream !== "messages")
      test(`${path}, over a ${upstream} upstream: a tool that the model does not take has its place`, async () => {
        const tools = [{ type: "bash_20250124", name: "bash" }];
        const body = { messages: messages({ type: "text", text: "Go on" }), tools };
        const given =
          path === "convert" ? tools : [{ type: "web_search_20250305", name: "web_search" }, ...tools];
        const error = await refusal(callOn(fake.url, way, { body: { ...body, tools: given } }));
        expect(error).toMatchObject({ code: "unsupported_tool", param: `tools.${given.length - 1}` });
      });

    if (upstream !== "messages")
      test(`${path}, over a ${upstream} upstream: a prefill has no wrong place`, async () => {
        const body = {
          messages: [...messages({ type: "text", text: "Go on" }), { role: "assistant", content: "And" }],
        };
        const error = await refusal(callOn(fake.url, way, { body }));
        expect(error.message).toMatch(
          /^messages(\.3)?: this model does not support assistant message prefill/,
        );
        expect(["messages", "messages.3"]).toContain(error.param);
      });

    test(`${path}, over a ${upstream} upstream: what the model does not take has no wrong place`, async () => {
      const { capabilities } = routeTo([]);
      const blind = { capabilities: { ...capabilities, imageInput: false } };
      const error = await errorOf(image("image/png"), blind);
      expect(error.code).toBe("unsupported_content");
      expect([undefined, "messages.2.content.0"]).toContain(error.param);
    });
  }

/** An upstream's refusal, whose message names a place of the request. */
const refusing = (message: string) => ({ error: { status: 400, message } });

for (const path of ["tools", "convert"] as const)
  test(`${path}, over a messages upstream: what it refuses has its place where that is the client's, else none`, async () => {
    const way = { path, client: "messages", upstream: "messages", stream: false } as const;
    const told = async (message: string, more = {}) => {
      fake.reset();
      fake.next(refusing(message));
      const body = { messages: messages({ type: "text", text: "Go on" }), ...more };
      return (await refusal(callOn(fake.url, way, { body }))).message;
    };
    expect(await told("messages.0.content: is odd")).toBe("messages.0.content: is odd");
    expect(await told("max_tokens: is odd")).toBe("max_tokens: is odd");
    expect(await told("messages.2.content.1: is odd")).toBe("is odd");
    expect(await told("body.messages.2.content.1: is odd")).toBe("is odd");
    expect(await told("messages.1: is odd\nmessages.3.content: is odd")).toBe("is odd\na field: is odd");
    const own = { name: "mine", input_schema: { type: "object" } };
    const search_ = { type: "web_search_20250305", name: "web_search" };
    if (path === "tools") {
      expect(await told("tools.0.input_schema: is odd", { tools: [search_, own] })).toBe("is odd");
      expect(await told("tools.0.input_schema: is odd", { tools: [own, search_] })).toBe(
        "tools.0.input_schema: is odd",
      );
    }
  });

test("a conversation without blocks of server tools keeps its places", async () => {
  const way = { path: "tools", client: "messages", upstream: "messages", stream: false } as const;
  fake.next(refusing("messages.2.content.0.source: is odd"));
  const turns = [
    { role: "user", content: "Look" },
    { role: "assistant", content: [{ type: "text", text: "Where?" }] },
    { role: "user", content: [image("image/png")] },
  ];
  const error = await refusal(callOn(fake.url, way, { body: { messages: turns } }));
  expect(error.message).toBe("messages.2.content.0.source: is odd");
});

for (const path of ["tools", "convert"] as const)
  for (const upstream of dialects)
    test(`${path}, over a ${upstream} upstream: a refusal in the middle of its stream has no place that is not the client's`, async () => {
      const way = { path, client: "messages", upstream, stream: true } as const;
      const ending = async (message: string) => {
        fake.reset();
        const errorAtEvent = { event: 4, type: "invalid_request_error", message };
        fake.next(withFaults(hello, { errorAtEvent }));
        const call = callOn(fake.url, way, { body: { messages: messages({ type: "text", text: "Go on" }) } });
        await serve(call);
        expect(call.summary.errorCode).toBe("invalid_request");
        return call.sink.text.slice(call.sink.text.indexOf("event: error"));
      };
      expect(await ending("messages.3.content: is odd")).toContain('"message":"is odd"');
      const kept = upstream === "messages" ? "messages.0.content: is odd" : "is odd";
      expect(await ending("messages.0.content: is odd")).toContain(`"message":"${kept}"`);
    });
