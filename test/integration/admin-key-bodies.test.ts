/** What a key may be made of and become, and with which methods (rule 5.5). */
import { afterAll, beforeAll, expect, test } from "vitest";
import { AdminWorld } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make, list } = keyCalls(() => world);

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
