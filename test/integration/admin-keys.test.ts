/** Keys through the admin API: two faces of one set, at once everywhere (service.md "Admin API"; rules 5.1–5.8, 5.18). */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { limitChanges, MOST_CHANGED_BYTES, MOST_CHANGES } from "../../dataplane/identity/audit-log.ts";
import { Keys, MOST_KEYS } from "../../dataplane/identity/keys.ts";
import { printAuditLog } from "../../dataplane/identity/audit-log-command.ts";
import { primaryReads } from "../../dataplane/store/reads.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { AdminWorld, tenantEntry } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make, ask, models, statuses } = keyCalls(() => world);
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;

interface Listed {
  readonly data: readonly { readonly id: string; readonly name: string }[];
  readonly has_more: boolean;
  readonly first_id: string | null;
  readonly last_id: string | null;
}
const list = async (path: string, key = world.a.admin) =>
  (await world.call(key, "GET", path)).body as unknown as Listed;

describe("objects", () => {
  test("organizations/me is the organization of the key", async () => {
    expect((await admin("GET", "/v1/organizations/me")).body).toEqual({
      id: "org_a",
      type: "organization",
      name: "The org_a",
    });
  });

  test("rule 11.7: a key says where it is declared, credit which grants it is made of", async () => {
    const { id } = await make("made here");
    for (const path of [ORGANIZATION, PROJECT]) {
      const { body } = await admin("GET", path);
      const keys = body["data"] as { id: string; name: string; declared_in: string | null }[];
      expect(keys.find((key) => key.id === id)?.declared_in).toBeNull();
      expect(keys.find((key) => key.name === "ci")?.declared_in).toBe("Organization default/org_a");
    }
    const { body: credits } = await admin("GET", "/v1/organization/credits");
    const [grant, ...others] = tenantEntry(world.a).grants;
    expect(others).toEqual([]);
    expect(credits["grants"]).toEqual([
      {
        name: grant?.name,
        amount: credits["granted"],
        granted_at: expect.stringMatching(iso),
        source: "declared",
      },
    ]);
  });

  test("rule 11.7: the configuration names what an organization lives under, and nothing of another one", async () => {
    const { body } = await admin("GET", "/v1/organization/configuration");
    const objects = body["data"] as { id: string; conditions: { type: string }[] }[];
    expect(objects[0]).toMatchObject({
      id: "Organization/default/org_a",
      kind: "Organization",
      generation: 1,
      conditions: [{ type: "Programmed" }],
    });
    expect(objects.map(({ id }) => id)).toContain("ModelRoute/default/m-chat");
    expect(JSON.stringify(body)).not.toMatch(/org_b|127\.0\.0\.1|upstream/);
  });

  test("rule 5.6: the configuration has pages as every list, and refuses what no list takes", async () => {
    const path = "/v1/organization/configuration";
    const idsOf = ({ body }: Awaited<ReturnType<typeof admin>>) =>
      (body["data"] as { id: string }[]).map(({ id }) => id);
    const all = idsOf(await admin("GET", path));
    const first = await admin("GET", `${path}?limit=1`);
    expect(first.body).toMatchObject({ first_id: all[0], last_id: all[0], has_more: true });
    const rest = await admin("GET", `${path}?after=${encodeURIComponent(all[0] ?? "")}`);
    expect(idsOf(rest)).toEqual(all.slice(1));
    expect(rest.body["has_more"]).toBe(false);
    expect(idsOf(await admin("GET", `${path}?page=${String(first.body["next_page"])}`))).toEqual(
      all.slice(1),
    );
    expect(idsOf(await admin("GET", `${path}?order=asc`))).toEqual(all.toReversed());
    for (const [query, param] of [
      ["limit=0", "limit"],
      ["order=up", "order"],
      ["after=Organization/default/org_b", "after"],
      ["kind=ModelRoute", "kind"],
    ])
      expect([query, await admin("GET", `${path}?${query}`)]).toMatchObject([
        query,
        { status: 400, body: { error: { param } } },
      ]);
  });

  test("rule 5.1: a key made on one face is the same key under the same id on the other", async () => {
    const { body: made } = await admin("POST", ORGANIZATION, { name: "both" });
    expect(made).toMatchObject({
      type: "api_key",
      name: "both",
      status: "active",
      key: expect.stringMatching(/^sk-svc-[0-9A-Za-z]{40}$/),
      created_at: expect.stringMatching(iso),
      created_by: { id: expect.any(String), type: "user" },
      workspace_id: expect.stringMatching(/^proj_/),
    });
    const { key: secret, ...rest } = made as Record<string, string>;
    expect((await admin("GET", `${ORGANIZATION}/${rest["id"]}`)).body).toEqual(rest);
    const { body: other } = await admin("GET", `${PROJECT}/${rest["id"]}`);
    expect(other).toMatchObject({
      object: "organization.project.api_key",
      id: rest["id"],
      name: "both",
      redacted_value: rest["partial_key_hint"],
      last_used_at: null,
      owner: { type: "user" },
      created_at: Date.parse(rest["created_at"] ?? "") / 1000,
    });
    expect(other).not.toHaveProperty("value");
    expect(secret?.startsWith(rest["partial_key_hint"]?.replace("...", "") ?? "?")).toBe(true);
    const { body: byProject } = await admin("POST", PROJECT, { name: "from the project" });
    expect(byProject).toMatchObject({ value: expect.stringMatching(/^sk-svc-[0-9A-Za-z]{40}$/) });
    expect((await list(ORGANIZATION)).data[0]).toMatchObject({
      id: byProject["id"],
      workspace_id: rest["workspace_id"],
    });
  });

  test("rule 5.1: every project is listed and usable by its id, `default` is an alias", async () => {
    const { body } = await admin("GET", "/v1/organization/projects");
    expect(body).toMatchObject({ object: "list", has_more: false });
    const projects = (
      body as unknown as { data: { id: string; name: string; status: string; created_at: number }[] }
    ).data;
    expect(projects.map(({ name, status }) => [name, status])).toEqual([
      ["default", "active"],
      ["second", "active"],
    ]);
    const second = `/v1/organization/projects/${projects[1]?.id}/api_keys`;
    const { body: made } = await admin("POST", second, { name: "in the second" });
    expect((await list(second)).data.map(({ id }) => id)).toEqual([made["id"]]);
    expect((await admin("GET", `${PROJECT}/${String(made["id"])}`)).status).toBe(404);
    expect((await admin("DELETE", `${PROJECT}/${String(made["id"])}`)).status).toBe(404);
    expect((await admin("GET", `${ORGANIZATION}/${String(made["id"])}`)).body).toMatchObject({
      workspace_id: projects[1]?.id,
    });
    expect((await list(`/v1/organization/projects/${projects[0]?.id}/api_keys`)).data).toEqual(
      (await list(PROJECT)).data,
    );
  });

  test("rule 5.4: hints show little, admin keys are never listed, the plaintext is kept nowhere", async () => {
    const { key } = await make("secret");
    const { data } = await list(`${ORGANIZATION}?limit=1000`);
    for (const item of data as unknown as Record<string, string>[]) {
      expect(item["partial_key_hint"]).toMatch(/^sk-svc-[0-9A-Za-z]{1,16}\.\.\.$/);
      expect(item).toMatchObject({ created_by: { type: "user" } });
      expect(item).not.toHaveProperty("key");
    }
    expect(JSON.stringify(data)).not.toContain("root");
    const rows = await world.pool.anyFirst(sql.type(z.object({ text: z.string() }))`
      select api_keys::text as text from api_keys union all select audit_log::text from audit_log
    `);
    expect(rows.filter((row) => row.includes(key.slice(13)))).toEqual([]);
  });
});

