/** A thousand requests at once on a key of ten credits, over three data planes: how far above it ends (rules 9.1, 9.7). */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { FinalUsage } from "../../dataplane/billing/meter.ts";
import { costMicros, estimateMicros } from "../../dataplane/billing/prices/price.ts";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import type { LimitedScope } from "../../dataplane/billing/scopes.ts";
import { TypicalOutput } from "../../dataplane/inference/typical-output.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { sampleOrganization, sampleRoute } from "../fakes/sample-snapshot.ts";
import { makeOrganization, Plane, plainPrices, request, usage } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

const AMOUNT = 10_000_000;
const INPUT = 100;
const MOST_OUTPUT = 4_096;
const route = sampleRoute("model");
let database: TestDatabase;
let redis: TestStore;
beforeAll(async () => {
  [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
});
afterAll(async () => {
  await redis[Symbol.asyncDispose]();
  await database.drop();
});

/** Numbers from 0 to 1, the same in each run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

/** Answers of 200 to 4,096 tokens, a thousand on average: most are short, and some are long. */
const answer = (random: () => number): FinalUsage => {
  const output = Math.min(MOST_OUTPUT, Math.round(200 - 850 * Math.log(1 - random())));
  return usage(0, { tokens: { ...usage(INPUT).tokens, output } });
};
const costOf = ({ tokens, tools }: FinalUsage) => Number(costMicros(plainPrices, tokens, tools).total);
const MOST = costOf(usage(0, { tokens: { ...usage(INPUT).tokens, output: MOST_OUTPUT } }));

/** What the key spent, and how many requests were served. */
async function play(name: string, hold: "worst" | "typical", kill: boolean) {
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const rhythm = { heartbeatMs: 100, staleMs: 1_000, sweepMs: 200 };
  const planes = await Promise.all([0, 1, 2].map(() => Plane.open(stores, { rhythm })));
  const [survivor, , victim] = planes;
  if (survivor === undefined || victim === undefined) throw new Error("three planes");
  const organizationId = `org_${name}`;
  await makeOrganization(survivor.pool, organizationId, 1_000_000_000n);
  const entry = sampleOrganization(organizationId, hold === "typical" ? { hold } : {});
  const limits: LimitedScope[] = [
    {
      kind: "key",
      id: `apikey_${name}`,
      limits: { credits: { amountMicros: String(AMOUNT), per: "month" } },
    },
  ];
  const random = seeded(7);
  const outputs = new Map(planes.map((plane) => [plane, new TypicalOutput()]));
  for (const known of outputs.values())
    for (let index = 0; index < 100; index += 1) known.learn(route, answer(random), 1);
  let served = 0;
  const killed: Promise<void>[] = [];
  const ask = async (plane: Plane) => {
    for (;;) {
      if (plane === victim && killed.length > 0) return;
      const known = outputs.get(plane);
      const maxOutputTokens = known?.held(entry, route, MOST_OUTPUT) ?? 0;
      const estimate = estimateMicros(plainPrices, { inputTokens: INPUT, maxOutputTokens, n: 1 });
      try {
        const asked = request(organizationId, { keyId: `apikey_${name}`, limits });
        const bill = await plane.holds.open(asked, estimate);
        const used = answer(random);
        bill.observe({ ...used, tokens: { ...used.tokens, output: 100 } });
        await sleep(20 + 200 * random());
        if (plane === victim && killed.length > 0) return;
        await bill.settle(used);
        known?.learn(route, used, 1);
        served += 1;
        if (kill && served === 200) killed.push(victim.vanish());
        return;
      } catch (error) {
        if (plane === victim && killed.length > 0) return;
        if (!(error instanceof ApiError)) throw error;
        // What others hold may come back.
        if (error.code === "rate_limited") continue;
        expect(error.code).toBe("key_limit_reached");
        return;
      }
    }
  };
  // More than ten credits' worth, so that the limit is what ends it.
  const work = Array.from({ length: 1_000 }, async (_, index) => {
    const plane = planes[index % planes.length];
    if (plane === undefined) return;
    await ask(plane);
    if (plane !== victim || killed.length === 0) await ask(plane);
  });
  await Promise.all(work);
  await Promise.all(killed);
  const standing = async () => (await survivor.holds.standing.limits(organizationId, [limits]))[0]?.[0];
  await expect.poll(async () => (await standing())?.held, { timeout: 20_000 }).toBe(0n);
  const spent = Number((await standing())?.spent);
  await Promise.all(
    planes.filter((plane) => plane !== victim || killed.length === 0).map((plane) => plane.drained()),
  );
  const { broken } = await reconcileLedger(survivor.pool, survivor.redis);
  await Promise.all(
    planes.filter((plane) => plane !== victim || killed.length === 0).map((plane) => plane.close()),
  );
  return { spent, served, broken };
}

test.each([
  { hold: "worst", kill: false, above: MOST },
  { hold: "worst", kill: true, above: MOST },
  { hold: "typical", kill: false, above: 0.025 * AMOUNT },
  { hold: "typical", kill: true, above: 0.025 * AMOUNT },
] as const)(
  "$hold, one killed: $kill: all of it is spent, and at most $above beyond",
  async ({ hold, kill, above }) => {
    const { spent, served, broken } = await play(`${hold}_${kill}`, hold, kill);
    expect(broken).toEqual([]);
    expect(served).toBeGreaterThan(500);
    expect(spent - AMOUNT).toBeLessThanOrEqual(above);
    // Nobody is refused while there is room.
    expect(spent).toBeGreaterThanOrEqual(AMOUNT);
    process.stderr.write(
      `overspend, ${hold}, killed ${kill}: ${spent - AMOUNT} of ${AMOUNT}, ${served} served\n`,
    );
  },
  120_000,
);
