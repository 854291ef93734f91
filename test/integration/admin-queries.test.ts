/** Every parameter of every list and report, as the OpenAPI document has them: what cannot be read is named, never left out. */
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ApiDocument } from "../../dataplane/http/openapi/document.ts";
import { AdminWorld } from "./admin-world.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly allowEmptyValue?: boolean;
  readonly schema: { readonly type?: string; readonly enum?: readonly string[]; readonly anyOf?: object };
}

/** Codex names its version there, and other clients what they please; there is nothing to filter. */
const TOLERANT = ["/v1/models"];

/** What a path needs beside the parameter that is tried. */
const NEEDED: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "/v1/organization/costs/export": { format: "focus-csv", month: "2026-11" },
};
/** Beyond what the document says of their form. */
const MORE: readonly (readonly [path: string, name: string, query: string])[] = [
  ["/v1/organizations/cost_report", "start_time", "starting_at=2026-11-01&start_time=abc"],
  ["/v1/organization/costs", "ending_at", "end_time=2026-11-29&start_time=2026-11-01&ending_at=30+February"],
  ["/v1/organizations/api_keys", "status", "workspace_id=none!&status=gone"],
  ["/v1/organization/requests", "model", "model="],
  ["/v1/files", "ids", "ids=,"],
];

/** The parameter that a query is about, and the query. */
function badQueries({ name, schema, allowEmptyValue }: Parameter): [string, string][] {
  const several = schema.type === "array" || schema.anyOf !== undefined;
  return [
    ...(allowEmptyValue === true ? [] : [[name, `${name}=`] as [string, string]]),
    ...(several ? [] : [[name, `${name}=a&${name}=a`] as [string, string]]),
    ...(schema.type === "integer" || schema.type === "boolean" || schema.enum !== undefined
      ? ["abc", "1e1", "0x10", "-1", "1.5"].map((value): [string, string] => [name, `${name}=${value}`])
      : []),
  ];
}

/** Every parameter in a query, with its path. */
async function queryParameters(): Promise<[string, Parameter[]][]> {
  const answer = await world.plane.server.fetch("/openapi.json", { headers: { authorization: "none" } });
  const { paths } = (await answer.json()) as ApiDocument;
  return Object.entries(paths).map(([path, methods]) => {
    const parameters = (methods["get"]?.["parameters"] ?? []) as Parameter[];
    return [path, parameters.filter((parameter) => parameter.in === "query")];
  });
}

test("a filter that official SDKs may send as null, an empty value, filters nothing", async () => {
  const told: string[] = [];
  for (const [path, parameters] of await queryParameters())
    for (const { name, allowEmptyValue } of parameters) {
      if (allowEmptyValue !== true) continue;
      const key = path.startsWith("/v1/organization") ? world.a.admin : world.a.inference;
      const all = await world.call(key, "GET", path);
      const empty = await world.call(key, "GET", `${path}?${name}=`);
      expect([empty.status, empty.raw]).toEqual([200, all.raw]);
      told.push(`${path} ${name}`);
    }
  expect(told).toEqual([
    "/v1/files ids",
    "/v1/organizations/api_keys status",
    "/v1/organizations/api_keys workspace_id",
    "/v1/organizations/api_keys created_by_user_id",
  ]);
});

test("what cannot be read is 400 and names the parameter, and so is what no list knows", async () => {
  const asked: [string, string, string][] = [];
  for (const [path, query] of await queryParameters()) {
    if (query.length === 0) continue;
    const real = path.replace("{project}", "default");
    if (!TOLERANT.includes(path)) asked.push([real, "nothing_of_ours", "nothing_of_ours=1"]);
    for (const [name, text] of query.flatMap(badQueries)) asked.push([real, name, text]);
  }
  asked.push(...MORE.map((one): [string, string, string] => [...one]));
  const told: string[] = [];
  for (const [path, name, query] of asked) {
    const key = path.startsWith("/v1/organization") ? world.a.admin : world.a.inference;
    const others = Object.entries(NEEDED[path] ?? {}).flatMap(([other, value]) =>
      other === name ? [] : [`${other}=${value}`],
    );
    const whole = `${path}?${[...others, query].join("&")}`;
    const { status, raw } = await world.call(key, "GET", whole);
    if (status !== 400 || !raw.includes(name.replace("[]", "")))
      told.push(`${whole}: ${status} ${raw.slice(0, 200)}`);
  }
  expect(told).toEqual([]);
  expect(asked.length).toBeGreaterThan(100);
});
