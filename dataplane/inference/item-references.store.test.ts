/** The AI SDK's default OpenAI provider over many steps as it comes, and who may refer to what. */
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import type { Redis } from "ioredis";
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { callOf, RecordingMeter, routeTo, snapshotOf, upstreamOf } from "../../test/fakes/inference.ts";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import type { Part, Step } from "../../test/fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../../test/fakes/upstream/server.ts";
import { freshRedis, type TestStore } from "../../test/integration/stores.ts";
import { type Dialect, dialects } from "../dialects/dialect.ts";
import { inferenceRoutes } from "../http/routes/inference.ts";
import { sealing } from "../lib/seal.ts";
import { openRedis, redisReady } from "../store/redis.ts";
import { redisToolCache } from "../tools/cache.ts";
import { Upstreams } from "../upstream/ask.ts";
import { newUpstreamDispatcher } from "../upstream/dispatcher.ts";
import { withItemReferences } from "./item-references.ts";
import { createServe, type Serve } from "./serve.ts";
import { noTools } from "../../test/fakes/no-tools.ts";

let store: TestStore;
let redis: Redis;
let fake: FakeUpstream;
let dispatcher: Dispatcher;
let serve: Serve;
let server: TestServer;
const routes = () =>
  dialects.map((dialect) =>
    routeTo([upstreamOf(fake.url, dialect)], { model: `over-${dialect}`, aliases: [] }),
  );

beforeAll(async () => {
  store = await freshRedis();
  redis = openRedis(store.url, { onError: () => undefined });
  await redisReady(redis, 5_000);
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  const sealerOf = sealing([{ id: "test", key: Buffer.alloc(32) }]);
  serve = withItemReferences(
    createServe(new Upstreams(dispatcher), sealerOf, noTools),
    redisToolCache(redis),
  );
  const snapshot = snapshotOf(routes());
  const principal = {
    kind: "inference",
    keyId: "k",
    keyName: "k",
    projectId: "default",
    keyEpoch: 0,
  } as const;
  server = await startTestServer([inferenceRoutes({ meter: new RecordingMeter(), serve })], {
    snapshot: () => snapshot,
    services: { directory: { find: () => Promise.resolve({ ...principal, organizationId: "org_a" }) } },
  });
});
beforeEach(() => fake.reset());
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await dispatcher.destroy();
  await fake.close();
  redis.disconnect();
  await store.stop();
});

const step = (...parts: Part[]): Step => ({ answer: { parts } });
const look = (city: string): Step =>
  step(
    { type: "thinking", text: `About ${city}.`, signature: "c2ln" },
    { type: "text", text: `Looking at ${city}.` },
    { type: "tool", name: "weather", input: { city } },
  );
const tools = {
  weather: tool({ inputSchema: z.object({ city: z.string() }), execute: ({ city }) => `${city} is fine` }),
};

/** What the upstream made of its own reasoning, as it must get it back. */
const returned: Record<Dialect, RegExp> = {
  messages: /"thinking":"About Oslo\.","signature":"c2ln".*"thinking":"About Rome\.","signature":"c2ln"/,
  chat: /"reasoning_content":"About Oslo\.".*"reasoning_content":"About Rome\."/,
  responses: /"type":"reasoning".*"encrypted_content":"c2ln".*"type":"reasoning".*"encrypted_content":"c2ln"/,
};

describe.each(dialects)("the AI SDK's default provider over a %s upstream", (upstream) => {
  test.each(["whole", "streamed"])("a tool loop of three steps that reasons, %s", async (how) => {
    fake.next(look("Oslo"), look("Rome"), step({ type: "text", text: "Both are fine." }));
    const openai = createOpenAI({ apiKey: sampleKeys.inference, baseURL: `${server.url}/v1` });
    const ask = {
      model: openai(`over-${upstream}`),
      prompt: "Weather?",
      tools,
      stopWhen: isStepCount(5),
      maxRetries: 0,
    };
    const text = how === "whole" ? (await generateText(ask)).text : await streamText(ask).text;
    expect(text).toBe("Both are fine.");
    expect(fake.requests).toHaveLength(3);
    const last = JSON.stringify(fake.requests[2]?.json());
    expect(last).not.toContain("item_reference");
    for (const said of ["Looking at Oslo.", "Oslo is fine", "Looking at Rome.", "Rome is fine"])
      expect(last).toContain(said);
    expect(last).toMatch(returned[upstream]);
  });
});

const ask = (body: object, organizationId = "org_a") => {
  const call = callOf("responses", snapshotOf(routes()), body);
  return { ...call, principal: { ...call.principal, organizationId } };
};

async function itemOf(body: object): Promise<string> {
  fake.next(step({ type: "text", text: "Kept?" }));
  const call = ask({ model: "over-chat", input: "Hi", ...body });
  await serve(call);
  const { output } = JSON.parse(call.sink.text) as { output: { id: string }[] };
  return output[0]?.id ?? "";
}
const referring = (id: string) => ({
  model: "over-chat",
  input: [
    { type: "item_reference", id },
    { role: "user", content: "And?" },
  ],
});

describe("rule 2.16: item_reference", () => {
  test("resolves to the organization's own item", async () => {
    const id = await itemOf({});
    fake.reset();
    fake.next(step({ type: "text", text: "Yes." }));
    await serve(ask(referring(id)));
    expect(JSON.stringify(fake.requests[0]?.json())).toContain("Kept?");
  });

  test.each([
    ["with store:false", { store: false }],
    ["of another organization", {}],
    ["that never was", {}],
  ])("one %s is refused before any upstream call, naming what to do", async (which, body) => {
    const id = which === "that never was" ? "msg_never" : await itemOf(body);
    fake.reset();
    const call = ask(referring(id), which === "of another organization" ? "org_b" : "org_a");
    await expect(serve(call)).rejects.toMatchObject({
      kind: { status: 400 },
      message: expect.stringMatching(/item_reference.*store: false/) as string,
    });
    expect(fake.requests).toHaveLength(0);
  });
});
