import Anthropic from "@anthropic-ai/sdk";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  sampleCredentials,
  sampleKeys,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
} from "../../../test/fakes/sample-snapshot.ts";
import { sealedSignature, sealerOf } from "../../../test/fakes/one-upstream.ts";
import { startTestServer } from "../../../test/fakes/test-server.ts";
import { Snapshot } from "../../config/snapshot.ts";
import type { FileReader } from "../../files/file-store.ts";
import { newLargePool } from "../../inference/large/large-body.ts";
import { countUpstream, type CountRequest } from "../../upstream/count-tokens.ts";
import { newUpstreamDispatcher } from "../../upstream/dispatcher.ts";
import { FAILURES_TO_EJECT } from "../../upstream/health.ts";
import { Upstreams } from "../../upstream/upstreams.ts";
import { countTokensRoutes } from "./count-tokens.ts";

const counting = sampleUpstream({
  countTokensUrl: "http://127.0.0.1:9/v1/messages/count_tokens",
  credential: { id: "default/up/key", header: "x-api-key" },
});

function snapshotWith(upstream = counting): Snapshot {
  const off = { ...sampleRoute("x").capabilities, countTokens: false };
  const routes = [
    sampleRoute("alpha", { aliases: ["alpha-latest"], upstreams: [upstream] }),
    sampleRoute("local", { capabilities: off, upstreams: [upstream] }),
    sampleRoute("unthinking", {
      capabilities: { ...sampleRoute("x").capabilities, thinking: false },
      upstreams: [upstream],
    }),
    sampleRoute("chat", { upstreams: [sampleUpstream({ dialect: "chat" })] }),
    sampleRoute("drained", { upstreams: [{ ...upstream, weight: 0 }, sampleUpstream({ name: "other" })] }),
  ];
  const routing = sampleRouting(1, { routes });
  const index = { schemaVersion: 1, serial: 1, hash: "0".repeat(64), routing: [], credentials: [] };
  return new Snapshot(index, routing, sampleCredentials(1, { "default/up/key": "up-secret" }));
}

/** The organization has none; with files: test/integration/counted-files.test.ts. */
const noFiles: FileReader = { find: async () => new Map(), read: () => expect.unreachable() };

const dispatcher = newUpstreamDispatcher();
afterAll(() => dispatcher.destroy());
const local = { upstreams: new Upstreams(dispatcher), pool: null, sealerOf, files: noFiles } as const;

