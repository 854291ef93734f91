import { expect, test } from "vitest";
import {
  sampleOrganization,
  sampleRoute,
  sampleRouting,
  sampleSnapshot,
  sampleUpstream,
} from "../../../test/fakes/sample-snapshot.ts";
import { written } from "../../../test/fakes/written-json.ts";
import type { ModelUser } from "../../config/find-route.ts";
import type { Routing } from "../../config/schema.ts";
import { readListQuery, type Query } from "../list-query.ts";
import { ModelLists } from "./model-lists.ts";

const caller = (organizationId: string, models?: readonly string[]): ModelUser => ({
  organizationId,
  limits: models === undefined ? [] : [{ limits: { models: [...models] } }],
});
const routes = ["one", "two", "three", "four"].map((model) => sampleRoute(model));
const organizations = ["org_a", "org_b"].map((id) => sampleOrganization(id));

/** Lists whose entries say when they were made, and how many were made. */
function world(overrides: Partial<Routing> = {}) {
  let made = 0;
  const lists = new ModelLists((_, { model }, __, now) => ({ model, now, nth: (made += 1) }));
  const at = { snapshot: sampleSnapshot(sampleRouting(1, { routes, organizations, ...overrides })), now: 1 };
  const ask = async (user: ModelUser, query: Query = {}) =>
    JSON.parse(await written(lists.page("openai", user, at, readListQuery(query), Infinity))) as {
      data: { model: string; now: number }[];
      first_id: string | null;
    };
  const models = async (user: ModelUser, query: Query = {}) =>
    (await ask(user, query)).data.map(({ model }) => model);
  return { at, ask, models, made: () => made };
}

test("each entry is made once, whoever asks however often", async () => {
  const { models, made } = world();
  const all = await models(caller("org_a"));
  expect(all).toHaveLength(4);
  for (let n = 0; n < 50; n += 1) {
    expect(await models(caller("org_b"))).toEqual(all);
    expect(await models(caller("org_a", ["t*", `none-${n}`]))).toEqual(
      all.filter((model) => model.startsWith("t")),
    );
  }
  expect(made()).toBe(4);
});

test("pages in either order hold what the whole list holds there", async () => {
  const { ask, models } = world();
  const all = await models(caller("org_a"));
  const reversed = all.toReversed();
  expect(await models(caller("org_a"), { order: "asc" })).toEqual(reversed);
  expect(await models(caller("org_a"), { order: "asc", limit: "2", after: reversed[0] })).toEqual(
    reversed.slice(1, 3),
  );
  expect(await models(caller("org_a"), { limit: "2", after: all[0] })).toEqual(all.slice(1, 3));
  expect(await models(caller("org_a"), { limit: "1", before_id: all[3] })).toEqual([all[2]]);
  expect(await ask(caller("org_a"), { after: all[3] })).toMatchObject({ data: [], first_id: null });
});

test("nobody gets a list made for callers who may use other models", async () => {
  const namespaced = sampleOrganization("org_team");
  const team = { ...namespaced, source: { ...namespaced.source, namespace: "team" } };
  const { models } = world({
    organizations: [...organizations, sampleOrganization("org_few", { allowedModels: ["o*"] }), team],
    routes: [
      ...routes,
      sampleRoute("own", { servesNamespace: "team" }),
      sampleRoute("dedicated", { upstreams: [sampleUpstream({ dedicatedTo: "org_a" })] }),
    ],
  });
  const sorted = async (user: ModelUser) => (await models(user)).toSorted();
  expect(await sorted(caller("org_a"))).toEqual(["dedicated", "four", "one", "three", "two"]);
  expect(await sorted(caller("org_team"))).toEqual(["four", "one", "own", "three", "two"]);
  expect(await sorted(caller("org_b"))).toEqual(["four", "one", "three", "two"]);
  expect(await sorted(caller("org_few"))).toEqual(["one"]);
  expect(await sorted(caller("org_a", ["two"]))).toEqual(["two"]);
  expect(await sorted(caller("org_gone"))).toEqual([]);
});

test("another snapshot, a price that changes and a clock set back make the entries anew", async () => {
  const [first] = routes;
  if (first === undefined) throw new Error("there is a route");
  const { source: _, tools: __, ...rates } = first.prices;
  const priced = { ...first, prices: { ...first.prices, changes: [{ ...rates, from: 100 }] } };
  const { at, ask } = world({ routes: [priced] });
  const nowOf = async () => (await ask(caller("org_a"))).data[0]?.now;
  const seen: (number | undefined)[] = [];
  for (const now of [1, 99, 100, 5_000, 50, 60]) {
    at.now = now;
    seen.push(await nowOf());
  }
  expect(seen).toEqual([1, 1, 100, 100, 50, 50]);
  at.now = 70;
  at.snapshot = sampleSnapshot(sampleRouting(2, { routes: [priced], organizations }));
  expect(await nowOf()).toBe(70);
});
