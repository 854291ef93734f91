/** People over a real directory (rules 13.1, 13.2): what is written of them, and what a token seen before costs. */
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { DirectoryWorld, snapshotOfOrganizations } from "../../test/integration/directory-world.ts";
import { FakeIssuer, signingKey } from "../../test/fakes/issuer.ts";
import { sampleOrganization } from "../../test/fakes/sample-snapshot.ts";
import type { IdentityEntry, OrganizationEntry } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { ApiError } from "../lib/api-error.ts";
import { systemClock } from "../lib/clock.ts";
import { KeyDirectory } from "./directory.ts";
import { TokenPeople } from "./people.ts";
import { MOST_PEOPLE, UNSEEN_DAYS } from "./person.ts";

const issuer = new FakeIssuer("https://login.test", Date.now);
const signer = signingKey("EC", "one");
issuer.publish(signer);
const token = (claims: Readonly<Record<string, unknown>> = {}) =>
  issuer.token(signer, claims, { alg: "ES256" });

let world: DirectoryWorld;
let snapshot: Snapshot;
let serial = 0;
beforeAll(async () => {
  world = await DirectoryWorld.open();
});
afterAll(() => world[Symbol.asyncDispose]());

const identity: IdentityEntry = {
  issuer: issuer.url,
  audiences: ["gapura"],
  jwksUrl: null,
  allowCidrs: [],
  allowPorts: [],
  rules: [
    { claims: { groups: "research" }, role: "member", project: "research", limits: { requestsPerMinute: 5 } },
    { claims: { groups: "ml" }, role: "member", project: "default" },
    { claims: { groups: "owners" }, role: "admin" },
  ],
};
const declare = async (more: Partial<OrganizationEntry> = {}, isCopied = true) => {
  const entry = sampleOrganization("org_acme", { identity, projects: ["default", "research"], ...more });
  snapshot = snapshotOfOrganizations((serial += 1), [entry]);
  if (!isCopied) return;
  const pod = world.pod();
  await pod.copy(snapshot);
  await pod.stop();
};
const people = (directory: Pick<KeyDirectory, "person"> = world.directory) =>
  new TokenPeople({ snapshot: () => snapshot, directory, fetchJson: issuer.fetchJson, clock: systemClock });

const rows = async () =>
  await world.pool.any(
    sql.type(
      z.object({
        id: z.string(),
        kind: z.string(),
        project: z.string().nullable(),
        name: z.string(),
        limits: z.unknown(),
      }),
    )`
      select key.id, key.kind, project.name as project, key.name, key.limits
      from api_keys key left join projects project on project.id = key.project_id
      where key.source = 'identity' order by key.position
    `,
  );

test("a person is not served before their organization is in Postgres, and is one row from then on, as the last token says", async () => {
  await declare({}, false);
  const all = people();
  await expect(all.find(token())).rejects.toMatchObject({ code: "unavailable" });
  expect(await rows()).toEqual([]);
  await declare();
  const member = await all.find(token());
  expect(member).toMatchObject({ kind: "inference", organizationId: "org_acme", keyEpoch: 1, limits: [] });
  const { keyId: id } = member;
  expect(await rows()).toEqual([{ id, kind: "inference", project: "default", name: "", limits: null }]);
  const research = await all.find(token({ groups: ["research", "ml"], name: "Ada" }));
  expect(research).toMatchObject({
    keyId: id,
    keyName: "Ada",
    limits: [{ kind: "key", id, limits: { requestsPerMinute: 5 } }],
  });
  const limits = { requestsPerMinute: 5 };
  expect(await rows()).toEqual([{ id, kind: "inference", project: "research", name: "Ada", limits }]);
  expect(await all.find(token({ groups: ["owners"] }))).toMatchObject({
    keyId: id,
    kind: "admin",
    projectId: null,
  });
  expect(await rows()).toEqual([{ id, kind: "admin", project: null, name: "Ada", limits: null }]);
  await all.find(token({ groups: ["owners"], name: "Ada L." }));
  expect(await rows()).toMatchObject([{ name: "Ada L." }]);
});

test("the limits of keyDefaults hold for people that the rule gives none of that field", async () => {
  await declare({ keyDefaults: { requestsPerMinute: 60, concurrentRequests: 2 } });
  const { limits } = await people().find(token({ sub: "limited", groups: ["research"] }));
  expect(limits).toMatchObject([{ limits: { requestsPerMinute: 5, concurrentRequests: 2 } }]);
});

