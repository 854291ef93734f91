import { describe, expect, test } from "vitest";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
} from "../../test/fakes/sample-snapshot.ts";
import { allowedRoutes, findRoute, type ModelUser } from "./find-route.ts";

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
