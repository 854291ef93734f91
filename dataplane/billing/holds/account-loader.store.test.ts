/** What requests wait for when Redis has forgotten their organization and Postgres does not answer. */
import { afterEach, beforeEach, expect, test } from "vitest";
import { TcpProxy } from "../../../test/fakes/tcp-proxy.ts";
import { makeOrganization, Plane, request } from "../../../test/integration/money-world.ts";
import { freshDatabase, freshRedis } from "../../../test/integration/stores.ts";
import type { LimitedScope } from "../scopes.ts";

/** Two seconds, and as much again for a busy machine; the driver gives up after fifteen. */
const SOON_MS = 7_000;

let world: AsyncDisposableStack;
let proxy: TcpProxy;
let plane: Plane;
beforeEach(async () => {
  world = new AsyncDisposableStack();
  const [database, redis] = await Promise.all([freshDatabase(), freshRedis()]);
  world.defer(() => database.drop());
  world.use(redis);
  proxy = await TcpProxy.open(database.url);
  world.defer(() => proxy.close());
  plane = await Plane.open({ redisUrl: redis.url, postgresUrl: proxy.url }, { running: false });
  world.defer(() => plane.vanish());
  await makeOrganization(plane.pool, "org", 1_000n);
});
afterEach(() => world.disposeAsync());

const scope: LimitedScope = {
  kind: "key",
  id: "apikey_test",
  limits: { credits: { amountMicros: "1000", per: "month" } },
};

test.each<[string, LimitedScope[]]>([
  ["the account of an organization", []],
  ["the spend of a key", [scope]],
])("%s is not waited for when Postgres is frozen", async (_, limits) => {
  if (limits.length > 0) await (await plane.holds.open(request("org"), 100n)).release();
  proxy.hole();
  const begun = performance.now();
  await expect(plane.holds.open(request("org", { limits }), 100n)).rejects.toMatchObject({
    code: "unavailable",
  });
  expect(performance.now() - begun).toBeLessThan(SOON_MS);
  // As soon as it answers, requests go on.
  proxy.reconnect();
  await (await plane.holds.open(request("org", { limits }), 100n)).release();
});
