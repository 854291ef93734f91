import { describe, expect, test } from "vitest";
import { sampleOrganization, sampleRoute, sampleRouting } from "../../test/fakes/sample-snapshot.ts";
import { RoutingReader } from "./read-routing.ts";
import type { Routing } from "./schema.ts";

const bytes = (value: unknown, space?: number) => Buffer.from(JSON.stringify(value, null, space));
const routes = (count: number) =>
  Array.from({ length: count }, (_, n) => sampleRoute(`model-${n}`, { displayName: `“Größe” ${n}` }));

async function read(reader: RoutingReader, routing: unknown): Promise<Routing> {
  const result = await reader.read(bytes(routing));
  if (typeof result === "string") throw new Error(result);
  return result;
}

test("a part is read as it was written, however it is laid out", async () => {
  const routing = sampleRouting(7, { routes: routes(3) });
  const reader = new RoutingReader();
  for (const space of [undefined, 1, 4]) expect(await reader.read(bytes(routing, space))).toEqual(routing);
});

test("fields of a newer writer are left out, in entries and beside them", async () => {
  const routing = sampleRouting(1, { routes: routes(1) });
  const newer = { ...routing, later: { deep: [1] }, routes: [{ ...routing.routes[0], later: true }] };
  expect(await new RoutingReader().read(bytes(newer))).toEqual(routing);
});

test.for([
  [
    "headers",
    { headers: { "content-type": "text/plain" } },
    /^routing\.routes\.0\.upstreams\.0\.headers\.content-type: /,
  ],
  [
    "headers",
    { headers: { "Accept-Encoding": "gzip" } },
    /^routing\.routes\.0\.upstreams\.0\.headers\.Accept-Encoding: /,
  ],
  [
    "credential",
    { credential: { id: "a/b/c", header: "content-length" } },
    /\.upstreams\.0\.credential\.header: /,
  ],
] as const)("%s that would break every call are refused: %j", async ([, more, told]) => {
  const route = sampleRoute("m");
  const upstreams = route.upstreams.map((upstream) => ({ ...upstream, ...more }));
  expect(
    await new RoutingReader().read(bytes(sampleRouting(1, { routes: [{ ...route, upstreams }] }))),
  ).toMatch(told);
});

describe("a second publication", () => {
  const before = sampleRouting(1, { routes: routes(4), objects: routes(4).map(({ source }) => source) });

  test("takes over what did not change and reads what did", async () => {
    const reader = new RoutingReader();
    const first = await read(reader, before);
    const changed = before.routes.map((route, n) => (n === 2 ? { ...route, displayName: "changed" } : route));
    const second = await read(reader, { ...before, serial: 2, routes: changed });
    expect(second.routes.map((route, n) => route === first.routes[n])).toEqual([true, true, false, true]);
    expect(second.routes[2]?.displayName).toBe("changed");
    expect(second.objects.every((object, n) => object === first.objects[n])).toBe(true);
    expect([first.serial, second.serial]).toEqual([1, 2]);
  });

  test("may be in another order, shorter or longer", async () => {
    const reader = new RoutingReader();
    const first = await read(reader, before);
    const turned = await read(reader, {
      ...before,
      routes: [...before.routes.slice(1).reverse(), sampleRoute("new")],
    });
    expect(turned.routes.map(({ model }) => model)).toEqual(["model-3", "model-2", "model-1", "new"]);
    expect(turned.routes[0]).toBe(first.routes[3]);
  });

  test("that is refused is not learnt from", async () => {
    const reader = new RoutingReader();
    const first = await read(reader, before);
    const bad = { ...before, organizations: [{ ...sampleOrganization("org_bad"), projects: [] }] };
    expect(await reader.read(bytes(bad))).toMatch(/^routing\.organizations\.0\.projects: /);
    expect((await read(reader, before)).routes[0]).toBe(first.routes[0]);
  });
});

describe("refused, naming the place", () => {
  const text = JSON.stringify(sampleRouting(1));
  const cases: readonly (readonly [string, string, RegExp])[] = [
    ["no JSON", "{", /^routing: Unexpected end of JSON/],
    ["something behind the end", `${text}x`, /^routing: Unexpected character "x"/],
    ["a list twice", `${text.slice(0, -1)},"routes":[]}`, /^routing: Duplicate key "routes"/],
    ["a list that is none", text.replace(/"objects":\[.*\]/, '"objects":{}'), /^routing\.objects: /],
    ["a list that is missing", text.replace(/,"objects":\[.*\]/, ""), /^routing\.objects: /],
    ["an entry of another kind", text.replace(/"objects":\[/, '"objects":[7,'), /^routing\.objects\.0: /],
    ["a serial that is a text", text.replace('"serial":1', '"serial":"1"'), /^routing\.serial: /],
    ["an array instead", "[]", /^routing: Unexpected character "\["/],
  ];
  test.each(cases)("%s", async (_, given, message) => {
    expect(await new RoutingReader().read(Buffer.from(given))).toMatch(message);
  });
});

test("other work gets its turns between slices, whether routes are read anew or taken over", async () => {
  const routing = sampleRouting(1, { routes: routes(50) });
  const reader = new RoutingReader(0);
  for (const _ of ["new", "known"]) {
    let turns = 0;
    let reading = true;
    const turn = () => {
      turns += 1;
      if (reading) setImmediate(turn);
    };
    setImmediate(turn);
    await read(reader, routing);
    reading = false;
    expect(turns).toBeGreaterThanOrEqual(routing.routes.length);
  }
});
