/** Rules 4.2 and 4.4: whatever dies in the middle of a batch, each item has one result and is charged once. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { BatchPlane, bodyOf, line, type PlaneOptions } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";
import { freshPostgres, freshRedis, type TestStore } from "./stores.ts";

let postgres: TestStore;
let redis: TestStore;
let upstream: FakeUpstream;
const options = (): PlaneOptions => ({
  upstreamUrl: upstream.url,
  worker: { rhythm: { beatMs: 200, leaseMs: 1_500, pollMs: 200 }, limits: { places: 16, placesOfOne: 16 } },
});
/** A worker in a process of its own; the answer kills it. */
async function spawnWorker(): Promise<() => Promise<void>> {
  const stores = { redisUrl: redis.url, postgresUrl: postgres.url };
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "batches-process.ts"), JSON.stringify({ stores, options: options() })],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = once(child, "exit");
  await once(child.stdout, "data");
  return async () => {
    child.kill("SIGKILL");
    await ended;
  };
}
const open = (more: Partial<PlaneOptions> = {}) =>
  BatchPlane.open({ redisUrl: redis.url, postgresUrl: postgres.url }, { ...options(), ...more });

beforeAll(async () => {
  upstream = await startUpstream();
  postgres = await freshPostgres();
  redis = await freshRedis();
  const plane = await open({ working: false });
  await makeOrganization(plane.pool, "org_acme", 1_000_000_000n);
  await plane.close();
});
afterAll(async () => {
  await postgres[Symbol.asyncDispose]();
  await redis[Symbol.asyncDispose]();
  await upstream.close();
});
beforeEach(() => upstream.reset());

const ITEMS = 400;
const slow = withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 30 });
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function startBatch(plane: BatchPlane, items = ITEMS): Promise<string> {
  const requests = Array.from({ length: items }, (_, index) => ({
    custom_id: `i${index}`,
    params: bodyOf.messages(),
  }));
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests });
  return String(body["id"]);
}
const over = (plane: BatchPlane, id: string) =>
  plane.count(sql.fragment`from batch_items where batch_id = ${id} and state = 'succeeded'`);

/** Exactly one line for each item, one row for each line, and the books agree. */
async function expectExact(plane: BatchPlane, id: string, items = ITEMS): Promise<void> {
  const ended = await plane.ended(`/v1/messages/batches/${id}`, 40_000, (batch) => {
    const counts = Object.values(batch["request_counts"] as Record<string, number>);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(items);
  });
  expect(ended["request_counts"]).toMatchObject({ succeeded: items });
  const results = await plane.lines(`/v1/messages/batches/${id}/results`);
  expect(results.map((result) => result["custom_id"])).toEqual(
    Array.from({ length: items }, (_, index) => `i${index}`),
  );
  expect(await plane.count(sql.fragment`from usage where batch_id = ${id}`)).toBe(items);
  await expect.poll(() => plane.broken(), { timeout: 10_000 }).toEqual([]);
}