describe("at once", () => {
  test("rule 5.2: a key tried before it existed works on every plane the moment it is made", async () => {
    const secret = `sk-svc-${"Z".repeat(40)}`;
    expect(await statuses(secret)).toEqual([401, 401, 401, 401]);
    const keys = new Keys({
      reads: primaryReads(world.pool),
      pool: world.pool,
      directory: world.plane.directory,
      holds: world.plane.money.holds,
      newId,
      newKey: () => secret,
    });
    const actor = { organizationId: "org_a", keyId: "k", requestId: "r", address: "a", forwardedFor: null };
    const { data } = await list("/v1/organization/projects");
    await keys.create(actor, data[0]?.id ?? "", { name: "tried", expiresAt: null });
    expect(await statuses(secret)).toEqual([200, 200, 200, 200]);
  });

  test("rule 5.2: deactivated, activated, deleted: at once here, within a second elsewhere", async () => {
    const { id, key } = await make("switched");
    expect(await statuses(key)).toEqual([200, 200, 200, 200]);
    expect((await admin("POST", `${ORGANIZATION}/${id}`, { status: "inactive" })).body).toMatchObject({
      status: "inactive",
    });
    // The second plane's free endpoints may answer from memory for less than a second; billed ones never.
    expect([(await models(key, 0)).status, (await ask(key, 0)).status, (await ask(key, 1)).status]).toEqual([
      401, 401, 401,
    ]);
    await new Promise((done) => setTimeout(done, 1000));
    expect(await statuses(key)).toEqual([401, 401, 401, 401]);
    await admin("POST", `${ORGANIZATION}/${id}`, { status: "active" }, 1);
    expect(await statuses(key)).toEqual([200, 200, 200, 200]);
    expect((await admin("DELETE", `${PROJECT}/${id}`)).body).toEqual({
      object: "organization.project.api_key.deleted",
      id,
      deleted: true,
    });
    expect([(await models(key, 0)).status, (await ask(key, 0)).status, (await ask(key, 1)).status]).toEqual([
      401, 401, 401,
    ]);
  });

  test("rule 5.7: a deleted key is gone from both faces and cannot be switched on again, its usage stays", async () => {
    const { id, key } = await make("to be deleted");
    expect((await ask(key, 0)).status).toBe(200);
    await admin("DELETE", `${PROJECT}/${id}`);
    expect((await admin("GET", `${ORGANIZATION}/${id}`)).status).toBe(404);
    expect((await admin("GET", `${PROJECT}/${id}`)).status).toBe(404);
    expect((await admin("POST", `${ORGANIZATION}/${id}`, { status: "active" })).status).toBe(404);
    expect((await admin("DELETE", `${PROJECT}/${id}`)).status).toBe(404);
    expect((await list(`${ORGANIZATION}?limit=1000`)).data.map((item) => item.id)).not.toContain(id);
    const used = () =>
      world.pool.anyFirst(sql.type(z.object({ id: z.string() }))`select id from usage where key_id = ${id}`);
    await expect.poll(used, { timeout: 3000 }).toHaveLength(1);
  });

  test("rule 5.7: last_used_at follows", async () => {
    const { id, key } = await make("used");
    const lastUsed = async () =>
      ((await admin("GET", `${PROJECT}/${id}`)).body as { last_used_at: number | null }).last_used_at;
    expect(await lastUsed()).toBe(null);
    await models(key, 1);
    await expect.poll(lastUsed, { timeout: 15_000, interval: 250 }).toBeGreaterThan(Date.now() / 1000 - 60);
  });
});

