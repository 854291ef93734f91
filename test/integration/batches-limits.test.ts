/** Rule 9.6: items of a batch count in the limit of the key, or the person, that made it; nobody else waits for it. */
import { sql } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { bumpKeyEpoch } from "../../dataplane/billing/ledger/accounts.ts";
import type { Limits } from "../../dataplane/config/schema.ts";
import type { RequestRecord } from "../../dataplane/telemetry/request-record.ts";
import { FakeIssuer, signingKey } from "../fakes/issuer.ts";
import { withinOneDay } from "../fakes/one-day.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, line, type PlaneOptions, routesTo, type Json } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

/** Of an item of the upstream's answer: 1,000 × 96 + 100 × 480 micro-credits, half of that in a batch. */
const usage = { input: 1_000, output: 100 };
const ITEMS = 6;
const narrow = { authorization: `Bearer ${sampleKeys.narrow}` };
const issuer = new FakeIssuer("https://login.test", Date.now);
const signer = signingKey("EC", "one");
issuer.publish(signer);
const people = {
  organizationId: "org_acme",
  identity: {
    issuer: issuer.url,
    audiences: ["gapura"],
    jwksUrl: null,
    allowCidrs: [],
    allowPorts: [],
    rules: [{ claims: {}, role: "member" as const, project: "default" }],
  },
  fetchJson: issuer.fetchJson,
} satisfies PlaneOptions["people"];

let ground: Ground;
let plane: BatchPlane;
/** Who makes one batch after the other, and what holds for them. */
let maker = "";
let limited: Limits | null;
/** What was recorded of each run. */
let told: RequestRecord[] = [];

beforeAll(async () => {
  ground = await openGround();
});
beforeEach(async () => {
  await withinOneDay(60_000);
  ground.upstream.reset();
  ground.upstream.model("upstream-chat", text("done", usage));
  limited = null;
  told = [];
  const routes = routesTo(ground.upstream.url);
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: ground.upstream.url,
    people,
    records: { add: (record) => void told.push(record) },
    routes: [...routes, ...routes.map((route) => ({ ...route, model: route.model.replace("m-", "al-") }))],
    worker: { limits: { places: 2, placesOfOne: 1 }, rhythm: { pollMs: 50 } },
    limitsOf: async (id) => ({
      limits: limited === null || id !== maker ? [] : [{ kind: "key", id, limits: limited }],
      keyEpoch: await epochOf("org_acme"),
    }),
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
  await makeOrganization(plane.pool, "org_narrow", 10_000_000_000n);
});
afterEach(async () => {
  expect(await plane.broken()).toEqual([]);
  await plane.close();
});
afterAll(() => ground.close());

const epochOf = async (organization: string) =>
  Number(
    await plane.pool.oneFirst(sql.type(z.object({ epoch: z.bigint() }))`
      select key_epoch as epoch from organizations where id = ${organization}
    `),
  );
/** Sets limits as the directory does: each change is another epoch of the organization's keys. */
async function limit(limits: Limits): Promise<void> {
  limited = limits;
  await plane.pool.transaction((transaction) => bumpKeyEpoch(transaction, "org_acme"));
}

const linesOf = (model: string) =>
  Array.from({ length: ITEMS }, (_, n) => line(`item-${n}`, bodyOf.chat(`item ${n}`, { model }))).join("\n");

async function create(model: string, headers: Record<string, string> = {}): Promise<string> {
  const input = await plane.upload(linesOf(model), "in.jsonl", headers);
  const made = { input_file_id: input, endpoint: "/v1/chat/completions", completion_window: "24h" };
  const { body } = await plane.json("POST", "/v1/batches", made, headers);
  return `/v1/batches/${String(body["id"])}`;
}
const counts = async (path: string) =>
  (await plane.json("GET", path)).body["request_counts"] as Record<"completed" | "failed", number>;

const credits = (amount: bigint, per: "day" | "total"): Limits => ({
  credits: { amountMicros: String(amount), per },
});

const byKey = () => ({ authorization: `Bearer ${sampleKeys.inference}` });
const byPerson = () => ({ authorization: `Bearer ${issuer.token(signer, {}, { alg: "ES256" })}` });

