/** The data plane's environment (design.md §7), read once by `main.ts`. */
import { z } from "zod";
import { DAY_MS, HOUR_MS } from "./lib/clock.ts";
import { parseSealKeys } from "./lib/seal.ts";
import { addressFault } from "./store/address-fault.ts";
import { checkRedisAddress, withSentinelPassword } from "./store/redis-address.ts";
import { readPlaces } from "./tools/url-guard/own-places.ts";

/** Only digits: a blank text would count as 0, which is any free port. */
const whole = (least: number, most: number) => {
  const within = (text: string) => /^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most;
  return z.string().refine(within, `must be a whole number from ${least} to ${most}`).transform(Number);
};
const port = whole(0, 65_535);
/** An empty variable counts as absent: charts and shells set empty ones. */
const optional = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess((value) => (value === "" ? undefined : value), schema.optional());
/** `268435456`, `256Mi`, `2Gi`: in bytes. */
const bytes = z
  .string()
  .regex(/^[1-9]\d{0,15}(Mi|Gi)?$/, "must be a number of bytes, or one with Mi or Gi")
  .transform((text) => Number.parseInt(text, 10) * (units[text.slice(-2)] ?? 1))
  .refine(Number.isSafeInteger, "is too large");
const units: Readonly<Record<string, number>> = { Mi: 1024 ** 2, Gi: 1024 ** 3 };
const withDefault = <Schema extends z.ZodType>(schema: Schema, value: string) =>
  z.preprocess((given) => (given === undefined || given === "" ? value : given), schema);

const oneOf = <const Value extends string>(...values: readonly Value[]) =>
  z.enum(values, `must be one of ${values.join(", ")}`);
const trueOrFalse = oneOf("true", "false").transform((text) => text === "true");

const redisUrl = z.string().superRefine((url, context) => {
  try {
    checkRedisAddress(url);
  } catch (error) {
    context.addIssue((error as Error).message);
  }
});

/** Checks that an address and its user and password can be read; a wrong scheme is reported by the schema itself. */
const readable = <Schema extends z.ZodType<string>>(schema: Schema, scheme: RegExp) =>
  schema.superRefine((address, context) => {
    const fault = scheme.test(address) ? addressFault(address) : null;
    if (fault !== null) context.addIssue(fault);
  });

const SSL_MODES = ["disable", "require", "no-verify"];
const POSTGRES = /^postgres(ql)?:\/\//;
const databaseUrlSchema = readable(
  z.string().regex(POSTGRES, "must start with postgres://"),
  POSTGRES,
).refine(
  (url) => SSL_MODES.includes((URL.parse(url) ?? new URL("x:")).searchParams.get("sslmode") ?? "disable"),
  "sslmode must be disable, require (TLS, and the server's certificate must hold) or no-verify (TLS with whoever answers)",
);

const HTTP_WORDS = "must be an http:// or https:// address";
const httpUrl = z.url({ protocol: /^https?$/, error: HTTP_WORDS });
const HTTP = /^https?:\/\//i;

/** Seal keys; a blank text is reported by `read`. */
const sealKeys = z.string().transform((text, context) => {
  if (isBlank(text)) return [];
  try {
    return parseSealKeys(text);
  } catch (error) {
    context.addIssue((error as Error).message);
    return z.NEVER;
  }
});

const places = z.string().transform((list, context) => {
  const read = readPlaces(list);
  if (read !== null) return read;
  context.addIssue("must be names and addresses, with commas between them");
  return z.NEVER;
});

/** A list of exporters, as true if it names `otlp`, the only one we have. */
const otlpExporter = withDefault(z.string(), "otlp").transform((list) =>
  list.split(",").some((exporter) => exporter.trim() === "otlp"),
);

/** `7d`, `12h`, `0`: in milliseconds. A variable that may not be 0 has a bound of its own. */
const duration = (wanted: string) =>
  z
    .string()
    .regex(/^(0|[1-9]\d{0,3}[dh])$/, `must be ${wanted}`)
    .transform((text) => Number.parseInt(text, 10) * (text.endsWith("h") ? HOUR_MS : DAY_MS));
