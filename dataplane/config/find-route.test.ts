import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { computedMs } from "../../test/fakes/computed.ts";
import { runs } from "../../test/fakes/runs.ts";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
  sampleUpstream,
} from "../../test/fakes/sample-snapshot.ts";
import { allowedRoutes, findRoute, modelNotFound, type ModelUser, routeFor } from "./find-route.ts";
import type { Route } from "./schema.ts";

const organizationIn = (namespace: string) => {
  const source = { ...sampleSource("Organization", "acme"), namespace, uid: `acme of ${namespace}` };
  return { ...sampleOrganization(`org_${namespace}`), source, allowedModels: ["*"] };
};
const snapshot = sampleSnapshot(
  sampleRouting(1, {
    organizations: [organizationIn("platform"), organizationIn("team"), organizationIn("other")],
    routes: [
      sampleRoute("gpt", { aliases: ["gpt-latest"], displayName: "the platform's" }),
      sampleRoute("claude", { displayName: "the platform's" }),
      sampleRoute("gpt", { servesNamespace: "team", displayName: "the team's" }),
      sampleRoute("own", { servesNamespace: "team", aliases: ["claude"], displayName: "the team's" }),
    ],
  }),
);
const found = (namespace: string, model: string, limits: ModelUser["limits"] = []) =>
  findRoute(snapshot, { organizationId: `org_${namespace}`, limits }, model)?.displayName;
const listed = (namespace: string, limits: ModelUser["limits"] = []) =>
  allowedRoutes(snapshot, { organizationId: `org_${namespace}`, limits })
    .map(({ model, displayName }) => `${model}: ${displayName}`)
    .toSorted();

describe("rule 8.2: routes of a tenant's namespace", () => {
  test("come before the platform's for the organizations of that namespace, aliases too", () => {
    expect(found("team", "gpt")).toBe("the team's");
    expect(found("team", "gpt[1m]")).toBe("the team's");
    expect(found("team", "claude")).toBe("the team's");
    expect(found("team", "gpt-latest")).toBe("the platform's");
  });

  test("are unknown to everybody else", () => {
    for (const namespace of ["platform", "other"]) {
      expect(found(namespace, "gpt")).toBe("the platform's");
      expect(found(namespace, "claude")).toBe("the platform's");
      expect(found(namespace, "own")).toBeUndefined();
    }
  });

  test("are listed to those who reach them, and what they hide is not", () => {
    expect(listed("team")).toEqual(["gpt: the team's", "own: the team's"]);
    expect(listed("other")).toEqual(["claude: the platform's", "gpt: the platform's"]);
  });
});

describe("an empty list of models allows none", () => {
  test("of a key or a project", () => {
    const limits: ModelUser["limits"] = [{ limits: { models: [] } }];
    expect(found("other", "gpt", limits)).toBeUndefined();
    expect(listed("other", limits)).toEqual([]);
  });

  test("of an organization", () => {
    const none = { ...organizationIn("none"), allowedModels: [] };
    const withNone = sampleSnapshot(
      sampleRouting(1, { organizations: [none], routes: [sampleRoute("gpt", {})] }),
    );
    expect(allowedRoutes(withNone, { organizationId: none.id, limits: [] })).toEqual([]);
  });
});

test("an organization that is gone has no models", () => {
  const user = { organizationId: "org_gone", limits: [] };
  expect(findRoute(snapshot, user, "gpt")).toBeUndefined();
  expect(allowedRoutes(snapshot, user)).toEqual([]);
  expect(modelNotFound("gpt")).toMatchObject({ code: "model_not_found", message: "model: gpt" });
});

