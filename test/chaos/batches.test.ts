/** Rules 4.2 and 4.4: whatever dies in the middle of 2,000 items, each has one result and is charged once. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { BatchWorld, expectExact, LEASE_MS, over, PLACES, RHYTHM, startBatch } from "./batch-planes.ts";

let world: BatchWorld;
beforeAll(async () => {
  world = await BatchWorld.open();
});
afterAll(() => world[Symbol.asyncDispose]());
beforeEach(() => world.answer());
afterEach(() => world.closePlanes());

const ITEMS = 2_000;
const FAULTY = ITEMS / 10;
/** What a store that was away for a moment, or a worker's death, may cost on a busy machine. */
const SLACK_MS = 20_000;

describe("2,000 items under way", () => {
  test("one of two data planes is killed at each write of an item's way, one after the other", async () => {
    // The living one by itself would need minutes, so the last of the others is dead before it is done.
    const living = await world.plane({ worker: { rhythm: RHYTHM, limits: { places: 8, placesOfOne: 8 } } });
    world.thinkMs = 800;
    const id = await startBatch(living, ITEMS);
    const steps = [
      "claim.done",
      "open.sent",
      "open.held",
      "item.answered",
      "settle.written",
      "settle.done",
    ] as const;
    for (const step of steps) await (await world.victim(`${step}:3`)).died();
    const before = await over(living, id);
    expect(before).toBeLessThan(ITEMS);
    world.thinkMs = 0;
    const { workerId } = living.context;
    const ofDead = () =>
      living.count(sql.fragment`from batch_items
        where batch_id = ${id} and state = 'running' and worker <> ${workerId}`);
    // The lease, with room for a machine that does other things.
    await expect.poll(ofDead, { timeout: LEASE_MS + 2 * SLACK_MS }).toBe(0);
    // The work is timed by what was done.
    await world.plane();
    await expectExact(living, id, ITEMS, 120_000);
    // Only what was under way in the dead ones went upstream again.
    expect(world.upstream.requests.length).toBeLessThanOrEqual(ITEMS + FAULTY + steps.length * PLACES);
    expect(await runAudit()).toContain("exact: 1 account, 2000 usage rows");
  }, 300_000);

  test("Redis, then Postgres are killed and come back", async () => {
    // Some seconds for all, and the last one waits until the looks in between have seen it under way.
    world.thinkMs = 60;
    const release = world.hold(ITEMS - 1);
    const plane = await world.plane();
    const id = await startBatch(plane, ITEMS);
    const done = () => over(plane, id).catch(() => 0);
    await expect.poll(done, { timeout: SLACK_MS }).toBeGreaterThan(200);
    await world.redis.kill();
    await sleep(300);
    await world.redis.start();
    await expect.poll(done, { timeout: SLACK_MS }).toBeGreaterThan(700);
    await world.postgres.kill();
    await sleep(300);
    await world.postgres.start();
    await expect.poll(done, { timeout: SLACK_MS }).toBeGreaterThan(800);
    expect(await over(plane, id)).toBeLessThan(ITEMS);
    release();
    await expectExact(plane, id, ITEMS, 120_000);
    // What had been answered waited for Postgres; only what Redis could not admit goes a second time.
    expect(world.upstream.requests.length).toBeLessThanOrEqual(ITEMS + FAULTY + 2 * PLACES);
  }, 180_000);
});

describe("fewer", () => {
  test("the only data plane dies: the next one resumes from what was stored", async () => {
    world.thinkMs = 30;
    const idle = await world.plane({ working: false });
    const first = await world.victim();
    const id = await startBatch(idle, 200);
    await expect.poll(() => over(idle, id), { timeout: SLACK_MS }).toBeGreaterThan(30);
    await first.kill();
    await world.victim();
    await expectExact(idle, id, 200);
    expect(world.upstream.requests.length).toBeLessThanOrEqual(200 + 20 + PLACES);
  });

  test("the upstream is away for a while: items wait, and none fails", async () => {
    world.thinkMs = 1_000;
    const release = world.hold(59);
    const plane = await world.plane();
    const id = await startBatch(plane, 60);
    await expect.poll(() => over(plane, id), { timeout: SLACK_MS }).toBeGreaterThan(5);
    await world.upstream.pause();
    // It is missed by some.
    expect(await over(plane, id)).toBeLessThan(60);
    await sleep(500);
    await world.upstream.resume();
    release();
    await expectExact(plane, id, 60);
  });

  test("a worker that was only taken for dead is dropped, uncharged, when another one ran its items", async () => {
    // Longer than the other one needs to take it for dead, also on a busy machine.
    world.thinkMs = 5_000;
    const limits = { places: 8, placesOfOne: 8 };
    await world.plane({ worker: { limits, rhythm: { beatMs: 60_000, leaseMs: 60_000, pollMs: 100 } } });
    const other = await world.plane({ working: false });
    const id = await startBatch(other, 5);
    await world.upstream.arrived(5);
    // Its heartbeats stopped, though it still runs.
    await other.worker.start();
    await expectExact(other, id, 5);
    expect(world.upstream.requests.length).toBe(10);
  });
});

/** What `npm run reconcile` prints. @throws Error when it finds anything wrong. */
async function runAudit(): Promise<string> {
  const script = join(import.meta.dirname, "../../dataplane/main.ts");
  const env = { ...process.env, DATABASE_URL: world.postgres.url, REDIS_URL: world.redis.url };
  return (await promisify(execFile)(process.execPath, [script, "reconcile"], { env })).stdout;
}
