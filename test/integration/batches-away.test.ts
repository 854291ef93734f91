/** Rule 4.4: what is away, an upstream or a store, is asked now and then, and holds up nobody else; batches go on soon after it is back. */
import { afterEach, beforeEach, expect, test } from "vitest";
import { sql } from "slonik";
import { z } from "zod";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import type { RequestRecord } from "../../dataplane/telemetry/request-record.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { upstreamOf } from "../fakes/inference.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, messageRequests, type PlaneOptions, routesTo } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

const PLACES = 24;
const ITEMS = 300;
const AWAY_MS = 5_000;
/** In that time a worker that rests for a second at least, and then for longer, finds out no more often whether somebody is back. */
const PROBES = 3;
/** The same for the time that has passed since `began`: a busy machine may wake a test much later than it asked. */
const probesSince = (began: number) => Math.floor((PROBES * (performance.now() - began)) / AWAY_MS);

let ground: Ground;
/** Serves Chat; the ground's upstream serves Messages. */
let away: FakeUpstream;
let planes: BatchPlane[] = [];
/** What was recorded of each run. */
let told: RequestRecord[] = [];

beforeEach(async () => {
  ground = await openGround();
  away = await startUpstream();
  ground.upstream.model("upstream-messages", text("fine", { input: 10, output: 5 }));
  told = [];
});
afterEach(async () => {
  for (const plane of planes) await plane.close();
  planes = [];
  await away.close();
  await ground.close();
});

async function open(count: number, more: Partial<PlaneOptions> = {}): Promise<BatchPlane> {
  const routes = routesTo(ground.upstream.url).map((route) =>
    route.model === "m-chat" ? (routesTo(away.url).find(({ model }) => model === "m-chat") ?? route) : route,
  );
  for (let index = 0; index < count; index += 1)
    planes.push(
      await BatchPlane.open(ground.stores, {
        upstreamUrl: ground.upstream.url,
        routes,
        records: { add: (record) => void told.push(record) },
        worker: { limits: { places: PLACES, placesOfOne: PLACES }, rhythm: { pollMs: 50 } },
        ...more,
      }),
    );
  const [plane] = planes;
  if (plane === undefined) throw new Error("no plane");
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
  return plane;
}

const runsOf = (model: string) => told.filter((record) => record.model === model).length;
const succeeded = (plane: BatchPlane, model: string) =>
  plane.count(sql.fragment`from batch_items where model = ${model} and state = 'succeeded'`);

test.each([
  ["refuses connections", () => away.pause(), () => away.resume()],
  [
    "stands behind a proxy that says so",
    async () => away.model("upstream-chat", { error: { status: 502 } }),
    async () => away.model("upstream-chat", text("back", { input: 10, output: 5 })),
  ],
])("one that %s", async (_, leave, comeBack) => {
  away.model("upstream-chat", text("back", { input: 10, output: 5 }));
  await leave();
  const plane = await open(2);
  // In one batch, whose items for the other model are last in line.
  const requests = [
    ...Array.from({ length: ITEMS }, (__, n) => ({
      custom_id: `away-${n}`,
      params: { ...bodyOf.messages(), model: "m-chat" },
    })),
    ...messageRequests(ITEMS),
  ];
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests });
  const began = performance.now();
  await expect.poll(() => succeeded(plane, "m-messages"), { timeout: 30_000 }).toBe(ITEMS);
  // As many as there are places, before anything is known of it; then one a second at the most.
  const seconds = Math.ceil((performance.now() - began) / 1_000);
  expect(runsOf("m-chat")).toBeLessThanOrEqual(planes.length * (PLACES + seconds));
  const [before, waits] = [runsOf("m-chat"), performance.now()];
  await new Promise((done) => setTimeout(done, AWAY_MS));
  expect(runsOf("m-chat") - before).toBeLessThanOrEqual(planes.length * probesSince(waits));
  expect(await succeeded(plane, "m-chat")).toBe(0);
  await comeBack();
  await expect.poll(() => succeeded(plane, "m-chat"), { timeout: 20_000 }).toBe(ITEMS);
  const ended = await plane.ended(`/v1/messages/batches/${String(body["id"])}`);
  expect(ended["request_counts"]).toMatchObject({ succeeded: 2 * ITEMS });
});

test("a store that is away is asked now and then", async () => {
  let isAway = true;
  let asked = 0;
  const plane = await open(1, {
    limitsOf: async () => {
      if (!isAway) return { limits: [], keyEpoch: 1 };
      asked += 1;
      throw new ApiError("unavailable", "The store is away.", { retryAfterSeconds: 1 });
    },
  });
  const began = performance.now();
  const path = await plane.createMessages(ITEMS);
  await new Promise((done) => setTimeout(done, AWAY_MS));
  expect(asked).toBeLessThanOrEqual(PLACES + probesSince(began));
  isAway = false;
  expect(await plane.ended(path)).toMatchObject({ request_counts: { succeeded: ITEMS } });
});

