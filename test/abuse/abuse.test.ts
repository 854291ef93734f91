/** The law of rules.md §7 in a short form: the worst attacks of the corpus, a second each. In full: `npm run abuse`. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freshDatabase, freshRedis } from "../integration/stores.ts";
import { attacks } from "./attacks.ts";
import { judge, observe, type Figures } from "./judge.ts";
import { AbuseWorld, MEMORY_LIMIT_MB } from "./world.ts";

const ATTACK_MS = 1_000;
/**
 * Far above what is measured on an idle machine, as other tests share its cores; without limits these attacks took the
 * process to five gigabytes, and held everybody for up to nine seconds.
 */
const FLOOR_MS = 1_500;

let world: AbuseWorld;
let before: Figures;
const closing: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  const [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  closing.push(
    () => redis.stop(),
    () => database.drop(),
  );
  world = await AbuseWorld.open({ postgresUrl: database.url, redisUrl: redis.url });
  closing.unshift(() => world[Symbol.asyncDispose]());
  await observe(world, 1_000);
  before = await observe(world, 2_000);
});
afterAll(async () => {
  for (const close of closing) await close();
});

describe("whatever one key sends, its neighbour is served and the memory stays bounded", () => {
  test("the neighbour is served at all", () => {
    expect(before.faults).toEqual({});
    expect(before.answers).toBeGreaterThan(10);
  });

  for (const attack of attacks.filter(({ short }) => short)) {
    test(attack.name, { timeout: 180_000 }, async () => {
      const bounds = { ms: ATTACK_MS, before, floorMs: FLOOR_MS, residentMb: MEMORY_LIMIT_MB };
      expect((await judge(world, attack, bounds)).breaches).toEqual([]);
    });
  }
});
