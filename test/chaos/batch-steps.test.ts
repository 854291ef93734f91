/** SIGKILL at each write of a batch's own way: what it was made of, its cancel, its deadline, its files, its end. */
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { sweepBatches } from "../../dataplane/batches/retention.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { bodyOf, line, type BatchPlane } from "../integration/batches-world.ts";
import { BatchWorld, expectCharges, PLACES, requestsOf, startBatch } from "./batch-planes.ts";

let world: BatchWorld;
beforeAll(async () => {
  world = await BatchWorld.open();
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.answer());
afterEach(() => world.closePlanes());

const POLL = { timeout: 20_000 };
const rowsOf = (plane: BatchPlane, id: string) =>
  plane.count(sql.fragment`from usage where batch_id = ${id}`);
/** What a dying data plane answers is nothing. */
const post = (url: string, path: string, body?: object) =>
  fetch(`${url}${path}`, {
    method: "POST",
    headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch(() => null);

/** In this order one batch meets all of them, each in a data plane that takes over from the dead one before. */
const way = [
  "validate.stored",
  "validate.done",
  "claim.done",
  "leases.written",
  "leases.done",
  "open.held",
  "item.answered",
  "settle.written",
  "settle.done",
  "close.done",
  "finish.files",
  "finish.written",
  "finish.done",
  "sweep.removed",
] as const;

test("one batch in each of whose steps a data plane dies", async () => {
  const idle = await world.plane({ working: false });
  const items = PLACES + 20;
  const bodies = Array.from({ length: items }, (_, index) => (index < 3 ? {} : bodyOf.chat(`item ${index}`)));
  const made = await idle.json("POST", "/v1/batches", {
    input_file_id: await idle.upload(bodies.map((body, index) => line(`i${index}`, body)).join("\n")),
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  const id = String(made.body["id"]);
  for (const step of way) await (await world.victim(`${step}:1`)).died();
  await world.plane();

  const ended = await idle.ended(`/v1/batches/${id}`);
  const succeeded = items - 3;
  expect(ended).toMatchObject({
    status: "completed",
    request_counts: { total: items, completed: succeeded, failed: 3 },
  });
  const linesOf = (name: string) => idle.lines(`/v1/files/${String(ended[name])}/content`);
  const output = await linesOf("output_file_id");
  const names = [...(await linesOf("error_file_id")), ...output].map((found) => found["custom_id"]);
  expect(names).toEqual(Array.from({ length: items }, (_, index) => `i${index}`));
  // Files of those that died at the end stay hidden.
  const files = (await idle.json("GET", "/v1/files?purpose=batch_output")).body["data"] as object[];
  expect(files).toHaveLength(2);
  // Rule 4.2: the usage row is that of the line.
  const rows = await idle.pool.anyFirst(sql.type(z.object({ tokens: z.bigint() }))`
    select output_tokens as tokens from usage where batch_id = ${id} order by 1
  `);
  const usages = output.map(({ response }) => (response as { body: { usage: Usage } }).body.usage);
  expect(rows.map(Number)).toEqual(usages.map((usage) => usage.completion_tokens));
  expect(await rowsOf(idle, id)).toBe(succeeded);
  await expect.poll(() => idle.count(sql.fragment`from batches where id = ${id} and emptied`), POLL).toBe(1);
  expect(await idle.count(sql.fragment`from batch_items where batch_id = ${id}`)).toBe(0);
  await expect.poll(() => idle.broken(), POLL).toEqual([]);
}, 180_000);
interface Usage {
  readonly completion_tokens: number;
}

test("create: a batch whose requests were stored when its data plane died is never seen, and swept", async () => {
  const idle = await world.plane({ working: false });
  const victim = await world.victim("create.stored:1");
  const counted = () => idle.count(sql.fragment`from batch_items`);
  const before = await counted();
  expect(await post(victim.url, "/v1/messages/batches", { requests: requestsOf(30) })).toBeNull();
  await victim.died();
  expect(await counted()).toBe(before + 30);
  const { body } = await idle.json("GET", "/v1/messages/batches");
  expect(body["data"]).toEqual([]);
  await idle.worker.start();
  const later = { ...idle.context, clock: { now: () => Date.now() + 31 * 60_000 } };
  const swept = async () => {
    await sweepBatches(later);
    return await counted();
  };
  await expect.poll(swept, POLL).toBe(before);
  expect(await idle.broken()).toEqual([]);
});

describe("with items under way", () => {
  const ITEMS = 2 * PLACES + 10;
  beforeEach(() => {
    world.thinkMs = 400;
  });

  test.each([
    ["written", null],
    ["done", expect.any(String)],
  ] as const)("cancel.%s: it was not cancelled, or it was; never half", async (step, cancelledAt) => {
    const living = await world.plane();
    const victim = await world.victim(`cancel.${step}:1`);
    const id = await startBatch(living, ITEMS);
    const path = `/v1/messages/batches/${id}`;
    await world.upstream.arrived(PLACES, 20_000);
    expect(await post(victim.url, `${path}/cancel`)).toBeNull();
    await victim.died();
    expect((await living.json("GET", path)).body["cancel_initiated_at"]).toEqual(cancelledAt);
    expect((await living.json("POST", `${path}/cancel`)).status).toBe(200);
    await expectPartial(living, id, "canceled");
  });

  test.each(["written", "done"] as const)("expire.%s", async (step) => {
    const idle = await world.plane({ working: false });
    const id = await startBatch(idle, ITEMS);
    const victim = await world.victim(`expire.${step}:1`);
    await world.upstream.arrived(PLACES, 20_000);
    await idle.pool.query(sql.unsafe`update batches set expires_at = clock_timestamp() where id = ${id}`);
    await victim.died();
    await idle.worker.start();
    await expectPartial(idle, id, "expired");
  });

  /** What ran is charged, the rest never ran; together they are all, with one line each. */
  async function expectPartial(plane: BatchPlane, id: string, rest: "canceled" | "expired"): Promise<void> {
    const ended = await plane.ended(`/v1/messages/batches/${id}`, 20_000);
    const counts = ended["request_counts"] as Record<string, number>;
    const succeeded = counts["succeeded"] ?? 0;
    expect(counts[rest]).toBeGreaterThan(0);
    expect(succeeded + (counts[rest] ?? 0)).toBe(ITEMS);
    const results = await plane.lines(`/v1/messages/batches/${id}/results`);
    expect(results.map((result) => result["custom_id"])).toEqual(
      Array.from({ length: ITEMS }, (_, index) => `i${index}`),
    );
    await expectCharges(plane, id, succeeded);
  }
});
