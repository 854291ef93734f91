/** What becomes of Organizations in Postgres when pods copy snapshots: keys, projects, grants, and what they are told. */
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { sampleOrganization } from "../../test/fakes/sample-snapshot.ts";
import {
  declaredInferenceKey,
  declaredKey,
  declaredOrganization,
  digest,
  DirectoryWorld,
} from "../../test/integration/directory-world.ts";
import { grant } from "../billing/ledger/grant-command.ts";
import type { OrganizationEntry } from "../config/schema.ts";
import type { DirectorySyncOptions } from "./directory-sync.ts";
import type { KeyDirectory } from "./directory.ts";

let world: DirectoryWorld;
let pool: DatabasePool;
let directory: KeyDirectory;
let refreshed: string[] = [];
let logged: { level: number; time: number; organizationId?: string }[] = [];
beforeAll(async () => {
  world = await DirectoryWorld.open();
  ({ pool, directory } = world);
});
afterAll(() => world[Symbol.asyncDispose]());

/** What one pod has. */
const syncOf = (more: Partial<DirectorySyncOptions> = {}) =>
  world.pod({
    log: pino({ level: "error" }, { write: (line: string) => void logged.push(JSON.parse(line)) }),
    holds: {
      refresh: async (ids) => {
        refreshed = [...ids];
      },
    },
    ...more,
  });

/** What one pod does with a snapshot. */
async function copy(organizations: OrganizationEntry[], serial?: number) {
  logged = [];
  return await world.copy(organizations, { serial, pod: syncOf() });
}

const find = (secret: string) => world.find(secret);
const balance = (id: string) =>
  pool.maybeOneFirst(sql.type(z.object({ balance: z.bigint() }))`
    select balance_micros as balance from accounts where organization_id = ${id}
  `);

test("a declared key is found with its project, an admin key without one, an unknown key not at all", async () => {
  await copy([
    declaredOrganization("org_a", {
      apiKeys: [declaredInferenceKey("ci")],
      adminKeys: [declaredKey("root")],
    }),
  ]);
  expect(refreshed).toEqual(["org_a"]);
  const ci = await find("ci");
  expect(ci).toMatchObject({ kind: "inference", keyName: "ci", organizationId: "org_a", keyEpoch: 1 });
  expect(ci?.projectId).toMatch(/^proj_/);
  expect(await find("root")).toMatchObject({ kind: "admin", projectId: null });
  expect(await find("nobody")).toBe(null);
});

test("rule 5.3: a key that is removed stops, moves the key epoch, and works again under its id when declared again", async () => {
  const before = await find("ci");
  await copy([declaredOrganization("org_a", { adminKeys: [declaredKey("root")] })]);
  expect(await find("ci")).toBe(null);
  expect(await directory.recheck(before?.keyId ?? "")).toBe(null);
  expect(await find("root")).toMatchObject({ keyEpoch: 2 });
  await copy([
    declaredOrganization("org_a", {
      apiKeys: [declaredInferenceKey("ci")],
      adminKeys: [declaredKey("root")],
    }),
  ]);
  expect(await find("ci")).toMatchObject({ keyId: before?.keyId, keyEpoch: 2 });
  expect(await directory.recheck(before?.keyId ?? "")).toMatchObject({ keyEpoch: 2 });
});

