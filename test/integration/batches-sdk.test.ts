/** The official SDKs drive both flows whole, with tools inside, over upstreams of each dialect. */
import type Anthropic from "@anthropic-ai/sdk";
import { type OpenAI, toFile } from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { sdkClients } from "../fakes/sdk-clients.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, line } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
let anthropic: Anthropic;
let openai: OpenAI;

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: upstream.url,
    runTool: async () => ({
      kind: "hits",
      hits: [{ url: "https://gates.example/", title: "Gates", text: "Faster.", age: null }],
      posts: 0,
      profiles: 0,
    }),
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
  ({ anthropic, openai } = sdkClients(plane.server.url, sampleKeys.inference));
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});
beforeEach(() => upstream.reset());

const search: Step = { answer: { parts: [{ type: "tool", name: "web_search", input: { query: "gates" } }] } };
const pause = () => new Promise((done) => setTimeout(done, 50));

describe.each(["messages", "chat", "responses"] as const)("over an upstream that speaks %s", (other) => {
  beforeEach(() => upstream.model(`upstream-${other}`, [search, text("They are faster.")]));

  test("Anthropic: create, poll, results, list, delete", async () => {
    const { batches } = anthropic.messages;
    let batch = await batches.create({
      requests: [
        {
          custom_id: "first",
          params: {
            model: `m-${other}`,
            max_tokens: 500,
            messages: [{ role: "user", content: "What is new about gates?" }],
            tools: [{ type: "web_search_20250305", name: "web_search" }],
          },
        },
      ],
    });
    while (batch.processing_status !== "ended") {
      await pause();
      batch = await batches.retrieve(batch.id);
    }
    expect(batch.request_counts.succeeded).toBe(1);
    for await (const { custom_id: id, result } of await batches.results(batch.id)) {
      expect(id).toBe("first");
      expect(result.type).toBe("succeeded");
      expect(JSON.stringify(result)).toContain("They are faster.");
    }
    for await (const listed of batches.list({ limit: 1 })) expect(listed.type).toBe("message_batch");
    await batches.delete(batch.id);
  });

  test.each(["/v1/chat/completions", "/v1/responses"] as const)(
    "OpenAI: upload, create, poll, download of %s",
    async (endpoint) => {
      const body =
        endpoint === "/v1/responses"
          ? { model: `m-${other}`, input: "What is new?", tools: [{ type: "web_search" }] }
          : { model: `m-${other}`, messages: [{ role: "user", content: "New?" }], web_search_options: {} };
      const input = await openai.files.create({
        file: await toFile(Buffer.from(`${line("first", body, endpoint)}\n`), "in.jsonl"),
        purpose: "batch",
      });
      let batch = await openai.batches.create({
        input_file_id: input.id,
        endpoint,
        completion_window: "24h",
        metadata: { team: "gates" },
      });
      while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
        await pause();
        batch = await openai.batches.retrieve(batch.id);
      }
      expect(batch).toMatchObject({
        status: "completed",
        request_counts: { total: 1, completed: 1, failed: 0 },
      });
      const output = await (await openai.files.content(batch.output_file_id ?? "")).text();
      expect(output).toContain("They are faster.");
      expect(JSON.parse(output)).toMatchObject({
        custom_id: "first",
        response: { status_code: 200 },
        error: null,
      });
      const [listed] = (await openai.batches.list({ limit: 1 })).data;
      expect(listed?.id).toBe(batch.id);
    },
  );
});
