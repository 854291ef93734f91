/** ToolPolicy: which server tools run, with which engines and bounds (configuration.md "ToolPolicy" is made from it). */
import { z } from "zod";
import { callable, duration, field, httpUrl, objectName, secretKeyRef, withRules } from "./fields.ts";
import { allowCIDRs, allowPorts } from "./egress.ts";

export const policyDefaults = {
  enabled: true,
  webSearch: { timeout: "15s" },
  webFetch: { timeout: "20s", maxBytes: 10_485_760, cacheTTL: "15m" },
  xSearch: { timeout: "30s" },
  limits: { callsPerMinute: 60, iterations: 8, parallelCalls: 4 },
  baseURL: {
    Brave: "https://api.search.brave.com",
    Tavily: "https://api.tavily.com",
    X: "https://api.x.com",
  },
} as const;

const enabled = () =>
  field(z.boolean(), "false: the tool is off.", { default: policyDefaults.enabled }).optional();
const credentials = (description: string) =>
  field(z.strictObject({ secretKeyRef: secretKeyRef() }), description).optional();

const searchEngine = withRules(
  z.strictObject({
    type: field(z.enum(["SearXNG", "Brave", "Tavily", "Model"]), "The engine's wire form."),
    baseURL: field(
      httpUrl(),
      "Address of the engine; required for SearXNG. Default: https://api.search.brave.com for Brave, https://api.tavily.com for Tavily.",
      { example: "http://searxng.search.svc" },
    ).optional(),
    credentials: credentials("The engine's key; required for Brave and Tavily."),
    modelRoute: field(
      objectName(),
      "Model only: a ModelRoute of this namespace whose native web search answers the query; its tokens are not billed to the client.",
      { example: "search-model" },
    ).optional(),
  }),
  [
    {
      cel: "self.type != 'SearXNG' || has(self.baseURL)",
      message: "SearXNG needs baseURL",
      fault: (engine) => (engine.type === "SearXNG" && engine.baseURL === undefined ? ["baseURL"] : null),
    },
    {
      cel: "!(self.type in ['Brave', 'Tavily']) || has(self.credentials)",
      message: "Brave and Tavily need credentials",
      fault: (engine) =>
        (engine.type === "Brave" || engine.type === "Tavily") && engine.credentials === undefined
          ? ["credentials"]
          : null,
    },
    {
      cel: "self.type in ['Brave', 'Tavily'] || !has(self.credentials)",
      message: "only Brave and Tavily take credentials",
      fault: (engine) =>
        engine.type !== "Brave" && engine.type !== "Tavily" && engine.credentials !== undefined
          ? ["credentials"]
          : null,
    },
    {
      cel: "(self.type == 'Model') == has(self.modelRoute)",
      message: "modelRoute is needed by the type Model, and by no other",
      fault: (engine) =>
        (engine.type === "Model") === (engine.modelRoute !== undefined) ? null : ["modelRoute"],
    },
    {
      cel: "self.type != 'Model' || !has(self.baseURL)",
      message: "the type Model takes its address from the ModelRoute",
      fault: (engine) => (engine.type === "Model" && engine.baseURL !== undefined ? ["baseURL"] : null),
    },
  ],
);
export type SearchEngineSpec = z.output<typeof searchEngine>;

const webSearch = z.strictObject({
  enabled: enabled(),
  engine: field(searchEngine, "Who answers searches. Without an engine the tool is not active.").optional(),
  timeout: duration("Longest search.", policyDefaults.webSearch.timeout).optional(),
});

const egress = withRules(
  z.strictObject({
    allowCIDRs: allowCIDRs(),
    allowPorts: allowPorts(),
    proxy: field(
      withRules(
        z
          .string()
          .max(512)
          .regex(
            /^https?:\/\/[-._A-Za-z0-9[\]:]+\/?$/,
            "must be the http:// or https:// address of a proxy, without a user, a password or a path",
          ),
        [callable],
      ),
      "Forward proxy. Names are still resolved and judged here.",
      { example: "http://egress:3128" },
    ).optional(),
    proxyResolves: field(
      z.boolean(),
      "true: the proxy resolves names, so that it has to guard against private addresses; said in the status.",
      { default: false },
    ).optional(),
  }),
  [
    {
      cel: "!has(self.proxyResolves) || !self.proxyResolves || has(self.proxy)",
      message: "proxyResolves needs proxy",
      fieldPath: ".proxyResolves",
      fault: (value) =>
        value.proxyResolves === true && value.proxy === undefined ? ["proxyResolves"] : null,
    },
  ],
);

const webFetch = z.strictObject({
  enabled: enabled(),
  timeout: duration("Longest fetch, the body included.", policyDefaults.webFetch.timeout).optional(),
  maxBytes: field(z.int().min(1).max(104_857_600), "Largest page, in bytes, after decompression.", {
    default: policyDefaults.webFetch.maxBytes,
  }).optional(),
  cacheTTL: duration(
    "How long a page is kept; 0s: not at all.",
    policyDefaults.webFetch.cacheTTL,
    true,
  ).optional(),
  egress: field(
    egress,
    "What may be fetched in addition to the public internet on ports 80 and 443.",
  ).optional(),
});

const xSearch = z.strictObject({
  enabled: enabled(),
  engine: field(
    withRules(
      z.strictObject({
        type: field(z.enum(["X"]), "The engine's wire form."),
        baseURL: field(httpUrl(), "Address of the engine.", { default: policyDefaults.baseURL.X }).optional(),
        credentials: credentials("The bearer token; required."),
      }),
      [
        {
          cel: "has(self.credentials)",
          message: "X needs credentials",
          fault: (engine) => (engine.credentials === undefined ? ["credentials"] : null),
        },
      ],
    ),
    "Who answers searches for posts. Without an engine the tool is not active.",
  ).optional(),
  timeout: duration("Longest search.", policyDefaults.xSearch.timeout).optional(),
});

export const toolPolicySpec = z.strictObject({
  webSearch: field(webSearch, "The tool web_search; absent: off.").optional(),
  webFetch: field(webFetch, "The tool web_fetch; absent: off.").optional(),
  xSearch: field(xSearch, "The tool x_search; absent: off.").optional(),
  limits: field(
    z.strictObject({
      callsPerMinute: field(
        z.int().min(1).max(1_000_000),
        "Tool calls a minute of one organization, batches included, unless the Organization says otherwise.",
        { default: policyDefaults.limits.callsPerMinute },
      ).optional(),
      iterations: field(z.int().min(1).max(32), "Upstream calls of one request at most.", {
        default: policyDefaults.limits.iterations,
      }).optional(),
      parallelCalls: field(z.int().min(1).max(16), "Calls of one turn that run at the same time.", {
        default: policyDefaults.limits.parallelCalls,
      }).optional(),
    }),
    "Bounds of all tools together.",
  ).optional(),
});
export type ToolPolicySpec = z.output<typeof toolPolicySpec>;
