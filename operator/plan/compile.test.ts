import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { routingSchema } from "../../dataplane/config/schema.ts";
import { compile } from "./compile.ts";
import type { Compiled } from "./compiled.ts";
import type { Declared, Secrets } from "./objects.ts";
import type { Published } from "./prior.ts";
import { encode, serialize } from "./shards.ts";
import { readTenancy } from "./tenancy.ts";
import { runs } from "../../test/fakes/runs.ts";

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
const price = (model: string, input: string) => ({ model, input, output: "15" });
const table = (models: readonly string[]) =>
  declare("PriceTable", "default", {
    unit: "USD",
    models: models.map((model) => price(model, "3")),
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

describe("an account that is one organization's alone", () => {
  const dedicated = (namespace: string, dedicatedTo: string) =>
    declare(
      "ModelRoute",
      "own",
      {
        model: "m",
        limits,
        upstreams: [{ name: "a", dialect: "Messages", baseURL: "https://a", dedicatedTo }],
      },
      { namespace },
    );
  const acme = declare("Organization", "acme", { id: "org_acme" });
  const ours = declare("Organization", "ours", {}, { namespace: "team" });
  const tenancy = readTenancy({ tenancy: "Namespaced" }, "default");
  const notesOf = (route: Declared, organizations: readonly Declared[], more: object = {}) => {
    const prices = { ...table(["m"]), namespace: route.namespace };
    const { verdicts, routing } = compile({
      objects: [route, prices, ...organizations],
      secrets,
      published: null,
      ...more,
    });
    expect(routing.routes).toHaveLength(1);
    return verdicts.find(({ object }) => object === route)?.notes;
  };
  const nobody = (whose: string) => [
    `spec.upstreams[0].dedicatedTo: nothing goes to this upstream, as ${whose} has the id "org_acme"; declare the Organization, or correct the id`,
  ];

  test("is told of while there is no such organization", () => {
    const route = dedicated("default", "org_acme");
    expect(notesOf(route, [])).toEqual(nobody("no Organization"));
    expect(notesOf(route, [acme])).toEqual([]);
    expect(notesOf(route, [])).toEqual(nobody("no Organization"));
  });

  test("may be any namespace's, but for a route that serves only its own", () => {
    expect(notesOf(dedicated("team", "org_acme"), [acme])).toEqual([]);
    const another = notesOf(dedicated("team", "org_acme"), [acme], { tenancy });
    expect(another).toEqual(nobody('no Organization of namespace "team"'));
    expect(notesOf(dedicated("team", "org_team_ours"), [ours], { tenancy })).toEqual([]);
    expect(notesOf(dedicated("default", "org_team_ours"), [ours], { tenancy })).toEqual([]);
  });
});

describe("compiling again", () => {
  const world = () => [
    route(0),
    route(1),
    route(2, { toolPolicyRef: { name: "other" } }),
    table(["model-0", "model-1", "model-2"]),
    declare("ToolPolicy", "other", { webFetch: {} }),
  ];
  const compiled = (objects: readonly Declared[], given: Secrets = secrets) =>
    compile({ objects, secrets: given, published: null });
  const entry = ({ routing }: Compiled, index: number) =>
    routing.routes.find(({ model }) => model === `model-${index}`);
  const with0 = (objects: readonly Declared[], first: Declared) => [first, ...objects.slice(1)];

  test("gives the very same entries, sources and verdicts of what did not change, and new ones of what did", () => {
    const objects = world();
    const before = compiled(objects);
    const after = compiled(
      with0(objects, { ...route(0, { displayName: "Another" }), generation: 2 }).toReversed(),
    );
    expect(entry(after, 0)?.displayName).toBe("Another");
    expect(entry(after, 0)?.source.generation).toBe(2);
    for (const index of [1, 2]) expect(entry(after, index)).toBe(entry(before, index));
    const last = <Item>(list: readonly Item[]) => list.at(-1);
    expect(last(after.verdicts)).toBe(last(before.verdicts));
    expect(last(after.routing.objects)).toBe(last(before.routing.objects));
  });

  const withoutTable = (objects: readonly Declared[]) => objects.filter(({ kind }) => kind !== "PriceTable");
  test.for<{
    title: string;
    change: (objects: readonly Declared[]) => readonly Declared[];
    given?: Secrets;
    sees: (after: Compiled) => unknown;
    expected: unknown;
  }>([
    {
      title: "another price",
      change: (objects) => [
        ...withoutTable(objects),
        { ...table(["model-1"]), generation: 2, spec: { unit: "USD", models: [price("model-1", "9")] } },
      ],
      sees: (after) => [entry(after, 1)?.prices.input, entry(after, 1)?.prices.source.generation],
      expected: ["288", 2],
    },
    {
      title: "a price that is gone",
      change: withoutTable,
      sees: (after) => after.verdicts.map(({ resolved }) => resolved[0]?.reason).slice(0, 3),
      expected: ["PriceNotFound", "PriceNotFound", "PriceNotFound"],
    },
    {
      title: "a policy by the name that routes look for by themselves",
      change: (objects) => [...objects, declare("ToolPolicy", "default", { webFetch: {} })],
      sees: (after) => [0, 1, 2].map((index) => entry(after, index)?.toolPolicy),
      expected: ["default/default", "default/default", "default/other"],
    },
    {
      title: "a policy that is gone",
      change: (objects) => objects.filter(({ kind }) => kind !== "ToolPolicy"),
      sees: (after) => [entry(after, 2)?.toolPolicy, after.verdicts[2]?.resolved[0]?.reason],
      expected: [null, "ToolPolicyNotFound"],
    },
    {
      title: "a Secret that is gone",
      change: (objects) => objects,
      given: new Map(),
      sees: (after) => [after.routing.routes, after.verdicts[0]?.resolved[0]?.reason],
      expected: [[], "SecretNotFound"],
    },
    {
      title: "another value in a Secret",
      change: (objects) => objects,
      given: new Map([["default/s", { k: "other" }]]),
      sees: ({ credentials }) => credentials,
      expected: { "default/s/k": "other" },
    },
    {
      title: "an older route with the same name",
      change: (objects) => [...objects, { ...route(9, { model: "model-1" }), creationTimestamp: 1 }],
      sees: (after) => [entry(after, 1)?.source.name, after.verdicts[1]?.accepted[0]?.reason],
      expected: ["route-9", "Conflicted"],
    },
  ])("sees $title", ({ change, given, sees, expected }) => {
    const objects = world();
    const first = compiled(objects);
    expect(sees(first)).not.toEqual(expected);
    const changed = change(objects);
    expect(sees(compiled(changed, given))).toEqual(expected);
    expect(compiled(changed, given)).toEqual(compiled(structuredClone(changed), given));
    expect(compiled(objects)).toEqual(first);
  });

  test("after any change gives what a compiler gives that never saw the objects", () => {
    const pool = [
      ...world(),
      route(1, { aliases: ["model-0"] }),
      { ...route(3, { model: "model-1" }), creationTimestamp: 5 },
      route(4, { upstreams: [upstream, { ...upstream, name: "two", credentials: undefined }] }),
      { ...table(["model-0", "model-4"]), generation: 2 },
      declare("ToolPolicy", "default", { webFetch: {} }),
      declare("ToolPolicy", "other", { webSearch: 7 }, { generation: 2 }),
      declare("Organization", "one", { id: "org_one" }),
    ];
    const present = fc.record({
      objects: fc.subarray(pool),
      secrets: fc.constantFrom<Secrets>(secrets, new Map(), new Map([["default/s", { k: "other" }]])),
    });
    fc.assert(
      fc.property(fc.array(present, { minLength: 2, maxLength: 6 }), (steps) => {
        let published: Published | null = null;
        for (const step of steps) {
          const named = new Map(step.objects.map((object) => [`${object.kind} ${object.name}`, object]));
          const input = { objects: [...named.values()], secrets: step.secrets, published };
          const result = compile(input);
          expect(result).toEqual(compile(structuredClone(input)));
          published = { routing: { ...result.routing, serial: 1 }, credentials: result.credentials };
        }
      }),
      { numRuns: runs(300) },
    );
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

  test("of ids that nobody declares some owners, and of all that somebody else declares", () => {
    const madeUp = Array.from({ length: 20_000 }, (_, index) => [`org_evil_${index}`, "evil"] as const);
    const owners = new Map([...madeUp, ["org_one", "good"]]);
    const { routing } = compile({ objects: world(), secrets, published: null, owners });
    expect(Object.keys(routing.owners ?? {})).toHaveLength(1_000);
    const other = declare("Organization", "other", { id: "org_one" });
    const kept = compile({ objects: [other], secrets, published: null, owners }).routing.owners ?? {};
    expect(Object.keys(kept)).toHaveLength(1_001);
    expect(kept["org_one"]).toBe("good");
  });

  test("is the same whatever the order of the objects", () => {
    const expected = JSON.stringify(compile({ objects: world(), secrets, published: null }));
    fc.assert(
      fc.property(fc.shuffledSubarray(world(), { minLength: world().length }), (objects) => {
        expect(JSON.stringify(compile({ objects, secrets, published: null }))).toBe(expected);
      }),
      { numRuns: runs(50) },
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

test("a route called by a name that is too long for a model id is asked for one", () => {
  const spec = { limits, upstreams: [upstream] };
  const faults = (length: number, more: object = {}) => {
    const object = declare("ModelRoute", "m".repeat(length), { ...spec, ...more });
    const { verdicts } = compile({
      objects: [object, table(["m".repeat(128), "short"])],
      secrets,
      published: null,
    });
    return verdicts.find((verdict) => verdict.object === object)?.accepted;
  };
  expect([faults(128), faults(129, { model: "short" })]).toEqual([[], []]);
  expect(faults(129)).toEqual([
    {
      reason: "Invalid",
      path: "spec.model",
      message: "is required, as metadata.name is no model id (at most 128 characters)",
    },
  ]);
});

describe("a credential", () => {
  const priced = table(["model-0", "model-1"]);
  const keyed = (name: string) => ({ credentials: { secretKeyRef: { name, key: "k" } } });
  const withSecret = (k: string) => new Map([...secrets, ["default/big", { k }]]);

  test("of 8 KiB is taken", () => {
    const objects = [route(0, { upstreams: [{ ...upstream, ...keyed("big") }] }), priced];
    const { credentials } = compile({ objects, secrets: withSecret("x".repeat(8192)), published: null });
    expect(credentials["default/big/k"]).toHaveLength(8192);
  });

  test.each([
    ["a route", route(0, { upstreams: [{ ...upstream, ...keyed("big") }] }), "spec.upstreams[0]"],
    [
      "a search engine",
      declare("ToolPolicy", "other", { webSearch: { engine: { type: "Brave", ...keyed("big") } } }),
      "spec.webSearch.engine",
    ],
    [
      "an xSearch engine",
      declare("ToolPolicy", "other", { xSearch: { engine: { type: "X", ...keyed("big") } } }),
      "spec.xSearch.engine",
    ],
  ])("of %s that is longer is that object's fault and never in the snapshot", (_title, bad, path) => {
    const { verdicts, credentials, routing } = compile({
      objects: [bad, route(1), priced],
      secrets: withSecret("x".repeat(930_000)),
      published: null,
    });
    expect(verdicts.filter(({ resolved }) => resolved.length > 0)).toMatchObject([
      {
        object: { name: bad.name },
        resolved: [
          {
            reason: "SecretInvalid",
            path: `${path}.credentials.secretKeyRef`,
            message:
              'Secret "big", key "k": the value has more than the 8192 characters of the longest credential',
          },
        ],
      },
    ]);
    expect(Object.keys(credentials)).toEqual(["default/s/k"]);
    expect(routing.routes.map(({ source }) => source.name)).toEqual(["route-1"]);
  });
});

describe("rule 6.5: the engine of a policy", () => {
  const keyed = (name: string) => ({ credentials: { secretKeyRef: { name, key: "k" } } });
  const brave = { webSearch: { engine: { type: "Brave", ...keyed("a") } } };
  const posts = { xSearch: { engine: { type: "X", ...keyed("b") } } };
  const byModel = (modelRoute: string) => ({ webSearch: { engine: { type: "Model", modelRoute } } });
  const policy = (spec: object, more: Partial<Declared> = {}) =>
    declare("ToolPolicy", "default", spec, { generation: 2, ...more });
  const values: Secrets = new Map([...secrets, ["default/a", { k: "one" }], ["default/b", { k: "two" }]]);
  const others = [route(0), table(["model-0"])];
  const first = compile({
    objects: [...others, policy({ ...brave, ...posts }, { generation: 1 })],
    secrets: values,
    published: null,
  });
  const after = (last: Compiled, objects: readonly Declared[], beside: readonly Declared[] = others) =>
    compile({
      objects: [...beside, ...objects],
      secrets,
      published: { routing: { ...last.routing, serial: 1 }, credentials: last.credentials },
    });
  const engines = ({ routing }: Compiled) => {
    const entry = routing.policies["default/default"];
    return [entry?.webSearch?.engine ?? null, entry?.xSearch?.engine ?? null];
  };
  const [search, post] = engines(first);

  test.each([
    ["its Secret is gone", { ...brave, ...posts }],
    [
      "the spec names Secrets that are not there",
      {
        webSearch: { engine: { type: "Tavily", ...keyed("new") } },
        xSearch: { engine: { type: "X", baseURL: "https://new.example", ...keyed("new") } },
      },
    ],
    ["the spec names a ModelRoute that is not there", { ...byModel("gone"), ...posts }],
  ])("goes on when %s, the rest of the spec takes effect", (_title, spec) => {
    const broken = policy({ ...spec, limits: { iterations: 3 } });
    const missing = after(first, [broken]);
    // Twice: what is kept is found again in what was published last.
    for (const compiled of [missing, after(missing, [broken])]) {
      expect(engines(compiled)).toEqual([search, post]);
      expect(compiled.credentials).toMatchObject({ "default/a/k": "one", "default/b/k": "two" });
      expect(compiled.routing.policies["default/default"]?.iterations).toBe(3);
      const verdict = compiled.verdicts.find(({ object }) => object.kind === "ToolPolicy");
      expect(verdict).toMatchObject({ accepted: [], serves: 2 });
      expect(verdict?.resolved.map(({ path }) => path)).toEqual([
        expect.stringMatching(/^spec\.webSearch\.engine\./),
        "spec.xSearch.engine.credentials.secretKeyRef",
      ]);
    }
  });

  test("that is a model goes on as long as the model is served", () => {
    const model = after(first, [policy(byModel("route-0"))]);
    expect(engines(model)).toEqual([{ type: "model", model: "model-0" }, null]);
    const renamed = policy(byModel("gone"));
    expect(engines(after(model, [renamed]))).toEqual(engines(model));
    const unserved = { ...route(0), spec: null, uid: "new" };
    expect(engines(after(model, [renamed, unserved], []))).toEqual([null, null]);
  });

  test.each([
    ["is taken out of the spec", { webSearch: {}, xSearch: {} }, {}],
    ["is that of another object of the name", { ...brave, ...posts }, { uid: "new" }],
  ])("does not go on when it %s", (_title, spec, more) => {
    const compiled = after(first, [policy(spec, more)]);
    expect(engines(compiled)).toEqual([null, null]);
    expect(Object.keys(compiled.credentials)).toEqual(["default/s/k"]);
  });
});

describe("a price that is gone", () => {
  const named = (name: string, more: Partial<Declared> = {}) =>
    declare("ModelRoute", name, { model: "dup", limits, upstreams: [upstream] }, more);
  const after = (objects: readonly Declared[], last: Compiled | null) =>
    compile({
      objects,
      secrets,
      published:
        last === null ? null : { routing: { ...last.routing, serial: 1 }, credentials: last.credentials },
    });
  const priced = { ...table(["dup", "kept"]), generation: 1 };
  const unpriced = { ...table(["kept"]), generation: 2 };
  const broken = declare("PriceTable", "default", { unit: "Pound" }, { generation: 3 });
  const kept = declare("ModelRoute", "kept", { limits, upstreams: [upstream] });
  const served = ({ routing }: Compiled) => routing.routes.map(({ source }) => source.uid);
  const gone = after(
    [named("dup-a"), named("dup-b"), kept, unpriced],
    after([named("dup-a"), named("dup-b"), kept, priced], null),
  );

  test("rule 1.12: stays under the route that is served", () => {
    expect(served(gone)).toEqual(["uid-ModelRoute-dup-a", "uid-ModelRoute-kept"]);
  });

  test.each([
    ["another route that takes the model", named("dup-b")],
    ["the route made anew (rule 6.5)", named("dup-a", { uid: "new" })],
  ])("is not the price of %s, the table being valid or broken", (_title, heir) => {
    const expected = ["uid-ModelRoute-kept"];
    expect(served(after([heir, kept, unpriced], gone))).toEqual(expected);
    const breaks = after([named("dup-a"), kept, broken], gone);
    expect(served(breaks)).toEqual(["uid-ModelRoute-dup-a", ...expected]);
    expect(served(after([heir, kept, broken], breaks))).toEqual(expected);
  });

  test("a broken table says which generation of it is served, as long as a route goes on at it", () => {
    const serves = ({ verdicts }: Compiled) =>
      verdicts.flatMap((verdict) => (verdict.object.kind === "PriceTable" ? [verdict.serves] : []));
    const breaks = after([named("dup-a"), kept, broken], gone);
    expect(serves(gone)).toEqual([2]);
    expect(serves(breaks)).toEqual([2]);
    expect(serves(after([named("dup-a"), broken], breaks))).toEqual([1]);
    expect(serves(after([broken], breaks))).toEqual([null]);
    expect(serves(after([kept, { ...broken, uid: "new" }], breaks))).toEqual([null]);
  });

  test("a new route of a broken table has the price that the table gave last", () => {
    const last = after([named("dup-a"), priced], null);
    expect(served(after([named("dup-b"), broken], last))).toEqual(["uid-ModelRoute-dup-b"]);
  });
});

test.for([
  [
    "nothing but line breaks",
    "\r\n\n",
    0,
    'Secret "s" has nothing but line breaks under the key "api-key"; remove them',
  ],
  ["nothing", "", 1, 'Secret "s" has no value under the key "api-key"'],
] as const)(
  "a key under which stands %s: what is there is never written over, and what is not is wanted",
  ([, value, count, told]) => {
    const apiKeys = [{ name: "ci", secretKeyRef: { name: "s", key: "api-key" } }];
    const secrets = new Map([["default/s", { "api-key": value }]]);
    const compiled = compile({
      objects: [declare("Organization", "acme", { apiKeys })],
      secrets,
      published: null,
    });
    expect(compiled.wanted).toHaveLength(count);
    expect(compiled.verdicts[0]?.resolved).toMatchObject([{ reason: "SecretNotFound", message: told }]);
  },
);

test("a key whose Secret may not be read is told in the API server's words, and is not wanted", () => {
  const apiKeys = [{ name: "ci", secretKeyRef: { name: "s", key: "api-key" } }];
  const compiled = compile({
    objects: [declare("Organization", "acme", { apiKeys })],
    secrets: new Map(),
    forbidden: new Map([["default/s", "secrets is forbidden"]]),
    published: null,
  });
  expect(compiled.wanted).toEqual([]);
  const message =
    'Secret "s", wanted for its key "api-key", may not be read by the operator: secrets is forbidden';
  expect(compiled.verdicts[0]?.resolved).toMatchObject([{ reason: "SecretForbidden", message }]);
});

test("a key whose Secret is immutable and has no such value is told, and is not wanted", () => {
  const keys = { apiKeys: [{ name: "ci", secretKeyRef: { name: "s", key: "api-key" } }] };
  const input = { objects: [declare("Organization", "acme", keys)], published: null };
  const secrets = new Map([["default/s", { k: "v" }]]);
  const after = compile({ ...input, secrets, immutable: new Set(["default/s"]) });
  expect(after.wanted).toEqual([]);
  expect(after.verdicts[0]?.resolved[0]?.message).toBe(
    'Secret "s" has no value under the key "api-key"; the Secret is immutable, so that none can be made there: name another',
  );
  expect(compile({ ...input, secrets }).wanted).toHaveLength(1);
});

test("an organization that is served on as it was is a tenant's as soon as its namespace is trusted no more", () => {
  const identity = { issuer: "https://login.example.com", audiences: ["a"], rules: [{ role: "Member" }] };
  const valid = declare("Organization", "acme", { identity }, { namespace: "team" });
  const first = compile({ objects: [valid], secrets, published: null });
  const isTenants = ({ routing }: Compiled) => routing.organizations[0]?.isTenants;
  expect(isTenants(first)).toBeUndefined();
  const published = { routing: { ...first.routing, serial: 1 }, credentials: first.credentials };
  const objects = [{ ...valid, generation: 2, spec: { identity: {} } }];
  const tenancy = readTenancy({ tenancy: "Namespaced" }, "default");
  const tenants = compile({ objects, secrets, published, tenancy });
  expect(isTenants(tenants)).toBe(true);
  const again = { routing: { ...tenants.routing, serial: 2 }, credentials: tenants.credentials };
  const readAgain = routingSchema.parse(again.routing);
  expect(JSON.stringify(readAgain.organizations), "the same text").toBe(
    JSON.stringify(again.routing.organizations),
  );
  expect(isTenants(compile({ objects, secrets, published: again }))).toBeUndefined();
});