test("rule 9.3: an expired key is refused, told in the Organization, and valid again under a later end", async () => {
  // Late enough for a busy machine to copy it and find it valid.
  const ends = Date.now() + 3_000;
  const declared = (expiresAt?: number) =>
    declaredOrganization("org_e", {
      apiKeys: [{ ...declaredInferenceKey("brief"), ...(expiresAt === undefined ? {} : { expiresAt }) }],
    });
  expect((await copy([declared(ends)]))[0]?.notes).toEqual([]);
  const before = await directory.find(digest("brief"), 60_000);
  expect(before).toMatchObject({ expiresAt: ends });
  // From what is remembered, and from Postgres.
  await expect.poll(() => directory.find(digest("brief"), 60_000)).toBe(null);
  expect(await find("brief")).toBe(null);
  expect(await directory.recheck(before?.keyId ?? "")).toBe(null);
  expect((await copy([declared(ends)]))[0]?.notes).toEqual([
    { path: "spec.apiKeys[0].expiresAt", reason: "KeyExpired" },
  ]);
  await copy([declared(Date.now() + 60_000)]);
  expect(await find("brief")).toMatchObject({ keyId: before?.keyId });
  await copy([declared()]);
  expect(await find("brief")).toMatchObject({ keyId: before?.keyId, expiresAt: null });
});

test("rule 9.8: receivers that get nothing, because of where their name leads, are told in the status", async () => {
  const told = (url: string) => ({
    url,
    credential: null,
    thresholds: [50],
    allowCidrs: [],
    allowPorts: [],
  });
  const entry = sampleOrganization("org_told", {
    notifications: [told("https://fine.example/hook"), told("https://inside.example/hook")],
  });
  const message = await pool.oneFirst(sql.type(z.object({ id: z.string() }))`
    insert into threshold_messages (
      organization_id, scope, scope_id, from_day, threshold, amount_micros, spent_micros
    )
    values ('org_told', 'organization', 'org_told', 1, 50, 100, 50)
    returning id
  `);
  await pool.query(sql.unsafe`
    insert into webhook_deliveries (message_id, organization_id, url, failure)
    values (${message}, 'org_told', 'https://inside.example/hook', 'refused'),
      (${message}, 'org_told', 'https://fine.example/hook', 'failed')
  `);
  const snapshot = world.snapshotOf([entry]);
  const sync = world.pod();
  await sync.copy(snapshot);
  await sync.stop();
  expect(sync.acknowledged([entry.source])[0]?.notes).toEqual([
    { path: "spec.notifications[1].url", reason: "DestinationRefused" },
  ]);
});

test("a new secret under the same name is the same key, and secrets may change places", async () => {
  await copy([
    declaredOrganization("org_b", {
      apiKeys: [declaredInferenceKey("one", "s1"), declaredInferenceKey("two", "s2")],
    }),
  ]);
  const one = await find("s1");
  const two = await find("s2");
  await copy([
    declaredOrganization("org_b", {
      apiKeys: [declaredInferenceKey("one", "s2"), declaredInferenceKey("two", "s3")],
    }),
  ]);
  expect(await find("s1")).toBe(null);
  expect((await find("s2"))?.keyId).toBe(one?.keyId);
  expect((await find("s3"))?.keyId).toBe(two?.keyId);
});

test("a pod with an older snapshot brings no revoked key back", async () => {
  const old = world.serial + 1;
  await copy([declaredOrganization("org_c", { apiKeys: [declaredInferenceKey("gone")] })]);
  await copy([declaredOrganization("org_c")]);
  await copy([declaredOrganization("org_c", { apiKeys: [declaredInferenceKey("gone")] })], old);
  expect(await find("gone")).toBe(null);
});

test("rule 1.16: keys of a deleted or suspended organization stop, the same id restores them and the balance", async () => {
  const declared = declaredOrganization("org_d", {
    apiKeys: [declaredInferenceKey("d")],
    grants: [{ name: "first", amountMicros: "70" }],
  });
  await copy([declared]);
  await copy([]);
  expect(await find("d")).toBe(null);
  expect(await balance("org_d")).toBe(70n);
  await copy([declared]);
  expect(await find("d")).toMatchObject({ keyEpoch: 2 });
  await copy([{ ...declared, suspended: true }]);
  expect(await find("d")).toBe(null);
  await copy([declared]);
  expect(await find("d")).toMatchObject({ keyEpoch: 3 });
  expect(await balance("org_d")).toBe(70n);
});