test("a key that vanished is refused within a minute, also when the machine's clock was set back a day", async () => {
  await declare();
  const own = new FakeIssuer(issuer.url, Date.now);
  own.publish(signer);
  let unix = Date.now();
  let age = 0;
  const all = new TokenPeople({
    snapshot: () => snapshot,
    directory: world.directory,
    fetchJson: own.fetchJson,
    clock: { now: () => unix },
    ages: { now: () => age },
  });
  const before = own.token(signer, { sub: "clockwork", groups: ["ml"] }, { alg: "ES256" });
  await all.find(before);
  own.publish(signingKey("EC", "two"));
  unix -= 86_400_000;
  for (let gone = 0; gone < 60_000; gone += 2_000) {
    age += 2_000;
    await all.refresh();
  }
  await expect(async () => await all.find(before)).rejects.toMatchObject({ code: "authentication" });
});

test("what a batch of theirs may goes on without a token", async () => {
  await declare();
  const { keyId } = await people().find(token({ sub: "batcher", groups: ["research"] }));
  const project = await world.pool.oneFirst(sql.type(z.object({ id: z.string() }))`
    select id from projects where organization_id = 'org_acme' and name = 'research'
  `);
  expect(await world.directory.limitsOf(keyId, project)).toMatchObject({
    limits: [{ kind: "key", id: keyId, limits: { requestsPerMinute: 5 } }],
  });
  expect(await world.directory.recheck(keyId)).toMatchObject({ keyId, projectId: project });
});

test("a token seen before needs neither Postgres nor its issuer, at once; nor does another one of the same person Postgres", async () => {
  await declare();
  const pool = await world.openPool();
  const directory = new KeyDirectory({ pool, clock: systemClock });
  const all = people(directory);
  const known = token({ sub: "quick" });
  const first = await all.find(known);
  await pool.end();
  const asked = issuer.asked.length;
  expect(all.find(known), "no promise").toBe(first);
  expect(await all.find(token({ sub: "quick", jti: "next" }))).toBe(first);
  expect(issuer.asked.length).toBe(asked);
  await expect(all.find(token({ sub: "slow" }))).rejects.toMatchObject({ code: "unavailable" });
});

test("tokens of one person that name them otherwise, in turn, need Postgres no more once each was seen", async () => {
  await declare();
  const pool = await world.openPool();
  const all = people(new KeyDirectory({ pool, clock: systemClock }));
  const named = ["Ada", "Ada L.", undefined].map((name) => token({ sub: "renamed", name }));
  for (const one of named) await all.find(one);
  await pool.end();
  for (const one of [...named, ...named]) expect(all.find(one), "no promise").not.toBeInstanceOf(Promise);
});

test("a token seen before costs a small part of one that is verified", async () => {
  await declare();
  const all = people();
  const known = token({
    sub: "timed",
    groups: ["ml", ...Array.from({ length: 50 }, (_, n) => `group-${n}`)],
  });
  await all.find(known);
  const fresh = Array.from({ length: 100 }, (_, jti) => token({ sub: "timed", jti }));
  const each = async (tokens: readonly string[]) => {
    const begun = performance.now();
    for (const one of tokens) await all.find(one);
    return (performance.now() - begun) / tokens.length;
  };
  const verified = await each(fresh);
  const seen = await each(Array.from({ length: 20_000 }, () => known));
  expect(seen / verified).toBeLessThan(0.2);
});

test("a person of an id that belongs to another namespace is not served, nor who is known to its owner", async () => {
  await declare();
  await people().find(token({ sub: "known" }));
  const source = { ...sampleOrganization("org_acme").source, namespace: "evil" };
  await declare({ source }, false);
  for (const sub of ["thief", "known"])
    await expect(people().find(token({ sub }))).rejects.toMatchObject({ code: "unavailable" });
  expect((await rows()).length).toBeGreaterThan(0);
  await declare();
});

test("whoever is asked for a thousand times at once is looked up and written once", async () => {
  await declare();
  const all = people();
  const text = token({ sub: "crowd" });
  const found = await Promise.all(Array.from({ length: 1000 }, async () => await all.find(text)));
  expect(new Set(found).size).toBe(1);
});

