/**
 * The contract between the operator, which writes it, and the data plane, which serves it. The operator imports
 * this file and nothing else of the data plane (design.md §2).
 *
 * A snapshot is published as files of one directory. For each slot (`a`, `b`):
 *   `<slot>-index.json`          what the slot holds: serial, schema version, digests (shape: `indexSchema`)
 *   `<slot>-<n>.gz`              the routing part, gzipped JSON (`routingSchema`) cut into pieces
 *   `<slot>-credentials-<n>.gz`  the credentials part, gzipped JSON (`credentialsSchema`) cut into pieces
 * In a cluster each piece is one data key of one Secret; the index stands in the Secret of piece 0. A slot is
 * complete when the index is there and every piece it names has the digest it names.
 */
import { z } from "zod";

/** The newest schema version this code writes and reads. */
export const SCHEMA_VERSION = 1;
/** Every schema version this code can serve from; reported by `/config/status` as `accepts`. */
export const ACCEPTED_SCHEMA_VERSIONS: readonly number[] = [1];
/** A piece must fit a Secret (1 MiB) with room for base64 and metadata. */
export const MAX_SHARD_BYTES = 700 * 1024;
/** Unpacked bytes of a part (10,000 routes take about 20 MB). The operator publishes no larger one, and nobody reads one. */
export const MAX_PART_BYTES = 256 * 1024 * 1024;
/** Number of pieces in each slot, fixed so that a chart can list them all. */
export const ROUTING_SHARDS = 8;
export const CREDENTIAL_SHARDS = 2;

/** Prefixes of keys (service.md "Authentication"), wherever they are made, declared or shown. */
export const keyPrefixes = { inference: "sk-svc-", admin: "sk-adm-svc-" } as const;

/** Forms of keys, wherever one is declared or presented. After an admin key's prefix: base64 of either alphabet, without the dots of tokens. */
export const keyForms: Readonly<Record<keyof typeof keyPrefixes, RegExp>> = {
  inference: new RegExp(`^${keyPrefixes.inference}[0-9A-Za-z]{40}$`),
  admin: new RegExp(`^${keyPrefixes.admin}(?=.{1,200}$)[-_+/0-9A-Za-z]+=*$`),
};

/**
 * Networks that no policy opens (rule 3.16): link-local, cloud metadata, and addresses that mean no single host. The operator
 * refuses a network that overlaps one, the data plane an address in one.
 */
export const NEVER_REACHABLE: readonly string[] = [
  "0.0.0.0/8",
  "169.254.0.0/16",
  "224.0.0.0/4",
  "255.255.255.255/32",
  "100.100.100.200/32", // Alibaba Cloud metadata
  "168.63.129.16/32", // Azure's platform address, in public space
  "192.0.0.192/32", // Oracle Cloud metadata
  "::/128",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
  "fd00:ec2::/32", // AWS metadata and time
  "fd20:ce::/32", // Google Cloud metadata
  "fd00:42::42/128", // Scaleway metadata
];

/**
 * IPv6 ranges with an IPv4 address inside: another way to write an address that was refused in plain form. No policy
 * opens these either, save the loopback ::1, which lies in the first.
 */
export const EMBEDDING_IPV4: readonly string[] = [
  "::/96", // IPv4-compatible
  "::ffff:0:0/96", // IPv4-mapped
  "::ffff:0:0:0/96", // IPv4-translated
  "64:ff9b::/96", // NAT64
  "64:ff9b:1::/48", // local NAT64
  "2001::/32", // Teredo
  "2002::/16", // 6to4
];

/**
 * Headers of calls to upstreams that no route sets, in lower case: those that describe the connection, and those that say
 * how a body is written, which is ours to know. The operator refuses a route with one of them, the data plane a snapshot.
 */
export const GATEWAY_HEADERS: ReadonlySet<string> = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

export const slotSchema = z.enum(["a", "b"]);
export type Slot = z.infer<typeof slotSchema>;

const digestSchema = z.string().regex(/^[0-9a-f]{64}$/);
const shardSchema = z.object({ file: z.string(), sha256: digestSchema });