describe("a batch that is under way", () => {
  test("survives the death of one of two data planes", async () => {
    upstream.model("upstream-messages", slow);
    const kill = await spawnWorker();
    const living = await open();
    const id = await startBatch(living);
    await expect.poll(() => over(living, id), { timeout: 10_000 }).toBeGreaterThan(50);
    await kill();
    await expectExact(living, id);
    // Only what was under way there went upstream again.
    expect(upstream.requests.length).toBeLessThanOrEqual(ITEMS + 16);
    await living.close();
  });

  test("survives the kill and restart of Redis", async () => {
    upstream.model("upstream-messages", slow);
    const plane = await open();
    const id = await startBatch(plane);
    await expect.poll(() => over(plane, id), { timeout: 10_000 }).toBeGreaterThan(50);
    await redis.kill();
    await pause(300);
    await redis.start();
    await expectExact(plane, id);
    await plane.close();
  });

  test("survives a restart of Postgres", async () => {
    upstream.model("upstream-messages", slow);
    const plane = await open();
    const id = await startBatch(plane);
    await expect.poll(() => over(plane, id), { timeout: 10_000 }).toBeGreaterThan(50);
    await postgres.kill();
    await pause(300);
    await postgres.start();
    await expect.poll(() => over(plane, id).catch(() => 0), { timeout: 20_000 }).toBeGreaterThan(0);
    await expectExact(plane, id);
    await plane.close();
  });

  test("resumes by itself when the only data plane comes back, from what was stored", async () => {
    upstream.model("upstream-messages", slow);
    const idle = await open({ working: false });
    const kill = await spawnWorker();
    const id = await startBatch(idle);
    await expect.poll(() => over(idle, id), { timeout: 10_000 }).toBeGreaterThan(50);
    await kill();
    const again = await spawnWorker();
    await expectExact(idle, id);
    expect(upstream.requests.length).toBeLessThanOrEqual(ITEMS + 16);
    await again();
    await idle.close();
  });

  test("waits while its upstream is away, and fails nothing", async () => {
    upstream.model("upstream-messages", slow);
    const plane = await open();
    const id = await startBatch(plane, 60);
    await expect.poll(() => over(plane, id), { timeout: 10_000 }).toBeGreaterThan(5);
    await upstream.pause();
    await pause(500);
    await upstream.resume();
    await expectExact(plane, id, 60);
    await plane.close();
  });
});

describe("what a worker does that was taken for dead", () => {
  test("is dropped, uncharged, when another one runs its items", async () => {
    upstream.model(
      "upstream-messages",
      withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 1_500 }),
    );
    const sleeper = await open({ worker: { rhythm: { beatMs: 60_000, leaseMs: 60_000, pollMs: 100 } } });
    const id = await startBatch(sleeper, 5);
    await upstream.arrived(5, 5_000);
    // Its heartbeats stopped, though it still runs: another one's lease is shorter.
    const other = await open({ worker: { rhythm: { beatMs: 100, leaseMs: 400, pollMs: 100 } } });
    await expectExact(other, id, 5);
    expect(upstream.requests.length).toBe(10);
    await sleeper.close();
    await other.close();
    expect(await countRows(id)).toBe(5);
  });

  const countRows = async (id: string) => {
    const plane = await open({ working: false });
    const count = await plane.count(sql.fragment`from usage where batch_id = ${id}`);
    await plane.close();
    return count;
  };
});

describe("the files of a batch", () => {
  test("are read and written by another worker when the first one dies at it", async () => {
    upstream.model("upstream-chat", text("fine"));
    const dead = await open({ working: false });
    const input = await dead.upload([line("a", bodyOf.chat()), line("b", bodyOf.chat())].join("\n"));
    const made = await dead.json("POST", "/v1/batches", {
      input_file_id: input,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
    const id = String(made.body["id"]);
    // It had stored some items of the input when it died.
    await dead.pool.query(sql.unsafe`update batches set worker = 'dead' where id = ${id}`);
    await dead.pool.query(sql.unsafe`
      insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, body)
      values (${id}, 0, '"a"', 'req_x', now(), '{}')
    `);
    await dead.close();
    const living = await open();
    const ended = await living.ended(`/v1/batches/${id}`);
    expect(ended).toMatchObject({ status: "completed", request_counts: { total: 2, completed: 2 } });
    expect(await living.lines(`/v1/files/${String(ended["output_file_id"])}/content`)).toHaveLength(2);
    await living.close();
  });
});

test("rule 4.5: a batch that comes later does not wait for one that is fifteen times as large", async () => {
  upstream.model("upstream-messages", slow);
  const plane = await open();
  const first = await startBatch(plane, 600);
  await expect.poll(() => over(plane, first), { timeout: 10_000 }).toBeGreaterThan(30);
  const second = await startBatch(plane, 40);
  await plane.ended(`/v1/messages/batches/${second}`);
  // The first one, with fifteen times as much left, is nowhere near its end.
  expect(await over(plane, first)).toBeLessThan(450);
  await plane.ended(`/v1/messages/batches/${first}`);
  await plane.close();
});