const requestRetention = duration("0, or a number of days or hours such as 7d or 12h").refine(
  (ms) => ms <= 90 * DAY_MS,
  "must be at most 90d",
);
const LONG = "a number of days or hours such as 400d or 840h";
/** After 35 days, batches, dead letters and all else that may change a row are over (store/migrations/0007_closings.sql). */
const usageRetention = duration(LONG).refine(
  (ms) => ms >= 35 * DAY_MS,
  "must be at least 35d, as younger usage may still change; leave it out to keep usage for ever",
);
/** For 35 days, usage of a deleted key may still come, as above. */
const auditRetention = duration(LONG).refine((ms) => ms >= 35 * DAY_MS, "must be at least 35d");

export const environmentSchema = z.object({
  HOST: withDefault(z.string(), "0.0.0.0"),
  PORT: withDefault(port, "8080"),
  OPS_PORT: withDefault(port, "9090"),
  POD_UID: withDefault(z.string(), "local"),
  /** Address of the server, or of a PgBouncer in transaction mode before it (rule 12.3). */
  DATABASE_URL: databaseUrlSchema,
  /** A replica for reports and lists. Default: DATABASE_URL. */
  DATABASE_READ_URL: optional(databaseUrlSchema),
  /** The most connections of this process to each of the two databases. */
  DATABASE_CONNECTIONS: withDefault(whole(2, 100), "10"),
  REDIS_URL: redisUrl,
  /** Default: REDIS_URL. */
  REDIS_CACHE_URL: optional(redisUrl),
  GAPURA_CONFIG_DIR: z.string().min(1, "is empty"),
  /** `kid:base64,...`; the first one seals. */
  GAPURA_SEAL_KEYS: optional(sealKeys),
  /** The address that clients use, for links in answers. Clients see it, so it may hold no secret. */
  PUBLIC_URL: optional(
    httpUrl
      .refine((url) => !/[?#]/.test(url), "must have no query")
      .refine((url) => !/^https?:\/\/[^/]*@/i.test(url), "must have no user and no password"),
  ),
  /** Whether to serve the console, which the image holds, under `/console/` (rule 11.1). */
  CONSOLE: withDefault(trueOrFalse, "false"),
  /** Whether metrics show the balance and the spend of each organization (rule 14.6). */
  METRICS_ORGANIZATIONS: withDefault(trueOrFalse, "false"),
  LOG_LEVEL: withDefault(oneOf("fatal", "error", "warn", "info", "debug", "trace", "silent"), "info"),
  FILES_S3_URL: optional(readable(z.string().regex(HTTP, HTTP_WORDS), HTTP)),
  /** Where traces and the GenAI metrics go (rule 14.3), as OpenTelemetry's own programs read it. */
  OTEL_EXPORTER_OTLP_ENDPOINT: optional(httpUrl),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: optional(httpUrl),
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: optional(httpUrl),
  OTEL_TRACES_EXPORTER: otlpExporter,
  OTEL_METRICS_EXPORTER: otlpExporter,
  /** Milliseconds between two exports of metrics. */
  OTEL_METRIC_EXPORT_INTERVAL: withDefault(whole(1_000, 3_600_000), "60000"),
  /** How telemetry names this process, as OpenTelemetry's own programs read them. */
  OTEL_SERVICE_NAME: optional(z.string()),
  OTEL_RESOURCE_ATTRIBUTES: optional(z.string()),
  /** Bytes of request bodies that this process holds at once (rule 7.2); see `usualBodyBudget`. */
  BODY_BUDGET: optional(bytes),
  /** How long the record of a request is kept (rule 14.1). */
  RETENTION_REQUESTS: withDefault(requestRetention, "7d"),
  /** How long the audit log keeps a change, and the database a deleted key without usage. */
  RETENTION_AUDIT: withDefault(auditRetention, "400d"),
  /** A month that is older than this is closed (rule 12.5). Default: none is. */
  RETENTION_USAGE: optional(usageRetention),
  /** Whether rows of closed months are dropped, instead of kept in tables of their own. */
  RETENTION_DROP: withDefault(trueOrFalse, "false"),
  /** Set in every pod: the address of the API server. */
  KUBERNETES_SERVICE_HOST: withDefault(z.string(), ""),
  /** Names and addresses of the release, with or without a port, as a comma list: web_fetch never reaches them. */
  OWN_HOSTS: withDefault(places, ""),
  /** Seconds that running streams get after SIGTERM. */
  DRAIN_TIMEOUT: withDefault(whole(1, 86_400), "600"),
});
export type Environment = z.infer<typeof environmentSchema>;

type Variables = Readonly<Record<string, string | undefined>>;

/** Reads the environment. @throws Error with one line for each variable that is missing or wrong; never with a value. */
export const readEnvironment = (variables: Variables): Environment => read(environmentSchema, variables);

/** Reads what a command needs that uses both stores. @throws like `readEnvironment`. */
export const readStores = (variables: Variables) =>
  read(environmentSchema.pick({ DATABASE_URL: true, REDIS_URL: true }), variables);

/** Reads the address for migrations: past a PgBouncer, if MIGRATE_DATABASE_URL is set. @throws like `readEnvironment`. */
export function readMigrateUrl(variables: Variables): string {
  const { MIGRATE_DATABASE_URL: direct = "" } = variables;
  if (direct === "") return readDatabaseUrl(variables);
  return read(z.object({ MIGRATE_DATABASE_URL: databaseUrlSchema }), variables).MIGRATE_DATABASE_URL;
}

/** Reads how long running answers may take to end, in seconds. @throws like `readEnvironment`. */
export const readDrainTimeout = (variables: Variables): number =>
  read(environmentSchema.pick({ DRAIN_TIMEOUT: true }), variables).DRAIN_TIMEOUT;

/** Reads what a command needs that uses the ledger alone. @throws like `readEnvironment`. */
export const readDatabaseUrl = (variables: Variables): string =>
  read(environmentSchema.pick({ DATABASE_URL: true }), variables).DATABASE_URL;

/** Whether a text is only white space, which is neither a value nor absent: nobody writes it on purpose. An operator refuses it as well. */
const isBlank = (text = "") => text !== "" && text.trim() === "";

function read<Schema extends z.ZodObject>(schema: Schema, variables: Variables): z.infer<Schema> {
  const { SENTINEL_PASSWORD = "", REDIS_URL, REDIS_CACHE_URL } = variables;
  const redis = (url: string | undefined) =>
    url === undefined ? undefined : withSentinelPassword(url, SENTINEL_PASSWORD);
  const parsed = schema.safeParse({
    ...variables,
    ...databaseUrls(variables),
    REDIS_URL: redis(REDIS_URL),
    REDIS_CACHE_URL: redis(REDIS_CACHE_URL),
  });
  const blank = Object.keys(schema.shape).filter((name) => isBlank(variables[name]));
  if (parsed.success && blank.length === 0) return parsed.data;
  const lines = (parsed.error?.issues ?? []).map((issue) => {
    const name = issue.path.join(".");
    return variables[name] === undefined ? `${name} is missing` : `${name}: ${issue.message}`;
  });
  for (const name of blank)
    if (!lines.some((line) => line.startsWith(`${name}: `))) lines.push(`${name}: is blank`);
  throw new Error(`the environment is not complete:\n  ${lines.join("\n  ")}`);
}

/**
 * Returns the addresses of Postgres, with DATABASE_USER and DATABASE_PASSWORD put in where they are given: these may hold any
 * characters, which only we can escape.
 */
function databaseUrls(variables: Variables): Variables {
  const { DATABASE_USER: user = "", DATABASE_PASSWORD: password = "" } = variables;
  const named = (given: string | undefined) => {
    const url = URL.parse(given ?? "");
    if (url === null || (user === "" && password === "")) return given;
    if (user !== "") url.username = encodeURIComponent(user);
    if (password !== "") url.password = encodeURIComponent(password);
    return url.href;
  };
  const { DATABASE_URL, MIGRATE_DATABASE_URL, DATABASE_READ_URL } = variables;
  return {
    DATABASE_URL: named(DATABASE_URL),
    MIGRATE_DATABASE_URL: named(MIGRATE_DATABASE_URL),
    DATABASE_READ_URL: named(DATABASE_READ_URL),
  };
}
