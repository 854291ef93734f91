/** How many names a tenant's namespace may declare and take away: rows of all of them stay (rule 8.3). */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import {
  declaredInferenceKey,
  declaredKey,
  declaredOrganization,
  DirectoryWorld,
} from "../../test/integration/directory-world.ts";
import type { OrganizationEntry } from "../config/schema.ts";
import { releaseOrganizationId } from "./owners.ts";
import { MOST_UNDECLARED, WARNED_UNDECLARED } from "./tenant-names.ts";

let world: DirectoryWorld;
beforeAll(async () => {
  world = await DirectoryWorld.open();
});
afterAll(() => world[Symbol.asyncDispose]());

const inNamespace = (namespace: string, id: string, more: Partial<OrganizationEntry> = {}) =>
  declaredOrganization(id, {
    source: { kind: "Organization", namespace, name: id, uid: `uid-${id}`, generation: 1 },
    apiKeys: [declaredInferenceKey("first", `${id} first`)],
    ...more,
  });
const ofTenant = (namespace: string, id: string, more: Partial<OrganizationEntry> = {}) =>
  inNamespace(namespace, id, { isTenants: true, ...more });

/** What a pod says of a snapshot with these organizations. */
async function copy(...organizations: OrganizationEntry[]) {
  const snapshot = world.snapshotOf(organizations);
  const pod = world.pod();
  await pod.copy(snapshot);
  await pod.stop();
  const objects = organizations.map(({ source }) => source);
  return {
    held: pod
      .acknowledged(objects)
      .map(({ name, notes }) => [name, ...notes.map(({ path, reason }) => `${path}: ${reason}`)]),
    refused: pod.refused(objects).map(({ name, reason }) => [name, reason]),
  };
}
/** What is said of each organization of a namespace that has used up its names. */
const full = "metadata.namespace: NamesUsedUp";
/** Uses up so many names: ids of organizations, as if each had been declared once. */
const useUp = (namespace: string, ids: number) =>
  world.pool.query(sql.unsafe`
    insert into organizations (id, display_name, declaration, namespace, deleted_at)
    select 'org_' || ${namespace}::text || '_' || n, '', '', ${namespace}, now() from generate_series(1, ${ids}::int) n
  `);
const rowsOf = async (namespace: string) =>
  await world.pool.oneFirst(sql.type(z.object({ rows: z.bigint().transform(Number) }))`
    with own as (select id from organizations where namespace = ${namespace})
    select (select count(*) from own) + (select count(*) from projects where organization_id in (select id from own))
      + (select count(*) from api_keys where organization_id in (select id from own)) as rows
  `);

const limitsOf = async (organizationId: string, project: string) =>
  await world.pool.one(sql.type(z.object({ limits: z.unknown(), archived: z.boolean() }))`
    select limits, archived_at is not null as archived from projects
    where organization_id = ${organizationId} and name = ${project}
  `);

test("a namespace that has used up its names gets no new organization, and is told; nobody else is refused", async () => {
  const own = ofTenant("team", "org_own");
  await copy(own, ofTenant("team", "org_before"));
  await useUp("team", MOST_UNDECLARED);
  const fresh = ofTenant("team", "org_fresh");
  const others = [ofTenant("sister", "org_sister"), inNamespace("platform", "org_platform")];
  const suspended = { ...own, suspended: true };
  expect(await copy(suspended, fresh, ...others)).toEqual({
    held: [["org_own", full], ["org_sister"], ["org_platform"]],
    refused: [["org_fresh", "NamesUsedUp"]],
  });
  expect(await world.find("org_fresh first")).toBe(null);
  expect(await world.find("org_own first"), "what changes of another holds").toBe(null);
  expect(await world.find("org_sister first")).not.toBe(null);
  // What was declared once comes back, and goes again.
  expect(await copy(own, fresh, ofTenant("team", "org_before"))).toEqual({
    held: [
      ["org_own", full],
      ["org_before", full],
    ],
    refused: [["org_fresh", "NamesUsedUp"]],
  });
  expect(await world.find("org_own first")).not.toBe(null);
  expect(await world.find("org_before first")).not.toBe(null);
});

test("where the platform lets go of an id, a new one is served without a further change", async () => {
  const snapshot = world.snapshotOf([ofTenant("team", "org_own"), ofTenant("team", "org_fresh")]);
  const pod = world.pod({ retryRefusedMs: { first: 20, most: 50 } });
  await pod.copy(snapshot);
  expect(pod.refused(snapshot.routing.objects)).toHaveLength(1);
  // With its project and its key it used up three.
  await releaseOrganizationId(world.pool, "org_before");
  await releaseOrganizationId(world.pool, "org_team_1");
  await expect.poll(() => pod.refused(snapshot.routing.objects)).toEqual([]);
  await pod.stop();
  expect(pod.acknowledged(snapshot.routing.objects).map(({ name }) => name)).toEqual([
    "org_own",
    "org_fresh",
  ]);
  expect(await world.find("org_fresh first")).not.toBe(null);
});