/** Counts a body with an upstream that answers `answer`; tells what the upstream was asked. */
async function count(
  body: unknown,
  answer: number | null = null,
  headers: Record<string, string> = {},
  upstream = counting,
) {
  const asked: CountRequest[] = [];
  const snapshot = snapshotWith(upstream);
  const routes = countTokensRoutes({
    ask: (question) => {
      asked.push(question);
      return Promise.resolve(answer);
    },
    ...local,
  });
  await using server = await startTestServer([routes], { snapshot: () => snapshot });
  const response = await server.fetch("/v1/messages/count_tokens?beta=true", {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown>, asked };
}

const hello = { messages: [{ role: "user", content: "The quick brown fox jumps over the lazy dog." }] };

test("the upstream's own count is passed on; it sees its own model name and otherwise the client's bytes", async () => {
  const text =
    '{ "big": 12345678901234567890, "model" : "alpha-latest", "messages":[{"role":"user","content":"h\\u00e9"}] }';
  const { status, body, asked } = await count(text, 42, { "anthropic-beta": "some-beta" });
  expect([status, body]).toEqual([200, { input_tokens: 42 }]);
  expect(asked[0]?.body.toString()).toBe(text.replace('"alpha-latest"', '"upstream-model"'));
  expect(asked[0]?.credential).toBe("up-secret");
  expect(asked[0]?.headers).toEqual({ "anthropic-version": "2023-06-01", "anthropic-beta": "some-beta" });
  const empty = await count(text, 42, { "anthropic-version": "", "anthropic-beta": "" });
  expect(empty.asked[0]?.headers).toEqual({ "anthropic-version": "2023-06-01" });
});

test.each<[string, Record<string, string>, Record<string, string>]>([
  ["the neutral names", { "vendor-version": "v", "vendor-beta": "a,  b" }, { version: "v", beta: "a,  b" }],
  [
    "both names",
    { "vendor-beta": "a, b", "anthropic-beta": "c" },
    { version: "2023-06-01", beta: "c, a, b" },
  ],
  ["both names, alike", { "vendor-beta": "a", "anthropic-beta": "a" }, { version: "2023-06-01", beta: "a" }],
  ["one of them empty", { "vendor-beta": "a", "anthropic-beta": "" }, { version: "2023-06-01", beta: "a" }],
  [
    "versions under both",
    { "vendor-version": "v", "anthropic-version": "w", "vendor-beta": "a" },
    { version: "w", beta: "a" },
  ],
])("the client's version and betas go on, whatever they are called: %s", async (_, headers, sent) => {
  const { asked } = await count({ model: "alpha", ...hello }, 42, headers);
  expect(asked[0]?.headers).toEqual({ "anthropic-version": sent["version"], "anthropic-beta": sent["beta"] });
});

describe("who is asked", () => {
  const second = sampleUpstream({ ...counting, name: "second", priority: 1 });
  const third = sampleUpstream({ ...counting, name: "third", countTokensUrl: null });
  const route = sampleRoute("alpha", { upstreams: [second, third, counting] });
  const routing = sampleRouting(1, { routes: [route] });
  const index = { schemaVersion: 1, serial: 1, hash: "0".repeat(64), routing: [], credentials: [] };
  const snapshot = new Snapshot(index, routing, sampleCredentials(1, { "default/up/key": "up-secret" }));

  async function askedBeside(...ejected: (typeof counting)[]): Promise<unknown> {
    const upstreams = new Upstreams(dispatcher);
    for (const upstream of ejected)
      for (let failure = 0; failure < FAILURES_TO_EJECT; failure += 1)
        upstreams.health.failed(route, upstream);
    let asked: string | null = null;
    const ask = ({ upstream }: CountRequest) => {
      asked = upstream.name;
      return Promise.resolve(42);
    };
    const routes = countTokensRoutes({ ...local, upstreams, ask });
    await using server = await startTestServer([routes], { snapshot: () => snapshot });
    const body = JSON.stringify({ model: "alpha", ...hello });
    const headers = { "content-type": "application/json" };
    const response = await server.fetch("/v1/messages/count_tokens", { method: "POST", headers, body });
    return [asked, await response.json()];
  }

  test("that which an inference prefers, of those that count", async () => {
    expect(await askedBeside()).toEqual([counting.name, { input_tokens: 42 }]);
  });

  test("rule 1.14: none that is taken out", async () => {
    expect(await askedBeside(counting)).toEqual(["second", { input_tokens: 42 }]);
    expect(await askedBeside(counting, second)).toEqual([null, { input_tokens: 17 }]);
  });
});

test.each([
  [
    { thinking: { type: "enabled", budget_tokens: 5000 } },
    { thinking: { type: "adaptive" }, output_config: { effort: "medium" } },
  ],
  [
    { max_tokens: 9, thinking: { budget_tokens: 5000, type: "enabled" } },
    { thinking: { type: "adaptive" }, output_config: { effort: "medium" } },
  ],
  [
    { thinking: { type: "enabled", budget_tokens: 5000 }, output_config: null },
    { thinking: { type: "adaptive" }, output_config: { effort: "medium" } },
  ],
  [
    { thinking: { type: "enabled", budget_tokens: 5000 }, output_config: { effort: "low" } },
    { thinking: { type: "adaptive" }, output_config: { effort: "low" } },
  ],
  [{ thinking: { type: "adaptive", budget_tokens: 5000 } }, { thinking: { type: "adaptive" } }],
])("thinking is counted as an inference has it, never with a budget: %j", async (thought, sent) => {
  const { asked } = await count({ ...thought, model: "alpha", ...hello }, 1);
  expect(JSON.parse(asked[0]?.body.toString() ?? "")).toEqual({ model: "upstream-model", ...hello, ...sent });
});

test.each([
  [{ thinking: { type: "enabled", budget_tokens: 5000 } }, {}],
  [{ max_tokens: 9, thinking: { type: "disabled" }, output_config: { effort: "low" } }, {}],
  [{ thinking: null, output_config: { effort: "low", format: null } }, { output_config: { format: null } }],
])("a model without thinking is asked for none: %j", async (thought, sent) => {
  const { asked } = await count({ ...thought, model: "unthinking", ...hello }, 1);
  expect(JSON.parse(asked[0]?.body.toString() ?? "")).toEqual({ model: "upstream-model", ...hello, ...sent });
});

test("what an inference says of its answer alone stays here: upstreams refuse a count with it", async () => {
  const counted = { ...hello, system: "s", tool_choice: { type: "auto" }, output_config: { effort: "low" } };
  const inference = {
    max_tokens: 5,
    stream: true,
    metadata: { user_id: "u" },
    service_tier: "auto",
    stop_sequences: ["x"],
    temperature: 1,
    top_p: 1,
    top_k: 1,
    inference_geo: "us",
  };
  const { status, asked } = await count({ model: "alpha", ...counted, ...inference }, 42);
  expect(status).toBe(200);
  expect(JSON.parse(asked[0]?.body.toString() ?? "")).toEqual({ model: "upstream-model", ...counted });
});

describe("rule 7.12: reasoning of earlier turns", () => {
  const thinking = (signature: string) => ({ type: "thinking", thinking: "hm", signature });
  const body = (...signatures: string[]) => ({
    model: "alpha",
    messages: [
      { role: "user", content: "Q" },
      { role: "assistant", content: [...signatures.map(thinking), { type: "text", text: "A" }] },
    ],
  });
  const given = body(sealedSignature("own", "org_acme"), sealedSignature("theirs", "org_b"), "raw");
  const sent = async (upstream = counting) =>
    JSON.parse((await count(given, 7, {}, upstream)).asked[0]?.body.toString() ?? "null") as unknown;

  test("what is this organization's is opened, the rest is left out", async () => {
    expect(await sent()).toEqual({ ...body("own"), model: "upstream-model" });
  });

  test("an account of its own gets what was never sealed too, and another one's is not asked", async () => {
    expect(await sent({ ...counting, dedicatedTo: "org_acme" })).toEqual({
      ...body("own", "raw"),
      model: "upstream-model",
    });
    const { status, asked } = await count(given, 7, {}, { ...counting, dedicatedTo: "org_b" });
    expect([status, asked]).toEqual([404, []]);
  });
});

describe("counted here (rules 1.17, 2.18)", () => {
  test("all local routes agree, and so does an upstream that fails", async () => {
    const counts = [];
    for (const model of ["alpha", "local", "chat"]) {
      counts.push((await count({ model, ...hello })).body["input_tokens"]);
    }
    expect(counts).toEqual([17, 17, 17]);
  });

  test("what the request itself would be refused for is refused here, in the same words", async () => {
    const { status, body } = await count({ model: "chat", messages: [{ role: "tool", content: "x" }] });
    expect([status, body]).toMatchObject([400, { error: { type: "invalid_request_error" } }]);
    expect(JSON.stringify(body)).toContain("messages.0.role");
  });

  test.each(["alpha", "local", "chat"])(
    "a server tool's result that does not open is refused, whatever the route's upstream: %s",
    async (model) => {
      const found = (encrypted_content: string) => ({
        model,
        messages: [
          { role: "user", content: "Q" },
          {
            role: "assistant",
            content: [
              { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "gates" } },
              {
                type: "web_search_tool_result",
                tool_use_id: "srvtoolu_1",
                content: [
                  { type: "web_search_result", url: "https://a.example/", title: "A", encrypted_content },
                ],
              },
              { type: "text", text: "A" },
            ],
          },
          { role: "user", content: "And now?" },
        ],
      });
      const { status, body, asked } = await count(found("damaged"), 42);
      expect([status, body, asked]).toMatchObject([400, { error: { type: "invalid_request_error" } }, []]);
    },
  );

  test.each(["local", "drained"])("a route that must not ask its upstream does not: %s", async (model) => {
    expect((await count({ model, ...hello }, 42)).asked).toEqual([]);
  });

  const user = (...content: unknown[]) => ({ model: "alpha", messages: [{ role: "user", content }] });
  test.each<[string, unknown]>([
    [
      "a server tool",
      { model: "alpha", ...hello, tools: [{ type: "web_search_20250305", name: "web_search" }] },
    ],
    ["a sealed result", user({ type: "web_search_result", encrypted_content: "sealed" })],
  ])("%s never goes upstream", async (_, body) => {
    const result = await count(body, 42);
    expect([result.status, result.asked]).toEqual([200, []]);
  });

  const code = { type: "code_execution_20250825", name: "code_execution" };
  test.each<[string, object, string, string]>([
    ["a container", { container: "c" }, "unsupported_parameter", "container"],
    ["remote servers", { mcp_servers: [{ type: "url" }] }, "unsupported_parameter", "mcp_servers"],
    ["a thread", { thread: { type: "create" } }, "thread_unsupported_request", "thread"],
    ["code execution", { tools: [code] }, "unsupported_tool", "tools.0.type"],
    [
      "a tool that is not declared",
      { tool_choice: { type: "tool", name: "web_search" } },
      "unsupported_tool",
      "tool_choice",
    ],
  ])("%s is refused as an inference with it is, on every route", async (_, more, code, param) => {
    for (const model of ["alpha", "local", "chat"]) {
      const { status, body, asked } = await count({ model, ...hello, ...more }, 42);
      expect([status, body, asked]).toMatchObject([400, { error: { details: { error_code: code } } }, []]);
      expect(JSON.stringify(body)).toContain(param);
    }
  });

  const search = { type: "web_search_20250305", name: "web_search" };
  test.each<[string, object[], string]>([
    ["defined twice", [search, search], "tools.1"],
    ["with a client's tool of its name", [search, { name: "web_search" }], "tools.1.name"],
    [
      "with both lists",
      [{ ...search, allowed_domains: ["a.example"], blocked_domains: ["b.example"] }],
      "tools.0.blocked_domains",
    ],
    ["with an empty place", [{ ...search, user_location: { type: "approximate" } }], "tools.0.user_location"],
  ])("a server tool %s is refused as an inference with it is", async (_, tools, param) => {
    for (const model of ["alpha", "local", "chat"]) {
      const { status, body, asked } = await count({ model, ...hello, tools }, 42);
      expect([status, body, asked]).toMatchObject([400, { error: { type: "invalid_request_error" } }, []]);
      expect(JSON.stringify(body)).toContain(param);
    }
  });

  test("neither does an id of our files, which is refused where there is no such file", async () => {
    const body = user({ type: "document", source: { type: "file", file_id: "file_x" } });
    const result = await count(body, 42);
    expect([result.status, result.asked]).toEqual([404, []]);
  });

  test("a client's tool with fields of those names goes upstream", async () => {
    const tools = [{ name: "t", input_schema: { properties: { file_id: { type: "string" } } } }];
    expect((await count({ model: "alpha", ...hello, tools, container: null }, 42)).asked).toHaveLength(1);
  });
});

