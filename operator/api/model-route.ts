/** ModelRoute: one public model and where it is served (configuration.md "ModelRoute" is made from it). */
import { z } from "zod";
import { GATEWAY_HEADERS } from "../../dataplane/config/schema.ts";
import {
  duration,
  entryName,
  field,
  HEADER_NAME,
  httpUrl,
  listMap,
  MADE_ORGANIZATION_ID_LENGTH,
  modelId,
  objectRef,
  organizationId,
  secretKeyRef,
  set,
  withRules,
} from "./fields.ts";

/** Values that the compiler takes for absent fields. */
export const routeDefaults = {
  ownedBy: "gapura",
  capabilities: {
    toolCalling: true,
    imageInput: true,
    pdfInput: false,
    thinking: true,
    countTokens: true,
    documentCitations: false,
    samplingParameters: true,
  },
  priority: 0,
  weight: 100,
  propagateTrace: false,
  affinity: "Prompt",
  timeouts: { connect: "5s", streamIdle: "120s", request: "10m" },
  retries: { attempts: 2, retryOn: ["Connect", "RateLimited", "ServerError", "FirstByteTimeout"] },
  reference: "default",
} as const;

const flag = (name: keyof typeof routeDefaults.capabilities, description: string) =>
  field(z.boolean(), description, { default: routeDefaults.capabilities[name] }).optional();

const capabilities = z.strictObject({
  toolCalling: flag("toolCalling", "The model can call tools. Without it server tools answer 400."),
  imageInput: flag("imageInput", "The model reads images."),
  pdfInput: flag("pdfInput", "The model reads PDF documents."),
  thinking: flag("thinking", "The model thinks. Without it thinking and effort are dropped."),
  countTokens: flag("countTokens", "The upstream may count tokens; otherwise a local estimate answers."),
  documentCitations: flag("documentCitations", "The model cites documents by character (char_location)."),
  samplingParameters: flag(
    "samplingParameters",
    "The model takes sampling parameters. Without it temperature, top_p and top_k are dropped.",
  ),
});

const headerValue = z
  .string()
  .max(4096)
  .regex(/^[\t -~]*$/, "must be printable ASCII, as headers are");

const gatewayHeaders = `[${[...GATEWAY_HEADERS].map((name) => `'${name}'`).join(", ")}]`;
const BY_GATEWAY = "is set by the gateway itself";
const isOfGateway = (name: string) => GATEWAY_HEADERS.has(name.toLowerCase());

