/** One organization with very many keys that have limits: a thousand requests at once stay exact in each of them (rule 9.1). */
import { afterAll, beforeAll, expect, test } from "vitest";
import type { MeteredRequest } from "../../dataplane/billing/meter.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { LimitedScope } from "../../dataplane/billing/scopes.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { makeOrganization, Plane, request, usage } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

/** `MANY_KEYS=20000` for the figures in docs/performance.md. */
const KEYS = Number(process.env["MANY_KEYS"] ?? 2_000);
const AT_ONCE = 1_000;
const AMOUNT = 100;
const COST = 60;
const LIMIT_MS = KEYS > 2_000 ? 3_600_000 : 120_000;

let database: TestDatabase;
let redis: TestStore;
let planes: readonly [Plane, Plane, Plane];
beforeAll(async () => {
  [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const open = () => Plane.open(stores, {});
  planes = await Promise.all([open(), open(), open()]);
});
afterAll(async () => {
  await Promise.all(planes.map((plane) => plane.close()));
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

const organizationId = "org_many";
const keyId = (key: number) => `apikey_${String(key).padStart(24, "0")}`;
const scopesOf = (key: number): readonly LimitedScope[] => [
  { kind: "key", id: keyId(key), limits: { credits: { amountMicros: String(AMOUNT), per: "month" } } },
  {
    kind: "project",
    id: `proj_${key % 100}`,
    limits: { credits: { amountMicros: "9000000000", per: "month" } },
  },
];
const asked = (key: number): MeteredRequest =>
  request(organizationId, { keyId: keyId(key), projectId: `proj_${key % 100}`, limits: scopesOf(key) });

/** Tries that a store was too busy for, as a client repeats them. */
let busy = 0;
const MOST_BUSY = 1_000;

/** What became of a request: "served", or why it was not. */
async function ask(plane: Plane, key: number): Promise<string> {
  for (;;) {
    try {
      const bill = await plane.holds.open(asked(key), BigInt(COST));
      await bill.settle(usage(COST));
      return "served";
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === "unavailable" && busy < MOST_BUSY) busy += 1;
      // The ledger has yet to say what is spent, or others hold it.
      else if (error.code !== "rate_limited") return error.code ?? "";
    }
  }
}

async function memory(plane: Plane): Promise<number> {
  return Number(/used_memory:(\d+)/.exec(await plane.redis.info("memory"))?.[1]);
}

test(
  `${KEYS} keys with limits in one organization: a thousand requests at once over three planes stay exact`,
  async () => {
    const [first] = planes;
    await makeOrganization(first.pool, organizationId, 1_000_000_000n);
    const planeOf = (index: number) => planes[index % planes.length] ?? first;
    const empty = await memory(first);
    const began = performance.now();
    // Each key spends something, so that the ledger and Redis know all of them.
    for (let from = 0; from < KEYS; from += AT_ONCE) {
      const them = Array.from({ length: Math.min(AT_ONCE, KEYS - from) }, (_, index) => from + index);
      const outcomes = await Promise.all(them.map((key) => ask(planeOf(key), key)));
      expect(new Set(outcomes)).toEqual(new Set(["served"]));
    }
    const filledMs = performance.now() - began;
    await Promise.all(planes.map((plane) => plane.drained()));
    const full = await memory(first);
    // 40 are left of each: one more request runs, and ends the month above by less than its cost.
    const asking = performance.now();
    const outcomes = await Promise.all(
      Array.from({ length: AT_ONCE }, (_, index) => ask(planeOf(index), Math.floor(index / 3))),
    );
    const askedMs = performance.now() - asking;
    const hit = Math.ceil(AT_ONCE / 3);
    expect(outcomes.filter((outcome) => outcome === "served")).toHaveLength(hit);
    expect(outcomes.filter((outcome) => outcome === "key_limit_reached")).toHaveLength(AT_ONCE - hit);
    await Promise.all(planes.map((plane) => plane.drained()));
    const some = Array.from({ length: AT_ONCE }, (_, index) => index);
    const standings = await first.holds.standing.limits(
      organizationId,
      some.map((key) => scopesOf(key).slice(0, 1)),
    );
    expect(standings.map(([standing]) => Number(standing?.spent))).toEqual(
      some.map((key) => (key < hit ? 2 * COST : COST)),
    );
    const { used, held } = await first.holds.standing.credit(organizationId);
    expect({ used, held }).toEqual({ used: BigInt((KEYS + hit) * COST), held: 0n });
    const reconciling = performance.now();
    expect((await reconcileLedger(first.pool, first.redis)).broken).toEqual([]);
    process.stderr.write(
      `${KEYS} keys: ${Math.round((full - empty) / KEYS)} bytes of Redis a key, filled in ${Math.round(filledMs)} ms, ` +
        `${AT_ONCE} at once in ${Math.round(askedMs)} ms, audited in ${Math.round(performance.now() - reconciling)} ms, ${busy} answers of 503\n`,
    );
  },
  LIMIT_MS,
);
