/** Rules 2.10 and 2.18: `count_tokens` takes ids of files as an inference of the same body does. */
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { withFileReferences } from "../../dataplane/inference/request/file-references.ts";
import { newLargePool } from "../../dataplane/inference/large/large-body.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { ByteBudget } from "../../dataplane/lib/byte-budget.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { countTokensRoutes } from "../../dataplane/http/routes/count-tokens.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import type { CountRequest } from "../../dataplane/upstream/count-tokens.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { RecordingMeter } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import {
  sampleKeys,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleUpstream,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { form, openFilesWorld, type FilesWorld } from "./files-world.ts";

const KiB = 1024;
const prose = "The quick brown fox jumps over the lazy dog. ".repeat(12_000);
const bodies = new ByteBudget(4 * KiB * KiB);
const large = newLargePool([{ id: "test", key: Buffer.alloc(32) }]);
let world: FilesWorld;
let dispatcher: Dispatcher;
let server: TestServer;
const asked: CountRequest[] = [];
const ids: Record<string, string> = {};

beforeAll(async () => {
  world = await openFilesWorld();
  dispatcher = newUpstreamDispatcher();
  const sealer = sealing([{ id: "test", key: Buffer.alloc(32) }]);
  const counting = sampleUpstream({ countTokensUrl: "http://127.0.0.1:9/count" });
  const snapshot = sampleSnapshot(
    sampleRouting(1, {
      routes: [
        sampleRoute("asked", { upstreams: [counting] }),
        sampleRoute("here", {
          upstreams: [counting],
          capabilities: { ...sampleRoute("x").capabilities, countTokens: false },
        }),
        sampleRoute("chat", { upstreams: [sampleUpstream({ dialect: "chat" })] }),
      ],
    }),
  );
  const upstreams = new Upstreams(dispatcher);
  const serve = withFileReferences(createServe(upstreams, sealer, noTools, large), world.store, large);
  const ask = (question: CountRequest) => {
    asked.push(question);
    return Promise.resolve(42);
  };
  server = await startTestServer(
    [
      countTokensRoutes({ ask, upstreams, pool: large, sealerOf: sealer, files: world.store }),
      inferenceRoutes({ meter: new RecordingMeter(), serve }),
    ],
    { snapshot: () => snapshot, services: { bodies } },
  );
  ids["prose"] = await world.idOf(prose, "prose.txt");
  ids["pdf"] = await world.idOf("%PDF", "d.pdf", {}, "application/pdf");
  ids["big"] = await world.idOf(new Uint8Array(25 * KiB * KiB), "b.pdf", {}, "application/pdf");
  ids["foreign"] = (await world.upload(form("x"), { authorization: `Bearer ${sampleKeys.narrow}` })).body.id;
  ids["expired"] = await world.idOf("x", "a.txt", { expires_in_seconds: "3600" });
  world.clock.skew = 2 * 3_600_000;
});
beforeEach(() => asked.splice(0));
afterAll(async () => {
  expect(bodies.used).toBe(0);
  await server[Symbol.asyncDispose]();
  await dispatcher.destroy();
  await large.close();
  await world[Symbol.asyncDispose]();
});

const document = (name: string) => ({ type: "document", source: { type: "file", file_id: name } });
/** Names of the files above become their ids. */
const withIds = (body: object) =>
  JSON.stringify(body).replaceAll(
    /"file_id":"(\w+)"/g,
    (_, name: string) => `"file_id":"${ids[name] ?? name}"`,
  );
const bodyOf = (model: string, content: unknown, more: object = {}) => ({
  model,
  max_tokens: 9,
  messages: [{ role: "user", content }],
  ...more,
});

async function post(path: string, body: object) {
  const answer = await server.fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "anthropic-version": "2023-06-01" },
    body: withIds(body),
  });
  const told = (await answer.json()) as Record<string, unknown>;
  delete told["request_id"];
  return { status: answer.status, told };
}
const count = (body: object) => post("/v1/messages/count_tokens", body);

test.each<[string, number, object, object?]>([
  ["unknown", 404, document("file_unknown")],
  ["foreign", 404, document("foreign")],
  ["expired", 404, document("expired")],
  ["of a type that cannot stand there", 400, { ...document("pdf"), type: "image" }],
  ["too large", 413, document("big")],
  ["own, but in a container's block", 400, { type: "container_upload", file_id: "pdf" }],
  ["unknown, in a body as large as has a worker", 404, document("file_unknown"), { system: prose }],
  [
    "unknown, beside a server tool",
    404,
    document("file_unknown"),
    { tools: [{ type: "web_search_20250305", name: "web_search" }] },
  ],
])("an id that is %s is refused as an inference refuses it: %d", async (_, status, part, more = {}) => {
  for (const model of ["asked", "here", "chat"]) {
    const body = bodyOf(model, [part], more);
    const counted = await count(body);
    expect(counted.status).toBe(status);
    expect(counted).toEqual(await post("/v1/messages", body));
  }
  expect(asked).toEqual([]);
});

test("one of several that is unknown is told with its path", async () => {
  const { status, told } = await count(bodyOf("asked", [document("prose"), document("file_x")]));
  expect([status, told]).toMatchObject([404, { error: { type: "not_found_error" } }]);
  expect(JSON.stringify(told)).toContain("messages.0.content.1.source.file_id");
});

test("an own file goes to the upstream that counts as what it holds", async () => {
  const { status, told } = await count(bodyOf("asked", [document("pdf")]));
  expect([status, told]).toEqual([200, { input_tokens: 42 }]);
  const data = Buffer.from("%PDF").toString("base64");
  expect(JSON.parse(asked[0]?.body.toString() ?? "")).toMatchObject({
    messages: [{ content: [{ source: { type: "base64", media_type: "application/pdf", data } }] }],
  });
});

test.each(["here", "chat"])("counted here, a file's text is as many tokens as inline (%s)", async (model) => {
  const source = { type: "text", media_type: "text/plain", data: prose };
  // With its name, which goes with it.
  const inline = await count(bodyOf(model, [{ type: "document", source, title: "prose.txt" }]));
  const { status, told } = await count(bodyOf(model, [document("prose")]));
  expect(status).toBe(200);
  expect(told).toEqual(inline.told);
  expect(told["input_tokens"]).toBeGreaterThan(100_000);
});

test("rule 7.2: without room for its contents a file is not read", async () => {
  const others = bodies.lease("org_other");
  others.take(bodies.total - 100 * KiB);
  expect((await count(bodyOf("here", "x"))).status).toBe(200);
  expect((await count(bodyOf("here", [document("prose")]))).status).toBe(503);
  others.release();
  expect((await count(bodyOf("here", [document("prose")]))).status).toBe(200);
});

test("rule 7.2: nor is it read for an inference, which is told so before anything is asked of an upstream", async () => {
  const others = bodies.lease("org_other");
  others.take(bodies.total - 100 * KiB);
  const refused = await post("/v1/messages", bodyOf("here", [document("prose")]));
  expect(refused.status).toBe(503);
  expect(refused).toEqual(await count(bodyOf("here", [document("prose")])));
  others.release();
  expect(await post("/v1/messages", bodyOf("here", [document("prose")]))).not.toEqual(refused);
});
