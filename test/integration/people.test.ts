/** People and programs with tokens (rules.md §13) in the whole service: money, limits, reports, records, trail. */
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { IdentityEntry, OrganizationEntry } from "../../dataplane/config/schema.ts";
import { withinOneDay } from "../fakes/one-day.ts";
import { AdminWorld, identityOf, tenantEntry } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const declare = (more?: Partial<IdentityEntry>, entry?: Partial<OrganizationEntry>) =>
  world.declarePeople(more, entry);

const bodies = {
  "/v1/messages": { model: "m-messages", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
  "/v1/chat/completions": { model: "m-chat", max_tokens: 5, messages: [{ role: "user", content: "Hi" }] },
  "/v1/responses": { model: "m-responses", max_output_tokens: 16, input: "Hi" },
} as const;
const infer = (token: string, path: keyof typeof bodies = "/v1/chat/completions", plane = 0) =>
  world.call(token, "POST", path, { body: bodies[path], plane });
const own = async (token: string) => (await world.call(token, "GET", "/v1/key")).body;
const admin = (path: string) => world.call(world.a.admin, "GET", path);
const settled = async () => {
  for (const { money } of world.planes) await money.holds.idle(5_000);
};

describe("a member", () => {
  test("asks models in the three dialects, on every plane, and is one principal in usage, costs and records", async () => {
    await withinOneDay(20_000);
    await declare();
    const token = world.token(world.a, "ml", { sub: "ada", name: "Ada" });
    for (const path of Object.keys(bodies) as (keyof typeof bodies)[])
      for (const plane of [0, 1])
        expect([path, (await infer(token, path, plane)).status]).toEqual([path, 200]);
    const { id } = await own(token);
    expect(id).toMatch(/^usr_[0-9A-Za-z]{24}$/);
    await settled();
    await expect
      .poll(
        async () => {
          const rows = await world.pool.any(sql.type(z.object({ keyId: z.string(), count: z.bigint() }))`
          select key_id as "keyId", count(*) as count from usage where organization_id = ${world.a.id} group by 1
        `);
          return rows.map(({ keyId, count }) => [keyId, Number(count)]);
        },
        { timeout: 10_000 },
      )
      .toEqual([[id, 6]]);
    const usage = await admin(
      `/v1/organization/usage/completions?group_by=api_key_id&user_ids=${String(id)}`,
    );
    const results = (usage.body["data"] as { results: Record<string, unknown>[] }[]).flatMap(
      (bucket) => bucket.results,
    );
    expect(results).toMatchObject([{ api_key_id: id, num_model_requests: 6 }]);
    const messages = await admin(
      `/v1/organizations/usage_report/messages?group_by[]=api_key_id&api_key_ids[]=${String(id)}`,
    );
    expect(messages.raw).toContain(String(id));
    const costs = await admin(`/v1/organization/costs?api_key_ids=${String(id)}`);
    expect(
      Number((costs.body["results"] as { amount: { value: number } }[])[0]?.amount.value),
    ).toBeGreaterThan(0);
    const month = new Date().toISOString().slice(0, 7);
    const path = `/v1/organization/costs/export?format=focus-csv&month=${month}`;
    const file = await world.call(world.a.admin, "GET", path, { raw: true });
    expect(file.raw).toContain(`,${String(id)},Ada,Person,`);
    for (const plane of world.planes) await plane.records.store();
    const records = await admin(`/v1/organization/requests?api_key_id=${String(id)}`);
    expect((records.body["data"] as { path: string }[]).filter(({ path }) => path === "relay")).toHaveLength(
      6,
    );
  });

  test("uploads a file, makes batches and lists models, and the batch is theirs", async () => {
    await declare();
    const token = world.token(world.a, "ml", { sub: "ada" });
    const batch = await world.call(token, "POST", "/v1/messages/batches", {
      body: { requests: [{ custom_id: "one", params: bodies["/v1/messages"] }] },
    });
    expect(batch.status).toBe(200);
    const keyId = await world.pool.oneFirst(sql.type(z.object({ key: z.string() }))`
      select key_id as key from batches where id = ${String(batch.body["id"])}
    `);
    expect(keyId).toBe((await own(token))["id"]);
    const models = await world.call(token, "GET", "/v1/models");
    expect((models.body["data"] as unknown[]).length).toBe(3);
  });

  test("is no key: no list shows them, and none of the admin API's routes for keys knows their id", async () => {
    await declare();
    const { id } = await own(world.token(world.a, "ml", { sub: "ada" }));
    for (const path of ["/v1/organizations/api_keys", "/v1/organization/projects/default/api_keys"]) {
      expect((await admin(path)).raw).not.toContain("usr_");
      expect((await admin(`${path}/${String(id)}`)).status).toBe(404);
      const change = { body: { name: "taken" } };
      expect((await world.call(world.a.admin, "POST", `${path}/${String(id)}`, change)).status).toBe(404);
    }
    const path = `/v1/organization/projects/default/api_keys/${String(id)}`;
    expect((await world.call(world.a.admin, "DELETE", path)).status).toBe(404);
  });

  test("is listed to admins with the name that a token says, page by page", async () => {
    await declare();
    for (const [sub, name] of [
      ["list-1", "Ada"],
      ["list-2", undefined],
      ["list-3", "Zoë 🦩"],
    ])
      expect((await world.call(world.token(world.a, "ml", { sub, name }), "GET", "/v1/models")).status).toBe(
        200,
      );
    const first = await admin("/v1/organization/users?limit=2");
    const [newest, second] = first.body["data"] as { id: string }[];
    expect(first.body).toMatchObject({
      object: "list",
      has_more: true,
      data: [
        { object: "organization.user", name: "Zoë 🦩", role: "member", limits: null, standing: [] },
        { name: null, role: "member" },
      ],
    });
    const next = await admin(`/v1/organization/users?limit=1&after=${second?.id}`);
    expect(next.body["data"]).toMatchObject([{ name: "Ada" }]);
    expect((await admin(`/v1/organization/users/${newest?.id}`)).body).toMatchObject({
      id: newest?.id,
      name: "Zoë 🦩",
    });
    const foreign = await world.call(world.b.admin, "GET", `/v1/organization/users/${newest?.id}`);
    expect([foreign.status, (await world.call(world.b.admin, "GET", "/v1/organization/users")).raw]).toEqual([
      404,
      expect.not.stringContaining("Zoë"),
    ]);
    expect((await admin(`/v1/organization/users?after=apikey_0000`)).status).toBe(400);
  });

  test("and whoever reads the admin API is told as `me` who they are, by the role that the token says; keys are nobody", async () => {
    await declare();
    const asViewer = world.token(world.a, "watchers", { sub: "me", name: "Mia" });
    const asAdmin = world.token(world.a, "owners", { sub: "me" });
    const me = async (token: string, plane = 0) =>
      await world.call(token, "GET", "/v1/organization/users/me", { plane });
    for (const plane of [0, 1])
      for (const [token, role] of [
        [asViewer, "viewer"],
        [asAdmin, "admin"],
      ] as const)
        expect((await me(token, plane)).body).toMatchObject({
          object: "organization.user",
          id: expect.stringMatching(/^usr_/),
          name: "Mia",
          role,
          project_id: null,
        });
    const member = world.token(world.a, "ml", { sub: "me" });
    expect([(await me(member)).status, (await me(world.a.admin)).status]).toEqual([401, 404]);
  });

  test("who asks no models has no limit of those that keys have by default", async () => {
    await declare({}, { keyDefaults: { credits: { amountMicros: "1000000", per: "day" } } });
    for (const [group, standing] of [
      ["ml", [{ scope: "key", per: "day", amount: "1" }]],
      ["watchers", []],
      ["owners", []],
    ] as const) {
      const token = world.token(world.a, group, { sub: `default-${group}` });
      await world.call(token, "GET", group === "ml" ? "/v1/models" : "/v1/organization/users/me");
      const { data } = (await admin("/v1/organization/users?limit=1")).body as { data: object[] };
      expect(data).toMatchObject([{ standing }]);
    }
  });

  test("of one organization is nobody to the other, though both have the same issuer and subject", async () => {
    await declare();
    const [one, other] = await Promise.all(
      [world.a, world.b].map(async (tenant) => (await own(world.token(tenant, "ml", { sub: "same" })))["id"]),
    );
    expect(one).not.toBe(other);
    const both = world.token(world.a, "ml", { sub: "same", aud: [world.b.id, world.a.id] });
    expect((await own(both))["id"], "the first by namespace and name").toBe(one);
  });
});

describe("limits", () => {
  const rules = (limits: IdentityEntry["rules"][number]["limits"]): Partial<IdentityEntry> => ({
    rules: [{ claims: { groups: "ml" }, role: "member", project: "default", ...(limits && { limits }) }],
  });

  test("are each person's own, like a key's, and hold over all planes", async () => {
    await declare(rules({ credits: { amountMicros: "1", per: "month" } }));
    const [ada, bob] = ["ada-limited", "bob-limited"].map((sub) => world.token(world.a, "ml", { sub }));
    if (ada === undefined || bob === undefined) throw new Error("two");
    expect((await infer(ada)).status).toBe(200);
    await settled();
    const refused = await infer(ada, "/v1/chat/completions", 1);
    expect([refused.status, refused.body]).toMatchObject([
      402,
      { error: { type: "insufficient_quota", code: "key_limit_reached" } },
    ]);
    expect((await infer(ada, "/v1/messages", 1)).body).toMatchObject({ error: { type: "billing_error" } });
    const { limits, standing } = await own(ada);
    expect([limits, standing]).toMatchObject([
      { credits: { amount: "0.000001", per: "month" } },
      [{ scope: "key", per: "month", left: "0" }],
    ]);
    expect((await infer(bob, "/v1/messages")).status).toBe(200);
  });

  test("follow the declaration at once", async () => {
    const token = world.token(world.a, "ml", { sub: "carol" });
    await declare(rules({ credits: { amountMicros: "1", per: "month" } }));
    expect((await infer(token)).status).toBe(200);
    await settled();
    expect((await infer(token)).status).toBe(402);
    await declare(rules({ credits: { amountMicros: "1000000000", per: "month" } }));
    expect((await infer(token, "/v1/chat/completions", 1)).status).toBe(200);
    await declare(rules({ models: ["m-chat"] }));
    expect((await infer(token)).status).toBe(200);
    expect((await infer(token, "/v1/messages")).status).toBe(404);
    expect(((await world.call(token, "GET", "/v1/models")).body["data"] as unknown[]).length).toBe(1);
  });

  test("of requests a minute, and of the project, hold as well", async () => {
    await declare(rules({ requestsPerMinute: 1 }));
    const token = world.token(world.a, "ml", { sub: "dan" });
    expect((await infer(token)).status).toBe(200);
    expect((await infer(token)).status).toBe(429);
    await declare();
    const limited = { limits: { credits: { amount: "0.000001", per: "total" } } };
    const project = "/v1/organization/projects/default";
    expect((await world.call(world.a.admin, "POST", project, { body: limited })).status).toBe(200);
    await settled();
    await infer(token);
    await settled();
    const refused = await infer(token, "/v1/chat/completions", 1);
    expect([refused.status, refused.body]).toMatchObject([402, { error: { code: "project_limit_reached" } }]);
    expect((await world.call(world.a.admin, "POST", project, { body: { limits: null } })).status).toBe(200);
    expect((await infer(token)).status).toBe(200);
  });
});

describe("a person ends", () => {
  test("with the rule, the audience, the identity, the organization, its suspension: at once, on every plane and route", async () => {
    const token = world.token(world.a, "ml", { sub: "eve" });
    const statuses = async () => [
      (await infer(token)).status,
      (await infer(token, "/v1/messages", 1)).status,
      (await world.call(token, "GET", "/v1/models")).status,
    ];
    const entry = (more: Partial<OrganizationEntry>) => world.declare([tenantEntry(world.a, more)]);
    const identity = identityOf(world.issuer, world.a);
    const ends: Partial<OrganizationEntry>[] = [
      { identity: { ...identity, rules: [{ claims: { groups: "owners" }, role: "admin" }] } },
      { identity: { ...identity, audiences: ["other"] } },
      { identity: { ...identity, issuer: "https://other.test" } },
      {},
      { identity, suspended: true },
    ];
    for (const [index, end] of ends.entries()) {
      await declare();
      expect([index, await statuses()]).toEqual([index, [200, 200, 200]]);
      await entry(end);
      expect([index, await statuses()]).toEqual([index, [401, 401, 401]]);
    }
    await world.declare([tenantEntry(world.b)]);
    expect(await statuses()).toEqual([401, 401, 401]);
    await declare();
    expect(await statuses()).toEqual([200, 200, 200]);
  });

  test("no earlier when a key of the organization ends: what is held anew is theirs", async () => {
    await declare();
    const token = world.token(world.a, "ml", { sub: "frank" });
    expect((await infer(token)).status).toBe(200);
    const made = await world.call(world.a.admin, "POST", "/v1/organizations/api_keys", {
      body: { name: "short" },
    });
    const path = `/v1/organization/projects/default/api_keys/${String(made.body["id"])}`;
    expect((await world.call(world.a.admin, "DELETE", path)).status).toBe(200);
    for (const plane of [0, 1]) expect((await infer(token, "/v1/chat/completions", plane)).status).toBe(200);
  });

  test("as member, and begins as admin, when their groups change", async () => {
    await declare();
    const asMember = world.token(world.a, "ml", { sub: "grace" });
    const asAdmin = world.token(world.a, "owners", { sub: "grace" });
    for (let times = 0; times < 2; times += 1) {
      expect((await infer(asMember)).status).toBe(200);
      expect((await world.call(asAdmin, "GET", "/v1/organization/credits")).status).toBe(200);
      expect((await infer(asAdmin)).status).toBe(401);
      expect(await own(asMember)).toMatchObject({ object: "key", id: expect.stringMatching(/^usr_/) });
      expect((await world.call(asMember, "GET", "/v1/organization/credits")).status).toBe(401);
    }
  });

  test("under the rule of the token that comes, in what it is told of itself too, when another of theirs came since", async () => {
    const limits = { credits: { amountMicros: "5000000", per: "month" } } as const;
    await declare({
      rules: [
        { claims: { groups: "ml" }, role: "member", project: "default", limits },
        { claims: { groups: "free" }, role: "member", project: "default" },
        { claims: { groups: "watchers" }, role: "viewer" },
      ],
    });
    const [limited, free, viewer] = ["ml", "free", "watchers"].map((group) =>
      world.token(world.a, group, { sub: "judy" }),
    );
    const standing = [{ scope: "key", per: "month", amount: "5" }];
    for (let times = 0; times < 2; times += 1) {
      expect(await own(limited ?? "")).toMatchObject({ limits: { credits: { amount: "5" } }, standing });
      expect(await own(free ?? "")).toMatchObject({ limits: null, standing: [] });
    }
    expect(await own(limited ?? "")).toMatchObject({ standing });
    const me = await world.call(viewer ?? "", "GET", "/v1/organization/users/me");
    expect(me.body).toMatchObject({ role: "viewer", project_id: null, limits: null, standing: [] });
    expect(await own(limited ?? "")).toMatchObject({ standing });
    const again = await world.call(viewer ?? "", "GET", "/v1/organization/users/me");
    expect(again.body).toMatchObject({ role: "viewer", project_id: null, limits: null, standing: [] });
  });
});

test("a member's request is their project's, though a token of theirs for another role came last and all is looked up anew", async () => {
  await declare();
  const asMember = world.token(world.a, "ml", { sub: "heidi" });
  const asAdmin = world.token(world.a, "owners", { sub: "heidi" });
  expect((await infer(asMember)).status).toBe(200);
  const { id, project_id } = await own(asMember);
  for (let times = 0; times < 2; times += 1) {
    expect((await world.call(asAdmin, "GET", "/v1/organization/credits")).status).toBe(200);
    // Moves the key epoch.
    const made = await world.call(asAdmin, "POST", "/v1/organizations/api_keys", { body: { name: "short" } });
    const path = `/v1/organization/projects/default/api_keys/${String(made.body["id"])}`;
    expect((await world.call(asAdmin, "DELETE", path)).status).toBe(200);
    expect((await infer(asMember)).status).toBe(200);
  }
  await settled();
  await expect
    .poll(
      async () => {
        const rows = await world.pool.any(sql.type(z.object({ project: z.string(), count: z.bigint() }))`
        select project_id as project, count(*) as count from usage where key_id = ${String(id)} group by 1
      `);
        return rows.map(({ project, count }) => [project, Number(count)]);
      },
      { timeout: 10_000 },
    )
    .toEqual([[project_id, 3]]);
});
