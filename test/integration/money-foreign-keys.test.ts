/** What somebody else did to Redis, or a full memory, must not keep the charges and holds of others (rule 1.9). */
import { afterEach, beforeAll, expect, test } from "vitest";
import { reconcileLedger } from "../../dataplane/billing/reconcile/reconcile-ledger.ts";
import { encodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { SHARDS, operation, shardOf } from "../../dataplane/billing/holds/shard.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { makeOrganization, request, usage, type Plane } from "./money-world.ts";
import { openStillPlane } from "./still-plane.ts";

let plane: Plane;
beforeAll(async () => {
  const opened = await openStillPlane();
  plane = opened.plane;
  return opened.close;
});
afterEach(async () => {
  await plane.redis.flushall();
});

const names = Array.from({ length: 500 }, (_, index) => `org_foreign_${index}`);
/** Organizations of a shard that no test has had yet. */
async function organizationsOf(index: number, count: number): Promise<string[]> {
  const found = names.filter((name) => shardOf(name) === index).slice(0, count);
  for (const name of found) {
    names.splice(names.indexOf(name), 1);
    await makeOrganization(plane.pool, name, 1_000_000n);
    await plane.holds.refresh([name]);
  }
  return found;
}
const keyOf = (organization: string) => `${plane.shardFor(organization).tag}:o:${organization}`;
const settled = async (organization: string, id = "") => {
  const asked = request(organization, id === "" ? {} : { id });
  const row = encodeRow(usageRow(asked, usage(7)));
  await plane
    .shardFor(organization)
    .run(operation("settle", organization, asked.id, "7", row, "0", "0", "0", "", "1"), 1_000);
};
const used = async (organization: string) => (await plane.holds.standing.credit(organization)).used;

test("a drainer passes over an organization whose key is none of ours", async () => {
  const [bad = "", good = ""] = await organizationsOf(0, 2);
  const [last = ""] = await organizationsOf(SHARDS - 1, 1);
  for (const organization of [bad, good, last]) await settled(organization);
  await plane.redis.set(keyOf(bad), "none of ours");
  expect(await plane.upkeep.drain()).toBe(3);
  expect(await Promise.all([good, last].map(used))).toEqual([7n, 7n]);
  await plane.redis.del(keyOf(bad));
  await plane.holds.refresh([bad]);
  expect(await used(bad)).toBe(7n);
});

test("a sweep passes over a hold of an organization whose key is none of ours", async () => {
  const [bad = "", good = ""] = await organizationsOf(3, 2);
  for (const organization of [bad, good]) {
    await plane.holds.open(request(organization), 7n);
    await new Promise((done) => setTimeout(done, 5));
  }
  await plane.redis.set(keyOf(bad), "none of ours");
  await plane.upkeep.sweep();
  expect(await plane.redis.hget(keyOf(good), "held")).toBe("0");
});

test("a sweep is not held up by holds that are none of ours", async () => {
  const [organization = ""] = await organizationsOf(7, 1);
  const { tag } = plane.shardFor(organization);
  const foreign = Array.from({ length: 250 }, (_, index) => `req_foreign_${index}`);
  await plane.redis.mset(foreign.flatMap((id) => [`${tag}:r:${id}`, "none\0of ours\0"]));
  await plane.redis.zadd(`${tag}:beats`, ...foreign.flatMap((id) => [1, id]));
  await plane.holds.open(request(organization), 7n);
  await plane.upkeep.sweep();
  expect(await plane.redis.hget(keyOf(organization), "held")).toBe("0");
  expect(await plane.redis.exists(`${tag}:beats`)).toBe(0);
});

test("a stream that is none of ours keeps back the charges of its shard alone, until it is taken away", async () => {
  const [first = ""] = await organizationsOf(0, 1);
  const [last = ""] = await organizationsOf(SHARDS - 1, 1);
  const { tag } = plane.shardFor(first);
  await plane.redis.set(`${tag}:usage`, "none of ours");
  await expect(settled(first, "req_refused")).rejects.toThrow(/Redis did not answer/);
  await settled(last);
  await expect(plane.upkeep.drain()).rejects.toThrow(/WRONGTYPE/);
  expect(await used(last)).toBe(7n);
  await plane.redis.del(`${tag}:usage`);
  await settled(first, "req_refused");
  expect(await plane.redis.get(`${tag}:waiting`)).toBe("1");
  expect(await plane.upkeep.drain()).toBe(1);
  expect((await reconcileLedger(plane.pool, plane.redis)).broken).toEqual([]);
});

test.each(["beats", "charged"])(
  "%s that are none of ours leave no charge in the stream that is in no books",
  async (key) => {
    const [organization = ""] = await organizationsOf(5, 1);
    const { tag } = plane.shardFor(organization);
    const bill = await plane.holds.open(request(organization), 100n);
    await plane.redis.set(`${tag}:${key}`, "none of ours");
    await bill.settle(usage(30));
    await plane.redis.del(`${tag}:${key}`);
    await plane.holds.payOwed();
    await plane.upkeep.drain();
    expect(await plane.redis.hget(keyOf(organization), "undrained")).toBe("0");
    expect(await used(organization)).toBe(30n);
  },
);

test("requests are admitted again when somebody took a stream away that was full", async () => {
  const [organization = ""] = await organizationsOf(5, 1);
  const { tag } = plane.shardFor(organization);
  await settled(organization);
  await plane.redis.incrby(`${tag}:waiting`, 1_000_000);
  await expect(plane.holds.open(request(organization), 1n)).rejects.toMatchObject({ code: "unavailable" });
  await plane.redis.del(`${tag}:usage`);
  await (await plane.holds.open(request(organization), 1n)).settle(usage(1));
  await plane.upkeep.drain();
  expect(await plane.redis.exists(`${tag}:waiting`)).toBe(0);
});

test("a full memory lets charges reach the ledger and holds go, which makes room", async () => {
  const [organization = ""] = await organizationsOf(7, 1);
  const bill = await plane.holds.open(request(organization), 5n);
  const ids = Array.from({ length: 2_400 }, (_, index) => `req_full_${index}`);
  await Promise.all(ids.map((id) => settled(organization, id)));
  const bytes = Number(/used_memory:(\d+)/.exec(await plane.redis.info("memory"))?.[1]);
  await plane.redis.config("SET", "maxmemory", String(Math.floor(bytes / 2)));
  try {
    await expect(plane.holds.open(request(organization), 1n)).rejects.toMatchObject({ code: "unavailable" });
    expect(await plane.upkeep.drain()).toBe(2_400);
    await bill.release();
    expect(await plane.redis.hget(keyOf(organization), "held")).toBe("0");
  } finally {
    await plane.redis.config("SET", "maxmemory", "0");
  }
  expect(await used(organization)).toBe(2_400n * 7n);
});
