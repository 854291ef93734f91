/** Lists of keys: pages, filters and what they refuse (rules 5.1, 5.6). */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AdminWorld } from "./admin-world.ts";
import { keyCalls, type Listed, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const PROJECTS = "/v1/organization/projects";

const { admin, make, list } = keyCalls(() => world);

test("rule 5.6: newest first, `asc` is the exact reverse, every walk sees each key once", async () => {
  for (let n = 0; n < 5; n += 1) await make(`page ${n}`);
  for (const path of [ORGANIZATION, PROJECT]) {
    const all = (await list(`${path}?limit=1000`)).data.map(({ id }) => id);
    expect((await list(`${path}?limit=1000&order=asc`)).data.map(({ id }) => id)).toEqual(all.toReversed());
    for (const cursor of ["after", "after_id"]) {
      const walked: string[] = [];
      let more = "";
      for (let page = await list(`${path}?limit=3`); ; page = await list(`${path}?limit=3&${more}`)) {
        walked.push(...page.data.map(({ id }) => id));
        expect(page.first_id).toBe(page.data[0]?.id);
        if (!page.has_more) break;
        more = `${cursor}=${page.last_id}`;
      }
      expect(walked).toEqual(all);
    }
    const before = await list(`${path}?limit=2&before_id=${all[4]}`);
    expect(before.data.map(({ id }) => id)).toEqual(all.slice(2, 4));
    expect(before.has_more).toBe(true);
  }
});

test("pages go on behind a key that was deleted meanwhile", async () => {
  const made = [];
  for (let n = 0; n < 4; n += 1) made.push((await make(`deleted page ${n}`)).id);
  const [first, second, third, fourth] = made;
  for (const id of [second, third]) expect((await admin("DELETE", `${PROJECT}/${id}`)).status).toBe(200);
  for (const path of [ORGANIZATION, PROJECT]) {
    const page = await list(`${path}?limit=1&after=${third}`);
    expect(page.data.map(({ id }) => id)).toEqual([first]);
    expect((await list(`${path}?limit=1&before_id=${second}`)).data.map(({ id }) => id)).toEqual([fourth]);
    expect((await world.call(world.b.admin, "GET", `${path}?after=${third}`)).status).toBe(400);
  }
});

test("a key of another project is no cursor of a project's list", async () => {
  const second = (await list(PROJECTS)).data.find(({ name }) => name === "second")?.id;
  const made = await admin("POST", `${PROJECTS}/${second}/api_keys`, { name: "elsewhere" });
  const { id } = made.body;
  expect((await admin("GET", `${ORGANIZATION}?after_id=${String(id)}`)).status).toBe(200);
  for (const cursor of ["after", "after_id", "before_id"])
    expect((await admin("GET", `${PROJECT}?${cursor}=${String(id)}`)).status).toBe(400);
});

test("rule 5.1: `default` filters by the default project, as its id does", async () => {
  const { data: projects } = await list(PROJECTS);
  const byId = projects.find(({ name }) => name === "default")?.id;
  const ofDefault = await list(`${ORGANIZATION}?workspace_id=default&limit=1000`);
  expect(ofDefault.data.length).toBeGreaterThan(0);
  expect(ofDefault).toEqual(await list(`${ORGANIZATION}?workspace_id=${String(byId)}&limit=1000`));
});

test("rule 5.6: an empty list has null ids; `status` filters", async () => {
  const filtered = await list(`${ORGANIZATION}?workspace_id=proj_none`);
  expect(filtered).toEqual({
    object: "list",
    data: [],
    first_id: null,
    last_id: null,
    has_more: false,
    next_page: null,
  });
  const { id } = await make("idle");
  await admin("POST", `${ORGANIZATION}/${id}`, { status: "inactive" });
  const inactive = (await list(`${ORGANIZATION}?status=inactive&limit=1000`)).data.map((item) => item.id);
  const active = (await list(`${ORGANIZATION}?status=active&limit=1000`)).data.map((item) => item.id);
  const all = (await list(`${ORGANIZATION}?limit=1000`)).data.map((item) => item.id);
  expect(inactive).toContain(id);
  expect(active).not.toContain(id);
  expect([...inactive, ...active].toSorted()).toEqual(all.toSorted());
});

test("the default page has 20 keys", async () => {
  for (let n = 0; n < 21; n += 1) await make(`twenty ${n}`);
  expect((await list(ORGANIZATION)).data).toHaveLength(20);
  expect((await list(PROJECT)).data).toHaveLength(20);
});

test("a page whose objects are large ends early and says that there is more; every walk sees each once", async () => {
  const { pool } = world;
  const large = (kind: string, source: string) =>
    pool.query(sql.unsafe`
      insert into api_keys (id, organization_id, project_id, kind, name, hint, source, limits)
      select 'large_' || ${source}::text || n, project.organization_id, project.id, ${kind}, 'large', 'sk-svc-...', ${source},
        jsonb_build_object('models', (select jsonb_agg(repeat('m', 120) || n || ' ' || m) from generate_series(1, 500) m))
      from projects project, generate_series(1, 200) n
      where project.organization_id = ${world.b.id} and project.is_default
    `);
  await large("inference", "created");
  await large("inference", "identity");
  await pool.query(sql.unsafe`
    insert into projects (id, organization_id, name, archived_at, limits)
    select 'large_project' || n, ${world.b.id}, 'large ' || n, now(), limits
    from generate_series(1, 200) n, (select limits from api_keys where name = 'large' limit 1) of_a_key
  `);
  for (const [path, bytes] of [
    [ORGANIZATION, 10_000_000],
    [PROJECT, 10_000_000],
    ["/v1/organization/users", 10_000_000],
    [PROJECTS, 10_000_000],
  ] as const)
    for (const order of ["desc", "asc"]) {
      const walked: string[] = [];
      const archivedToo = path === PROJECTS ? "&include_archived=true" : "";
      for (let more = ""; ;) {
        const { raw, body } = await world.call(
          world.b.admin,
          "GET",
          `${path}?limit=1000&order=${order}${more}${archivedToo}`,
        );
        const page = body as unknown as Listed;
        expect([path, raw.length < bytes, page.data.length > 0]).toEqual([path, true, true]);
        walked.push(...page.data.map(({ id }) => id));
        if (!page.has_more) break;
        more = `&after=${page.last_id}`;
      }
      expect(walked.filter((id) => id.startsWith("large_"))).toHaveLength(200);
      expect(new Set(walked).size).toBe(walked.length);
      const [, , third, ...rest] = walked;
      const before = await list(
        `${path}?limit=1000&order=${order}&before_id=${rest.at(-1)}${archivedToo}`,
        world.b.admin,
      );
      expect(before.has_more).toBe(true);
      expect(before.data.at(-1)?.id).toBe(rest.at(-2));
      const first = await list(
        `${path}?limit=2&order=${order}&before_id=${third}${archivedToo}`,
        world.b.admin,
      );
      expect([first.data.map(({ id }) => id), first.has_more]).toEqual([walked.slice(0, 2), false]);
    }
  await pool.query(sql.unsafe`delete from api_keys where name = 'large'`);
  await pool.query(sql.unsafe`delete from projects where id like 'large_project%'`);
});

test("every owner of a project's key has access to it", async () => {
  await make("owned");
  for (const access of ["active", "any"])
    expect((await list(`${PROJECT}?owner_project_access=${access}`)).data).not.toEqual([]);
  expect((await list(`${PROJECT}?owner_project_access=inactive`)).data).toEqual([]);
});

const badQueries: [string, string][] = [
  ["limit=0", "limit"],
  ["limit=x", "limit"],
  ["limit=1.5", "limit"],
  ["limit=-1", "limit"],
  ["limit=10001", "limit"],
  ["limit=", "limit"],
  ["limit=1&limit=2", "limit"],
  ["order=up", "order"],
  ["after=apikey_none", "after"],
  ["after_id=%00", "after_id"],
  ["before_id='; drop table api_keys; --", "before_id"],
  ["after=a&before_id=b", "before_id"],
  ["page=%%%", "page"],
  ["status[]=active", "status[]"],
  ["api_key_ids=x", "api_key_ids"],
];
test.each(badQueries)("rule 5.6: ?%s is a 400 that names %s", async (query, param) => {
  for (const path of [ORGANIZATION, PROJECT]) {
    const answer = await admin("GET", `${path}?${query}`);
    expect(answer.status).toBe(400);
    expect(answer.raw).toContain(param);
  }
});

test("limits end at 1000 on one face and at 10000 on the other, a foreign cursor is a 400", async () => {
  expect((await admin("GET", `${ORGANIZATION}?limit=1001`)).status).toBe(400);
  expect((await admin("GET", `${PROJECT}?limit=10000`)).status).toBe(200);
  expect((await admin("GET", `${ORGANIZATION}?status=gone`)).raw).toContain("status");
  const [foreign] = (await list(ORGANIZATION, world.b.admin)).data;
  expect((await admin("GET", `${ORGANIZATION}?after_id=${foreign?.id}`)).status).toBe(400);
});
