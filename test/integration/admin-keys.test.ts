/** Keys through the admin API: two faces of one set, at once everywhere (service.md "Admin API"; rules 5.1–5.4, 5.7, 5.8). */
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { Keys } from "../../dataplane/identity/keys.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { primaryReads } from "../../dataplane/store/reads.ts";
import { AdminWorld, tenantEntry } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make, ask, models, statuses, list } = keyCalls(() => world);
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;

describe("objects", () => {
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
    const unfiltered = { status: null, workspace_id: null, created_by_user_id: null };
    for await (const item of client.organization.apiKeys.list({ limit: 7, ...unfiltered }))
      walked.push(item.id);
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