/** A model of which two organizations have an upstream each: org_acme that which is away, org_narrow the other. */
async function openOwn(): Promise<BatchPlane> {
  const chat = (url: string, dedicatedTo: string) =>
    upstreamOf(url, "chat", { name: dedicatedTo, model: "upstream-chat", dedicatedTo });
  const upstreams = [chat(away.url, "org_acme"), chat(ground.upstream.url, "org_narrow")];
  // By a name that either may use.
  const [route] = routesTo(ground.upstream.url, { upstreams, model: "al-chat" });
  if (route === undefined) throw new Error("no route");
  const plane = await open(1, { routes: [route] });
  await makeOrganization(plane.pool, "org_narrow", 10_000_000_000n);
  return plane;
}

/** A batch of so many items for that model, by who has the key. @returns its id. */
async function createOwn(plane: BatchPlane, key: string, items: number): Promise<string> {
  const params = { ...bodyOf.messages(), model: "al-chat" };
  const requests = Array.from({ length: items }, (_, n) => ({ custom_id: `i${n}`, params }));
  const headers = { authorization: `Bearer ${key}` };
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests }, headers);
  return String(body["id"]);
}

test("an organization's own upstream that refuses more holds up no other organization's under the same name", async () => {
  const plane = await openOwn();
  away.model("upstream-chat", { error: { status: 429 }, headers: { "retry-after": "60" } });
  ground.upstream.model("upstream-chat", text("fine", { input: 10, output: 5 }));
  await createOwn(plane, sampleKeys.inference, PLACES);
  await away.arrived(1, 10_000);
  await expect.poll(() => runsOf("al-chat"), { timeout: 10_000 }).toBeGreaterThan(0);
  const theirs = await createOwn(plane, sampleKeys.narrow, PLACES);
  const over = () =>
    plane.count(sql.fragment`from batch_items where batch_id = ${theirs} and state = 'succeeded'`);
  await expect.poll(over, { timeout: 15_000 }).toBe(PLACES);
  expect(away.requests.length).toBeLessThanOrEqual(PLACES);
});

test("an item is not given up for what others have from upstreams of their own under the same name", async () => {
  const plane = await openOwn();
  const stateOf = async (id: string) =>
    await plane.pool.one(sql.type(z.object({ state: z.string(), faults: z.number() }))`
      select state, faults from batch_items where batch_id = ${id}
    `);
  ground.upstream.model("upstream-chat", text("fine", { input: 10, output: 5 }));
  away.model("upstream-chat", { error: { status: 500 } });
  const mine = await createOwn(plane, sampleKeys.inference, 1);
  await expect.poll(async () => (await stateOf(mine)).faults, { timeout: 10_000 }).toBeGreaterThan(0);
  // One more that speaks against it would be its last.
  await plane.pool.query(sql.unsafe`update batch_items set own_faults = 11 where batch_id = ${mine}`);
  const theirs = await createOwn(plane, sampleKeys.narrow, 1);
  await expect.poll(async () => (await stateOf(theirs)).state, { timeout: 10_000 }).toBe("succeeded");
  const { faults } = await stateOf(mine);
  await expect.poll(() => stateOf(mine), { timeout: 10_000 }).toMatchObject({ faults: faults + 1 });
  away.model("upstream-chat", text("back", { input: 10, output: 5 }));
  await expect.poll(async () => (await stateOf(mine)).state, { timeout: 20_000 }).toBe("succeeded");
});

test("a worker that ends while its sweep waits says that it leaves", async () => {
  const plane = await open(1, { worker: { rhythm: { pollMs: 50, sweepMs: 50 } } });
  await plane.ended(await plane.createMessages(1));
  const worker = () => plane.count(sql.fragment`from batch_workers where id = ${plane.context.workerId}`);
  expect(await worker()).toBe(1);
  const [begins, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const locking = plane.pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`select from batch_items for update`);
    begins.resolve();
    await held.promise;
  });
  await begins.promise;
  await plane.pool.query(sql.unsafe`update batches set deleted_at = now()`);
  const waits = () =>
    plane.count(
      sql.fragment`from pg_stat_activity where wait_event_type = 'Lock' and query like '%batch_items%'`,
    );
  await expect.poll(waits).toBeGreaterThan(0);
  await plane.worker.stop(100);
  expect(await worker()).toBe(0);
  held.resolve();
  await locking;
});

test("a worker says whether all that it ran has ended", async () => {
  const idle = await open(1);
  expect(await idle.worker.stop(5_000)).toBe(true);
  ground.upstream.model("upstream-messages", { ...text("never"), faults: { hang: true } });
  await open(1);
  const busy = planes.at(-1) ?? idle;
  await busy.createMessages(1);
  await expect.poll(() => ground.upstream.requests.length, { timeout: 10_000 }).toBe(1);
  expect(await busy.worker.stop(100)).toBe(false);
});