export const indexSchema = z.object({
  schemaVersion: z.number().int(),
  /** Grows with every publication: max(last + 1, Unix milliseconds). */
  serial: z.number().int(),
  /** SHA-256 of the uncompressed routing part without its serial: equal hashes serve the same. */
  hash: digestSchema,
  routing: z.array(shardSchema).min(1).max(ROUTING_SHARDS),
  credentials: z.array(shardSchema).min(1).max(CREDENTIAL_SHARDS),
});
export type SnapshotIndex = z.infer<typeof indexSchema>;

/** The object, and its generation, that an entry was compiled from. */
export const sourceSchema = z.object({
  kind: z.enum(["ModelRoute", "ToolPolicy", "PriceTable", "Organization"]),
  namespace: z.string(),
  name: z.string(),
  uid: z.string(),
  generation: z.number().int(),
});
export type Source = z.infer<typeof sourceSchema>;

/** A non-negative or signed decimal number as text, never a float. */
const decimalSchema = z.string().regex(/^-?\d+(\.\d+)?$/);
const millisecondsSchema = z.number().int().positive();

/** Credits for a million tokens of each class (so: micro-credits for one token). */
const ratesSchema = z.object({
  input: decimalSchema,
  output: decimalSchema,
  cacheRead: decimalSchema,
  cacheWrite5m: decimalSchema,
  cacheWrite1h: decimalSchema,
  /** Absent: the model takes no audio, does not speak, or makes no images (rule 10.5). */
  audioInput: decimalSchema.optional(),
  audioOutput: decimalSchema.optional(),
  imageOutput: decimalSchema.optional(),
});
export type Rates = z.infer<typeof ratesSchema>;

/** Tiers for long prompts: the whole request is charged at the tier whose bound its input exceeds (rule 10.3). */
const longPromptsSchema = ratesSchema.extend({
  tiers: z.array(ratesSchema.extend({ inputOver: z.number().int().positive() })).optional(),
});

/** A provider's tier with a price: a multiple of the standard prices, or prices of its own (rules 10.2, 10.3). */
const serviceTierSchema = z.union([
  z.object({ name: z.string(), multiplier: decimalSchema }),
  longPromptsSchema.extend({ name: z.string() }),
]);
export type ServiceTier = z.infer<typeof serviceTierSchema>;

const tieredSchema = longPromptsSchema.extend({ serviceTiers: z.array(serviceTierSchema).optional() });

/** The prices of a model, and of a thousand tool units. */
export const pricesSchema = z.object({
  source: sourceSchema,
  ...tieredSchema.shape,
  /** The prices from a moment on, in Unix milliseconds; each one later than the one before (rule 10.4). */
  changes: z.array(tieredSchema.extend({ from: z.number().int() })).optional(),
  tools: z.object({
    webSearch: decimalSchema,
    webFetch: decimalSchema,
    xSearchPost: decimalSchema,
    xSearchProfile: decimalSchema,
  }),
});
export type Prices = z.infer<typeof pricesSchema>;

const routeHeaderSchema = z
  .string()
  .refine((name) => !GATEWAY_HEADERS.has(name.toLowerCase()), "is set by the gateway itself");

const upstreamSchema = z.object({
  name: z.string(),
  dialect: z.enum(["messages", "chat", "responses"]),
  /** The whole address of the inference endpoint: base URL, path and query already joined. */
  url: z.string(),
  /** The address for token counting, on Messages upstreams that may count; null: estimate locally. */
  countTokensUrl: z.string().nullable(),
  /** The model's name at the upstream. */
  model: z.string(),
  priority: z.number().int().nonnegative(),
  weight: z.number().int().nonnegative(),
  /** Id in the credentials part, and the header that carries it; `authorization` is sent as `Bearer`. */
  credential: z.object({ id: z.string(), header: routeHeaderSchema }).nullable(),
  /** Static headers, names in lower case. */
  headers: z.record(routeHeaderSchema, z.string()),
  /** Id of the only organization whose requests go there; null: the requests of all do. */
  dedicatedTo: z.string().nullable(),
  /** Whether it gets `traceparent` of traced requests; absent: it does not. */
  propagateTrace: z.boolean().optional(),
});
export type Upstream = z.infer<typeof upstreamSchema>;