describe("declared keys", () => {
  const declaredId = async () =>
    (await list(`${ORGANIZATION}?limit=1000`)).data.find(({ name }) => name === "ci")?.id ?? "";

  test("rule 5.3: they are listed; changing or deleting one is a 400 that names the Organization", async () => {
    const id = await declaredId();
    for (const answer of [
      await admin("POST", `${ORGANIZATION}/${id}`, { status: "inactive" }),
      await admin("POST", `${ORGANIZATION}/${id}`, { name: "other" }),
      await admin("DELETE", `${PROJECT}/${id}`),
    ]) {
      expect(answer.status).toBe(400);
      expect(answer.raw).toContain("Organization resource default/org_a");
    }
    expect((await admin("POST", `${ORGANIZATION}/${id}`, {})).body).toMatchObject({ id, status: "active" });
    expect((await models(world.a.inference, 0)).status).toBe(200);
  });

  test("rule 5.3: removed from the manifest it is inactive, declared again it works under the same id", async () => {
    const id = await declaredId();
    await world.declare([tenantEntry(world.a, { apiKeys: [] }), tenantEntry(world.b)]);
    expect((await admin("GET", `${ORGANIZATION}/${id}`)).body).toMatchObject({ status: "inactive" });
    expect((await ask(world.a.inference, 0)).status).toBe(401);
    const back = await admin("POST", `${ORGANIZATION}/${id}`, { status: "active" });
    expect([back.status, back.raw]).toEqual([400, expect.stringContaining("was removed from")]);
    await world.declare([tenantEntry(world.a), tenantEntry(world.b)]);
    expect((await admin("GET", `${ORGANIZATION}/${id}`)).body).toMatchObject({ status: "active" });
    expect(await statuses(world.a.inference)).toEqual([200, 200, 200, 200]);
  });

  test("removed from the manifest it can be deleted, and comes back when it is declared again", async () => {
    const id = await declaredId();
    await world.declare([tenantEntry(world.a, { apiKeys: [] }), tenantEntry(world.b)]);
    expect((await admin("DELETE", `${PROJECT}/${id}`)).status).toBe(200);
    expect(await declaredId()).toBe("");
    expect((await admin("GET", `${ORGANIZATION}/${id}`)).status).toBe(404);
    await world.declare([tenantEntry(world.a), tenantEntry(world.b)]);
    expect(await declaredId()).toBe(id);
    expect(await statuses(world.a.inference)).toEqual([200, 200, 200, 200]);
  });
});

