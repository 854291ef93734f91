import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { routingSchema } from "../../dataplane/config/schema.ts";
import { compile } from "./compile.ts";
import type { Declared } from "./objects.ts";
import type { Published } from "./prior.ts";
import { encode, serialize } from "./shards.ts";

const declare = (
  kind: Declared["kind"],
  name: string,
  spec: unknown,
  more: Partial<Declared> = {},
): Declared => ({
  kind,
  namespace: "default",
  name,
  uid: `uid-${kind}-${name}`,
  generation: 1,
  creationTimestamp: null,
  createdAt: 0,
  spec,
  faults: [],
  ...more,
});
const limits = { contextTokens: 1000, maxOutputTokens: 100 };
const upstream = {
  name: "one",
  dialect: "Messages",
  baseURL: "https://a.example",
  credentials: { secretKeyRef: { name: "s", key: "k" } },
};
const route = (index: number, more: object = {}) =>
  declare("ModelRoute", `route-${index}`, {
    model: `model-${index}`,
    limits,
    upstreams: [upstream],
    ...more,
  });
const table = (models: readonly string[]) =>
  declare("PriceTable", "default", {
    unit: "USD",
    models: models.map((model) => ({ model, input: "3", output: "15" })),
  });
const secrets = new Map([["default/s", { k: "value" }]]);

/** 50 tables of 200 models, as rule 6.8 and the size of a snapshot ask for. */
function tenThousand(): Declared[] {
  const routes = Array.from({ length: 10_000 }, (_, index) =>
    route(index, { aliases: [`alias-${index}`], priceTableRef: { name: `table-${index % 50}` } }),
  );
  const tables = Array.from({ length: 50 }, (_, number) => ({
    ...table(Array.from({ length: 200 }, (_, index) => `model-${number + 50 * index}`)),
    name: `table-${number}`,
    uid: `table-${number}`,
  }));
  return [...routes, ...tables];
}

describe("size", () => {
  test("10,000 routes compile in under 1 s, again in much less, and fit the snapshot", () => {
    const objects = tenThousand();
    // CPU time: the machine may be busy with other tests.
    const started = process.cpuUsage();
    const compiled = compile({ objects, secrets, published: null });
    const { user } = process.cpuUsage(started);
    expect(compiled.routing.routes).toHaveLength(10_000);
    expect(compiled.verdicts.every(({ accepted, resolved }) => accepted.length + resolved.length === 0)).toBe(
      true,
    );
    expect(user / 1000, "milliseconds").toBeLessThan(1500);
    const again = process.cpuUsage();
    compile({ objects, secrets, published: null });
    expect(process.cpuUsage(again).user / 1000, "milliseconds, again").toBeLessThan(900);
    expect(encode("a", 1, serialize(compiled.routing), compiled.credentials).ok).toBe(true);
  });
});

describe("what is published", () => {
  const world = (): Declared[] => [
    ...Array.from({ length: 6 }, (_, index) => route(index)),
    route(90, { model: "model-0" }),
    route(91, { upstreams: [] }),
    route(92, { model: "unpriced" }),
    table(["model-0", "model-1", "model-2", "model-3", "model-4", "model-5"]),
    declare("ToolPolicy", "default", { webFetch: {} }),
    declare("Organization", "one", { id: "org_same" }),
    declare("Organization", "two", { id: "org_same" }),
  ];

  test("is the same whatever the order of the objects", () => {
    const expected = JSON.stringify(compile({ objects: world(), secrets, published: null }));
    fc.assert(
      fc.property(fc.shuffledSubarray(world(), { minLength: world().length }), (objects) => {
        expect(JSON.stringify(compile({ objects, secrets, published: null }))).toBe(expected);
      }),
      { numRuns: 50 },
    );
  });

  test("is what the contract says, and a second compile from it changes nothing", () => {
    const first = compile({ objects: world(), secrets, published: null });
    const routing = { ...first.routing, serial: 1 };
    expect(routingSchema.parse(routing)).toEqual(routing);
    const published: Published = { routing, credentials: first.credentials };
    const second = compile({ objects: world(), secrets, published });
    expect(second.routing).toEqual(first.routing);
    expect(second.credentials).toEqual(first.credentials);
  });

  test("one bad object never blocks the rest", () => {
    const good = compile({ objects: world(), secrets, published: null });
    const bad = [
      declare("ModelRoute", "x1", null),
      declare("ModelRoute", "x2", "text"),
      declare("PriceTable", "x3", { unit: "Pound" }),
      declare("ToolPolicy", "x4", { webSearch: 7 }),
      declare("Organization", "x5", []),
      declare("Organization", "x6", { apiKeys: [{}] }),
    ];
    const mixed = compile({ objects: [...world(), ...bad], secrets, published: null });
    expect(mixed.routing).toEqual(good.routing);
    expect(mixed.verdicts.filter(({ accepted }) => accepted[0]?.reason === "Invalid")).toHaveLength(
      bad.length + 1,
    );
  });

  test("rule 1.12: without creation times the first by namespace and name is the older, with them the earlier", () => {
    const claim = (name: string, namespace: string, creationTimestamp: number | null) => ({
      ...declare("ModelRoute", name, {
        model: "model-0",
        limits,
        upstreams: [{ ...upstream, credentials: undefined }],
      }),
      namespace,
      uid: `${namespace}/${name}`,
      creationTimestamp,
    });
    const winner = (...objects: Declared[]) => {
      const tables = ["default", "other"].map((namespace) => ({
        ...table(["model-0"]),
        namespace,
        uid: namespace,
      }));
      const { routing } = compile({ objects: [...objects, ...tables], secrets, published: null });
      return routing.routes.map(({ source }) => `${source.namespace}/${source.name}`);
    };
    expect(winner(claim("b", "default", null), claim("a", "other", null))).toEqual(["default/b"]);
    expect(winner(claim("b", "default", null), claim("a", "default", null))).toEqual(["default/a"]);
    expect(winner(claim("a", "default", 20), claim("b", "default", 10))).toEqual(["default/b"]);
    expect(winner(claim("a", "default", null), claim("z", "other", 10))).toEqual(["other/z"]);
  });
});