test("rule 7.5: a client that leaves ends its count, and that is no error of ours", async () => {
  const snapshot = snapshotWith();
  const asked = Promise.withResolvers<void>();
  const failing = countTokensRoutes({
    ask: () => {
      asked.resolve();
      return Promise.resolve(null);
    },
    ...local,
  });
  await using server = await startTestServer([failing], { snapshot: () => snapshot });
  const gone = new AbortController();
  const tools = [{ name: "t", input_schema: { enum: Array(4_000_000).fill(1) } }];
  const counting = server.fetch("/v1/messages/count_tokens", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "alpha", ...hello, tools }),
    signal: gone.signal,
  });
  await asked.promise;
  gone.abort();
  await expect(counting).rejects.toThrow(/abort/i);
  const line = () => server.logged.find(({ path }) => path === "/v1/messages/count_tokens");
  await expect.poll(line, { timeout: 10_000 }).toMatchObject({ status: 499 });
  expect(server.logged.filter(({ level }) => Number(level) >= 50)).toEqual([]);
});

test.each<[string, unknown, number, RegExp]>([
  ["no model", hello, 400, /model: Field required/],
  ["a model that is no text", { ...hello, model: 1 }, 400, /model: /],
  ["no messages", { model: "alpha" }, 400, /messages: Field required/],
  ["null messages", { model: "alpha", messages: null }, 400, /messages: Field required/],
  ["messages that are no list", { model: "alpha", messages: "x" }, 400, /messages: /],
  ["an empty list", { model: "alpha", messages: [] }, 400, /messages: /],
  ["an unknown model", { ...hello, model: "nobody" }, 404, /model: nobody/],
  ["broken JSON", "{", 400, /line 1/],
])("%s is refused", async (_, body, status, words) => {
  const result = await count(body);
  expect(result.status).toBe(status);
  expect(JSON.stringify(result.body)).toMatch(words);
});

