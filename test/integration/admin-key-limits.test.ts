/** When keys end, and what they and projects may spend, through the admin API (rules 9.3 to 9.5). */
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { AdminWorld, tenantEntry } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make, ask, models, statuses, own } = keyCalls(() => world);

describe("expiry", () => {
  test("an expired key answers 401 on every plane; both faces and the holder are told when", async () => {
    // Late enough for a busy machine to see that it works on both planes.
    const ends = Math.ceil(Date.now() / 1000) + 4;
    const iso = `${new Date(ends * 1000).toISOString().slice(0, 19)}Z`;
    const { body: made } = await admin("POST", ORGANIZATION, { name: "brief", expires_at: ends });
    const [id, key] = [String(made["id"]), String(made["key"])];
    expect(made).toMatchObject({ expires_at: iso });
    expect((await admin("GET", `${PROJECT}/${id}`)).body).toMatchObject({ expires_at: ends });
    expect(await own(key)).toMatchObject({
      status: 200,
      body: { object: "key", id, name: "brief", project_id: made["workspace_id"], expires_at: iso },
    });
    expect(await statuses(key)).toEqual([200, 200, 200, 200]);
    await expect.poll(() => statuses(key), { timeout: 10_000 }).toEqual([401, 401, 401, 401]);
    const { body: later } = await admin("POST", `${PROJECT}/${id}`, {
      expires_at: "2099-12-31T07:00:00+07:00",
    });
    expect(later).toMatchObject({ expires_at: Date.UTC(2099, 11, 31) / 1000 });
    await expect.poll(() => statuses(key), { timeout: 5_000 }).toEqual([200, 200, 200, 200]);
    expect((await admin("POST", `${ORGANIZATION}/${id}`, { expires_at: null })).body).toMatchObject({
      expires_at: null,
    });
    expect((await own(key)).body).toMatchObject({ expires_at: null });
  });

  test.each(["2099-12-31T00:00:00Z", "2099-12-31t00:00:00z", "2099-12-31t07:00:00.000+07:00"])(
    "a moment may be written as RFC 3339 lets it be: %s",
    async (expires_at) => {
      const { status, body } = await admin("POST", ORGANIZATION, { name: "written", expires_at });
      expect([status, body["expires_at"]]).toEqual([200, "2099-12-31T00:00:00Z"]);
    },
  );

  test("a moment within a second is told as it holds, on the face that has a form for it", async () => {
    const expires_at = "2099-12-31T00:00:00.250Z";
    const { body: made } = await admin("POST", ORGANIZATION, { name: "exact", expires_at });
    expect(made).toMatchObject({ expires_at });
    expect((await own(String(made["key"]))).body).toMatchObject({ expires_at });
    const { body: ofProject } = await admin("GET", `${PROJECT}/${String(made["id"])}`);
    expect(ofProject).toMatchObject({ expires_at: Date.UTC(2099, 11, 31) / 1000 });
  });

  test("an earlier end holds at once, also where the key is remembered", async () => {
    const { id, key } = await make("shortened");
    expect(await statuses(key)).toEqual([200, 200, 200, 200]);
    const ends = Math.ceil(Date.now() / 1000) + 1;
    await admin("POST", `${ORGANIZATION}/${id}`, { expires_at: ends });
    await expect.poll(() => Date.now() > ends * 1000, { timeout: 5_000 }).toBe(true);
    expect([(await ask(key, 0)).status, (await ask(key, 1)).status]).toEqual([401, 401]);
  });

  test.each([["2020-01-01T00:00:00Z"], ["tomorrow"], [12], [1.5], [true], ["2099-02-30T00:00:00Z"], [9e15]])(
    "expires_at %j is a 400 that names it, and changes nothing",
    async (expires_at) => {
      const { id } = await make("kept");
      for (const path of [ORGANIZATION, `${ORGANIZATION}/${id}`, PROJECT, `${PROJECT}/${id}`]) {
        const { status, raw } = await admin("POST", path, { name: "changed", expires_at });
        expect([path, status, raw.includes("expires_at")]).toEqual([path, 400, true]);
      }
      expect((await admin("GET", `${ORGANIZATION}/${id}`)).body).toMatchObject({ name: "kept" });
    },
  );

  test.each([
    [1_900_000_000_000, "expires_at must lie in the year 9999 or before; as a number it is Unix seconds."],
    [9e15, "expires_at must lie in the year 9999 or before; as a number it is Unix seconds."],
    [Math.floor(Date.now() / 1000) - 60, "expires_at must lie in the future."],
  ])("expires_at %j is told what is wrong with it: %s", async (expires_at, message) => {
    const { status, raw } = await admin("POST", ORGANIZATION, { name: "late", expires_at });
    expect(status).toBe(400);
    expect(raw).toContain(message);
  });

  test("rule 9.4: unknown fields of any admin body are a 400 that names each of them", async () => {
    const { id } = await make("strict");
    const taking = world.plane.server.server.routes.filter(
      ({ access, method }) => access === "admin" && !["GET", "HEAD", "DELETE"].includes(method),
    );
    expect(taking.map(({ url }) => url)).toEqual(
      expect.arrayContaining([ORGANIZATION, "/v1/organization/projects/:project/api_keys"]),
    );
    for (const { method, url } of taking) {
      const path = url.replace(":project", "default").replace(":id", id);
      const answer = await admin(method, path, { name: "x", expiresAt: "2099-01-01", monthly_limit: 5 });
      expect([path, answer.status]).toEqual([path, 400]);
      expect(answer.raw).toContain("expiresAt");
      expect(answer.raw).toContain("monthly_limit");
    }
    expect((await admin("GET", `${ORGANIZATION}/${id}`)).body).toMatchObject({ name: "strict" });
  });
});