test("nor new projects and keys in an organization that is there; what changes of those that are there holds", async () => {
  const project = { projects: ["default", "old"] };
  const keys = (...apiKeys: OrganizationEntry["apiKeys"]) =>
    ofTenant("crew", "org_crew", { ...project, apiKeys });
  await copy(keys(declaredInferenceKey("one"), declaredInferenceKey("two", "two", "old")));
  await useUp("crew", MOST_UNDECLARED);
  const declared = ofTenant("crew", "org_crew", {
    projects: ["default", "fresh", "old"],
    apiKeys: [
      declaredInferenceKey("one", "one anew"),
      declaredInferenceKey("three"),
      declaredInferenceKey("four", "four", "fresh"),
    ],
    adminKeys: [declaredKey("root", "root of crew")],
  });
  const told = [
    full,
    'spec.projects[name="fresh"]: NamesUsedUp',
    "spec.adminKeys[0]: NamesUsedUp",
    "spec.apiKeys[1]: NamesUsedUp",
    "spec.apiKeys[2]: NamesUsedUp",
  ];
  for (let pod = 0; pod < 2; pod += 1)
    expect(await copy(declared)).toEqual({ held: [["org_crew", ...told]], refused: [] });
  expect(await world.find("one anew")).toMatchObject({ keyName: "one" });
  expect(await world.find("two"), "it is taken away").toBe(null);
  for (const secret of ["three", "four", "root of crew"]) expect(await world.find(secret)).toBe(null);
  expect(await copy(keys(declaredInferenceKey("two", "two", "old")))).toEqual({
    held: [["org_crew", full]],
    refused: [],
  });
  expect(await world.find("two")).not.toBe(null);
});

test("a key that moves to a new project goes on in its old one, which stays with its limits, and is told", async () => {
  const limits = { requestsPerMinute: 7 };
  const declared = (project: string, secret: string, more: Partial<OrganizationEntry> = {}) =>
    ofTenant("mover", "org_mover", {
      projects: ["default", project],
      apiKeys: [declaredInferenceKey("one"), declaredInferenceKey("two", secret, project)],
      ...more,
    });
  await copy(declared("old", "two", { projectLimits: { old: limits } }));
  const before = await world.find("two");
  await useUp("mover", MOST_UNDECLARED);
  const moved = declared("fresh", "two anew");
  const told = [full, 'spec.projects[name="fresh"]: NamesUsedUp', "spec.apiKeys[1].project: NamesUsedUp"];
  for (let pod = 0; pod < 2; pod += 1)
    expect(await copy(moved)).toEqual({ held: [["org_mover", ...told]], refused: [] });
  expect(await world.find("two"), "its secret changed").toBe(null);
  const after = await world.find("two anew");
  expect(after).toMatchObject({ keyId: before?.keyId, projectId: before?.projectId });
  expect(await limitsOf("org_mover", "old")).toEqual({ limits, archived: false });
  // Once it is declared no more, the project goes.
  await copy(ofTenant("mover", "org_mover"));
  expect(await limitsOf("org_mover", "old")).toMatchObject({ archived: true });
});

test("a namespace is warned from nine tenths of its names, in each of its organizations; nobody else is", async () => {
  const [one, another] = [ofTenant("near", "org_near"), ofTenant("near", "org_near_too")];
  const others = [ofTenant("far", "org_far"), inNamespace("near", "org_trusted")];
  await useUp("near", WARNED_UNDECLARED - 1);
  expect(await copy(one, another, ...others)).toEqual({
    held: [["org_near"], ["org_near_too"], ["org_far"], ["org_trusted"]],
    refused: [],
  });
  await useUp("near_too", 1);
  await world.pool.query(
    sql.unsafe`update organizations set namespace = 'near' where namespace = 'near_too'`,
  );
  const told = "metadata.namespace: NamesNearlyUsedUp";
  expect(await copy(one, another, ...others)).toEqual({
    held: [["org_near", told], ["org_near_too", told], ["org_far"], ["org_trusted"]],
    refused: [],
  });
});

test("names of projects, of keys and of what a deleted organization had count alike, and are no more than declared at once", async () => {
  const keys = 200;
  const round = (n: number) =>
    ofTenant("churn", "org_churn", {
      projects: ["default", ...Array.from({ length: 50 }, (_, at) => `p${n}-${at}`)],
      apiKeys: Array.from({ length: keys }, (_, at) => declaredInferenceKey(`k${n}-${at}`, `k${n}-${at}`)),
    });
  await copy(round(0), ofTenant("churn", "org_gone"));
  await copy(round(1));
  const { held } = await copy(round(2));
  expect(held[0]).toHaveLength(1);
  await useUp("churn", MOST_UNDECLARED - 600);
  for (let n = 3; n < 7; n += 1) await copy(round(n));
  expect(await rowsOf("churn")).toBeLessThan(MOST_UNDECLARED + 2 * 251);
});