describe("bodies", () => {
  const bad: [string, unknown, string][] = [
    ["no name", {}, "name"],
    ["a null name", { name: null }, "name"],
    ["an empty name", { name: "" }, "name"],
    ["a name that is a number", { name: 7 }, "name"],
    ["a name of 501 characters", { name: "x".repeat(501) }, "name"],
    ["a name with NUL", { name: "a\0b" }, "name"],
    ["a name with half a surrogate pair", '{"name":"\\ud800"}', "name"],
    ["no object", [], ""],
    ["no JSON", "{", ""],
    ["nothing", "", ""],
  ];
  test.each(bad)(
    "rule 5.5: %s is refused in the style of the family, naming the field",
    async (_, body, param) => {
      const before = (await list(`${ORGANIZATION}?limit=1000`)).data.length;
      const first = await admin("POST", ORGANIZATION, body);
      expect(first).toMatchObject({
        status: 400,
        body: { type: "error", error: { type: "invalid_request_error" } },
      });
      expect(first.raw).toContain(param);
      expect(first.headers.get("x-should-retry")).toBe("false");
      const second = await admin("POST", PROJECT, body);
      expect(second).toMatchObject({
        status: 400,
        body: { error: { type: "invalid_request_error", param: param === "" ? null : param } },
      });
      expect(second.body).not.toHaveProperty("type");
      expect((await list(`${ORGANIZATION}?limit=1000`)).data).toHaveLength(before);
    },
  );

  test("rule 5.5: names of 500 characters and of any script are kept as they are", async () => {
    for (const name of ["😀".repeat(500), "' or 1=1; --", "__proto__", " "]) {
      const { id } = await make(name);
      expect((await admin("GET", `${ORGANIZATION}/${id}`)).body).toMatchObject({ name });
    }
  });

  test("rule 5.5: `{}` and nulls change nothing, one invalid field changes nothing at all", async () => {
    const { id } = await make("steady");
    const now = async () => (await admin("GET", `${ORGANIZATION}/${id}`)).body;
    const before = await now();
    for (const body of [{}, { name: null, status: null }, { name: "steady", status: "active" }]) {
      expect(await admin("POST", `${ORGANIZATION}/${id}`, body)).toMatchObject({ status: 200, body: before });
    }
    for (const [body, param] of [
      [{ name: "new", status: "archived" }, "status"],
      [{ name: "", status: "inactive" }, "name"],
      [{ status: 1 }, "status"],
      [{ status: "expired" }, "status"],
      [{ name: "new", unknown: 1 }, "unknown"],
    ] as const) {
      const answer = await admin("POST", `${ORGANIZATION}/${id}`, body);
      expect(answer.status).toBe(400);
      expect(answer.raw).toContain(param);
      expect(await now()).toEqual(before);
    }
    expect((await admin("POST", `${ORGANIZATION}/${id}`, { name: "renamed" })).body).toEqual({
      ...before,
      name: "renamed",
    });
  });

  test.each([
    ["DELETE", ORGANIZATION],
    ["PUT", ORGANIZATION],
    ["DELETE", `${ORGANIZATION}/apikey_x`],
    ["PUT", `${PROJECT}/apikey_x`],
    ["PATCH", PROJECT],
    ["POST", "/v1/organization/projects"],
    ["POST", "/v1/organizations/me"],
    ["POST", "/v1/organization/credits"],
  ])("rule 5.5: %s %s is 405", async (method, path) => {
    const answer = await admin(method, path, {});
    expect(answer.status).toBe(405);
    expect(answer.headers.get("allow")).not.toBe(null);
  });
});