describe.each([
  ["a key", /^apikey_/, byKey, byPerson],
  ["a person", /^usr_/, byPerson, byKey],
] as const)("made by %s", (_, form, caller, colleague) => {
  /** What they have spent in all, and what one item costs, measured without a limit. */
  async function spending(): Promise<{ readonly spent: bigint; readonly cost: bigint }> {
    const path = await create("m-chat", caller());
    await plane.ended(path);
    const batch = sql.fragment`batch_id = ${path.split("/").at(-1) ?? ""}`;
    const rows = () =>
      plane.pool.any(sql.type(z.object({ id: z.string() }))`select key_id as id from usage where ${batch}`);
    await expect.poll(async () => (await rows()).length, { timeout: 30_000 }).toBe(ITEMS);
    const [{ id } = { id: "" }] = await rows();
    expect(id).toMatch(form);
    maker = id;
    const sumOf = (rows: ReturnType<typeof sql.fragment>) =>
      plane.pool.oneFirst(sql.type(z.object({ micros: z.bigint() }))`
        select sum(cost_micros)::int8 as micros from usage where ${rows}
      `);
    // By the ledger: Redis is told of a batch's charges a moment after the batch has ended.
    return { spent: await sumOf(sql.fragment`key_id = ${id}`), cost: (await sumOf(batch)) / BigInt(ITEMS) };
  }

  test("beyond a limit that never begins anew items fail with its code, and another organization's go on", async () => {
    const { spent, cost } = await spending();
    // The items before count as well.
    await limit(credits(spent + 2n * cost, "total"));
    const path = await create("m-chat", caller());
    const others = await create("al-chat", narrow);
    const ended = await plane.ended(path);
    expect(ended["request_counts"]).toMatchObject({ completed: 2, failed: ITEMS - 2 });
    const errors = await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`);
    expect(errors.map(({ error }) => (error as Json)["code"])).toEqual(
      Array.from({ length: ITEMS - 2 }, () => "key_limit_reached"),
    );
    let theirs: Json = {};
    await expect
      .poll(async () => (theirs = (await plane.json("GET", others, undefined, narrow)).body)["status"], {
        timeout: 30_000,
      })
      .toBe("completed");
    expect(theirs["request_counts"]).toMatchObject({ completed: ITEMS, failed: 0 });
  });

  test("items wait for a limit that begins anew before their batch ends, and go on when it is raised", async () => {
    const { spent, cost } = await spending();
    await limit(credits(spent + 3n * cost, "day"));
    const path = await create("m-chat", caller());
    await expect.poll(async () => (await counts(path)).completed, { timeout: 30_000 }).toBe(3);
    const others = await create("al-chat", narrow);
    await expect
      .poll(async () => (await plane.json("GET", others, undefined, narrow)).body["status"], {
        timeout: 30_000,
      })
      .toBe("completed");
    const waiting = (await plane.json("GET", path)).body;
    expect([waiting["status"], (waiting["request_counts"] as Json)["failed"]]).toEqual(["in_progress", 0]);
    await limit(credits(spent + 100n * cost, "day"));
    // They would look again by themselves after half a minute only.
    expect((await plane.ended(path, 15_000))["request_counts"]).toMatchObject({
      completed: ITEMS,
      failed: 0,
    });
    // A run takes the place of the one before only where it says the same moment: else the item is listed twice.
    const runs = Map.groupBy(
      told.filter(({ batchId }) => path.endsWith(`/${batchId}`)),
      ({ id }) => id,
    );
    expect(runs.size).toBe(ITEMS);
    expect(Math.max(...Array.from(runs.values(), ({ length }) => length))).toBeGreaterThan(1);
    for (const of of runs.values()) expect(new Set(of.map(({ acceptedAt }) => acceptedAt)).size).toBe(1);
  });

  test("however many batches wait for their limit, those of others in their organization go on", async () => {
    const { spent } = await spending();
    await limit(credits(spent, "day"));
    const waiting: string[] = [];
    for (let batch = 0; batch < 10; batch += 1) waiting.push(await create("m-chat", caller()));
    const ended = await plane.ended(await create("m-chat", colleague()));
    expect(ended["request_counts"]).toMatchObject({ completed: ITEMS, failed: 0 });
    for (const path of waiting) {
      expect((await plane.json("GET", path)).body["status"]).toBe("in_progress");
      await plane.json("POST", `${path}/cancel`);
      await plane.ended(path);
    }
  });
});