const upstream = withRules(
  z.strictObject({
    name: field(entryName(), "Name of the upstream, unique in the route.", { example: "primary" }),
    dialect: field(
      z.enum(["Messages", "ChatCompletions", "Responses"]),
      "Wire form that the upstream speaks.",
    ),
    baseURL: field(
      httpUrl(),
      "Address without /v1; the dialect's path is appended (/v1/messages, /v1/chat/completions, /v1/responses).",
      { example: "https://api.example.com" },
    ),
    path: field(
      z
        .string()
        .max(1024)
        .regex(/^\/[^?#\s]*$/, "must be a path that begins with / and has no query"),
      "Replaces the dialect's path, for providers without /v1.",
      { example: "/openai/deployments/x/chat/completions" },
    ).optional(),
    query: field(
      z.record(z.string().min(1).max(256), z.string().max(2048)),
      "Query parameters added to every call.",
      { example: { "api-version": "2026-06-01" }, kubernetes: { maxProperties: 16 } },
    ).optional(),
    model: field(
      z
        .string()
        .min(1)
        .max(256)
        .regex(/^[^\s]+$/, "must have no spaces"),
      "The model's name at the upstream. Default: the route's model.",
      { example: "claude-sonnet-5-5-20260901" },
    ).optional(),
    priority: field(
      z.int().min(0).max(1000),
      "Lowest first; the next priority is tried only when all upstreams of the lower one are out.",
      { default: routeDefaults.priority },
    ).optional(),
    weight: field(z.int().min(0).max(1_000_000), "Share within one priority; 0 takes no traffic.", {
      default: routeDefaults.weight,
    }).optional(),
    credentials: field(
      z.strictObject({
        secretKeyRef: secretKeyRef(),
        header: field(
          z
            .string()
            .min(1)
            .max(128)
            .regex(HEADER_NAME, "must be the name of a header, without spaces and colon"),
          "Header that carries the value. Default: x-api-key for Messages, else Authorization, which sends Bearer.",
          { example: "api-key" },
        ).optional(),
      }),
      "The upstream's credential; absent for an upstream that needs none.",
    ).optional(),
    headers: field(
      z.record(z.string().min(1).max(128), headerValue),
      "Static extra headers; none of the connection, and none that says how a body is written, such as content-type.",
      { example: { "x-team": "ml" }, kubernetes: { maxProperties: 32 } },
    ).optional(),
    dedicatedTo: field(
      organizationId(MADE_ORGANIZATION_ID_LENGTH),
      "Id of the organization that alone uses this account. Its reasoning signatures and encrypted content pass as the provider wrote them, and no other organization's request goes there; the status says so while there is no such organization. Default: the account may be shared.",
      { example: "org_acme" },
    ).optional(),
    propagateTrace: field(
      z.boolean(),
      "true: where requests are traced the upstream gets traceparent, so that its spans join the caller's trace.",
      { default: routeDefaults.propagateTrace },
    ).optional(),
  }),
  [
    {
      cel: "has(self.path) || !self.baseURL.matches('/v1/?$')",
      message: "leave /v1 out: the dialect's path brings it (or set path)",
      fieldPath: ".baseURL",
      fault: (value) => (value.path === undefined && /\/v1\/?$/.test(value.baseURL) ? ["baseURL"] : null),
    },
    {
      cel: null,
      message: "is not a header name, or stands twice",
      fault: (value) => {
        const seen = new Set<string>();
        for (const name of Object.keys(value.headers ?? {})) {
          const lower = name.toLowerCase();
          if (!HEADER_NAME.test(name) || seen.has(lower)) return ["headers", name];
          seen.add(lower);
        }
        return null;
      },
    },
    {
      cel: `!has(self.headers) || self.headers.all(n, !(n.lowerAscii() in ${gatewayHeaders}))`,
      message: BY_GATEWAY,
      naming: {
        cel: `'"' + self.headers.filter(n, n.lowerAscii() in ${gatewayHeaders})[0] + '" ${BY_GATEWAY}'`,
        // Its path ends with the header.
        of: () => BY_GATEWAY,
      },
      fieldPath: ".headers",
      fault: (value) => {
        const name = Object.keys(value.headers ?? {}).find(isOfGateway);
        return name === undefined ? null : ["headers", name];
      },
    },
    {
      cel: `!has(self.credentials) || !has(self.credentials.header) || !(self.credentials.header.lowerAscii() in ${gatewayHeaders})`,
      message: BY_GATEWAY,
      fieldPath: ".credentials.header",
      fault: (value) => (isOfGateway(value.credentials?.header ?? "") ? ["credentials", "header"] : null),
    },
    {
      cel: null,
      message: "is the header of the credential too; give it once",
      fault: (value) => {
        if (value.credentials === undefined) return null;
        const header = credentialHeader(value.dialect, value.credentials.header);
        const twice = Object.keys(value.headers ?? {}).find((name) => name.toLowerCase() === header);
        return twice === undefined ? null : ["headers", twice];
      },
    },
    {
      // The API server judges by maxProperties.
      cel: null,
      message: "at most 16 query parameters and 32 headers",
      fault: (value) => {
        if (Object.keys(value.query ?? {}).length > 16) return ["query"];
        return Object.keys(value.headers ?? {}).length > 32 ? ["headers"] : null;
      },
    },
  ],
);

/** Returns the header that carries an upstream's credential, in lower case. */
export function credentialHeader(
  dialect: "Messages" | "ChatCompletions" | "Responses",
  header: string | undefined,
): string {
  return (header ?? (dialect === "Messages" ? "x-api-key" : "authorization")).toLowerCase();
}

const limits = withRules(
  z.strictObject({
    contextTokens: field(z.int().min(1).max(1_000_000_000), "Size of the context window, in tokens.", {
      example: 200000,
    }),
    maxOutputTokens: field(
      z.int().min(1).max(1_000_000_000),
      "Largest answer, in tokens; also the default and the clamp of max_tokens.",
      { example: 64000 },
    ),
  }),
  [
    {
      cel: "self.maxOutputTokens <= self.contextTokens",
      message: "must not be above contextTokens",
      fieldPath: ".maxOutputTokens",
      fault: (value) => (value.maxOutputTokens <= value.contextTokens ? null : ["maxOutputTokens"]),
    },
  ],
);

export const modelRouteSpec = withRules(
  z.strictObject({
    model: field(
      modelId(),
      "Id that clients send; required where metadata.name has more than 128 characters. Default: metadata.name.",
      {
        example: "claude-sonnet-5-5",
      },
    ).optional(),
    aliases: field(set(modelId(), 64), "Ids that are accepted too; not listed by /v1/models.", {
      example: ["claude-sonnet-latest"],
    }).optional(),
    displayName: field(z.string().min(1).max(256), "Name shown to people. Default: the model id.", {
      example: "Claude Sonnet 5.5",
    }).optional(),
    ownedBy: field(z.string().min(1).max(128), "owned_by in the second model list.", {
      default: routeDefaults.ownedBy,
    }).optional(),
    capabilities: field(capabilities, "What the model can do.").optional(),
    limits: field(limits, "Token limits of the model."),
    upstreams: field(listMap(upstream, "name", 1, 32), "Where the model is served; at least one."),
    affinity: field(
      z.enum(["Prompt", "None"]),
      "Prompt: a conversation stays on the upstream that has its prompt cached. None: by weight alone.",
      { default: routeDefaults.affinity },
    ).optional(),
    timeouts: field(
      z.strictObject({
        connect: duration("Until the connection stands.", routeDefaults.timeouts.connect).optional(),
        firstByte: duration(
          "Until the first byte of the answer. Default: 120s for streams; a whole answer is bounded by request, batch items by request alone.",
          undefined,
        ).optional(),
        streamIdle: duration(
          "Longest silence inside a stream.",
          routeDefaults.timeouts.streamIdle,
        ).optional(),
        request: duration("The whole call, all tries included.", routeDefaults.timeouts.request).optional(),
      }),
      "Time-outs of a call to an upstream.",
    ).optional(),
    retries: field(
      z.strictObject({
        attempts: field(
          z.int().min(1).max(10),
          "All tries, the first one included; above 1, one that met a connection that had been closed meanwhile counts as none.",
          {
            default: routeDefaults.retries.attempts,
          },
        ).optional(),
        retryOn: field(
          set(z.enum(["Connect", "RateLimited", "ServerError", "FirstByteTimeout"]), 4),
          "What is tried again, always before the first byte reaches the client. ServerError: 5xx, and on the next upstream also 401, 402, 403 and 404, which are about the account there.",
          { default: routeDefaults.retries.retryOn },
        ).optional(),
      }),
      "Retries on the same or another upstream.",
    ).optional(),
    toolPolicyRef: objectRef(
      'The ToolPolicy that server tools run under. Default: the one named "default", if there is one.',
    ).optional(),
    priceTableRef: objectRef(
      'The PriceTable with the model\'s price. Default: the one named "default".',
    ).optional(),
  }),
  [
    {
      cel: "self.upstreams.exists(u, !has(u.weight) || u.weight > 0)",
      message: "at least one upstream needs a weight above 0",
      fieldPath: ".upstreams",
      fault: (spec) => (spec.upstreams.some((entry) => entry.weight !== 0) ? null : ["upstreams"]),
    },
  ],
);
export type ModelRouteSpec = z.output<typeof modelRouteSpec>;
