import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";
import { Plane, makeOrganization, observed, request, usage } from "./money-world.ts";

let database: TestDatabase;
let redis: TestStore;
let plane: Plane;
beforeAll(async () => {
  database = await freshDatabase();
  redis = await freshRedis();
  plane = await Plane.open({ redisUrl: redis.url, postgresUrl: database.url });
});
afterAll(async () => {
  await plane.close();
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

const code = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  return error instanceof ApiError ? error.code : String(error);
};

test("a request is held, charged once and shown in the ledger", async () => {
  await makeOrganization(plane.pool, "org_one", 1_000n);
  const bill = await plane.holds.open(request("org_one"), 300n);
  expect(await plane.holds.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 0n,
    held: 300n,
    available: 700n,
  });
  await bill.settle(usage(120));
  await bill.settle(usage(999));
  expect(await plane.holds.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 120n,
    held: 0n,
    available: 880n,
  });
  await expect
    .poll(() =>
      plane.pool.oneFirst(
        sql.type(z.object({ balance: z.bigint() }))`
          select balance_micros as balance from accounts where organization_id = 'org_one'
        `,
      ),
    )
    .toBe(880n);
  expect(await plane.holds.credit("org_one")).toEqual({
    granted: 1_000n,
    used: 120n,
    held: 0n,
    available: 880n,
  });
});

test("rule 1.8: the first iteration holds what there is, a second request waits and is told that credit is reserved", async () => {
  await makeOrganization(plane.pool, "org_small", 100n);
  const bill = await plane.holds.open(request("org_small"), 5_000n);
  const waited = performance.now();
  expect(await code(plane.holds.open(request("org_small"), 1n))).toBe("rate_limited");
  expect(performance.now() - waited).toBeGreaterThan(1_800);
  expect(await bill.advance(observed(40), 61n)).toBe(false);
  expect(await bill.advance(observed(40), 60n)).toBe(true);
  await bill.settle(usage(100));
  expect(await code(plane.holds.open(request("org_small"), 1n))).toBe("insufficient_credit");
});

test("a waiting request runs as soon as another one ends", async () => {
  await makeOrganization(plane.pool, "org_line", 100n);
  const bill = await plane.holds.open(request("org_line"), 100n);
  const second = plane.holds.open(request("org_line"), 10n);
  await bill.release();
  const held = await second;
  await held.settle(usage(1));
});

test("a grant makes an empty organization serve within a second", async () => {
  await makeOrganization(plane.pool, "org_poor", 0n);
  expect(await code(plane.holds.open(request("org_poor"), 1n))).toBe("insufficient_credit");
});
