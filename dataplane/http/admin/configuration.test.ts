import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import {
  sampleKeys,
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleSource,
} from "../../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../../test/fakes/test-server.ts";
import type { Preflight } from "../../billing/holds/preflight.ts";
import { configurationOf, configurationRoutes } from "./configuration.ts";

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

test("many that may go on at once are made one after another, with turns for others in between (rule 7.7)", async () => {
  const { promise: judged, resolve: goOn } = Promise.withResolvers<void>();
  let asked = 0;
  const free = () => {
    asked += 1;
    return judged;
  };
  let made = 0;
  const acknowledged = () => {
    made += 1;
    return [];
  };
  await using server = await startTestServer([configurationRoutes(acknowledged)], {
    services: { preflight: { free } as unknown as Preflight },
  });
  const headers = { authorization: `Bearer ${sampleKeys.admin}` };
  const lists = Array.from({ length: 20 }, () => server.fetch("/v1/organization/configuration", { headers }));
  await expect.poll(() => asked).toBe(20);
  goOn();
  await nextTurn();
  await nextTurn();
  expect(made).toBeLessThan(5);
  for (const { status } of await Promise.all(lists)) expect(status).toBe(200);
  expect(made).toBe(20);
});
