/**
 * Rule 7.12 as clients live it: the official SDKs take an answer's reasoning and send it back unchanged. The provider
 * gets back what it made; in the hands of another organization the same bytes say nothing to it.
 */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { ResponseInput } from "openai/resources/responses/responses";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Dispatcher } from "undici";
import { dialectPath, dialects } from "../../dataplane/dialects/dialect.ts";
import { TokenPeople } from "../../dataplane/identity/people.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { inferenceRoutes } from "../../dataplane/http/routes/inference.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { FakeIssuer, signingKey } from "../fakes/issuer.ts";
import { SnapshotDirectory } from "../fakes/snapshot-directory.ts";
import { RecordingMeter } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { sealerOf } from "../fakes/one-upstream.ts";
import {
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleUpstream,
  sha256,
} from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import type { Step } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";

const keys = { org_one: sampleKeys.inference, org_two: sampleKeys.narrow } as const;
type Organization = keyof typeof keys;
const issuer = new FakeIssuer("https://login.test", Date.now);
const signer = signingKey("RSA", "one");
issuer.publish(signer);
/** One person's, with a rule in both organizations. */
const tokens = {
  org_one: issuer.token(signer, { aud: "org_one" }),
  org_two: issuer.token(signer, { aud: "org_two" }),
} as const;
const callers = { keys, tokens } as const;
let credentials: Readonly<Record<Organization, string>> = keys;
/** By what callers hold, and whether answers are streams. */
const cases = [
  ["keys", false],
  ["keys", true],
  ["tokens", false],
  ["tokens", true],
] as const;
let fake: FakeUpstream;
let dispatcher: Dispatcher;
let server: TestServer;

/** A provider's thought, which its account opens for whoever brings it. */
const thought: Step = {
  answer: {
    parts: [
      { type: "thinking", text: "Let me think.", signature: "the-provider's-own==" },
      { type: "redacted", data: "redacted-by-the-provider==" },
      { type: "text", text: "A" },
      { type: "tool", name: "add", input: { a: 2, b: 2 } },
    ],
  },
};
const plain: Step = { answer: { parts: [{ type: "text", text: "B" }] } };

beforeAll(async () => {
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  const organizations = Object.entries(keys).map(([id, key]) =>
    sampleOrganization(id, {
      apiKeys: [{ name: "ci", sha256: sha256(key), hint: key.slice(0, 14), project: "default" }],
      identity: {
        issuer: issuer.url,
        audiences: [id],
        jwksUrl: null,
        allowCidrs: [],
        allowPorts: [],
        rules: [{ claims: {}, role: "member", project: "default" }],
      },
    }),
  );
  const routeOf = (model: string, dedicatedTo: string | null) =>
    dialects.map((dialect) =>
      sampleRoute(`${model}-${dialect}`, {
        upstreams: [sampleUpstream({ dialect, url: fake.url + dialectPath[dialect], dedicatedTo })],
      }),
    );
  const routes = [...routeOf("shared", null), ...routeOf("own", "org_one")];
  const snapshot = sampleSnapshot(sampleRouting(1, { routes, organizations }));
  const serve = createServe(new Upstreams(dispatcher), sealerOf, noTools);
  server = await startTestServer([inferenceRoutes({ meter: new RecordingMeter(), serve })], {
    snapshot: () => snapshot,
    services: {
      people: new TokenPeople({
        snapshot: () => snapshot,
        directory: new SnapshotDirectory(() => snapshot),
        fetchJson: issuer.fetchJson,
        clock: systemClock,
      }),
    },
  });
});
beforeEach(() => fake.reset());
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await dispatcher.destroy();
  await fake.close();
});

const anthropic = (organization: Organization) =>
  new Anthropic({ baseURL: server.url, apiKey: credentials[organization], maxRetries: 0 });
const openai = (organization: Organization) =>
  new OpenAI({ baseURL: `${server.url}/v1`, apiKey: credentials[organization], maxRetries: 0 });
const lastSent = () => fake.requests.at(-1)?.text ?? "{}";

const question: Anthropic.MessageParam = { role: "user", content: "2 + 2?" };
const tools: Anthropic.Tool[] = [{ name: "add", input_schema: { type: "object" } }];

/** An answer of the model, and what of it the client sends back. */
async function messagesAnswer(model: string, stream: boolean): Promise<Anthropic.Message> {
  fake.next(thought);
  const body = { model, max_tokens: 500, messages: [question], tools };
  const client = anthropic("org_one");
  return stream ? client.messages.stream(body).finalMessage() : client.messages.create(body);
}

