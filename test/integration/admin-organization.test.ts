/** What the admin API tells of an organization itself: name, configuration, credit (service.md "Admin API"; rules 5.6, 5.18, 7.8, 11.7). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { AdminWorld, tenantEntry } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make, ask } = keyCalls(() => world);
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;

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
  expect(idsOf(await admin("GET", `${path}?page=${String(first.body["next_page"])}`))).toEqual(all.slice(1));
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
