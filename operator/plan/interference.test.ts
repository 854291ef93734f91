/**
 * The law of tenancies (rules.md §8): whatever valid objects one tenant's namespace declares, before the others or after
 * them, everybody else has the same snapshot and the same statuses as without it.
 */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { declaredObject } from "../../test/fakes/declared.ts";
import { compile } from "./compile.ts";
import type { Compiled } from "./compiled.ts";
import type { Declared } from "./objects.ts";
import type { Published } from "./prior.ts";
import type { Tenancy } from "./tenancy.ts";
import { runs } from "../../test/fakes/runs.ts";

const CASES = runs(10_000);
const tenancy: Tenancy = {
  mode: "Namespaced",
  platformNamespaces: new Set(["platform"]),
  quotas: { objects: 20, bytes: 8 * 1024 },
};
const ids = ["gpt", "gpt-5", "claude", "m1", "m2", "free"];
const limits = { contextTokens: 1000, maxOutputTokens: 100 };
const keys = ["a", "b", "c"].map((letter) => `sk-svc-${letter.repeat(40)}`);

const upstream = { name: "one", dialect: "Messages", baseURL: "https://a.example" };
const keyed = {
  ...upstream,
  name: "two",
  credentials: { secretKeyRef: { name: "upstream", key: "k" } },
};
const route = (model: string, more: object = {}) => ({
  model,
  limits,
  upstreams: [upstream, keyed],
  ...more,
});
const table = (models: readonly string[]) => ({
  unit: "Credit",
  models: models.map((model) => ({ model, input: "1", output: "2" })),
});
const apiKeys = (name: string) => [{ name: "one", secretKeyRef: { name: "keys", key: name } }];

/** Everybody else: the platform and a tenant, each with every kind. */
const others: readonly Declared[] = [
  declaredObject("ModelRoute", "platform", "gpt", route("gpt-5", { aliases: ["gpt"] }), 50),
  declaredObject("ModelRoute", "platform", "claude", route("claude"), 51),
  declaredObject("PriceTable", "platform", "default", table(["gpt-5", "claude"]), 50),
  declaredObject(
    "ToolPolicy",
    "platform",
    "default",
    {
      webFetch: { egress: { allowCIDRs: ["10.0.0.0/8"] } },
      webSearch: { engine: { type: "Model", modelRoute: "claude" } },
    },
    50,
  ),
  declaredObject(
    "Organization",
    "platform",
    "acme",
    { id: "org_acme", credits: { grants: [{ name: "one", amount: "5" }] }, apiKeys: apiKeys("a") },
    50,
  ),
  declaredObject("ModelRoute", "team", "gpt", route("gpt-5", { aliases: ["m1"] }), 50),
  declaredObject("PriceTable", "team", "default", table(["gpt-5"]), 50),
  declaredObject("ToolPolicy", "team", "default", { webFetch: {} }, 50),
  declaredObject("Organization", "team", "beta", { apiKeys: apiKeys("b") }, 50),
];

const value = <Value>(...values: readonly Value[]) => fc.constantFrom(...values);
const some = <Value>(...values: readonly Value[]) => fc.subarray([...values]);
const hostileSpec = {
  ModelRoute: fc
    .record({
      model: value(...ids),
      aliases: some(...ids),
      toolPolicy: fc.option(value("default", "x", "y"), { nil: undefined }),
      size: value(1, 1, 1, 500),
    })
    .map(({ model, aliases, toolPolicy, size }) =>
      route(model, {
        aliases,
        displayName: "d".repeat(Math.min(size, 256)),
        ...(toolPolicy === undefined ? {} : { toolPolicyRef: { name: toolPolicy } }),
      }),
    ),
  ToolPolicy: value(
    { webFetch: {} },
    { webFetch: { egress: { allowCIDRs: ["0.0.0.0/0"] } } },
    { webSearch: { engine: { type: "Model", modelRoute: "x" } } },
    { webSearch: { engine: { type: "SearXNG", baseURL: "http://10.0.0.1" } } },
  ),
  PriceTable: some(...ids).map(table),
  Organization: fc
    .record({
      id: value(undefined, "org_acme", "org_team_beta", "org_evil_x"),
      key: value("a", "b", "c"),
      rich: fc.boolean(),
    })
    .map(({ id, key, rich }) => ({
      ...(id === undefined ? {} : { id }),
      apiKeys: apiKeys(key),
      ...(rich ? { credits: { grants: [{ name: "one", amount: "9000000000" }] } } : {}),
    })),
} as const;
const kindsOf = Object.keys(hostileSpec) as (keyof typeof hostileSpec)[];
const hostileObject = fc
  .record({
    kind: value(...kindsOf),
    name: value("default", "gpt", "acme", "x", "y", "z", "o1", "o2"),
    at: value(1, 50, 99),
  })
  .chain(({ kind, name, at }) =>
    (hostileSpec[kind] as fc.Arbitrary<unknown>).map((spec) => declaredObject(kind, "evil", name, spec, at)),
  );