export const routeSchema = z.object({
  source: sourceSchema,
  /** Public id. */
  model: z.string(),
  aliases: z.array(z.string()),
  /** The namespace whose organizations alone may use it, before any other route of the same id; absent: all may. */
  servesNamespace: z.string().optional(),
  displayName: z.string(),
  ownedBy: z.string(),
  /** Unix seconds: the object's creation. */
  createdAt: z.number().int(),
  capabilities: z.object({
    toolCalling: z.boolean(),
    imageInput: z.boolean(),
    pdfInput: z.boolean(),
    thinking: z.boolean(),
    countTokens: z.boolean(),
    documentCitations: z.boolean(),
    samplingParameters: z.boolean(),
  }),
  limits: z.object({
    contextTokens: z.number().int().positive(),
    maxOutputTokens: z.number().int().positive(),
  }),
  upstreams: z.array(upstreamSchema).min(1),
  affinity: z.enum(["prompt", "none"]),
  timeouts: z.object({
    connectMs: millisecondsSchema,
    /** null: not set; then 120 s for streams, and a whole answer is bounded by `requestMs` alone. */
    firstByteMs: millisecondsSchema.nullable(),
    streamIdleMs: millisecondsSchema,
    requestMs: millisecondsSchema,
  }),
  retries: z.object({
    /** Number of tries, including the first. */
    attempts: z.number().int().positive(),
    retryOn: z.array(z.enum(["connect", "rate_limited", "server_error", "first_byte_timeout"])),
  }),
  /** Key into `policies`; null: no server tools. */
  toolPolicy: z.string().nullable(),
  prices: pricesSchema,
});
export type Route = z.infer<typeof routeSchema>;

const keyedEngine = z.object({ baseUrl: z.string(), credential: z.string().nullable() });
const searchEngineSchema = z.discriminatedUnion("type", [
  keyedEngine.extend({ type: z.literal("searxng") }),
  keyedEngine.extend({ type: z.literal("brave") }),
  keyedEngine.extend({ type: z.literal("tavily") }),
  /** `model` is the public id of the ModelRoute whose native web search answers. */
  z.object({ type: z.literal("model"), model: z.string() }),
]);
export type SearchEngine = z.infer<typeof searchEngineSchema>;

const policySchema = z.object({
  source: sourceSchema,
  /** null: off. `engine: null`: declared but not active, which is off to a client as well. */
  webSearch: z.object({ engine: searchEngineSchema.nullable(), timeoutMs: millisecondsSchema }).nullable(),
  webFetch: z
    .object({
      timeoutMs: millisecondsSchema,
      maxBytes: z.number().int().positive(),
      cacheTtlMs: z.number().int().nonnegative(),
      allowCidrs: z.array(z.string()),
      allowPorts: z.array(z.number().int()),
      proxy: z.object({ url: z.string(), resolves: z.boolean() }).nullable(),
    })
    .nullable(),
  xSearch: z
    .object({
      engine: z.object({ baseUrl: z.string(), credential: z.string().nullable() }).nullable(),
      timeoutMs: millisecondsSchema,
    })
    .nullable(),
  callsPerMinute: z.number().int().positive(),
  iterations: z.number().int().positive(),
  parallelCalls: z.number().int().positive(),
});
export type Policy = z.infer<typeof policySchema>;

/** Windows, by UTC, in each of which a key or a project may spend its limit: day, week from Monday, month, or ever (rule 9.2). */
export const limitPeriods = ["day", "week", "month", "total"] as const;
export type LimitPeriod = (typeof limitPeriods)[number];

