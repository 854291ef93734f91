/** Finding keys: what is remembered, asked for together, and goes on without Postgres. Copying snapshots: copy-snapshot.store.test.ts. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { TcpProxy } from "../../test/fakes/tcp-proxy.ts";
import {
  declaredInferenceKey,
  declaredKey,
  declaredOrganization,
  digest,
  DirectoryWorld,
} from "../../test/integration/directory-world.ts";
import type { OrganizationEntry } from "../config/schema.ts";
import { systemClock } from "../lib/clock.ts";
import { openPostgres } from "../store/postgres.ts";
import { KeyDirectory } from "./directory.ts";

let world: DirectoryWorld;
let pool: DatabasePool;
let directory: KeyDirectory;
beforeAll(async () => {
  world = await DirectoryWorld.open();
  ({ pool, directory } = world);
});
afterAll(() => world[Symbol.asyncDispose]());

const find = (secret: string) => world.find(secret);

test("requests that came before one of their organization's keys ended look theirs up once together, and so do their ends", async () => {
  const secrets = ["one", "two", "three"];
  await world.copy([
    declaredOrganization("org_k", { apiKeys: secrets.map((name) => declaredInferenceKey(`k-${name}`)) }),
  ]);
  const keys = await Promise.all(secrets.map(async (name) => find(`k-${name}`)));
  await world.copy([
    declaredOrganization("org_k", {
      apiKeys: secrets.slice(1).map((name) => declaredInferenceKey(`k-${name}`)),
    }),
  ]);
  let statements = 0;
  const counted = new Proxy(pool, {
    get: (target, name: keyof DatabasePool) => {
      if (name === "any" || name === "maybeOne") statements += 1;
      return target[name];
    },
  });
  const asking = new KeyDirectory({ pool: counted, clock: systemClock });
  const ids = keys.map((found) => found?.keyId ?? "");
  const again = await Promise.all(
    Array.from({ length: 60 }, (_, index) => asking.recheck(ids[index % 3] ?? "")),
  );
  expect(statements).toBe(1);
  const keyEpoch = Number(keys[0]?.keyEpoch) + 1;
  expect(again[0]).toBe(null);
  for (const at of [1, 2, 58])
    expect(again[at]).toMatchObject({ keyId: ids[at % 3], projectId: keys[at % 3]?.projectId, keyEpoch });
  const ends = ids.flatMap((id) =>
    ["elsewhere", keys[0]?.projectId ?? ""].map((project) => [id, project] as const),
  );
  const limits = await Promise.all(
    Array.from({ length: 10 }, () => ends)
      .flat()
      .map((end) => asking.limitsOf(...end)),
  );
  expect(statements).toBe(2);
  expect(new Set(limits.map((one) => one.keyEpoch))).toEqual(new Set([keyEpoch]));
});

test("rule 5.7: the last use of a key is written", async () => {
  await world.copy([declaredOrganization("org_i", { apiKeys: [declaredInferenceKey("used")] })]);
  const principal = await find("used");
  await directory.writeUsed();
  const at = await pool.oneFirst(sql.type(z.object({ at: z.number() }))`
    select last_used_at as at from api_keys where id = ${principal?.keyId ?? ""}
  `);
  expect(Math.abs(Date.now() - at)).toBeLessThan(5_000);
});

test("pods that write the last uses of the same keys in another order never wait for each other in a circle", async () => {
  const secrets = Array.from({ length: 1_000 }, (_, n) => `circle-${n}`);
  await world.copy([
    declaredOrganization("org_w", { apiKeys: secrets.map((name) => declaredInferenceKey(name)) }),
  ]);
  const orders = [secrets, secrets.toReversed()];
  const pods = orders.map(() => new KeyDirectory({ pool, clock: systemClock }));
  for (const [index, pod] of pods.entries())
    await Promise.all(orders[index]?.map((secret) => pod.findQueued(digest(secret), "192.0.2.1")) ?? []);
  const deadlocks = async () =>
    Number(
      await pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
        select deadlocks as count from pg_stat_database where datname = current_database()
      `),
    );
  const before = await deadlocks();
  for (let times = 0; times < 10; times += 1) {
    for (const [index, pod] of pods.entries())
      for (const secret of orders[index] ?? []) await pod.find(digest(secret), 60_000);
    await Promise.all(pods.map((pod) => pod.writeUsed()));
  }
  // What a session counted is told within a second of its last statement, or at its end.
  await new Promise((done) => setTimeout(done, 1_500));
  expect(await deadlocks()).toBe(before);
});

test("rule 7.7: keys in line are found in few queries, and only valid ones are known afterwards", async () => {
  await world.copy([declaredOrganization("lined", { apiKeys: [declaredInferenceKey("in-line")] })]);
  const pod = new KeyDirectory({ pool, clock: { now: () => Date.now() } });
  const unknown = Array.from({ length: 1_000 }, (_, n) => pod.findQueued(digest(`guess ${n}`), "192.0.2.1"));
  const valid = await pod.findQueued(digest("in-line"), "192.0.2.1");
  expect(valid).toEqual(await find("in-line"));
  expect(new Set(await Promise.all(unknown))).toEqual(new Set([null]));
  expect(pod.knows(digest("in-line"))).toBe(true);
  expect(pod.find(digest("in-line"), 10_000)).toEqual(valid);
  expect(pod.knows(digest("guess 1"))).toBe(false);
});

test("while Postgres is away a key that was valid stays valid", async () => {
  const own = await world.openPool();
  const cut = new KeyDirectory({ pool: own, clock: { now: () => Date.now() } });
  await world.copy([declaredOrganization("org_l", { apiKeys: [declaredInferenceKey("l")] })]);
  expect(await cut.find(digest("l"), 0)).not.toBe(null);
  await own.end();
  expect(await cut.find(digest("l"), 0)).not.toBe(null);
  await expect(cut.find(digest("never seen"), 0)).rejects.toMatchObject({ code: "unavailable" });
});

test("design.md §4.1: a pod that hears of a snapshot remembers nothing of a secret that it changed, whoever copied it", async () => {
  const pods = [directory, new KeyDirectory({ pool, clock: { now: () => Date.now() } })].map((own) => ({
    sync: world.pod({ directory: own }),
    find: (secret: string) => own.find(digest(secret), 30_000),
  }));
  const from = declaredOrganization("org_u1", {
    apiKeys: [
      declaredInferenceKey("ci", "goes"),
      declaredInferenceKey("old", "rotated"),
      declaredInferenceKey("same", "stays"),
    ],
    adminKeys: [declaredKey("root", "admin goes")],
  });
  const to = declaredOrganization("org_u2", {
    projects: ["default", "red"],
    apiKeys: [declaredInferenceKey("p", "project")],
  });
  const hear = async (...entries: OrganizationEntry[]) => {
    const snapshot = world.snapshotOf(entries);
    for (const { sync } of pods) await sync.copy(snapshot);
  };
  await hear(from, to);
  const secrets = ["goes", "rotated", "stays", "admin goes", "project"];
  for (const { find } of pods) for (const secret of secrets) expect(await find(secret)).not.toBe(null);
  const remembered = pods.map(({ find }) => find("stays"));
  await hear(
    {
      ...from,
      apiKeys: [declaredInferenceKey("old", "new"), declaredInferenceKey("same", "stays")],
      adminKeys: [],
    },
    {
      ...to,
      apiKeys: [declaredInferenceKey("p", "project", "red"), declaredInferenceKey("ci", "goes")],
      adminKeys: [declaredKey("root", "admin goes")],
    },
  );
  for (const [index, { find, sync }] of pods.entries()) {
    expect(await find("goes")).toMatchObject({ organizationId: "org_u2", keyName: "ci" });
    expect(await find("admin goes")).toMatchObject({ organizationId: "org_u2" });
    expect(await find("rotated")).toBe(null);
    expect((await find("project"))?.projectId).toBe((await directory.find(digest("project"), 0))?.projectId);
    // Nobody else is looked up again for it.
    expect(find("stays")).toBe(remembered[index]);
    await sync.stop();
  }
});

test("an organization that stops serving stops in each pod that hears of it with all its keys, the admin's and made ones too", async () => {
  const entry = declaredOrganization("org_s", {
    apiKeys: [declaredInferenceKey("s declared")],
    adminKeys: [declaredKey("root", "s admin")],
  });
  const other = declaredOrganization("org_t", { apiKeys: [declaredInferenceKey("t calm")] });
  const pods = [directory, new KeyDirectory({ pool, clock: systemClock })].map((own) => ({
    sync: world.pod({ directory: own }),
    find: (secret: string) => own.find(digest(secret), 30_000),
  }));
  const hear = async (...entries: OrganizationEntry[]) => {
    const snapshot = world.snapshotOf(entries);
    for (const { sync } of pods) await sync.copy(snapshot);
  };
  const secrets = ["s declared", "s admin", "s made"];
  const served = async ({ find }: (typeof pods)[number]) => {
    const found = await Promise.all(secrets.map(async (secret) => find(secret)));
    return found.map((principal) => principal !== null);
  };
  await hear(entry, other);
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, status)
    select 'apikey_made', organization_id, project_id, kind, 'made', ${digest("s made")}, 'sk', 'created', 'active'
    from api_keys where sha256 = ${digest("s declared")}
  `);
  for (const [how, stopped] of [
    ["suspended", [{ ...entry, suspended: true }, other]],
    ["deleted", [other]],
  ] as const) {
    for (const pod of pods) expect(await served(pod), how).toEqual([true, true, true]);
    const calm = await Promise.all(pods.map(async ({ find }) => find("t calm")));
    await hear(...stopped);
    for (const pod of pods) expect(await served(pod), how).toEqual([false, false, false]);
    // Nobody else is looked up again for it.
    for (const [index, { find }] of pods.entries()) expect(find("t calm")).toBe(calm[index]);
    await hear(entry, other);
  }
  for (const { sync } of pods) await sync.stop();
});

test("an organization stops with all its keys also in a pod that started beside one that Postgres refuses", async () => {
  const entry = declaredOrganization("org_u", { apiKeys: [declaredInferenceKey("u declared")] });
  const bad = declaredOrganization("org_u_bad", { displayName: "a\0b" });
  const own = new KeyDirectory({ pool, clock: systemClock });
  const sync = world.pod({ directory: own });
  await sync.copy(world.snapshotOf([entry, bad]));
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, status)
    select 'apikey_u', organization_id, project_id, kind, 'made', ${digest("u made")}, 'sk', 'created', 'active'
    from api_keys where sha256 = ${digest("u declared")}
  `);
  expect(await own.find(digest("u made"), 30_000)).toMatchObject({ organizationId: "org_u" });
  await sync.copy(world.snapshotOf([{ ...entry, suspended: true }, bad]));
  expect(await own.find(digest("u made"), 30_000)).toBe(null);
  await sync.stop();
});

test("a Postgres that is frozen holds one request that bills, and no further one whose key is remembered", async () => {
  await world.copy([declaredOrganization("org_f", { apiKeys: [declaredInferenceKey("calm")] })]);
  await using network = new AsyncDisposableStack();
  const proxy = await TcpProxy.open(world.databaseUrl);
  network.defer(() => proxy.close());
  const behind = await openPostgres(proxy.url, { onError: () => {} });
  network.defer(() => behind.end());
  let now = 0;
  const own = new KeyDirectory({ pool: behind, clock: systemClock, ages: { now: () => now } });
  const ask = () => own.find(digest("calm"), 30_000);
  const before = await ask();
  proxy.hole();
  now += 31_000;
  expect(await ask()).toBe(before);
  for (let more = 0; more < 5; more += 1) expect(ask()).toBe(before);
  // Who needs to know it as it is now waits, and too old is too old.
  const fresh = own.find(digest("calm"), 900);
  expect(fresh).toBeInstanceOf(Promise);
  await fresh;
  now += 5 * 60_000;
  await expect(ask()).rejects.toMatchObject({ code: "unavailable" });
  proxy.reconnect();
  await expect.poll(() => Promise.resolve(ask()).catch(() => null)).toEqual(before);
  // It is asked anew, as it answers again.
  now += 31_000;
  const anew = ask();
  expect(anew).toBeInstanceOf(Promise);
  await anew;
});