const hostilePrices = declaredObject("PriceTable", "evil", "default", table(ids), 1);
const hostile = fc
  .uniqueArray(hostileObject, { maxLength: 30, selector: ({ uid }) => uid })
  // Without prices it would serve nothing, and try little.
  .map((objects) => [hostilePrices, ...objects.filter(({ uid }) => uid !== hostilePrices.uid)]);

const secretsOf = (namespaces: readonly string[]) =>
  new Map(
    namespaces.flatMap((namespace): [string, Record<string, string>][] => [
      [`${namespace}/upstream`, { k: `credential of ${namespace}` }],
      [`${namespace}/keys`, { a: keys[0] ?? "", b: keys[1] ?? "", c: keys[2] ?? "" }],
    ]),
  );
const secrets = secretsOf(["platform", "team", "evil"]);

const published = ({ routing, credentials }: Compiled): Published => ({
  routing: { ...routing, serial: 1 },
  credentials,
});

/** What everybody but the hostile namespace gets of it. */
function ofOthers({ routing, credentials, verdicts, wanted }: Compiled): string {
  const isOther = ({ source }: { readonly source: { readonly namespace: string } }) =>
    source.namespace !== "evil";
  const text = JSON.stringify({
    routes: routing.routes.filter((entry) => isOther(entry) || entry.servesNamespace !== "evil"),
    policies: Object.values(routing.policies).filter(isOther),
    organizations: routing.organizations.filter(isOther),
    objects: routing.objects.filter(({ namespace }) => namespace !== "evil"),
    credentials: Object.entries(credentials).filter(([id]) => !id.startsWith("evil/")),
    verdicts: verdicts.filter(({ object }) => object.namespace !== "evil"),
    wanted: wanted.filter(({ namespace }) => namespace !== "evil"),
  });
  return createHash("sha256").update(text).digest("base64");
}

test(`${CASES} hostile namespaces change nothing for the others`, () => {
  const alone = compile({ objects: others, secrets, published: null, tenancy });
  const base = published(alone);
  const expected = ofOthers(alone);
  const again = ofOthers(compile({ objects: others, secrets, published: base, tenancy }));
  let told = 0;
  let served = 0;
  fc.assert(
    fc.property(hostile, hostile, (first, second) => {
      // The others were served before it came.
      const joined = compile({ objects: [...others, ...first], secrets, published: base, tenancy });
      expect(ofOthers(joined)).toBe(again);
      // It changes everything that it has, while the others stay.
      const changed = compile({
        objects: [...second, ...others],
        secrets,
        published: published(joined),
        tenancy,
      });
      expect(ofOthers(changed)).toBe(again);
      told += changed.verdicts.filter(({ accepted }) => accepted.length > 0).length;
      served += changed.routing.routes.length - base.routing.routes.length;
    }),
    { numRuns: CASES, seed: 8 },
  );
  expect(expected).toBe(again);
  // It did try: what it may not do was refused, and more than its quota.
  expect(told).toBeGreaterThan(CASES);
  expect(served).toBeGreaterThan(CASES / 2);
}, 300_000);

test("nor when it was there first, but for the keys whose values it knows", () => {
  const strangers = others.map((object) =>
    object.kind === "Organization"
      ? { ...object, spec: { ...(object.spec as object), apiKeys: [] } }
      : object,
  );
  const alone = compile({ objects: strangers, secrets, published: null, tenancy });
  fc.assert(
    fc.property(hostile, (first) => {
      const early = compile({ objects: first, secrets, published: null, tenancy });
      const joined = compile({
        objects: [...first, ...strangers],
        secrets,
        published: published(early),
        tenancy,
      });
      expect(ofOthers(joined)).toBe(ofOthers(alone));
    }),
    { numRuns: runs(500), seed: 8 },
  );
}, 60_000);

test("under Trusted it cannot take what is served either", () => {
  const trusted: Tenancy = { ...tenancy, mode: "Trusted" };
  const alone = compile({ objects: others, secrets, published: null, tenancy: trusted });
  const expected = ofOthers(
    compile({ objects: others, secrets, published: published(alone), tenancy: trusted }),
  );
  const mine = (compiled: Compiled) => ({
    ...compiled,
    // Under Trusted everybody is served by everybody's routes.
    routing: {
      ...compiled.routing,
      routes: compiled.routing.routes.filter(({ source }) => source.namespace !== "evil"),
    },
  });
  fc.assert(
    fc.property(hostile, (first) => {
      const joined = compile({
        objects: [...first, ...others],
        secrets,
        published: published(alone),
        tenancy: trusted,
      });
      expect(ofOthers(mine(joined))).toBe(expected);
    }),
    { numRuns: runs(500), seed: 8 },
  );
}, 60_000);