describe("rule 1.17: patterns of models", () => {
  const listing = (allowedModels: string[], limits: ModelUser["limits"] = []) => {
    const organization = { ...organizationIn("any"), allowedModels };
    const routes = ["al", "alpha", "beta"].map((model) => sampleRoute(model, {}));
    const some = sampleSnapshot(sampleRouting(1, { organizations: [organization], routes }));
    const user = { organizationId: organization.id, limits };
    const names = allowedRoutes(some, user).map(({ model }) => model);
    // Exactly the routes that are listed are found.
    for (const { model } of routes)
      expect(findRoute(some, user, model) !== undefined).toBe(names.includes(model));
    return names.toSorted();
  };

  test("are whole names, or beginnings with a star", () => {
    expect(listing(["al"])).toEqual(["al"]);
    expect(listing(["al*"])).toEqual(["al", "alpha"]);
    expect(listing(["alp*", "beta"])).toEqual(["alpha", "beta"]);
    expect(listing(["*"])).toEqual(["al", "alpha", "beta"]);
    expect(listing(["alpha "])).toEqual([]);
  });

  test("of the organization, the key and the project all have to allow one", () => {
    const ofBoth = [{ limits: { models: ["al*"] } }, { limits: { models: ["alpha", "beta"] } }];
    expect(listing(["*"], ofBoth)).toEqual(["alpha"]);
    expect(listing(["beta"], ofBoth)).toEqual([]);
    expect(listing(["*"], [{ limits: {} }])).toEqual(["al", "alpha", "beta"]);
  });

  test("whatever stands in the list, and in whatever order", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b", "*", "é", "🦩"), maxLength: 4 });
    const names = fc.string({ unit: fc.constantFrom("a", "b", "é", "🦩"), minLength: 1, maxLength: 4 });
    const patterns = fc.array(letters, { maxLength: 8 });
    fc.assert(
      fc.property(patterns, fc.uniqueArray(names, { minLength: 1, maxLength: 8 }), (allow, models) => {
        const routes = models.map((model) => sampleRoute(model));
        const organization = { ...organizationIn("any"), allowedModels: allow };
        const some = sampleSnapshot(sampleRouting(1, { organizations: [organization], routes }));
        const listed = allowedRoutes(some, { organizationId: organization.id, limits: [] });
        const isIn = (model: string) =>
          allow.some((one) => (one.endsWith("*") ? model.startsWith(one.slice(0, -1)) : model === one));
        expect(new Set(listed.map(({ model }) => model))).toEqual(new Set(models.filter(isIn)));
      }),
      { numRuns: runs(1_000) },
    );
  });

  test("of the longest lists cost little, however many models there are (rule 7.3)", () => {
    const long = (n: number) => `${"model-".padEnd(120, "x")}${n}`;
    const models = Array.from({ length: 500 }, (_, n) => `${long(n)}*`);
    const routes = Array.from({ length: 1_000 }, (_, n) => sampleRoute(long(-n - 1)));
    const some = sampleSnapshot(sampleRouting(1, { organizations: [organizationIn("any")], routes }));
    const user = { organizationId: "org_any", limits: [{ limits: { models } }] };
    const begun = computedMs();
    for (let n = 0; n < 20; n += 1) expect(allowedRoutes(some, user)).toEqual([]);
    expect(computedMs() - begun).toBeLessThan(400);
  });
});

describe("rule 7.12: upstreams that are dedicated to an organization", () => {
  const shared = sampleUpstream({ name: "shared" });
  const own = sampleUpstream({ name: "own", dedicatedTo: "org_a" });
  const names = (route: Route | undefined) => route?.upstreams.map(({ name }) => name);

  test("are its alone, beside those of all", () => {
    const route = sampleRoute("m", { upstreams: [shared, own] });
    expect(names(routeFor(route, "org_a"))).toEqual(["shared", "own"]);
    expect(names(routeFor(route, "org_b"))).toEqual(["shared"]);
    expect(names(routeFor(route, "org_c"))).toEqual(["shared"]);
    expect(routeFor(route, "org_b")).toBe(routeFor(route, "org_c"));
    expect(routeFor(route, "org_a")).toBe(routeFor(route, "org_a"));
  });

  test("a route of nothing else is none for others, and one without any is as it is", () => {
    expect(routeFor(sampleRoute("m", { upstreams: [own] }), "org_b")).toBeUndefined();
    const open = sampleRoute("m", { upstreams: [shared] });
    expect(routeFor(open, "org_a")).toBe(open);
  });
});
