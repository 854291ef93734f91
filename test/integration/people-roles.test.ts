/** What each role may ask for (rule 13.3), on every route that the server has. */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { readAuditLog } from "../../dataplane/identity/audit-log.ts";
import { AdminWorld } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const path = (url: string) =>
  url.replace(":project", "default").replace(":id", "apikey_0000").replace("*", "m-chat");

/** What is refused says so in these words, of both families. */
const fault = (status: number, raw: string) => {
  const { error } = JSON.parse(raw) as { error: { message: string; type: string; code?: string } };
  return { status, message: error.message, kind: error.code ?? error.type };
};
const unauthorized = (message: string) => ({
  status: 401,
  message: `invalid x-api-key: ${message}`,
  kind: expect.stringMatching(/^(invalid_api_key|authentication_error)$/),
});
const needs = {
  inference: "this endpoint needs an inference key (sk-svc-…)",
  admin: "this endpoint needs an admin key (sk-adm-svc-…)",
} as const;
const roles = { inference: "Member", admin: "Admin or Viewer" } as const;
const wrongRole = (access: keyof typeof roles, role: string) =>
  unauthorized(`${needs[access]} or a token with the role ${roles[access]}; yours has the role ${role}.`);
const readsOnly = {
  status: 403,
  message: "The role Viewer reads the admin API and changes nothing: this needs the role Admin.",
  kind: expect.stringMatching(/^(insufficient_permissions|permission_error)$/),
};

test("each serves its own and refuses the other in words: a viewer reads all of the admin API and changes nothing; neither they nor an admin may infer", async () => {
  await world.declarePeople();
  const callers = {
    Viewer: world.token(world.a, "watchers"),
    Admin: world.token(world.a, "owners"),
    Member: world.token(world.a, "ml"),
  };
  const stranger = world.token(world.b, "owners");
  const walked: string[] = [];
  for (const { access, method, url } of world.plane.server.server.routes) {
    if (access === "none" || method === "HEAD") continue;
    walked.push(`${method} ${url}`);
    const ask = async (token: string) =>
      await world.call(token, method, path(url), method === "POST" ? { body: {} } : { raw: true });
    const isRefused = async (token: string, wanted: unknown) => {
      const { status, raw, headers } = await ask(token);
      expect([method, url, fault(status, raw)]).toEqual([method, url, wanted]);
      expect(headers.get("x-should-retry")).toBe("false");
    };
    // Exactly as the key of that kind.
    const { status: served } = await ask(access === "inference" ? world.a.inference : world.a.admin);
    expect([401, 403], `${method} ${url}`).not.toContain(served);
    const isServed = async (token: string) =>
      expect([method, url, (await ask(token)).status]).toEqual([method, url, served]);
    if (access === "inference") {
      await isServed(callers.Member);
      for (const role of ["Viewer", "Admin"] as const)
        await isRefused(callers[role], wrongRole(access, role));
      await isRefused(world.a.admin, unauthorized(`${needs[access]}.`));
    } else {
      await isServed(callers.Admin);
      await isRefused(callers.Member, wrongRole(access, "Member"));
      await isRefused(world.a.inference, unauthorized(`${needs[access]}.`));
      if (method === "GET") await isServed(callers.Viewer);
      else await isRefused(callers.Viewer, readsOnly);
    }
    // Another organization's admin is one there, and nobody here.
    if (access === "admin") await isServed(stranger);
    else await isRefused(stranger, wrongRole(access, "Admin"));
    if (access === "admin" && method === "GET") expect((await ask(stranger)).raw).not.toContain(world.a.id);
  }
  expect(walked).toContain("DELETE /v1/organization/projects/:project/api_keys/:id");
  expect(walked).toContain("GET /v1/organization/requests/:id");
});

test("a viewer who asked for each change has changed nothing", async () => {
  await world.declarePeople();
  const state = () =>
    world.pool.anyFirst(sql.type(z.object({ text: z.string() }))`
      select text from (
        select id, organization_id, api_keys.name || status || coalesce(deleted_at::text, '') || coalesce(limits::text, '') as text
        from api_keys where source <> 'identity'
        union all select id, organization_id, name || coalesce(limits::text, '') from projects
      ) as things where organization_id = ${world.a.id} order by id
    `);
  const viewer = world.token(world.a, "watchers");
  const made = await world.call(world.a.admin, "POST", "/v1/organizations/api_keys", {
    body: { name: "kept" },
  });
  const before = await state();
  for (const { access, method, url } of world.plane.server.server.routes) {
    if (access !== "admin" || !["POST", "DELETE"].includes(method)) continue;
    const own = url.replace(":project", "default").replace(":id", String(made.body["id"]));
    const answer = await world.call(viewer, method, own, method === "POST" ? { body: { name: "new" } } : {});
    expect([method, own, answer.status]).toEqual([method, own, 403]);
  }
  expect(await state()).toEqual(before);
});

test("what an admin changes stands in the audit log under their id", async () => {
  await world.declarePeople();
  // So long that no random id holds it.
  const owner = world.token(world.a, "owners", { sub: "owner", name: "Olgamarianne Owner" });
  const made = await world.call(owner, "POST", "/v1/organizations/api_keys", {
    body: { name: "by a person" },
  });
  expect(made.body).toMatchObject({ created_by: { type: "user", id: expect.stringMatching(/^usr_/) } });
  const [entry] = await readAuditLog(world.pool, {
    organizationId: world.a.id,
    keyId: String(made.body["id"]),
    since: null,
    limit: 1,
  });
  expect(entry?.actorKeyId).toBe((made.body["created_by"] as { id: string }).id);
  expect(world.plane.server.logged.some((line) => JSON.stringify(line).includes("Olgamarianne"))).toBe(false);
});