async function messagesBack(model: string, organization: Organization, said: Anthropic.Message) {
  fake.next(plain);
  const call = said.content.find((block) => block.type === "tool_use");
  const result = { type: "tool_result" as const, tool_use_id: call?.id ?? "", content: "4" };
  const { content } = await anthropic(organization).messages.create({
    model,
    max_tokens: 500,
    tools,
    messages: [question, { role: "assistant", content: said.content }, { role: "user", content: [result] }],
  });
  expect(content).toMatchObject([{ type: "text", text: "B" }]);
  const { messages } = JSON.parse(lastSent()) as { messages: Anthropic.MessageParam[] };
  return messages[1]?.content;
}

describe.each(cases)("the Anthropic SDK with %s (stream: %s)", (caller, stream) => {
  beforeAll(() => {
    credentials = callers[caller];
  });

  test("gives the provider back what it made, and only for its own organization", async () => {
    const said = await messagesAnswer("shared-messages", stream);
    expect(said.content.map(({ type }) => type)).toEqual([
      "thinking",
      "redacted_thinking",
      "text",
      "tool_use",
    ]);
    expect(JSON.stringify(said.content)).not.toMatch(/provider/);
    expect(await messagesBack("shared-messages", "org_one", said)).toMatchObject([
      { type: "thinking", thinking: "Let me think.", signature: "the-provider's-own==" },
      { type: "redacted_thinking", data: "redacted-by-the-provider==" },
      { type: "text" },
      { type: "tool_use" },
    ]);
    expect(await messagesBack("shared-messages", "org_two", said)).toMatchObject([
      { type: "text" },
      { type: "tool_use" },
    ]);
    expect(lastSent()).not.toContain("gapura_r1_");
  });

  test("in an account of its own everything passes as it is", async () => {
    const said = await messagesAnswer("own-messages", stream);
    expect(said.content).toMatchObject([
      { signature: "the-provider's-own==" },
      { data: "redacted-by-the-provider==" },
      {},
      {},
    ]);
    expect(await messagesBack("own-messages", "org_one", said)).toMatchObject([
      { signature: "the-provider's-own==" },
      { data: "redacted-by-the-provider==" },
      {},
      {},
    ]);
    // Unsealed, it goes to no account that others use too.
    expect(await messagesBack("shared-messages", "org_one", said)).toMatchObject([
      { type: "text" },
      { type: "tool_use" },
    ]);
    await expect(messagesBack("own-messages", "org_two", said)).rejects.toMatchObject({ status: 404 });
  });
});

async function responsesAnswer(stream: boolean): Promise<OpenAI.Responses.Response> {
  fake.next(thought);
  const body = {
    model: "shared-responses",
    input: "2 + 2?",
    store: false,
    include: ["reasoning.encrypted_content" as const],
  };
  const client = openai("org_one");
  return stream ? client.responses.stream(body).finalResponse() : client.responses.create(body);
}

async function responsesBack(organization: Organization, said: OpenAI.Responses.Response) {
  fake.next(plain);
  const call = said.output.find((item) => item.type === "function_call");
  const answer = await openai(organization).responses.create({
    model: "shared-responses",
    store: false,
    include: ["reasoning.encrypted_content"],
    input: [
      { role: "user", content: "2 + 2?" },
      ...said.output,
      { type: "function_call_output", call_id: call?.call_id ?? "", output: "4" },
    ] as ResponseInput,
  });
  expect(answer.output_text).toBe("B");
  const { input } = JSON.parse(lastSent()) as { input: { type: string; encrypted_content?: string }[] };
  return input.filter(({ type }) => type === "reasoning").map((item) => item.encrypted_content);
}

describe.each(cases)("the OpenAI SDK, as Codex uses it with %s (stream: %s)", (caller, stream) => {
  beforeAll(() => {
    credentials = callers[caller];
  });

  test("gives the provider back what it made, and only for its own organization", async () => {
    const said = await responsesAnswer(stream);
    const blobs = said.output.flatMap((item) =>
      item.type === "reasoning" ? [item.encrypted_content ?? "none"] : [],
    );
    expect(blobs).toHaveLength(2);
    expect(blobs.every((blob) => blob.startsWith("gapura_r1_"))).toBe(true);
    expect(await responsesBack("org_one", said)).toEqual([
      "the-provider's-own==",
      "redacted-by-the-provider==",
    ]);
    // The finding: these went upstream for whoever replayed them.
    expect(await responsesBack("org_two", said)).toEqual([]);
    expect(lastSent()).not.toMatch(/gapura_r1_|provider/);
  });
});
