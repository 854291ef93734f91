import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, line } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await BatchPlane.open(ground.stores, { upstreamUrl: upstream.url });
  await makeOrganization(plane.pool, "org_acme", 1_000_000_000n);
  await makeOrganization(plane.pool, "org_narrow", 1_000_000_000n);
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});
beforeEach(() => upstream.reset());

const foreign = { authorization: `Bearer ${sampleKeys.narrow}` };
const create = (requests: unknown) =>
  plane.json("POST", "/v1/messages/batches", typeof requests === "string" ? requests : { requests });
const one = (customId: string) => ({
  custom_id: customId,
  params: bodyOf.messages("Hi"),
});

describe("message batches", () => {
  test("create, poll, read the results", async () => {
    upstream.model("upstream-messages", text("fine", { input: 10, output: 5 }));
    const made = await create([one("a"), one("__proto__"), one("c")]);
    expect(made.status).toBe(200);
    expect(made.body).toMatchObject({
      type: "message_batch",
      processing_status: "in_progress",
      request_counts: { processing: 3, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
      ended_at: null,
      results_url: null,
    });
    const id = String(made.body["id"]);
    const ended = await plane.ended(`/v1/messages/batches/${id}`);
    expect(ended).toMatchObject({ request_counts: { processing: 0, succeeded: 3 } });
    expect(ended["results_url"]).toBe(`${plane.server.url}/v1/messages/batches/${id}/results`);
    const results = await plane.lines(`/v1/messages/batches/${id}/results`);
    expect(results.map((result) => result["custom_id"])).toEqual(["a", "__proto__", "c"]);
    expect(results[0]).toMatchObject({
      result: { type: "succeeded", message: { type: "message", model: "m-messages", role: "assistant" } },
    });
    expect(await plane.count(sql.fragment`from usage where batch_id = ${id} and endpoint = 'batch'`)).toBe(3);
  });
});

describe("batches", () => {
  test.each(["chat", "responses"] as const)("%s: upload, create, poll, download", async (dialect) => {
    upstream.model(`upstream-${dialect}`, text("fine", { input: 10, output: 5 }));
    const url = dialect === "chat" ? "/v1/chat/completions" : "/v1/responses";
    const input = await plane.upload(
      [line("a", bodyOf[dialect](), url), line("b", bodyOf[dialect](), url)].join("\n"),
    );
    const made = await plane.json("POST", "/v1/batches", {
      input_file_id: input,
      endpoint: url,
      completion_window: "24h",
      metadata: { project: "x" },
    });
    expect(made.body).toMatchObject({ object: "batch", status: "validating", metadata: { project: "x" } });
    const ended = await plane.ended(`/v1/batches/${String(made.body["id"])}`);
    expect(ended).toMatchObject({
      status: "completed",
      request_counts: { total: 2, completed: 2, failed: 0 },
      error_file_id: null,
      usage: { input_tokens: 20, output_tokens: 10, total_tokens: 30 },
    });
    const lines = await plane.lines(`/v1/files/${String(ended["output_file_id"])}/content`);
    expect(lines).toMatchObject([
      { custom_id: "a", error: null, response: { status_code: 200, body: { model: `m-${dialect}` } } },
      { custom_id: "b", error: null },
    ]);
  });
});

test("organizations never see each other's batches", async () => {
  const made = await create([one("a")]);
  const id = String(made.body["id"]);
  const other = await plane.json("GET", `/v1/messages/batches/${id}`, undefined, foreign);
  expect(other.status).toBe(404);
  await plane.ended(`/v1/messages/batches/${id}`);
});