describe("an organization with as many people as it may have", () => {
  const count = async (more = sql.fragment``) =>
    Number(
      await world.pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
        select count(*) as count from api_keys where organization_id = 'org_acme' and source = 'identity' ${more}
      `),
    );
  /** Of those that the tests made up: when they came last. */
  const lastSeen = (days: number, which = "%") =>
    world.pool.query(sql.unsafe`
      update api_keys set last_used_at = now() - ${days} * interval '1 day', created_at = now() - interval '1 year'
      where name like ${`filler-${which}`}
    `);
  const refusal = {
    code: "people_limit_reached",
    message: `Your organization has as many people as it may (${MOST_PEOPLE}), and you are not among them yet. Whoever did not come for ${UNSEEN_DAYS} days makes room.`,
  };
  const everyone: Partial<OrganizationEntry> = {
    identity: { ...identity, rules: [...identity.rules, { claims: {}, role: "viewer" }] },
  };

  beforeAll(async () => {
    await declare(everyone);
    await people().find(token({ sub: "old", groups: ["ml"], name: "Old" }));
    await world.pool.query(sql.unsafe`
      insert into api_keys (id, organization_id, kind, name, sha256, hint, source, last_used_at)
      select 'usr_filler' || n, 'org_acme', 'viewer', 'filler-' || n, 'filler-' || n, '', 'identity', now()
      from generate_series(1, ${MOST_PEOPLE - (await count())}) n
    `);
    await world.pool.query(sql.unsafe`analyze api_keys`);
  });

  test("refuses newcomers in words and writes nothing; whoever is there is served, also in another role, on every pod", async () => {
    await lastSeen(UNSEEN_DAYS - 1);
    const [first, second] = [people(), people(new KeyDirectory({ pool: world.pool, clock: systemClock }))];
    for (const all of [first, second]) {
      for (let n = 0; n < 3; n += 1)
        await expect(all.find(token({ sub: `stranger-${n}` }))).rejects.toMatchObject(refusal);
      expect(await all.find(token({ sub: "old", groups: ["ml"] }))).toMatchObject({ kind: "inference" });
      expect(await all.find(token({ sub: "old", groups: ["owners"], name: "Older" }))).toMatchObject({
        kind: "admin",
        keyName: "Older",
      });
    }
    expect(await count()).toBe(MOST_PEOPLE);
  });

  test("another organization goes on growing", async () => {
    const other = sampleOrganization("org_other", { identity: { ...identity, audiences: ["other"] } });
    const acme = sampleOrganization("org_acme", { projects: ["default", "research"], ...everyone });
    snapshot = snapshotOfOrganizations((serial += 1), [acme, other]);
    const pod = world.pod();
    await pod.copy(snapshot);
    await pod.stop();
    const all = people();
    await expect(all.find(token({ sub: "late" }))).rejects.toMatchObject(refusal);
    expect(await all.find(token({ sub: "late", aud: "other" }))).toMatchObject({
      organizationId: "org_other",
    });
    await declare(everyone);
  });

  test("a crowd takes the last places and not one more", async () => {
    await world.pool.query(
      sql.unsafe`delete from api_keys where name in ('filler-1', 'filler-2', 'filler-3')`,
    );
    const fresh = () => people(new KeyDirectory({ pool: world.pool, clock: systemClock }));
    const pods = [fresh(), fresh()];
    const text = Array.from({ length: 40 }, (_, n) => token({ sub: `crowd-${n}` }));
    // On a busy machine some are told to come again before it is their turn, as their clients would do.
    const ask = async (n: number): Promise<unknown> => {
      try {
        return await pods[n % 2]?.find(text[n] ?? "");
      } catch (error) {
        if (error instanceof ApiError && error.code === "unavailable") return await ask(n);
        throw error;
      }
    };
    const found = await Promise.allSettled(text.map((_, n) => ask(n)));
    expect(found.filter(({ status }) => status === "rejected")).toMatchObject(
      Array.from({ length: 37 }, () => ({ reason: { code: refusal.code } })),
    );
    expect(found.filter(({ status }) => status === "fulfilled").length).toBe(3);
    expect(await count()).toBe(MOST_PEOPLE);
    // The turn of those who gave up comes all the same.
    const busy = () =>
      world.pool.oneFirst(sql.type(z.object({ count: z.bigint() }))`
        select count(*) as count from pg_stat_activity
        where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()
      `);
    await expect.poll(busy, { timeout: 10_000 }).toBe(0n);
  });

  test("those who did not come for long make room, nobody else; who comes again is the same", async () => {
    const all = people(new KeyDirectory({ pool: world.pool, clock: systemClock }));
    const returning = await all.find(token({ sub: "old", groups: ["ml"], name: "Old" }));
    await world.directory.writeUsed();
    await lastSeen(UNSEEN_DAYS + 1, "1%");
    const old = await count(sql.fragment`and name like 'filler-1%'`);
    // Another namespace that declares the id makes no room in it.
    const source = { ...sampleOrganization("org_acme").source, namespace: "evil" };
    await declare({ ...everyone, source }, false);
    await expect(all.find(token({ sub: "thief" }))).rejects.toMatchObject({ code: "unavailable" });
    expect(await count()).toBe(MOST_PEOPLE);
    await declare(everyone);
    expect(await all.find(token({ sub: "newcomer" }))).toMatchObject({ kind: "inference" });
    expect([await count(), await count(sql.fragment`and name like 'filler-1%'`)]).toEqual([
      MOST_PEOPLE - old + 1,
      0,
    ]);
    await world.pool.query(sql.unsafe`delete from api_keys where id = ${returning.keyId}`);
    const again = await people(new KeyDirectory({ pool: world.pool, clock: systemClock })).find(
      token({ sub: "old", groups: ["ml"] }),
    );
    expect(again.keyId).toBe(returning.keyId);
  });
});

test("a member of a project whose limits changed is found anew where they are remembered, in one look-up for all", async () => {
  await declare();
  const pool = await world.openPool();
  const directory = new KeyDirectory({ pool, clock: systemClock });
  const all = people(directory);
  const [ada, bo] = await Promise.all(
    ["again-1", "again-2"].map(async (sub) => await all.find(token({ sub, groups: ["ml"] }))),
  );
  if (ada === undefined || bo === undefined) expect.unreachable();
  const limit = async (models: string | null) =>
    await world.pool.query(sql.unsafe`
      update projects set limits = ${models}::jsonb where organization_id = 'org_acme' and name = 'default'
    `);
  await limit('{"models": ["m-new"]}');
  try {
    const again = await Promise.all([ada, bo].map((one) => directory.findAgain(one)));
    for (const one of again) expect(one?.limits).toMatchObject([{ limits: { models: ["m-new"] } }]);
    // From then on it is remembered so.
    expect(await all.find(token({ sub: "again-1", groups: ["ml"] }))).toEqual(again[0]);
    // Whose newest token here is for another project goes on as known.
    await all.find(token({ sub: "again-2", groups: ["research"] }));
    expect(await directory.findAgain(bo)).toBe(bo);
    await pool.end();
    expect(await directory.findAgain(ada), "without Postgres").toBe(ada);
  } finally {
    await limit(null);
  }
});

test("after a change of keys, requests of many people that came before look theirs up once together", async () => {
  await declare();
  const pool = await world.openPool();
  let statements = 0;
  const counted = new Proxy(pool, {
    get: (target, name: keyof typeof pool) => {
      if (name === "any" || name === "maybeOne") statements += 1;
      return target[name];
    },
  });
  const directory = new KeyDirectory({ pool: counted, clock: systemClock });
  const all = people(directory);
  const crowd = await Promise.all(
    Array.from({ length: 20 }, async (_, index) =>
      all.find(token({ sub: `crowd-${index}`, groups: [index % 2 === 0 ? "research" : "ml"], name: "Ada" })),
    ),
  );
  const ids = crowd.map(({ keyId }) => keyId);
  // The last of them is as another token of theirs says: in another role.
  await people().find(token({ sub: "crowd-19", groups: ["owners"] }));
  statements = 0;
  const again = await Promise.all([...ids, ...ids].map((id) => directory.recheck(id)));
  expect(again.map((key) => key?.projectId)).toEqual([...crowd, ...crowd].map(({ projectId }) => projectId));
  // Who is there as their token says, together; of the last, a look and what is written.
  expect(statements).toBeLessThanOrEqual(1 + 2 * 2);
  await pool.end();
});
