/**
 * Good and bad objects, and who has to judge them: the API server (schema and CEL) or the compiler. The unit tests
 * put every row through the compiler, the operator tests put every row to a real kube-apiserver.
 */
import type { Kind } from "../../operator/api/kinds.ts";

export interface Row {
  readonly title: string;
  readonly kind: Kind;
  readonly spec: unknown;
  /**
   * good: accepted by both. refused: by the API server, and by the compiler with the path.
   * condition: stored by the API server, then `Accepted=False` with the path.
   */
  readonly verdict: "good" | "refused" | "condition";
  /** Where the compiler finds the fault. */
  readonly path?: string;
  /** The API server says something else than "Invalid value" about it; for CEL rules, our own words. */
  readonly says?: RegExp;
}

const limits = { contextTokens: 1000, maxOutputTokens: 100 };
const upstream = { name: "one", dialect: "Messages", baseURL: "https://api.example.com" };
const secret = { secretKeyRef: { name: "s", key: "k" } };
const route = (more: object = {}, up: object = {}) => ({
  limits,
  upstreams: [{ ...upstream, ...up }],
  ...more,
});
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

const routeRows: Row[] = [
  {
    title: "null for a required value",
    spec: route({ limits: null }),
    verdict: "refused",
    path: "spec.limits",
    says: /Required value/,
  },
  { title: "the least a route needs", spec: route(), verdict: "good" },
  {
    title: "20 upstreams and 30 aliases",
    spec: route({
      upstreams: times(20, (index) => ({ ...upstream, name: `u${index}` })),
      aliases: times(30, (index) => `alias-${index}`),
    }),
    verdict: "good",
  },
  {
    title: "an address with a path and a trailing slash",
    spec: route({}, { baseURL: "http://10.0.0.1:8000/llm/" }),
    verdict: "good",
  },
  { title: "an IPv6 address", spec: route({}, { baseURL: "http://[fd00::1]:8000" }), verdict: "good" },
  {
    title: "an address on /v1 with an own path",
    spec: route({}, { baseURL: "https://a.example/v1", path: "/messages" }),
    verdict: "good",
  },
  {
    title: "an upstream that takes no traffic",
    spec: route({
      upstreams: [
        { ...upstream, weight: 0 },
        { ...upstream, name: "two" },
      ],
    }),
    verdict: "good",
  },
  {
    title: "durations of several units",
    spec: route({ timeouts: { connect: "500ms", firstByte: "1m30s", request: "24h" } }),
    verdict: "good",
  },
  {
    title: "a model id with slash and colon",
    spec: route({ model: "@cf/meta/llama-3.1:8b", aliases: ["A~b+c"] }),
    verdict: "good",
  },
  { title: "no limits", spec: { upstreams: [upstream] }, verdict: "refused", path: "spec.limits" },
  { title: "no upstream", spec: route({ upstreams: [] }), verdict: "refused", path: "spec.upstreams" },
  { title: "upstreams missing", spec: { limits }, verdict: "refused", path: "spec.upstreams" },
  {
    title: "an unknown field",
    spec: route({ modle: "x" }),
    verdict: "refused",
    path: "spec.modle",
    says: /unknown field "spec.modle"/,
  },
  {
    title: "an unknown field deep inside",
    spec: route({}, { credentials: { ...secret, heder: "x" } }),
    verdict: "refused",
    path: "spec.upstreams[0].credentials.heder",
    says: /unknown field/,
  },
  {
    title: "an organization that can have no such id",
    spec: route({}, { dedicatedTo: "acme corp" }),
    verdict: "refused",
    path: "spec.upstreams[0].dedicatedTo",
  },
  {
    title: "an unknown dialect",
    spec: route({}, { dialect: "Gemini" }),
    verdict: "refused",
    path: "spec.upstreams[0].dialect",
    says: /Unsupported value/,
  },
  {
    title: "no dialect",
    spec: route({ upstreams: [{ name: "one", baseURL: "https://a.example" }] }),
    verdict: "refused",
    path: "spec.upstreams[0].dialect",
    says: /Required value/,
  },
  {
    title: "an enum in lower case",
    spec: route({ affinity: "prompt" }),
    verdict: "refused",
    path: "spec.affinity",
    says: /Unsupported value/,
  },
  {
    title: "two upstreams of one name",
    spec: route({ upstreams: [upstream, upstream] }),
    verdict: "refused",
    path: "spec.upstreams[1].name",
    says: /Duplicate value/,
  },
  {
    title: "an alias twice",
    spec: route({ aliases: ["a", "a"] }),
    verdict: "refused",
    path: "spec.aliases[1]",
    says: /Duplicate value/,
  },
  {
    title: "an address without scheme",
    spec: route({}, { baseURL: "api.example.com" }),
    verdict: "refused",
    path: "spec.upstreams[0].baseURL",
  },
  {
    title: "an address with a user",
    spec: route({}, { baseURL: "https://user:word@a.example" }),
    verdict: "refused",
    path: "spec.upstreams[0].baseURL",
  },
  {
    title: "an address with a query",
    spec: route({}, { baseURL: "https://a.example/?x=1" }),
    verdict: "refused",
    path: "spec.upstreams[0].baseURL",
  },
  {
    title: "an address that ends in /v1",
    spec: route({}, { baseURL: "https://a.example/v1" }),
    verdict: "refused",
    path: "spec.upstreams[0].baseURL",
    says: /leave \/v1 out/,
  },
  {
    title: "an address that cannot be called",
    spec: route({}, { baseURL: "http://a.example:99999" }),
    verdict: "condition",
    path: "spec.upstreams[0].baseURL",
  },
  {
    title: "a duration without unit",
    spec: route({ timeouts: { connect: "5" } }),
    verdict: "refused",
    path: "spec.timeouts.connect",
  },
  {
    title: "a duration of zero",
    spec: route({ timeouts: { connect: "0s" } }),
    verdict: "refused",
    path: "spec.timeouts.connect",
    says: /above zero/,
  },
  {
    title: "a duration of a week",
    spec: route({ timeouts: { request: "168h" } }),
    verdict: "refused",
    path: "spec.timeouts.request",
    says: /at most 24h/,
  },
  {
    title: "a negative weight",
    spec: route({}, { weight: -1 }),
    verdict: "refused",
    path: "spec.upstreams[0].weight",
  },
  {
    title: "no weight anywhere",
    spec: route({}, { weight: 0 }),
    verdict: "refused",
    path: "spec.upstreams",
    says: /weight above 0/,
  },
  {
    title: "a limit as text",
    spec: route({ limits: { ...limits, contextTokens: "1000" } }),
    verdict: "refused",
    path: "spec.limits.contextTokens",
  },
  {
    title: "a broken number",
    spec: route({ limits: { ...limits, contextTokens: 10.5 } }),
    verdict: "refused",
    path: "spec.limits.contextTokens",
  },
  {
    title: "more output than context",
    spec: route({ limits: { contextTokens: 10, maxOutputTokens: 11 } }),
    verdict: "refused",
    path: "spec.limits.maxOutputTokens",
    says: /above contextTokens/,
  },
  {
    title: "a star in the model id",
    spec: route({ model: "gpt-*" }),
    verdict: "refused",
    path: "spec.model",
  },
  {
    title: "a blank in an alias",
    spec: route({ aliases: ["a b"] }),
    verdict: "refused",
    path: "spec.aliases[0]",
  },
  {
    title: "a credential without key",
    spec: route({}, { credentials: { secretKeyRef: { name: "s" } } }),
    verdict: "refused",
    path: "spec.upstreams[0].credentials.secretKeyRef.key",
    says: /Required value/,
  },
  {
    title: "a Secret key that climbs",
    spec: route({}, { credentials: { secretKeyRef: { name: "s", key: ".." } } }),
    verdict: "refused",
    path: "spec.upstreams[0].credentials.secretKeyRef.key",
  },
  {
    title: "a header name with a blank",
    spec: route({}, { headers: { "x y": "1" } }),
    verdict: "condition",
    path: 'spec.upstreams[0].headers["x y"]',
  },
  {
    title: "a header of the connection",
    spec: route({}, { headers: { "Transfer-Encoding": "chunked" } }),
    verdict: "condition",
    path: "spec.upstreams[0].headers.Transfer-Encoding",
  },
  {
    title: "a header value over two lines",
    spec: route({}, { headers: { "x-a": "1\r\nx-b: 2" } }),
    verdict: "refused",
    path: "spec.upstreams[0].headers.x-a",
  },
  {
    title: "one header in two spellings",
    spec: route({}, { headers: { "x-a": "1", "X-A": "2" } }),
    verdict: "condition",
    path: "spec.upstreams[0].headers.X-A",
  },
  {
    title: "the credential's header given by hand too",
    spec: route({}, { credentials: secret, headers: { "X-Api-Key": "1" } }),
    verdict: "condition",
    path: "spec.upstreams[0].headers.X-Api-Key",
  },
  {
    title: "no attempt at all",
    spec: route({ retries: { attempts: 0 } }),
    verdict: "refused",
    path: "spec.retries.attempts",
  },
  {
    title: "null for a value, which counts as absent",
    spec: route({ displayName: null }),
    verdict: "good",
  },
].map((row) => ({ kind: "ModelRoute" as const, ...row }) as Row);