describe("lists", () => {
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

  test("rule 5.1: `default` filters by the default project, as its id does", async () => {
    const { data: projects } = await list("/v1/organization/projects");
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
    for (const [path, bytes] of [
      [ORGANIZATION, 10_000_000],
      [PROJECT, 10_000_000],
      ["/v1/organization/users", 10_000_000],
    ] as const)
      for (const order of ["desc", "asc"]) {
        const walked: string[] = [];
        for (let more = ""; ;) {
          const { raw, body } = await world.call(
            world.b.admin,
            "GET",
            `${path}?limit=1000&order=${order}${more}`,
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
          `${path}?limit=1000&order=${order}&before_id=${rest.at(-1)}`,
          world.b.admin,
        );
        expect(before.has_more).toBe(true);
        expect(before.data.at(-1)?.id).toBe(rest.at(-2));
        const first = await list(`${path}?limit=2&order=${order}&before_id=${third}`, world.b.admin);
        expect([first.data.map(({ id }) => id), first.has_more]).toEqual([walked.slice(0, 2), false]);
      }
    await pool.query(sql.unsafe`delete from api_keys where name = 'large'`);
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
});

test("an organization with ten thousand keys makes no more until it deletes one", async () => {
  const { pool } = world;
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, hint, source)
    select 'apikey_full_' || n, project.organization_id, project.id, 'inference', 'full', 'sk-svc-...', 'created'
    from projects project, generate_series(1, ${MOST_KEYS}) n
    where project.organization_id = ${world.b.id} and project.is_default
  `);
  const full = await world.call(world.b.admin, "POST", ORGANIZATION, { body: { name: "one more" } });
  expect([full.status, JSON.stringify(full.body)]).toEqual([
    400,
    expect.stringContaining("at most 10000 API keys"),
  ]);
  await pool.query(sql.unsafe`delete from api_keys where name = 'full' and id <> 'apikey_full_1'`);
  const made = await world.call(world.b.admin, "POST", PROJECT, { body: { name: "one more" } });
  expect(made.status).toBe(200);
  await pool.query(
    sql.unsafe`delete from api_keys where id in ('apikey_full_1', ${String(made.body["id"])})`,
  );
});

test("beyond the changes of a day only what ends a key is done, and another organization waits for none of it", async () => {
  const { pool, b } = world;
  const call = (method: string, path: string, body?: Record<string, unknown>) =>
    world.call(b.admin, method, path, body === undefined ? {} : { body });
  const made = await call("POST", ORGANIZATION, { name: "busy" });
  const id = String(made.body["id"]);
  const busy = `${ORGANIZATION}/${id}`;
  const write = (count: number, who: string, hoursAgo: number, limits: string) =>
    pool.query(sql.unsafe`
      insert into audit_log (organization_id, at, actor_key_id, action, key_id, changes, address, request_id,
        lines_so_far, bytes_so_far)
      select ${b.id}, now() - make_interval(hours => ${hoursAgo}::int), ${who}, 'key.updated', ${who}, line.changes, '', '',
        newest.lines_so_far + n, newest.bytes_so_far + n * octet_length(line.changes::text)
      from generate_series(1, ${count}::int) n, (select jsonb_build_object('limits', ${limits}::text) as changes) line, (
        select lines_so_far, bytes_so_far from audit_log where organization_id = ${b.id} order by position desc limit 1
      ) newest
      order by n
    `);
  await write(MOST_CHANGES, "busy", 23, "");
  const rowsRead = await pool.transaction(async (transaction) => {
    await expect(limitChanges(transaction, b.id)).rejects.toThrow(/at most/);
    return await transaction.oneFirst(sql.type(z.object({ rows: z.bigint().transform(Number) }))`
      select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relname = 'audit_log'
    `);
  });
  expect(rowsRead, "looked at, however many there are").toBeLessThan(10);
  const limits = { requests_per_minute: 60 };
  for (const [path, body] of [
    [ORGANIZATION, { name: "one more" }],
    [busy, { name: "another" }],
    [busy, { name: "another", status: "inactive" }],
    ["/v1/organization/projects/default", { limits }],
  ] as const) {
    const refused = await call("POST", path, body);
    expect([refused.status, JSON.stringify(refused.body)], path).toEqual([
      429,
      expect.stringContaining(`at most ${MOST_CHANGES} times in 24 hours`),
    ]);
  }
  expect((await call("POST", busy, { name: "busy" })).status, "no change").toBe(200);
  const { id: other } = await make("meanwhile");
  expect((await admin("DELETE", `${PROJECT}/${other}`)).status).toBe(200);
  expect((await call("POST", busy, { status: "inactive" })).status).toBe(200);
  expect((await call("POST", busy, { status: "active" })).status).toBe(429);
  expect((await call("DELETE", `${PROJECT}/${id}`)).status).toBe(200);
  await pool.query(sql.unsafe`update audit_log set at = at - interval '2 hours' where actor_key_id = 'busy'`);
  await write(MOST_CHANGED_BYTES / 65_536, "long", 0, "x".repeat(65_536));
  expect((await call("POST", ORGANIZATION, { name: "long ones" })).status).toBe(429);
  await pool.query(sql.unsafe`delete from audit_log where actor_key_id = 'long'`);
  const again = await call("POST", ORGANIZATION, { name: "the day after" });
  expect(again.status).toBe(200);
  expect((await call("DELETE", `${PROJECT}/${String(again.body["id"])}`)).status).toBe(200);
});

describe("ids and credentials", () => {
  test("rule 5.7: foreign, unknown and malformed ids give one and the same 404", async () => {
    const [foreign] = (await list(ORGANIZATION, world.b.admin)).data;
    const [foreignProject] = (await list("/v1/organization/projects", world.b.admin)).data;
    const errorOf = ({ body }: { body: Record<string, unknown> }) => ({ ...body, request_id: "" });
    for (const [method, path, body] of [
      ["GET", ORGANIZATION, undefined],
      ["POST", ORGANIZATION, { name: "mine now" }],
      ["GET", PROJECT, undefined],
      ["DELETE", PROJECT, undefined],
    ] as const) {
      const answers = [];
      for (const id of [
        foreign?.id,
        "apikey_000000000000000000000000",
        "x",
        "%00",
        "a%00b",
        "%E2%82%AC",
        "..%2f",
        "%ff",
        "%",
        "x".repeat(3_000),
      ]) {
        const answer = await admin(method, `${path}/${id}`, body);
        expect([id, answer.status]).toEqual([id, 404]);
        expect(answer.headers.get("x-should-retry")).toBe("false");
        answers.push(errorOf(answer));
      }
      expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    }
    for (const id of [foreignProject?.id, "proj_none", "%00", "Default"]) {
      expect((await admin("GET", `/v1/organization/projects/${id}/api_keys`)).status).toBe(404);
      expect((await admin("POST", `/v1/organization/projects/${id}/api_keys`, { name: "x" })).status).toBe(
        404,
      );
    }
    expect((await models(world.b.inference, 0)).status).toBe(200);
  });

  test("rule 5.8: a key of the wrong kind is a 401 that names the kind needed, whatever header carries it", async () => {
    for (const path of ["/v1/organizations/me", ORGANIZATION, PROJECT, "/v1/organization/credits"]) {
      for (const headers of [{}, { authorization: "", "x-api-key": world.a.inference }]) {
        const answer = await world.call(world.a.inference, "GET", path, { headers });
        expect(answer.status).toBe(401);
        expect(answer.raw).toContain("an admin key");
        expect(answer.raw).not.toContain(world.a.inference);
        expect(answer.headers.get("x-should-retry")).toBe("false");
      }
    }
    const answer = await models(world.a.admin, 0);
    expect(answer).toMatchObject({ status: 401 });
    expect(answer.raw).toContain("an inference key");
  });
});

describe("credits", () => {
  test("rule 7.8: what the organization keeps, and what it may, stand beside them as integers", async () => {
    const read = async () => (await admin("GET", "/v1/organization/credits")).body["storage"];
    const most = { max_bytes: 10_737_418_240, max_files: 100_000 };
    expect(await read()).toEqual({ bytes: 0, files: 0, ...most });
    const data = new FormData();
    data.append("file", new File(["hello"], "a.txt"));
    const headers = { authorization: `Bearer ${world.a.inference}` };
    await fetch(`${world.planes[0]?.server.url}/v1/files`, { method: "POST", body: data, headers });
    expect(await read()).toEqual({ bytes: 5, files: 1, ...most });
  });

  test("rule 5.18: granted − used is what is left, decimal strings in credits", async () => {
    const read = async () =>
      (await admin("GET", "/v1/organization/credits")).body as unknown as Record<string, string>;
    const before = await read();
    expect(before).toMatchObject({ object: "organization.credits", granted: "1000", held: "0" });
    expect((await ask(world.a.inference, 0)).status).toBe(200);
    const after = await read();
    expect(Number(after["used"])).toBeGreaterThan(Number(before["used"]));
    expect(Number(after["available"])).toBeCloseTo(1000 - Number(after["used"]), 6);
    expect((await world.call(world.b.admin, "GET", "/v1/organization/credits")).body).toMatchObject({
      granted: "1000",
      used: "0",
    });
  });
});

describe("the official SDKs", () => {
  test("Anthropic: organization.apiKeys retrieve, update, list", async () => {
    const client = new Anthropic({
      apiKey: null,
      authToken: world.a.admin,
      baseURL: world.plane.server.url,
      maxRetries: 0,
    });
    const { id } = await make("by sdk");
    const key = await client.organization.apiKeys.retrieve(id);
    expect(key).toMatchObject({ id, type: "api_key", scope: { type: "workspace" }, expires_at: null });
    expect(await client.organization.apiKeys.update(id, { name: "sdk", status: "inactive" })).toMatchObject({
      name: "sdk",
      status: "inactive",
    });
    const walked: string[] = [];
    for await (const item of client.organization.apiKeys.list({ limit: 7 })) walked.push(item.id);
    expect(walked).toEqual((await list(`${ORGANIZATION}?limit=1000`)).data.map((item) => item.id));
    await expect(client.organization.apiKeys.retrieve("apikey_none")).rejects.toMatchObject({ status: 404 });
  });

  test("OpenAI: admin.organization.projects and their apiKeys", async () => {
    const client = new OpenAI({
      apiKey: "",
      adminAPIKey: world.a.admin,
      baseURL: `${world.plane.server.url}/v1`,
      maxRetries: 0,
    });
    const { projects } = client.admin.organization;
    const names: unknown[] = [];
    for await (const project of projects.list({ limit: 1 })) names.push(project.name);
    expect(names).toEqual(["default", "second"]);
    const walked: string[] = [];
    for await (const item of projects.apiKeys.list("default", { limit: 7 })) walked.push(item.id);
    expect(walked).toEqual((await list(`${PROJECT}?limit=1000`)).data.map((item) => item.id));
    const { id } = await make("for openai");
    expect(await projects.apiKeys.retrieve(id, { project_id: "default" })).toMatchObject({
      id,
      owner: { type: "user" },
    });
    expect(await projects.apiKeys.delete(id, { project_id: "default" })).toMatchObject({ id, deleted: true });
    await expect(projects.apiKeys.retrieve(id, { project_id: "default" })).rejects.toMatchObject({
      status: 404,
    });
  });
});

test("the audit log says who changed which key, when and from where", async () => {
  const { id, key } = await make("audited");
  await world.call(world.a.admin, "POST", `${ORGANIZATION}/${id}`, {
    body: { name: "watched", status: "inactive" },
    headers: { "x-forwarded-for": "203.0.113.9" },
  });
  await admin("POST", `${ORGANIZATION}/${id}`, {});
  await admin("POST", `${ORGANIZATION}/${id}`, { status: "nonsense" });
  await world.call(world.b.admin, "DELETE", `${PROJECT}/${id}`);
  await admin("DELETE", `${PROJECT}/${id}`);
  const lines = await printAuditLog(world.pool, {
    organizationId: "org_a",
    keyId: id,
    since: Date.now() - 60_000,
    limit: 10,
  });
  const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(entries).toMatchObject([
    { action: "key.deleted", changes: { status: { from: "inactive", to: null } } },
    {
      action: "key.updated",
      forwardedFor: "203.0.113.9",
      changes: { name: { from: "audited", to: "watched" }, status: { from: "active", to: "inactive" } },
    },
    { action: "key.created", changes: { name: { from: null, to: "audited" } } },
  ]);
  for (const entry of entries) {
    expect(entry).toMatchObject({
      organizationId: "org_a",
      keyId: id,
      address: "127.0.0.1",
      requestId: expect.stringMatching(/^req_/),
      actorKeyId: expect.stringMatching(/^apikey_/),
    });
    expect(Math.abs(Date.now() - Date.parse(String(entry["at"])))).toBeLessThan(60_000);
  }
  expect(lines.join("")).not.toContain(key);
  expect(
    await printAuditLog(world.pool, { organizationId: "org_b", keyId: id, since: null, limit: 10 }),
  ).toEqual([]);
});