test("rule 1.10: a grant is applied once by its name; a changed one is noted, a new name adds", async () => {
  const granting = (...grants: [string, string][]) =>
    declaredOrganization("org_e", { grants: grants.map(([name, amountMicros]) => ({ name, amountMicros })) });
  await copy([granting(["a", "100"])]);
  await copy([granting(["a", "100"], ["b", "-30"])]);
  expect(await balance("org_e")).toBe(70n);
  const [changed] = await copy([granting(["b", "-30"], ["a", "5000"])]);
  expect(changed?.notes).toEqual([{ path: "spec.credits.grants[1]", reason: "GrantUnchanged" }]);
  await copy([granting()]);
  const [same] = await copy([granting(["a", "100"])]);
  expect(same?.notes).toEqual([]);
  expect(await balance("org_e")).toBe(70n);
  const [refused] = await copy([granting(["huge", "9000000000000000"])]);
  expect(refused?.notes).toEqual([{ path: "spec.credits.grants[0]", reason: "GrantRefused" }]);
  expect(await balance("org_e")).toBe(70n);
});

test("a grant that was refused is tried again with the next snapshot, until there is room for it", async () => {
  const declared = declaredOrganization("org_room", {
    grants: [
      { name: "first", amountMicros: "9000000000000000" },
      { name: "second", amountMicros: "5000000" },
    ],
  });
  const notes = [{ path: "spec.credits.grants[1]", reason: "GrantRefused" }];
  expect((await copy([declared]))[0]?.notes).toEqual(notes);
  expect((await copy([declared]))[0]?.notes).toEqual(notes);
  await grant(pool, { organizationId: "org_room", name: "less", amount: -6_000_000n });
  expect((await copy([declared]))[0]?.notes).toEqual([]);
  expect((await copy([declared]))[0]?.notes).toEqual([]);
  expect(await balance("org_room")).toBe(8_999_999_999_000_000n);
});

test("one secret opens one key: the second that declares it is told", async () => {
  const [first, second] = await copy([
    declaredOrganization("org_f", { apiKeys: [declaredInferenceKey("mine", "shared")] }),
    declaredOrganization("org_g", { apiKeys: [declaredInferenceKey("yours", "shared")] }),
  ]);
  expect(first?.notes).toEqual([]);
  expect(second?.notes).toEqual([{ path: "spec.apiKeys[0]", reason: "KeyConflicted" }]);
  expect(await find("shared")).toMatchObject({ organizationId: "org_f" });
});

test("rule 5.1: `default` is the project of that name, else the first; a project left out is archived, not lost", async () => {
  const projects = async () =>
    await pool.any(sql.type(z.object({ name: z.string(), main: z.boolean(), archived: z.boolean() }))`
      select name, is_default as main, archived_at is not null as archived from projects
      where organization_id = 'org_h' order by name
    `);
  await copy([declaredOrganization("org_h", { projects: ["blue", "red"] })]);
  expect((await projects()).filter(({ main }) => main)).toMatchObject([{ name: "blue" }]);
  await copy([declaredOrganization("org_h", { projects: ["red", "default"] })]);
  expect(await projects()).toEqual([
    { name: "blue", main: false, archived: true },
    { name: "default", main: true, archived: false },
    { name: "red", main: false, archived: false },
  ]);
});