/** What limits may say at most, in an Organization and by the admin API. */
export const limitBounds = {
  /** Credits: balances above it are refused (design.md §5), so grants and limits are too. */
  credits: 9_000_000_000,
  /** Requests or tokens a minute, requests at the same time. */
  count: 1_000_000_000,
  /** Patterns in a list of models. */
  models: 500,
  /** Characters of one: a model's id has 128 at most. */
  modelCharacters: 129,
} as const;

/** One model, or all whose ids begin so. Postgres keeps it, which holds no half characters. */
export const MODEL_PATTERN = {
  form: /^(?:[^*\s\p{Cc}\p{Cs}]+\*?|\*)$/u,
  message: "must be a model id, or the beginning of some and a * at its end",
} as const;

/** Limits of a key or of a project; what is absent is not limited. Postgres stores them in this form as well. */
export const limitsSchema = z.object({
  credits: z.object({ amountMicros: z.string().regex(/^\d{1,16}$/), per: z.enum(limitPeriods) }).optional(),
  /** As `allowedModels`. */
  models: z.array(z.string()).optional(),
  requestsPerMinute: z.number().int().positive().optional(),
  tokensPerMinute: z.number().int().positive().optional(),
  concurrentRequests: z.number().int().positive().optional(),
});
export type Limits = Readonly<z.infer<typeof limitsSchema>>;

/** A receiver of notifications about spent credit (rule 9.8). */
const notificationSchema = z.object({
  url: z.string(),
  /** Id in the credentials part; null: it is not there, so nothing is sent. */
  credential: z.string().nullable(),
  /** In per cent. */
  thresholds: z.array(z.number().int().positive()),
  allowCidrs: z.array(z.string()),
  allowPorts: z.array(z.number().int()),
});
export type Notification = z.infer<typeof notificationSchema>;

/** Roles of people (rule 13.3), who may use inference, read the admin API, or use all of the admin API. */
export const roles = ["member", "viewer", "admin"] as const;
export type Role = (typeof roles)[number];

const identityRuleSchema = z.object({
  /** Each claim equals its text, or has it as an item; a name may be a path of names with dots between them. */
  claims: z.record(z.string(), z.string()),
  role: z.enum(roles),
  /** For members only: their project, and the limits of each of them. */
  project: z.string().optional(),
  limits: limitsSchema.optional(),
});
export type IdentityRule = z.infer<typeof identityRuleSchema>;

/** How people sign in to the console at the issuer; public to anybody who names the organization. */
const consoleSignInSchema = z.object({
  clientId: z.string(),
  /** Beside `openid`. */
  scopes: z.array(z.string()),
  audience: z.string().nullable(),
  resource: z.string().nullable(),
  /** Origins of the issuer's endpoints, other than its own. */
  origins: z.array(z.string()),
});

/** The issuer whose tokens are accepted beside keys, and the roles that they give (rules.md §13). */
export const identitySchema = z.object({
  issuer: z.string(),
  audiences: z.array(z.string()).min(1),
  /** null: what the issuer's discovery document says. */
  jwksUrl: z.string().nullable(),
  allowCidrs: z.array(z.string()),
  allowPorts: z.array(z.number().int()),
  /** Absent: sign-in with keys alone. */
  console: consoleSignInSchema.optional(),
  /** The first rule that matches decides. */
  rules: z.array(identityRuleSchema),
});
export type IdentityEntry = Readonly<z.infer<typeof identitySchema>>;

/** A declared key: only its digest and a hint ever leave the operator. */
export const keySchema = z.object({
  name: z.string(),
  /** SHA-256 of the whole key, hex. */
  sha256: digestSchema,
  /** `sk-svc-` and at most 16 characters of the secret. */
  hint: z.string(),
});