const search = (engine: object) => ({ webSearch: { engine } });
const egress = (value: object) => ({ webFetch: { egress: value } });
const policyRows: Row[] = [
  { title: "nothing at all", spec: {}, verdict: "good" },
  { title: "a tool without engine", spec: { webSearch: {}, xSearch: { enabled: false } }, verdict: "good" },
  {
    title: "SearXNG with an address",
    spec: search({ type: "SearXNG", baseURL: "http://searxng.search.svc" }),
    verdict: "good",
  },
  {
    title: "Tavily with credentials",
    spec: search({ type: "Tavily", credentials: secret }),
    verdict: "good",
  },
  {
    title: "a model as engine",
    spec: search({ type: "Model", modelRoute: "search-model" }),
    verdict: "good",
  },
  {
    title: "an intranet",
    spec: egress({
      allowCIDRs: ["10.20.0.0/16", "127.0.0.0/8", "::1/128", "fc00:1::/32"],
      allowPorts: [8443],
    }),
    verdict: "good",
  },
  { title: "no cache", spec: { webFetch: { cacheTTL: "0s" } }, verdict: "good" },
  {
    title: "SearXNG without address",
    spec: search({ type: "SearXNG" }),
    verdict: "refused",
    path: "spec.webSearch.engine.baseURL",
    says: /SearXNG needs baseURL/,
  },
  {
    title: "SearXNG with credentials",
    spec: search({ type: "SearXNG", baseURL: "http://s", credentials: secret }),
    verdict: "refused",
    path: "spec.webSearch.engine.credentials",
    says: /only Brave and Tavily/,
  },
  {
    title: "Brave without credentials",
    spec: search({ type: "Brave" }),
    verdict: "refused",
    path: "spec.webSearch.engine.credentials",
    says: /need credentials/,
  },
  {
    title: "a model engine without route",
    spec: search({ type: "Model" }),
    verdict: "refused",
    path: "spec.webSearch.engine.modelRoute",
    says: /modelRoute/,
  },
  {
    title: "a route for an engine that is no model",
    spec: search({ type: "Brave", credentials: secret, modelRoute: "m" }),
    verdict: "refused",
    path: "spec.webSearch.engine.modelRoute",
    says: /modelRoute/,
  },
  {
    title: "a model engine with an address",
    spec: search({ type: "Model", modelRoute: "m", baseURL: "http://s" }),
    verdict: "refused",
    path: "spec.webSearch.engine.baseURL",
    says: /from the ModelRoute/,
  },
  {
    title: "an engine without type",
    spec: search({}),
    verdict: "refused",
    path: "spec.webSearch.engine.type",
    says: /Required value/,
  },
  {
    title: "X without credentials",
    spec: { xSearch: { engine: { type: "X" } } },
    verdict: "refused",
    path: "spec.xSearch.engine.credentials",
    says: /X needs credentials/,
  },
  {
    title: "a proxy that resolves, without proxy",
    spec: egress({ proxyResolves: true }),
    verdict: "refused",
    path: "spec.webFetch.egress.proxyResolves",
    says: /needs proxy/,
  },
  {
    title: "a port beyond 65535",
    spec: egress({ allowPorts: [65_536] }),
    verdict: "refused",
    path: "spec.webFetch.egress.allowPorts[0]",
  },
  {
    title: "a network without prefix",
    spec: egress({ allowCIDRs: ["10.0.0.0"] }),
    verdict: "refused",
    path: "spec.webFetch.egress.allowCIDRs[0]",
  },
  ...[
    "169.254.0.0/16",
    "169.254.169.254/32",
    "0.0.0.0/0",
    "fe80::/10",
    "fe80::1/128",
    "::/0",
    "fd00:ec2::254/128",
    "fd00::/8",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "0.0.0.0/8",
    "0.1.2.3/32",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "fec0::/10",
    "ff02::/16",
    "fd00:ec2::/32",
    "fd00:42::42/128",
    "fd20:ce::1/128",
    "64:ff9b::/96",
    "64:ff9b::a9fe:a9fe/128",
    "64:ff9b:1::/48",
    "2002:a9fe:a9fe::/48",
    "2001::/32",
    "::7f00:1/128",
    "::/128",
  ].map((cidr) => ({
    title: `the network ${cidr}`,
    spec: egress({ allowCIDRs: ["10.0.0.0/8", cidr] }),
    verdict: "condition",
    path: "spec.webFetch.egress.allowCIDRs[1]",
  })),
  ...["300.0.0.0/8", "10.0.0.0/33", "fd00::/129", "::ffff:169.254.0.0/112"].map((cidr) => ({
    title: `${cidr}, which is no network`,
    spec: egress({ allowCIDRs: ["10.0.0.0/8", cidr] }),
    verdict: "refused",
    path: "spec.webFetch.egress.allowCIDRs[1]",
    says: /must be a network, such as 10\.20\.0\.0\/16/,
  })),
].map((row) => ({ kind: "ToolPolicy" as const, ...row }) as Row);