test("rule 5.1: keys of a project that is left out stop, and work again under their ids when it is listed again", async () => {
  const listed = (...projects: string[]) =>
    declaredOrganization("org_p", { projects: ["default", ...projects] });
  await copy([listed("blue")]);
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, status)
    select 'apikey_blue', organization_id, id, 'inference', 'made', ${digest("made")}, 'sk-svc-...', 'created', 'active'
    from projects where organization_id = 'org_p' and name = 'blue'
  `);
  const before = await find("made");
  expect(before).toMatchObject({ keyId: "apikey_blue" });
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, status)
    select 'usr_blue', organization_id, id, 'inference', '', ${digest("person")}, '', 'identity', 'active'
    from projects where organization_id = 'org_p' and name = 'blue'
  `);
  await copy([listed()]);
  expect(await find("made")).toBe(null);
  expect(await directory.recheck("usr_blue"), "a person is put elsewhere by the rules").not.toBe(null);
  expect(await directory.recheck("apikey_blue")).toBe(null);
  await copy([listed("blue")]);
  expect(await find("made")).toEqual({ ...before, keyEpoch: Number(before?.keyEpoch) + 1 });
});

test("a grant by hand goes through the same once-only table", async () => {
  await copy([declaredOrganization("org_j")]);
  const request = { organizationId: "org_j", name: "hand", amount: 2_500_000n };
  expect(await grant(pool, request)).toBe("granted 2.5 credits to org_j; its balance is 2.5");
  expect(await grant(pool, request)).toContain("nothing changed");
  await expect(grant(pool, { ...request, amount: 1n })).rejects.toThrow("applied before with 2.5 credits");
  await expect(grant(pool, { ...request, organizationId: "org_none" })).rejects.toThrow("no organization");
  expect(await balance("org_j")).toBe(2_500_000n);
});

test("an unchanged organization is not copied again", async () => {
  const declared = declaredOrganization("org_k", { apiKeys: [declaredInferenceKey("k")] });
  await copy([declared]);
  await copy([declared]);
  expect(refreshed).toEqual([]);
});

