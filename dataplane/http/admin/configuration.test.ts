import { expect, test } from "vitest";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
} from "../../../test/fakes/sample-snapshot.ts";
import { configurationOf } from "./configuration.ts";

const [alpha, hidden, table, foreign] = [
  sampleSource("ModelRoute", "alpha"),
  sampleSource("ModelRoute", "hidden"),
  sampleSource("PriceTable", "default"),
  // In the same namespace, but no route of org_x is charged by it.
  sampleSource("PriceTable", "secret-customer"),
];
const hiddenRoute = sampleRoute("hidden");
const snapshot = sampleSnapshot(
  sampleRouting(1, {
    routes: [sampleRoute("alpha"), { ...hiddenRoute, prices: { ...hiddenRoute.prices, source: foreign } }],
    organizations: [sampleOrganization("org_x", { allowedModels: ["alpha"] }), sampleOrganization("org_y")],
    objects: [alpha, hidden, table, foreign],
  }),
);

test("what an organization may not use is not told, and what is served in an older generation says so", () => {
  const told = configurationOf(snapshot, "org_x", (objects) =>
    [...objects.filter(({ kind }) => kind !== "ModelRoute"), sampleSource("Organization", "org_x")].map(
      (source) => ({
        ...source,
        notes: source.kind === "Organization" ? [{ path: "spec.credits", reason: "GrantUnchanged" }] : [],
      }),
    ),
  );
  expect(told.map(({ id, conditions }) => [id, conditions[0]?.status])).toEqual([
    ["Organization/default/org_x", "True"],
    ["ModelRoute/default/alpha", "False"],
    ["PriceTable/default/default", "True"],
  ]);
  expect(told[0]?.conditions[0]?.message).toContain("spec.credits: GrantUnchanged");
});

test("an unknown organization lives under nothing", () => {
  expect(configurationOf(snapshot, "org_z", () => [])).toEqual([]);
});
