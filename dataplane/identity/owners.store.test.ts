/** Rule 8.3: an organization id belongs to the namespace that had it first, until the platform releases it. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { sampleOrganization, sampleSnapshot } from "../../test/fakes/sample-snapshot.ts";
import { digest, DirectoryWorld, snapshotOfOrganizations } from "../../test/integration/directory-world.ts";
import type { OrganizationEntry } from "../config/schema.ts";
import type { KeyDirectory } from "./directory.ts";
import { parseRelease, releaseOrganizationId } from "./owners.ts";

let world: DirectoryWorld;
let pool: DatabasePool;
let directory: KeyDirectory;
beforeAll(async () => {
  world = await DirectoryWorld.open();
  ({ pool, directory } = world);
});
afterAll(() => world[Symbol.asyncDispose]());

const declared = (namespace: string, id: string, secret: string): OrganizationEntry =>
  sampleOrganization(id, {
    source: { kind: "Organization", namespace, name: id, uid: `${namespace}/${id}`, generation: 1 },
    displayName: namespace,
    grants: [{ name: `of ${namespace}`, amountMicros: "5000000" }],
    apiKeys: [{ name: "one", sha256: digest(secret), hint: "sk-svc-x", project: "default" }],
  });

let serial = 1000;
/** What a pod says of a snapshot with these organizations. */
async function copy(...organizations: OrganizationEntry[]) {
  const snapshot = snapshotOfOrganizations((serial += 1), organizations);
  const sync = world.pod();
  expect(sync.owned(serial), "before it is copied").toBeUndefined();
  await sync.copy(snapshot);
  await sync.stop();
  return {
    owned: sync.owned(serial),
    acknowledged: sync.acknowledged(snapshot.routing.objects).map(({ namespace }) => namespace),
  };
}

const find = (secret: string) => directory.find(digest(secret), 0);
const balance = async () =>
  await pool.oneFirst(
    sql.type(z.object({ balance: z.bigint() }))`
      select balance_micros as balance from accounts where organization_id = 'org_acme'
    `,
  );

test("what its owner declares is told by the snapshot, and by nothing else", async () => {
  expect(await copy(declared("good", "org_acme", "good-key"))).toEqual({ owned: [], acknowledged: ["good"] });
  expect(await find("good-key")).toMatchObject({ organizationId: "org_acme" });
});

test("it cannot be released while it is declared, nor one that is not there", async () => {
  await expect(releaseOrganizationId(pool, "org_acme")).rejects.toThrow(
    "org_acme is still declared in namespace good: delete its Organization there first",
  );
  await expect(releaseOrganizationId(pool, "org_nobody")).rejects.toThrow(
    "there is no organization org_nobody",
  );
  expect(() => parseRelease([])).toThrow("usage");
});

test("another namespace gets neither keys nor balance, and is not acknowledged; the operator is told", async () => {
  const owned = [{ id: "org_acme", namespace: "good" }];
  expect(await copy()).toEqual({ owned, acknowledged: [] });
  expect(
    await copy(declared("evil", "org_acme", "evil-key"), declared("evil", "org_evil", "own-key")),
  ).toEqual({
    owned,
    acknowledged: ["evil"],
  });
  expect(await find("evil-key")).toBe(null);
  expect(await find("good-key"), "its owner does not declare it either").toBe(null);
  expect(await find("own-key")).toMatchObject({ organizationId: "org_evil" });
  expect(await balance()).toBe(5_000_000n);
});

test("its owner has it again at once", async () => {
  expect(await copy(declared("good", "org_acme", "good-key"))).toMatchObject({ acknowledged: ["good"] });
  expect(await find("good-key")).toMatchObject({ organizationId: "org_acme" });
  expect(await balance()).toBe(5_000_000n);
});

test("released, it belongs to the next namespace that declares it, with what is kept under it", async () => {
  await copy();
  expect(await releaseOrganizationId(pool, "org_acme")).toBe(
    "org_acme belonged to namespace good; the next namespace that declares it has it, with its balance, keys, files and batches",
  );
  expect(await releaseOrganizationId(pool, "org_acme")).toBe(
    "org_acme belongs to no namespace; nothing changed",
  );
  expect(await copy()).toMatchObject({ owned: [{ id: "org_evil", namespace: "evil" }] });
  expect(await copy(declared("team", "org_acme", "team-key"))).toMatchObject({ acknowledged: ["team"] });
  expect(await find("team-key")).toMatchObject({ organizationId: "org_acme" });
  expect(await balance()).toBe(10_000_000n);
  expect(await copy(declared("good", "org_acme", "good-key"))).toMatchObject({
    owned: expect.arrayContaining([{ id: "org_acme", namespace: "team" }]),
    acknowledged: [],
  });
});

test("however many ids were made up and deleted, few are told, and among them those that are asked for", async () => {
  const before = await copy();
  await pool.query(sql.unsafe`
    insert into organizations (id, display_name, declaration, namespace, deleted_at)
    select 'org_aaa_' || n, '', '', 'evil', now() - interval '1 day' from generate_series(1, 20000) n
  `);
  const one = declared("other", "org_evil", "other-key");
  const refused = await copy(one);
  expect(refused.owned?.length).toBeLessThanOrEqual(1_000 + (before.owned?.length ?? 0));
  expect(refused.owned).toContainEqual({ id: "org_evil", namespace: "evil" });
  // The operator leaves it out, and remembers who owns it.
  const { routing } = snapshotOfOrganizations((serial += 1), []);
  const sync = world.pod();
  await sync.copy(sampleSnapshot({ ...routing, owners: { org_evil: "evil", org_team: "nobody" } }));
  await sync.stop();
  expect(sync.owned(serial)).toContainEqual({ id: "org_evil", namespace: "evil" });
  const plan = await pool.any(sql.type(z.record(z.string(), z.string()))`
    explain select id, namespace from organizations
    where namespace is not null and deleted_at is not null order by deleted_at, id limit 1000
  `);
  expect(JSON.stringify(plan)).toContain("organizations_owned");
  await pool.query(sql.unsafe`delete from organizations where id like 'org_aaa%'`);
});

test("a row of before this release belongs to who declares it", async () => {
  await copy(declared("old", "org_old", "old-key"));
  await pool.query(sql.unsafe`update organizations set namespace = null where id = 'org_old'`);
  await copy(declared("old", "org_old", "old-key"));
  const owner = await pool.oneFirst(
    sql.type(z.object({ namespace: z.string().nullable() }))`
      select namespace from organizations where id = 'org_old'
    `,
  );
  expect(owner).toBe("old");
});