test("a copy of several organizations and a charge of the same wait for each other, and neither breaks the other off", async () => {
  const [first, second] = ["org_order_a", "org_order_b"];
  await copy([declaredOrganization(first, { projects: ["default", "more"] }), declaredOrganization(second)]);
  const lock = (db: CommonQueryMethods, id: string) =>
    db.query(sql.unsafe`select from accounts where organization_id = ${id} for update`);
  const waiting = () =>
    pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
      select count(*) as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
    `);
  let runs = 0;
  const [locked, waits] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  // As a charge of both: in the order of their ids.
  const charging = pool.transaction(async (transaction) => {
    runs += 1;
    await lock(transaction, first);
    locked.resolve();
    await waits.promise;
    await lock(transaction, second);
  });
  await locked.promise;
  const copying = copy([declaredOrganization(first), declaredOrganization(second, { suspended: true })]);
  await expect.poll(waiting).toBe(1n);
  // Whoever has waited for a second looks once for a deadlock, and is broken off: the copy has looked by then.
  await sleep(1_500);
  waits.resolve();
  await charging;
  await copying;
  expect(runs).toBe(1);
});

test("design.md §2: an organization that Postgres refuses blocks no other, and is not called programmed", async () => {
  const bad = declaredOrganization("org_m_bad", {
    displayName: "a\0b",
    apiKeys: [declaredInferenceKey("bad")],
  });
  const revoked = declaredOrganization("org_n", { apiKeys: [declaredInferenceKey("n")] });
  const deleted = declaredOrganization("org_o", { apiKeys: [declaredInferenceKey("o")] });
  await copy([{ ...bad, displayName: "Good" }, revoked, deleted]);
  const changed = [bad, { ...revoked, suspended: true }, declaredOrganization("org_z")];
  const first = (world.serial += 1);
  // The second is another pod, or this one after a restart.
  for (const at of [first, first]) {
    const held = await copy(changed, at);
    expect(held.map(({ name }) => name)).toEqual(["org_n", "org_z"]);
    expect(logged).toMatchObject([{ level: 50, organizationId: "org_m_bad" }]);
  }
  expect(await find("n")).toBe(null);
  expect(await find("o")).toBe(null);
  expect(await find("bad")).toMatchObject({ organizationId: "org_m_bad" });
  const mended = await copy([{ ...bad, displayName: "Good" }, revoked]);
  expect(mended).toHaveLength(2);
  expect(logged).toEqual([]);
});

test("design.md §2: an organization that Postgres refused is tried again, later each time, until it is taken", async () => {
  await pool.query(sql.unsafe`alter table organizations add constraint late check (display_name <> 'Late')`);
  logged = [];
  const sync = syncOf({ retryRefusedMs: { first: 40, most: 150 } });
  const snapshot = world.snapshotOf([
    declaredOrganization("org_late", { displayName: "Late" }),
    declaredOrganization("org_y"),
  ]);
  const held = () => sync.acknowledged(snapshot.routing.objects).map(({ name }) => name);
  await sync.copy(snapshot);
  expect(held()).toEqual(["org_y"]);
  // Without a bound the ninth wait alone would take 10 s.
  await expect.poll(() => logged.length, { timeout: 8_000 }).toBeGreaterThan(9);
  // To be told of the same snapshot again changes nothing.
  await sync.copy(snapshot);
  expect(held()).toEqual(["org_y"]);
  const waits = logged.slice(1).map(({ time }, index) => time - (logged[index]?.time ?? 0));
  for (const [index, atLeast] of [40, 80, 150, 150].entries())
    expect(waits[index], `wait ${index}`).toBeGreaterThanOrEqual(atLeast - 5);
  await pool.query(sql.unsafe`alter table organizations drop constraint late`);
  await expect.poll(held, { timeout: 10_000 }).toEqual(["org_late", "org_y"]);
  const tries = logged.length;
  await new Promise((done) => setTimeout(done, 400));
  expect(logged).toHaveLength(tries);
  await sync.stop();
});

test("why Postgres refuses an organization is told in its status, in Postgres' words and without what it compared", async () => {
  await pool.query(sql.unsafe`alter table organizations add constraint odd check (display_name <> 'Odd')`);
  const snapshot = world.snapshotOf([
    declaredOrganization("org_odd", { displayName: "Odd" }),
    declaredOrganization("org_nul", { displayName: "a\0b" }),
    declaredOrganization("org_even"),
  ]);
  const pod = syncOf();
  await pod.copy(snapshot);
  await pod.stop();
  const refused = pod.refused(snapshot.routing.objects);
  expect(refused.map(({ name, reason, message }) => [name, reason, message])).toEqual([
    ["org_odd", "NotStored", 'new row for relation "organizations" violates check constraint "odd"'],
    ["org_nul", "NotStored", 'invalid byte sequence for encoding "UTF8": 0x00'],
  ]);
  expect(pod.acknowledged(snapshot.routing.objects).map(({ name }) => name)).toEqual(["org_even"]);
  await pool.query(sql.unsafe`alter table organizations drop constraint odd`);
});

test("a key's secret may move from a deleted organization to one with another id, and back", async () => {
  const keys = {
    apiKeys: [declaredInferenceKey("ci", "moves")],
    adminKeys: [declaredKey("root", "moves too")],
  };
  const renamed = async (id: string) => {
    const [held] = await copy([declaredOrganization(id, keys)]);
    expect(held?.notes).toEqual([]);
    expect(await find("moves")).toMatchObject({ organizationId: id, kind: "inference" });
    expect(await find("moves too")).toMatchObject({ organizationId: id, kind: "admin" });
    return (await find("moves"))?.keyId;
  };
  const first = await renamed("org_p2");
  // Before and after in the order of ids; and one that was deleted some snapshots ago.
  await renamed("org_p1");
  await copy([]);
  await renamed("org_p3");
  expect(await renamed("org_p2")).toBe(first);
});

test("rule 1.16: a living organization keeps the secret of a deleted one that comes back", async () => {
  const keys = { apiKeys: [declaredInferenceKey("mine", "kept"), declaredInferenceKey("own", "own")] };
  const taker = declaredOrganization("org_r", { apiKeys: [declaredInferenceKey("taken", "kept")] });
  await copy([declaredOrganization("org_q", keys)]);
  await copy([taker]);
  const [back] = await copy([declaredOrganization("org_q", keys), taker]);
  expect(back?.notes).toEqual([{ path: "spec.apiKeys[0]", reason: "KeyConflicted" }]);
  expect(await find("kept")).toMatchObject({ organizationId: "org_r" });
  expect(await find("own")).toMatchObject({ organizationId: "org_q" });
});

test("a declared key whose secret was another's opens as soon as that one lets go, its own declaration unchanged", async () => {
  const waiting = declaredOrganization("org_v2", {
    apiKeys: [declaredInferenceKey("mine", "let go"), declaredInferenceKey("own v")],
  });
  const holder = declaredOrganization("org_v3", { apiKeys: [declaredInferenceKey("first", "let go")] });
  await copy([holder]);
  expect((await copy([waiting, holder]))[0]?.notes).toMatchObject([{ reason: "KeyConflicted" }]);
  const own = await find("own v");
  const [held] = await copy([waiting, { ...holder, apiKeys: [] }]);
  expect(held?.notes).toEqual([]);
  expect(await find("let go")).toMatchObject({ organizationId: "org_v2" });
  expect(await find("own v")).toEqual(own);
  // The same when each is copied by itself, the taker before the giver.
  const bad = declaredOrganization("org_v0", { displayName: "a\0b" });
  const taker = declaredOrganization("org_v1", { apiKeys: [declaredInferenceKey("taker", "let go")] });
  const moved = await copy([bad, taker, { ...waiting, apiKeys: [declaredInferenceKey("own v")] }]);
  expect(moved.map(({ notes }) => notes)).toEqual([[], []]);
  expect(await find("let go")).toMatchObject({ organizationId: "org_v1" });
});

test("a declared key whose secret a created one had is told of that also when that one was deleted since", async () => {
  await copy([declaredOrganization("org_v4")]);
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source)
    select 'v_created', 'org_v4', id, 'inference', 'v', ${digest("had by v")}, '', 'created'
    from projects where organization_id = 'org_v4'
  `);
  const waiting = [declaredOrganization("org_v4", { apiKeys: [declaredInferenceKey("mine", "had by v")] })];
  const serial = (world.serial += 1);
  const told = [{ path: "spec.apiKeys[0]", reason: "KeyConflicted" }];
  expect((await copy(waiting, serial))[0]?.notes).toEqual(told);
  await pool.query(sql.unsafe`
    update api_keys set status = 'inactive', sha256 = null, deleted_at = now() where id = 'v_created'
  `);
  // By a pod that starts now; the key is looked at again with the next change.
  expect((await copy(waiting, serial))[0]?.notes).toEqual(told);
});

test("rule 1.16: created keys of a deleted organization work again, but for one that is declared elsewhere", async () => {
  await copy([declaredOrganization("org_s")]);
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source)
    select name, 'org_s', (select id from projects where organization_id = 'org_s'), 'inference', name, sha256,
      'sk-svc-x', 'created'
    from ${sql.unnest(
      ["s_stays", "s_taken"].map((name) => [name, digest(name)]),
      ["text", "text"],
    )} as made (name, sha256)
  `);
  const taker = declaredOrganization("org_t", { apiKeys: [declaredInferenceKey("t", "s_taken")] });
  await copy([taker]);
  expect(await find("s_stays")).toBe(null);
  await copy([declaredOrganization("org_s"), taker]);
  expect(await find("s_stays")).toMatchObject({ organizationId: "org_s", keyId: "s_stays" });
  expect(await find("s_taken")).toMatchObject({ organizationId: "org_t" });
  const listed = await pool.anyFirst(sql.type(z.object({ id: z.string() }))`
    select id from api_keys where organization_id = 'org_s' and deleted_at is null
  `);
  expect(listed).toEqual(["s_stays"]);
});
