/** Which charges cross a threshold (rule 9.8): noted in their transaction, once for each threshold, scope and window. */
import fc from "fast-check";
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { withinOneDay } from "../../test/fakes/one-day.ts";
import { sampleOrganization } from "../../test/fakes/sample-snapshot.ts";
import { DirectoryWorld, snapshotOfOrganizations } from "../../test/integration/directory-world.ts";
import { request, usage } from "../../test/integration/money-world.ts";
import { applyGrant } from "../billing/ledger/accounts.ts";
import { chargeRows } from "../billing/ledger/charge.ts";
import type { MeteredRequest } from "../billing/meter.ts";
import { windowOf } from "../billing/scopes.ts";
import { DAY_MS } from "../lib/clock.ts";
import { usageRow } from "../billing/ledger/usage-row.ts";
import { limitPeriods, type Limits, type OrganizationEntry } from "../config/schema.ts";
import { forgetMessages } from "./deliveries.ts";

let world: DirectoryWorld;
beforeAll(async () => {
  world = await DirectoryWorld.open();
});
afterAll(() => world[Symbol.asyncDispose]());

let serial = 1000;
let id = "";
const declare = async (more: Partial<OrganizationEntry> = {}) => {
  const entry = sampleOrganization(id, {
    grants: [{ name: "first", amountMicros: "1000000" }],
    notifications: [
      {
        url: "https://a.example/hook",
        credential: null,
        thresholds: [50, 100],
        allowCidrs: [],
        allowPorts: [],
      },
      { url: "https://b.example/hook", credential: null, thresholds: [80], allowCidrs: [], allowPorts: [] },
    ],
    ...more,
  });
  const sync = world.pod();
  await sync.copy(snapshotOfOrganizations((serial += 1), [entry]));
  await sync.stop();
};
const credits = (amountMicros: number, per: "day" | "month" | "total" = "month"): Limits => ({
  credits: { amountMicros: String(amountMicros), per },
});
let key = "";
let project = "";
beforeEach(async () => {
  await withinOneDay(20_000);
  id = `org_${serial}`;
  await declare();
  project = await world.pool.oneFirst(
    sql.type(z.object({ id: z.string() }))`select id from projects where organization_id = ${id}`,
  );
  key = `apikey_${serial}`;
  await world.pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, hint, source)
    values (${key}, ${id}, ${project}, 'inference', 'one', 'sk-svc-x', 'created')
  `);
});
const limit = (table: "key" | "project", limits: Limits | null) =>
  world.pool.query(
    table === "key"
      ? sql.unsafe`update api_keys set limits = ${JSON.stringify(limits)}::jsonb where id = ${key}`
      : sql.unsafe`update projects set limits = ${JSON.stringify(limits)}::jsonb where id = ${project}`,
  );
const charge = async (cost: number, more: Partial<MeteredRequest> = {}) => {
  const row = usageRow(request(id, { keyId: key, projectId: project, ...more }), usage(cost));
  await world.pool.transaction((transaction) => chargeRows(transaction, [row]));
};
const messages = async () =>
  (
    await world.pool.any(
      sql.type(
        z.object({ scope: z.string(), threshold: z.number(), spent: z.bigint(), urls: z.array(z.string()) }),
      )`
        select scope, threshold, spent_micros as spent,
          array(select substr(url, 9, 1) from webhook_deliveries where message_id = message.id order by url) as urls
        from threshold_messages message where organization_id = ${id} order by crossed_at, scope, threshold
      `,
    )
  ).map(({ scope, threshold, spent, urls }) => `${scope} ${threshold}: ${spent} -> ${urls.join(",")}`);

test("each threshold of a key's limit is told once, to those who asked for it, by the charge that crossed it", async () => {
  await limit("key", credits(1_000));
  await charge(499);
  expect(await messages()).toEqual([]);
  await charge(1);
  await charge(1);
  expect(await messages()).toEqual(["key 50: 500 -> a"]);
  await charge(600);
  await charge(600);
  expect((await messages()).toSorted()).toEqual([
    "key 100: 1101 -> a",
    "key 50: 500 -> a",
    "key 80: 1101 -> b",
  ]);
});

test("a charge that is taken back tells nobody, and many at once tell each threshold once", async () => {
  await limit("key", credits(1_000));
  await limit("project", credits(2_000, "day"));
  const row = usageRow(request(id, { keyId: key, projectId: project }), usage(900));
  await expect(
    world.pool.transaction(async (transaction) => {
      await chargeRows(transaction, [row]);
      throw new Error("taken back");
    }),
  ).rejects.toThrow("taken back");
  expect(await messages()).toEqual([]);
  await Promise.all(Array.from({ length: 30 }, () => charge(50)));
  expect(new Set((await messages()).map((text) => text.split(":")[0]))).toEqual(
    new Set(["key 100", "key 50", "key 80", "project 50"]),
  );
  expect(await messages()).toHaveLength(4);
});

test("each window begins anew, and a late charge counts in the one it was accepted in", async () => {
  await limit("key", credits(100, "day"));
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  await charge(60, { acceptedAt: today });
  await charge(60, { acceptedAt: today - 1 });
  expect(await messages()).toEqual(["key 50: 60 -> a", "key 50: 60 -> a"]);
  await charge(20, { acceptedAt: today - 1 });
  expect((await messages())[2]).toBe("key 80: 80 -> b");
});

test("a window is told of once, however late a charge of it comes: not any more when what was told of it may be forgotten", async () => {
  await limit("key", credits(100, "day"));
  const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  // By a pod whose clock is a day ahead.
  const forget = () => forgetMessages(world.pool, Date.now() + DAY_MS);
  const twice = async (daysAgo: number) => {
    const told: string[] = [];
    for (const cost of [60, 1]) {
      await charge(cost, { acceptedAt: today - daysAgo * DAY_MS });
      told.push(...(await messages()));
      await forget();
    }
    return told;
  };
  for (const daysAgo of [80, 65, 64, 63, 62]) expect(await twice(daysAgo), `${daysAgo}`).toEqual([]);
  expect(await twice(61)).toEqual(["key 50: 60 -> a", "key 50: 60 -> a"]);
  expect(await messages(), "still the first one").toHaveLength(1);
});

test("limits of keys that name none hold here too, and without notifications nothing is noted", async () => {
  await declare({ keyDefaults: credits(100, "total") });
  await charge(55);
  expect(await messages()).toEqual(["key 50: 55 -> a"]);
  const entry = sampleOrganization(id, { grants: [], keyDefaults: credits(100, "total") });
  const sync = world.pod();
  await sync.copy(snapshotOfOrganizations((serial += 1), [entry]));
  await sync.stop();
  await charge(200);
  expect(await messages()).toHaveLength(1);
});

test("an organization's balance counts since its last grant; a correction is none", async () => {
  const give = (name: string, amount: bigint) =>
    world.pool.transaction((transaction) =>
      applyGrant(transaction, { organizationId: id, name, amount, source: "command" }),
    );
  await charge(500_000);
  expect(await messages()).toEqual(["organization 50: 500000 -> a"]);
  await give("correction", -100_000n);
  await charge(1);
  expect(await messages()).toHaveLength(1);
  // What is left is full again: 1,400,000 or so.
  await give("top-up", 1_000_000n);
  await charge(650_000);
  expect(await messages()).toHaveLength(1);
  await charge(50_000);
  expect(await messages()).toEqual(["organization 50: 500000 -> a", "organization 50: 700000 -> a"]);
});

test("windows are the same in the ledger as in the meter", async () => {
  const days = fc.sample(fc.integer({ min: 0, max: 60_000 }), { numRuns: 300, seed: 1 });
  const rows = await world.pool.any(
    sql.type(z.object({ per: z.string(), day: z.number(), from: z.number(), to: z.number().nullable() }))`
      select per, day, bounds.from_day as "from", bounds.to_day as "to"
      from ${sql.unnest(
        days.flatMap((day) => limitPeriods.map((per) => [per, day])),
        ["text", "int4"],
      )} as asked (per, day) cross join lateral limit_window(per, day) bounds
    `,
  );
  expect(rows).toHaveLength(1_200);
  for (const { per, day, from, to } of rows) {
    if (per === "total") expect([from, to]).toEqual([0, null]);
    else
      expect({ from, to }, `${per} of day ${day}`).toEqual(
        windowOf(per as "day" | "week" | "month", day * DAY_MS),
      );
  }
});