describe("asking a real upstream", () => {
  async function ask(respond: (request: IncomingMessage) => [number, string] | null): Promise<number | null> {
    const server = createServer((request, response) => {
      request.resume();
      const answer = respond(request);
      if (answer === null) request.socket.destroy();
      else response.writeHead(answer[0]).end(answer[1]);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const dispatcher = newUpstreamDispatcher();
    try {
      return await countUpstream(dispatcher)({
        upstream: { ...counting, countTokensUrl: `http://127.0.0.1:${port}/count?v=1` },
        credential: "up-secret",
        body: Buffer.from("{}"),
        headers: {},
        signal: new AbortController().signal,
      });
    } finally {
      await dispatcher.destroy();
      server.close().closeAllConnections();
    }
  }

  test("the address, the credential and the answer", async () => {
    let seen: unknown;
    const tokens = await ask((request) => {
      seen = [request.url, request.headers["x-api-key"]];
      return [200, '{"input_tokens":7}'];
    });
    expect([tokens, seen]).toEqual([7, ["/count?v=1", "up-secret"]]);
  });

  test.each<[string, [number, string] | null]>([
    ["a 500", [500, "{}"]],
    ["a 400", [400, '{"input_tokens":7}']],
    ["a page", [200, "<html>"]],
    ["another shape", [200, '{"input_tokens":"7"}']],
    ["a negative count", [200, '{"input_tokens":-7}']],
    ["an endless answer", [200, " ".repeat(200_000)]],
    ["a cut connection", null],
  ])("%s is no count", async (_, answer) => {
    expect(await ask(() => answer)).toBe(null);
  });
});

test("a large body that is refused is recorded with the model that it names", async () => {
  const pool = newLargePool([{ id: "test", key: Buffer.alloc(32) }]);
  onTestFinished(() => pool.close());
  const add = vi.fn();
  const routes = countTokensRoutes({ ask: () => Promise.resolve(null), ...local, pool });
  await using server = await startTestServer([routes], { services: { records: { add } } });
  const text = "word ".repeat(400_000);
  for (const more of [{ max_tokens: "5" }, { tools: [{ type: "code_execution_20250522", name: "c" }] }]) {
    const body = JSON.stringify({ model: "alpha", messages: [{ role: "user", content: text }], ...more });
    const headers = { "content-type": "application/json" };
    await server.fetch("/v1/messages/count_tokens", { method: "POST", headers, body });
    await expect.poll(() => add.mock.lastCall?.[0]).toMatchObject({ status: 400, model: "alpha" });
    add.mockClear();
  }
});

test("the official SDK counts", async () => {
  const snapshot = snapshotWith();
  await using server = await startTestServer(
    [countTokensRoutes({ ask: () => Promise.resolve(null), ...local })],
    {
      snapshot: () => snapshot,
    },
  );
  const client = new Anthropic({ apiKey: sampleKeys.inference, baseURL: server.url });
  const messages = [{ role: "user" as const, content: "The quick brown fox jumps over the lazy dog." }];
  expect(await client.messages.countTokens({ model: "alpha", messages })).toEqual({ input_tokens: 17 });
});