describe("limits", () => {
  const none = {
    credits: null,
    models: null,
    requests_per_minute: null,
    tokens_per_minute: null,
    concurrent_requests: null,
  };

  test("are taken, shown and changed on both faces, and told to the holder with what is left", async () => {
    const { body: made } = await admin("POST", ORGANIZATION, {
      name: "limited",
      limits: { credits: { amount: "0.5", per: "month" }, models: ["m-*"] },
    });
    const [id, key] = [String(made["id"]), String(made["key"])];
    const limits = { ...none, credits: { amount: "0.5", per: "month" }, models: ["m-*"] };
    const now = new Date();
    const anew = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1));
    const standing = {
      scope: "key",
      per: "month",
      amount: "0.5",
      spent: "0",
      held: "0",
      left: "0.5",
      begins_anew_at: anew.toISOString().replace(".000Z", "Z"),
    };
    for (const body of [made, (await admin("GET", `${PROJECT}/${id}`)).body, (await own(key, 1)).body])
      expect(body).toMatchObject({ limits, standing: [standing] });
    expect((await ask(key, 1)).status).toBe(200);
    const spent = Number(((await own(key)).body["standing"] as { spent: string }[])[0]?.spent);
    expect(spent).toBeGreaterThan(0);
    const { body: changed } = await admin("POST", `${PROJECT}/${id}`, {
      limits: { credits: { amount: "0.000001", per: "total" }, models: null, requests_per_minute: 100 },
    });
    expect(changed).toMatchObject({
      limits: { ...none, credits: { amount: "0.000001", per: "total" }, requests_per_minute: 100 },
    });
    // At once, on every plane.
    for (const plane of [0, 1]) {
      const refused = await ask(key, plane);
      expect([refused.status, refused.headers.get("x-should-retry")]).toEqual([402, "false"]);
      expect(refused.body).toMatchObject({
        error: { type: "insufficient_quota", code: "key_limit_reached" },
      });
      expect(refused.raw).not.toContain("Credit balance is too low");
    }
    expect((await own(key)).body).toMatchObject({
      standing: [{ per: "total", spent: String(spent), left: "0", begins_anew_at: null }],
    });
    expect((await models(key, 0)).status).toBe(200);
    expect((await admin("POST", `${ORGANIZATION}/${id}`, { limits: null })).body).toMatchObject({
      limits: null,
      standing: [],
    });
    expect((await ask(key, 0)).status).toBe(200);
  });

  test("a model outside of a key's list is unknown to it, and not listed", async () => {
    const { body: made } = await admin("POST", PROJECT, { name: "few", limits: { models: ["m-messages"] } });
    const key = String(made["value"]);
    const { body } = await models(key, 0);
    expect((body["data"] as { id: string }[]).map((model) => model.id)).toEqual(["m-messages"]);
    expect((await ask(key, 1)).status).toBe(404);
    expect((await world.call(key, "GET", "/v1/models/m-chat")).status).toBe(404);
  });

  test.each([
    ["key", (id: string) => `${ORGANIZATION}/${id}`],
    ["project", () => "/v1/organization/projects/default"],
  ])(
    "a longer list of models of a %s holds at once on every plane, also where it was short",
    async (_, pathOf) => {
      const { id, key } = await make("more");
      const path = pathOf(id);
      for (let turn = 0; turn < 2; turn += 1) {
        await admin("POST", path, { limits: { models: ["m-messages"] } });
        for (const plane of [0, 1]) expect((await ask(key, plane)).status).toBe(404);
        await admin("POST", path, { limits: { models: null } });
        for (const plane of [0, 1]) expect((await ask(key, plane)).status).toBe(200);
      }
    },
  );

  test("a project's list of models counts at once for free endpoints too", async () => {
    const { key } = await make("free");
    const listed = async () => (await models(key, 0)).body["data"] as readonly unknown[];
    const all = (await listed()).length;
    await admin("POST", "/v1/organization/projects/default", { limits: { models: ["m-messages"] } });
    expect((await listed()).length).toBe(1);
    await admin("POST", "/v1/organization/projects/default", { limits: { models: null } });
    expect((await listed()).length).toBe(all);
  });

  test("a project's limits hold for all its keys together", async () => {
    const { body } = await admin("GET", "/v1/organization/projects");
    const second = (body as unknown as { data: { id: string; name: string }[] }).data.find(
      ({ name }) => name === "second",
    );
    const path = `/v1/organization/projects/${second?.id}`;
    const keyOf = async (name: string) =>
      String((await admin("POST", `${path}/api_keys`, { name })).body["value"]);
    const [one, two] = [await keyOf("one"), await keyOf("two")];
    expect((await ask(one, 0)).status).toBe(200);
    const limited = await admin("POST", path, { limits: { credits: { amount: "0.000001", per: "day" } } });
    expect(limited.body).toMatchObject({
      id: second?.id,
      standing: [{ scope: "project", amount: "0.000001" }],
    });
    for (const [index, key] of [one, two].entries())
      expect((await ask(key, index)).body).toMatchObject({ error: { code: "project_limit_reached" } });
    expect((await own(two)).body).toMatchObject({ limits: null, standing: [{ scope: "project" }] });
    expect((await admin("POST", path, { limits: null })).body).toMatchObject({ limits: null });
    expect((await ask(two, 1)).status).toBe(200);
  });

  test("a project's limits that stay as they are, are no change: no line in the audit log, no key looked up again", async () => {
    const path = "/v1/organization/projects/default";
    const limits = { requests_per_minute: 5_000, models: ["m-*"] };
    const state = () =>
      world.pool.oneFirst(sql.type(z.object({ text: z.string() }))`
        select key_epoch || ' ' || (select count(*) from audit_log where organization_id = 'org_a') as text
        from organizations where id = 'org_a'
      `);
    for (const [to, ...same] of [
      [{ limits }, { limits }, { limits: {} }, {}, { limits: { models: ["m-*"], credits: null } }],
      [{ limits: null }, { limits: null }, { limits: {} }, { limits: { requests_per_minute: null } }],
    ]) {
      expect((await admin("POST", path, to)).status).toBe(200);
      const before = await state();
      for (const body of same) expect((await admin("POST", path, body)).status).toBe(200);
      expect(await state()).toBe(before);
    }
  });

  test("what is declared holds, for keys that say nothing as well, and is changed in the Organization alone", async () => {
    const entry = tenantEntry(world.a, {
      keyDefaults: { requestsPerMinute: 5_000 },
      projectLimits: { default: { credits: { amountMicros: "1", per: "total" } } },
    });
    await world.declare([entry, tenantEntry(world.b)]);
    await expect.poll(async () => (await ask(world.a.inference, 1)).raw).toContain("project_limit_reached");
    const refused = await admin("POST", "/v1/organization/projects/default", { limits: null });
    expect([refused.status, refused.raw.includes("Organization resource")]).toEqual([400, true]);
    await world.declare([tenantEntry(world.a), tenantEntry(world.b)]);
    await expect.poll(async () => (await ask(world.a.inference, 0)).status).toBe(200);
  });

  test.each([
    [{ credits: { amount: "-1", per: "month" } }, "limits.credits.amount"],
    [{ credits: { amount: 5, per: "month" } }, "limits.credits.amount"],
    [{ credits: { amount: "1", per: "Month" } }, "limits.credits.per"],
    [{ credits: { amount: "1" } }, "limits.credits.per"],
    [{ models: ["a*b"] }, "limits.models.0"],
    [{ models: ["a\0b"] }, "limits.models.0"],
    [{ models: ["m-*", "\ud800"] }, "limits.models.1"],
    [{ requests_per_minute: 0 }, "limits.requests_per_minute"],
    [{ requestsPerMinute: 5 }, "limits.requestsPerMinute"],
    ["none", "limits"],
  ])("limits %j is a 400 that names %s", async (limits, param) => {
    for (const path of [ORGANIZATION, PROJECT, "/v1/organization/projects/default"]) {
      const { status, raw } = await admin("POST", path, {
        ...(path.endsWith("default") ? {} : { name: "x" }),
        limits,
      });
      expect([path, status, raw.includes(param)]).toEqual([path, 400, true]);
    }
  });
});