const price = { model: "m", input: "3", output: "15" };
const priceRows: Row[] = [
  { title: "a unit alone", spec: { unit: "Credit" }, verdict: "good" },
  {
    title: "200 models",
    spec: {
      unit: "USD",
      models: times(200, (index) => ({ ...price, model: `m-${index}`, cacheRead: "0.000001" })),
    },
    verdict: "good",
  },
  {
    title: "a price of nothing",
    spec: { unit: "USD", creditsPerUSD: "0.5", models: [{ ...price, input: "0" }] },
    verdict: "good",
  },
  {
    title: "no unit",
    spec: { models: [price] },
    verdict: "refused",
    path: "spec.unit",
    says: /Required value/,
  },
  {
    title: "a negative price",
    spec: { unit: "USD", models: [{ ...price, input: "-1" }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a price as number",
    spec: { unit: "USD", models: [{ ...price, input: 3 }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a price in words",
    spec: { unit: "USD", models: [{ ...price, input: "1e3" }] },
    verdict: "refused",
    path: "spec.models[0].input",
  },
  {
    title: "a negative tool price",
    spec: { unit: "USD", tools: { webSearch: "-1" } },
    verdict: "refused",
    path: "spec.tools.webSearch",
  },
  {
    title: "no output price",
    spec: { unit: "USD", models: [{ model: "m", input: "1" }] },
    verdict: "refused",
    path: "spec.models[0].output",
    says: /Required value/,
  },
  {
    title: "one model twice",
    spec: { unit: "USD", models: [price, price] },
    verdict: "refused",
    path: "spec.models[1].model",
    says: /Duplicate value/,
  },
  {
    title: "creditsPerUSD with unit Credit",
    spec: { unit: "Credit", creditsPerUSD: "32" },
    verdict: "refused",
    path: "spec.creditsPerUSD",
    says: /only with unit USD/,
  },
  {
    title: "creditsPerUSD of nothing",
    spec: { unit: "USD", creditsPerUSD: "0.00" },
    verdict: "refused",
    path: "spec.creditsPerUSD",
    says: /above 0/,
  },
  {
    title: "every kind of price",
    spec: {
      unit: "USD",
      models: [
        {
          ...price,
          audioInput: "40",
          audioOutput: "80",
          imageOutput: "30",
          tiers: [{ inputOver: 200_000, input: "6" }, { inputOver: 500_000 }],
          serviceTiers: [
            { name: "priority", multiplier: "2" },
            { name: "flex", input: "1.5", output: "7.5", tiers: [{ inputOver: 200_000, input: "3" }] },
          ],
          changes: [
            { from: "2027-01-01T00:00:00Z", input: "2", output: "9", tiers: [{ inputOver: 1 }] },
            { from: "2027-01-01T00:00:00.000001+00:00", input: "2", output: "8" },
          ],
        },
      ],
    },
    verdict: "good",
  },
  {
    title: "the most tiers and changes that a table may hold",
    spec: {
      unit: "USD",
      models: times(20, (index) => ({
        ...price,
        model: `m-${index}`,
        tiers: times(8, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        changes: times(16, (day) => ({
          from: `2027-01-${String(day + 1).padStart(2, "0")}T00:00:00Z`,
          input: "1",
          output: "2",
          tiers: times(8, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        })),
      })),
    },
    verdict: "good",
  },
  {
    title: "the most tiers of service, each with the most tiers",
    spec: {
      unit: "USD",
      models: times(200, (index) => ({
        ...price,
        model: `m-${index}`,
        serviceTiers: times(8, (at) => ({
          name: `tier-${at}`,
          input: "1",
          tiers: times(4, (tier) => ({ inputOver: (tier + 1) * 1000 })),
        })),
      })),
    },
    verdict: "good",
  },
  ...[
    ["a tier of service by both ways", { name: "a", multiplier: "2", input: "1" }, "", /either a multiplier/],
    ["a tier of service by none", { name: "a" }, "", /either a multiplier/],
    ["a multiplier of nothing", { name: "a", multiplier: "0.0" }, ".multiplier", /above 0/],
    ["the standard as a tier of service", { name: "default", multiplier: "2" }, ".name", /standard tier/],
    [
      "a tier of service that nobody can ask for",
      { name: "Fast", multiplier: "2" },
      ".name",
      /lower-case|should match/,
    ],
    [
      "bounds of a tier of service that fall",
      { name: "a", input: "1", tiers: [{ inputOver: 2 }, { inputOver: 1 }] },
      ".tiers[1].inputOver",
      /must rise/,
    ],
  ].map(([title, tier, path, says]) => ({
    title: title as string,
    spec: { unit: "USD", models: [{ ...price, serviceTiers: [tier] }] },
    verdict: "refused" as const,
    path: `spec.models[0].serviceTiers[0]${path as string}`,
    says: says as RegExp,
  })),
  {
    title: "two tiers of service of one name",
    spec: {
      unit: "USD",
      models: [{ ...price, serviceTiers: times(2, () => ({ name: "a", multiplier: "2" })) }],
    },
    verdict: "refused",
    path: "spec.models[0].serviceTiers[1].name",
    says: /Duplicate value/,
  },
  {
    title: "bounds of tiers that fall",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 2 }, { inputOver: 1 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[1].inputOver",
    says: /must rise/,
  },
  {
    title: "two tiers of one bound",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 2 }, { inputOver: 2 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[1].inputOver",
    says: /Duplicate value/,
  },
  {
    title: "a tier above nothing",
    spec: { unit: "USD", models: [{ ...price, tiers: [{ inputOver: 0 }] }] },
    verdict: "refused",
    path: "spec.models[0].tiers[0].inputOver",
  },
  ...[
    ["changes out of order", ["2027-02-01T00:00:00Z", "2027-01-01T00:00:00Z"]],
    ["two changes at one moment, said differently", ["2027-01-01T00:00:00Z", "2027-01-01T07:00:00+07:00"]],
  ].map(([title, moments]) => ({
    title,
    spec: {
      unit: "USD",
      models: [
        { ...price, changes: (moments as string[]).map((from) => ({ from, input: "1", output: "2" })) },
      ],
    },
    verdict: "refused",
    path: "spec.models[0].changes[1].from",
    says: /in order/,
  })),
  ...["2027-01-01", "2027-01-01T00:00:00", "2027-02-30T00:00:00Z", "tomorrow"].map((from) => ({
    title: `${from}, which is no moment`,
    spec: { unit: "USD", models: [{ ...price, changes: [{ from, input: "1", output: "2" }] }] },
    verdict: "refused",
    path: "spec.models[0].changes[0].from",
  })),
  {
    title: "a change that leaves the output's price out",
    spec: { unit: "USD", models: [{ ...price, changes: [{ from: "2027-01-01T00:00:00Z", input: "1" }] }] },
    verdict: "refused",
    path: "spec.models[0].changes[0].output",
    says: /Required value/,
  },
].map((row) => ({ kind: "PriceTable" as const, ...row }) as Row);

const key = (name: string, more: object = {}) => ({
  name,
  secretKeyRef: { name: "keys", key: name },
  ...more,
});
const identity = (more: object = {}, rule: object = {}) => ({
  identity: {
    issuer: "https://login.example.com",
    audiences: ["gapura"],
    rules: [{ claims: { groups: "ml" }, role: "Member", ...rule }],
    ...more,
  },
});
const credits = (amount: string, per: string) => ({ amount, per });
const limitedKey = (limits: object) => ({ name: "ci", secretKeyRef: { name: "s", key: "k" }, limits });
const notification = (more: object = {}) => ({
  url: "https://hooks.example.com/credit",
  secretRef: { name: "hooks", key: "secret" },
  ...more,
});

const organizationRows: Row[] = [
  { title: "nothing at all", spec: {}, verdict: "good" },
  {
    title: "100 grants and 50 keys in 20 projects",
    spec: {
      credits: { grants: times(100, (index) => ({ name: `g-${index}`, amount: "1.5" })) },
      projects: times(20, (index) => ({ name: `p-${index}` })),
      apiKeys: times(50, (index) => key(`k-${index}`, { project: `p-${index % 20}` })),
    },
    verdict: "good",
  },
  {
    title: "the default project without naming it",
    spec: { projects: [{ name: "lab" }], apiKeys: [key("a"), key("b", { project: "default" })] },
    verdict: "good",
  },
  {
    title: "a correction",
    spec: { credits: { grants: [{ name: "c", amount: "-12.000001" }] } },
    verdict: "good",
  },
  {
    title: "models with a trailing star",
    spec: { models: { allow: ["*", "gpt-*", "claude"] } },
    verdict: "good",
  },
  {
    title: "a star in mid-pattern",
    spec: { models: { allow: ["gpt-*-mini"] } },
    verdict: "refused",
    path: "spec.models.allow[0]",
  },
  {
    title: "two stars",
    spec: { models: { allow: ["gpt-**"] } },
    verdict: "refused",
    path: "spec.models.allow[0]",
  },
  {
    title: "an unknown project",
    spec: { projects: [{ name: "other" }], apiKeys: [key("b"), key("a", { project: "lab" })] },
    verdict: "refused",
    path: "spec.apiKeys[1].project",
    says: /the project "lab" is not in projects/,
  },
  {
    title: "a grant twice",
    spec: {
      credits: {
        grants: [
          { name: "g", amount: "1" },
          { name: "g", amount: "2" },
        ],
      },
    },
    verdict: "refused",
    path: "spec.credits.grants[1].name",
    says: /Duplicate value/,
  },
  {
    title: "a grant finer than a micro-credit",
    spec: { credits: { grants: [{ name: "g", amount: "0.0000001" }] } },
    verdict: "refused",
    path: "spec.credits.grants[0].amount",
  },
  {
    title: "a grant beyond any balance",
    spec: { credits: { grants: [{ name: "g", amount: "9000000001" }] } },
    verdict: "condition",
    path: "spec.credits.grants[0].amount",
  },
  {
    title: "a key twice",
    spec: { apiKeys: [key("a"), key("a")] },
    verdict: "refused",
    path: "spec.apiKeys[1].name",
    says: /Duplicate value/,
  },
  {
    title: "a key without Secret",
    spec: { apiKeys: [{ name: "a" }] },
    verdict: "refused",
    path: "spec.apiKeys[0].secretKeyRef",
    says: /Required value/,
  },
  {
    title: "a storage in words",
    spec: { storage: { maxBytes: "10 gigabytes" } },
    verdict: "refused",
    path: "spec.storage.maxBytes",
  },
  {
    title: "a storage without a unit as a number",
    spec: { storage: { maxBytes: 1024 } },
    verdict: "refused",
    path: "spec.storage.maxBytes",
  },
  {
    title: "a rate limit of nothing",
    spec: { rateLimits: { requestsPerMinute: 0 } },
    verdict: "refused",
    path: "spec.rateLimits.requestsPerMinute",
  },
  { title: "suspended in words", spec: { suspended: "yes" }, verdict: "refused", path: "spec.suspended" },
  { title: "an id with a slash", spec: { id: "org/acme" }, verdict: "refused", path: "spec.id" },
  {
    title: "a NUL in the name",
    spec: { displayName: "a\u0000b" },
    verdict: "refused",
    path: "spec.displayName",
  },
  {
    title: "an escape sequence in the name",
    spec: { displayName: "\u001b[31mAcme" },
    verdict: "refused",
    path: "spec.displayName",
  },
  {
    title: "limits of keys and projects, an end, a hold",
    spec: {
      hold: "Worst",
      keyDefaults: { hold: "Typical", limits: { credits: credits("0.5", "Day") } },
      projects: [{ name: "lab", limits: { credits: credits("9000000000", "Total"), concurrentRequests: 1 } }],
      apiKeys: [limitedKey({ credits: credits("500", "Month"), models: { allow: ["a-*"] } })],
    },
    verdict: "good",
  },
  {
    title: "200 keys with all limits",
    spec: {
      apiKeys: times(200, (index) => ({
        ...limitedKey({
          credits: credits("500", "Month"),
          models: { allow: ["a-*", "b"] },
          requestsPerMinute: 1,
          tokensPerMinute: 1,
          concurrentRequests: 1,
        }),
        name: `key-${index}`,
      })),
    },
    verdict: "good",
  },
  {
    title: "a window that there is not",
    spec: { apiKeys: [limitedKey({ credits: credits("5", "Year") })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.credits.per",
    says: /Unsupported value: "Year": supported values: "Day", "Week", "Month", "Total"/,
  },
  {
    title: "a limit below nothing",
    spec: { projects: [{ name: "lab", limits: { credits: credits("-5", "Day") } }] },
    verdict: "refused",
    path: "spec.projects[0].limits.credits.amount",
    says: /spec.projects\[0\].limits.credits.amount/,
  },
  {
    title: "a limit of credit without a window",
    spec: { keyDefaults: { limits: { credits: { amount: "5" } } } },
    verdict: "refused",
    path: "spec.keyDefaults.limits.credits.per",
    says: /spec.keyDefaults.limits.credits.per: Required value/,
  },
  {
    title: "a limit above all credit",
    spec: { keyDefaults: { limits: { credits: credits("9999999999", "Day") } } },
    verdict: "condition",
    path: "spec.keyDefaults.limits.credits.amount",
    says: /at most 9000000000/,
  },
  {
    title: "no request a minute",
    spec: { apiKeys: [limitedKey({ requestsPerMinute: 0 })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.requestsPerMinute",
    says: /spec.apiKeys\[0\].limits.requestsPerMinute/,
  },
  {
    title: "a limit that is spelled wrongly",
    spec: { apiKeys: [limitedKey({ requestPerMinute: 5 })] },
    verdict: "refused",
    path: "spec.apiKeys[0].limits.requestPerMinute",
    says: /unknown field "spec.apiKeys\[0\].limits.requestPerMinute"/,
  },
  {
    title: "an end that is no moment",
    spec: { apiKeys: [{ ...limitedKey({}), expiresAt: "tomorrow" }] },
    verdict: "refused",
    path: "spec.apiKeys[0].expiresAt",
    says: /spec.apiKeys\[0\].expiresAt/,
  },
  {
    title: "a hold that there is not",
    spec: { hold: "Best" },
    verdict: "refused",
    path: "spec.hold",
    says: /spec.hold: Unsupported value: "Best"/,
  },
  {
    title: "ten receivers, with 64 networks and ports each",
    spec: {
      notifications: times(10, (index) =>
        notification({
          url: `https://hooks-${index}.example.com/credit`,
          thresholds: times(10, (at) => 10 * at + 10),
          allowCIDRs: times(64, (at) => `10.${at}.0.0/16`),
          allowPorts: times(64, (at) => 1_000 + at),
        }),
      ),
    },
    verdict: "good",
  },
  {
    title: "a receiver that speaks no HTTP",
    spec: { notifications: [notification({ url: "ftp://hooks.example.com/credit" })] },
    verdict: "refused",
    path: "spec.notifications[0].url",
    says: /spec.notifications\[0\].url/,
  },
  {
    title: "a receiver at another port than is allowed",
    spec: { notifications: [notification({ url: "https://hooks.example.com:9443/credit" })] },
    verdict: "condition",
    path: "spec.notifications[0].url",
    says: /name it in allowPorts/,
  },
  {
    title: "a receiver beside cloud metadata",
    spec: { notifications: [notification({ allowCIDRs: ["169.254.0.0/16"] })] },
    verdict: "condition",
    path: "spec.notifications[0].allowCIDRs[0]",
    says: /link-local/,
  },
  {
    title: "a threshold beyond all",
    spec: { notifications: [notification({ thresholds: [50, 101] })] },
    verdict: "refused",
    path: "spec.notifications[0].thresholds[1]",
    says: /spec.notifications\[0\].thresholds\[1\]/,
  },
  { title: "tokens of an issuer", spec: identity(), verdict: "good" },
  {
    title: "100 rules about 16 claims each, some of them in Unicode and with dots",
    spec: identity({
      rules: times(100, (index) => ({
        claims: Object.fromEntries(times(16, (at) => [`größe.${at}`, `日本-${index}`])),
        role: "Viewer",
      })),
    }),
    verdict: "good",
  },
  {
    title: "a rule for every token",
    spec: identity({ rules: [{ role: "Member" }, { claims: {}, role: "Admin" }] }),
    verdict: "good",
  },
  {
    title: "an issuer without TLS",
    spec: identity({ issuer: "http://login.example.com" }),
    verdict: "refused",
    path: "spec.identity.issuer",
  },
  {
    title: "keys without TLS",
    spec: identity({ jwksURL: "http://login.example.com/keys" }),
    verdict: "refused",
    path: "spec.identity.jwksURL",
  },
  {
    title: "tokens for anybody",
    spec: identity({ audiences: [] }),
    verdict: "refused",
    path: "spec.identity.audiences",
  },
  {
    title: "tokens without rules",
    spec: identity({ rules: [] }),
    verdict: "refused",
    path: "spec.identity.rules",
  },
  {
    title: "a role that is none",
    spec: identity({}, { role: "Owner" }),
    verdict: "refused",
    path: "spec.identity.rules[0].role",
    says: /Unsupported value/,
  },
  {
    title: "a viewer's project",
    spec: identity({}, { role: "Viewer", project: "default" }),
    verdict: "refused",
    path: "spec.identity.rules[0].project",
    says: /only the role Member has a project and limits/,
  },
  {
    title: "an admin's limits",
    spec: identity({}, { role: "Admin", limits: { requestsPerMinute: 1 } }),
    verdict: "refused",
    path: "spec.identity.rules[0].limits",
    says: /only the role Member has a project and limits/,
  },
  {
    title: "a rule with an unknown project",
    spec: { projects: [{ name: "lab" }], ...identity({}, { project: "other" }) },
    verdict: "refused",
    path: "spec.identity.rules[0].project",
    says: /identity.rules name a project that is not in projects/,
  },
  {
    title: "a claim that is no text",
    spec: identity({}, { claims: { email_verified: true } }),
    verdict: "refused",
    path: "spec.identity.rules[0].claims.email_verified",
  },
  {
    title: "17 claims in one rule",
    spec: identity({}, { claims: Object.fromEntries(times(17, (at) => [`c${at}`, "x"])) }),
    verdict: "refused",
    path: "spec.identity.rules[0].claims",
    says: /must have at most 16 items/,
  },
  {
    title: "an issuer among cloud metadata",
    spec: identity({ allowCIDRs: ["169.254.0.0/16"] }),
    verdict: "condition",
    path: "spec.identity.allowCIDRs[0]",
  },
  { title: "a name with a line break at its end", spec: { displayName: "Größe 🦩\n" }, verdict: "good" },
].map((row) => ({ kind: "Organization" as const, ...row }) as Row);

export const objectTable: readonly Row[] = [...routeRows, ...policyRows, ...priceRows, ...organizationRows];