export const organizationSchema = z.object({
  source: sourceSchema,
  /** Whether its namespace is trusted only with itself, and not by other such namespaces. Absent: it is trusted. */
  isTenants: z.literal(true).optional(),
  // A control character would break the packed operations of the meter (billing/holds/shard.ts).
  id: z.string().regex(/^\P{Cc}+$/u),
  displayName: z.string(),
  suspended: z.boolean(),
  /** Grants in micro-credits, which may be negative; each is applied once by its name. */
  grants: z.array(z.object({ name: z.string(), amountMicros: z.string().regex(/^-?\d+$/) })),
  /** Public model ids, each with at most one trailing `*`. */
  allowedModels: z.array(z.string()),
  toolCallsPerMinute: z.number().int().positive().nullable(),
  rateLimits: z.object({
    requestsPerMinute: z.number().int().positive().nullable(),
    tokensPerMinute: z.number().int().positive().nullable(),
    concurrentRequests: z.number().int().positive().nullable(),
  }),
  /** Limits of the files, requests of batches and results that it keeps. */
  storage: z.object({
    maxBytes: z.number().int().nonnegative(),
    maxFiles: z.number().int().nonnegative(),
  }),
  projects: z.array(z.string()).min(1),
  /** By name of the project; absent: none. */
  projectLimits: z.record(z.string(), limitsSchema).optional(),
  /** How much a running request holds: what answers usually take (rule 9.7); absent: its whole output limit. */
  hold: z.literal("typical").optional(),
  /** Absent: none. */
  notifications: z.array(notificationSchema).optional(),
  /** Limits of inference keys that do not set the limit themselves. */
  keyDefaults: limitsSchema.optional(),
  apiKeys: z.array(
    keySchema.extend({
      project: z.string(),
      /** Unix milliseconds from which it answers 401; absent: never. */
      expiresAt: z.number().int().optional(),
      limits: limitsSchema.optional(),
    }),
  ),
  adminKeys: z.array(keySchema),
  /** Absent: keys alone. */
  identity: identitySchema.optional(),
});
export type OrganizationEntry = z.infer<typeof organizationSchema>;

/** The routing part: everything but credentials. */
export const routingSchema = z.object({
  schemaVersion: z.number().int(),
  serial: z.number().int(),
  routes: z.array(routeSchema),
  /** By `namespace/name`. */
  policies: z.record(z.string(), policySchema),
  organizations: z.array(organizationSchema),
  /** Every object whose present generation this snapshot holds, for acknowledgement. */
  objects: z.array(sourceSchema),
  /**
   * By organization id that is not served at present: the namespace that owns it. Holds all such ids that an object declares,
   * and some others. For the operator, and for pods, which report to it whether that is still so.
   */
  owners: z.record(z.string(), z.string()).optional(),
});
export type Routing = z.infer<typeof routingSchema>;

/** The credentials part: values by id (`namespace/secret/key`). Never dumped, never logged. */
export const credentialsSchema = z.object({
  serial: z.number().int(),
  values: z.record(z.string(), z.string()),
});
export type Credentials = z.infer<typeof credentialsSchema>;

/** Reasons that a pod may note about an Organization that it serves, or refuses; a newer pod may know others. */
export type NoteReason =
  | "GrantUnchanged"
  | "GrantRefused"
  | "KeyConflicted"
  | "KeyExpired"
  | "NamesNearlyUsedUp"
  | "NamesUsedUp"
  | "NotStored"
  | "DestinationRefused";

/** The answer of `GET /config/status` on the ops port, which the operator reads to acknowledge. */
export const statusSchema = z.object({
  hash: z.string().nullable(),
  serial: z.number().int().nullable(),
  podUid: z.string(),
  accepts: z.array(z.number().int()),
  rejected: z.object({ serial: z.number().int().nullable(), error: z.string() }).nullable(),
  objects: z.array(
    sourceSchema.extend({ notes: z.array(z.object({ path: z.string(), reason: z.string() })) }),
  ),
  /** Objects of the snapshot whose present generation the pod refuses, and why; absent: none. */
  refused: z.array(sourceSchema.extend({ reason: z.string(), message: z.string().optional() })).optional(),
  /**
   * Organization ids that are not declared by the namespace they belong to: all that the snapshot names, and some others; absent:
   * not known yet.
   */
  owners: z.array(z.object({ id: z.string(), namespace: z.string() })).optional(),
});
export type ConfigStatus = z.infer<typeof statusSchema>;
