import { expect, test } from "vitest";
import { readDatabaseUrl, readDrainTimeout, readEnvironment, readMigrateUrl } from "./environment.ts";
import { readRedisAddress } from "./store/redis-address.ts";

const needed = { DATABASE_URL: "postgres://x", REDIS_URL: "redis://x", GAPURA_CONFIG_DIR: "/x" };
const budget = (value: string) => readEnvironment({ ...needed, BODY_BUDGET: value }).BODY_BUDGET;

test.each([
  ["268435456", 268_435_456],
  ["64Mi", 64 * 1024 ** 2],
  ["2Gi", 2 * 1024 ** 3],
  ["", undefined],
])("BODY_BUDGET=%j is %s bytes", (value, bytes) => {
  expect(budget(value)).toBe(bytes);
});

test.each(["0", "-1", "1.5Gi", "1 Gi", "2G", "2GiB", "Mi", "1e9", "9999999999999999Gi"])(
  "BODY_BUDGET=%j is refused by name",
  (value) => {
    expect(() => budget(value)).toThrow(/BODY_BUDGET: /);
  },
);

test.each(["PORT", "OPS_PORT", "DATABASE_CONNECTIONS", "OTEL_METRIC_EXPORT_INTERVAL", "DRAIN_TIMEOUT"])(
  "%s is a whole number: a blank is not 0, and no other way of writing one counts",
  (name) => {
    for (const value of [" ", "0x50", "1e3", "80.0", "-1", "abc", "99999999999"])
      expect(() => readEnvironment({ ...needed, [name]: value })).toThrow(
        new RegExp(`${name}: must be a whole number from \\d+ to \\d+`),
      );
  },
);

test("the time to drain is read by whoever starts a data plane as by itself", () => {
  expect(readDrainTimeout({})).toBe(600);
  expect(readDrainTimeout({ DRAIN_TIMEOUT: "20" })).toBe(20);
  expect(() => readDrainTimeout({ DRAIN_TIMEOUT: "1e3" })).toThrow(
    "DRAIN_TIMEOUT: must be a whole number from 1 to 86400",
  );
});

test("what is blank is refused by name, whatever it is of; what is empty is absent", () => {
  const names = [
    "HOST",
    "POD_UID",
    "OWN_HOSTS",
    "OTEL_SERVICE_NAME",
    "GAPURA_CONFIG_DIR",
    "GAPURA_SEAL_KEYS",
  ];
  for (const name of names)
    for (const blank of [" ", "\t", " \n"])
      expect(() => readEnvironment({ ...needed, [name]: blank })).toThrow(
        `the environment is not complete:\n  ${name}: is blank`,
      );
  const empty = Object.fromEntries(names.map((name) => [name, ""]));
  expect(readEnvironment({ ...empty, ...needed }).HOST).toBe("0.0.0.0");
});

test("seal keys that are wrong are refused by name before a store is asked, without their bytes", () => {
  const read = (GAPURA_SEAL_KEYS: string) => () => readEnvironment({ ...needed, GAPURA_SEAL_KEYS });
  const key = Buffer.alloc(32, 7).toString("base64");
  const told = (words: string) => `the environment is not complete:\n  GAPURA_SEAL_KEYS: ${words}`;
  const form = "is not of the form id:base64 with a key of 32 bytes";
  expect(read(`k1:${key.slice(4)}`)).toThrow(told(`seal key 1 ${form}`));
  expect(read(`k1:${key},${key}`)).toThrow(told(`seal key 2 ${form}`));
  expect(read(`k1:${key},k1:${key}`)).toThrow(told("two seal keys have the same id"));
  expect(read(",")).toThrow(told("there is no seal key"));
  expect(read(`k2:${key},k1:${key}`)().GAPURA_SEAL_KEYS?.map(({ id }) => id)).toEqual(["k2", "k1"]);
});

test.each([
  ["LOG_LEVEL", "warning", "fatal, error, warn, info, debug, trace, silent"],
  ["CONSOLE", "yes", "true, false"],
  ["METRICS_ORGANIZATIONS", "1", "true, false"],
  ["RETENTION_DROP", "TRUE", "true, false"],
])("%s=%s is refused with the values that there are", (name, value, values) => {
  expect(() => readEnvironment({ ...needed, [name]: value })).toThrow(
    `the environment is not complete:\n  ${name}: must be one of ${values}`,
  );
});

test("OWN_HOSTS is a list with commas, of names and addresses alone", () => {
  const read = (OWN_HOSTS: string) => () => readEnvironment({ ...needed, OWN_HOSTS }).OWN_HOSTS;
  expect(read("a.gw.svc, 10.0.0.5,,[fd00::1]:443,")()).toEqual([
    { host: "a.gw.svc", port: null },
    { host: "10.0.0.5", port: null },
    { host: "fd00::1", port: 443 },
  ]);
  for (const list of ["a b", "a,b c", "a\nb", "https://api.internal/", "10.0.0.0/8", "a:65536"])
    expect(read(list)).toThrow(
      "the environment is not complete:\n  OWN_HOSTS: must be names and addresses, with commas between them",
    );
});

test.each(["FILES_S3_URL", "PUBLIC_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"])(
  "%s is an http or https address",
  (name) => {
    for (const value of ["s3://key:secret@host/bucket", "host:9000"])
      expect(() => readEnvironment({ ...needed, [name]: value })).toThrow(
        `${name}: must be an http:// or https:// address`,
      );
  },
);

test.each([
  ["DATABASE_URL", "postgres://"],
  ["DATABASE_READ_URL", "postgres://"],
  ["REDIS_URL", "redis://"],
  ["REDIS_CACHE_URL", "rediss://"],
  ["FILES_S3_URL", "https://"],
])("%s whose user and password cannot be read is refused by name, without its words", (name, scheme) => {
  const read = (address: string) => () => readEnvironment({ ...needed, [name]: `${scheme}${address}` });
  const told = (words: string) => `the environment is not complete:\n  ${name}: ${words}`;
  for (const address of ["user:pass/word@host:6379/0", "host:99999/0"])
    expect(read(address)).toThrow(new RegExp(`^${told("cannot be read as an address; [^\\n]*$")}`));
  for (const address of ["user:pass%word@host/0", "user%:41pass@host/0", "user:pass@host/a%base"])
    expect(read(address)).toThrow(told("holds a % that begins no escape; write it as %25"));
  expect(read("user:pass%2Fword@host:6379/0")).not.toThrow();
});

test("the path of Redis' socket is told by the same words", () => {
  const read = (REDIS_URL: string) => () => readEnvironment({ ...needed, REDIS_URL });
  expect(read("unix:///run/50%/redis.sock")).toThrow("REDIS_URL: holds a % that begins no escape");
  expect(read("unix://[run/redis.sock")).toThrow("REDIS_URL: cannot be read as an address");
});

test("PUBLIC_URL has no query, as paths are written behind it", () => {
  const read = (value: string) => readEnvironment({ ...needed, PUBLIC_URL: value }).PUBLIC_URL;
  expect(read("https://api.example.com/llm/")).toBe("https://api.example.com/llm/");
  for (const value of ["https://api.example.com/?a=b", "https://api.example.com/#a"])
    expect(() => read(value)).toThrow("PUBLIC_URL: must have no query");
});

test("PUBLIC_URL has no password, as clients are told it", () => {
  const read = (PUBLIC_URL: string) => () => readEnvironment({ ...needed, PUBLIC_URL });
  expect(read("https://user:s3cr3t@api.example.com/llm")).toThrow(
    /PUBLIC_URL: must have no user and no password$/,
  );
  expect(read("https://api.example.com/@llm")).not.toThrow();
});

test("user and password that stand apart may hold any characters", () => {
  const variables = {
    DATABASE_URL: "postgres://db.internal:6432/ledger?sslmode=require",
    DATABASE_USER: "ga@pura",
    DATABASE_PASSWORD: "p@s/s:w%41#é ?",
  };
  const url = new URL(readDatabaseUrl(variables));
  expect([url.username, url.password].map(decodeURIComponent)).toEqual(["ga@pura", "p@s/s:w%41#é ?"]);
  expect(url.href).toMatch(/@db\.internal:6432\/ledger\?sslmode=require$/);
  expect(readDatabaseUrl({ DATABASE_URL: "postgres://a:b@c/d" })).toBe("postgres://a:b@c/d");
});

test("rule 12.3: migrations go where MIGRATE_DATABASE_URL says, with the same user, else where all goes", () => {
  const pooled = "postgres://pooler:6432/ledger";
  const direct = "postgres://db:5432/ledger";
  expect(readMigrateUrl({ DATABASE_URL: pooled })).toBe(pooled);
  expect(readMigrateUrl({ DATABASE_URL: pooled, MIGRATE_DATABASE_URL: "" })).toBe(pooled);
  expect(readMigrateUrl({ DATABASE_URL: pooled, MIGRATE_DATABASE_URL: direct })).toBe(direct);
  expect(readMigrateUrl({ MIGRATE_DATABASE_URL: direct, DATABASE_USER: "u", DATABASE_PASSWORD: "p@" })).toBe(
    "postgres://u:p%40@db:5432/ledger",
  );
  expect(() => readMigrateUrl({ MIGRATE_DATABASE_URL: "mysql://secret" })).toThrow(
    /MIGRATE_DATABASE_URL: must start with postgres:\/\/[^]*(?!secret)/,
  );
});

test.each(["verify-full", "prefer", ""])("sslmode=%s is refused by what there is instead", (mode) => {
  expect(() => readDatabaseUrl({ DATABASE_URL: `postgres://x/y?sslmode=${mode}` })).toThrow(
    /DATABASE_URL: sslmode must be disable, require .*certificate must hold.* or no-verify/,
  );
});

test("a command without a store is told which variable is missing", () => {
  expect(() => readDatabaseUrl({})).toThrow(/DATABASE_URL is missing/);
});

test("a folder of snapshots that is empty text is told so", () => {
  const stores = { DATABASE_URL: "postgres://x/y", REDIS_URL: "redis://x" };
  expect(() => readEnvironment({ ...stores, GAPURA_CONFIG_DIR: "" })).toThrow(
    /\n {2}GAPURA_CONFIG_DIR: is empty$/,
  );
});

test.each([
  "http://x",
  "redis-sentinel://s1",
  "redis-sentinel:///main",
  "redis-sentinel://u:%zz@s1/main",
  "redis-cluster://c1/1",
  "",
])("REDIS_URL=%j is refused by name, without its words", (url) => {
  expect(() => readEnvironment({ ...needed, REDIS_URL: url })).toThrow(
    /REDIS_URL: (must be redis:|holds a %)/,
  );
});

test("the sentinels' password goes with each Redis that has sentinels", () => {
  const { REDIS_URL, REDIS_CACHE_URL } = readEnvironment({
    ...needed,
    REDIS_URL: "redis-sentinel://s1,s2/main",
    REDIS_CACHE_URL: "redis://cache",
    SENTINEL_PASSWORD: "p&=%",
  });
  expect(readRedisAddress(REDIS_URL)).toMatchObject({ sentinelPassword: "p&=%" });
  expect(REDIS_CACHE_URL).toBe("redis://cache");
});

test.each(["34d", "839h", "0", "1h"])("RETENTION_USAGE=%s is refused", (value) => {
  expect(() => readEnvironment({ ...needed, RETENTION_USAGE: value })).toThrow(
    /RETENTION_USAGE: must be at least 35d, as younger usage may still change; leave it out to keep usage for ever/,
  );
});

test("RETENTION_AUDIT is days or hours, 400 days without, and at least 35", () => {
  const read = (value: string) => readEnvironment({ ...needed, RETENTION_AUDIT: value }).RETENTION_AUDIT;
  expect(read("")).toBe(400 * 86_400_000);
  expect(read("840h")).toBe(35 * 86_400_000);
  for (const value of ["34d", "0", "1y"]) expect(() => read(value)).toThrow(/RETENTION_AUDIT: must be/);
});

test("RETENTION_USAGE is days or hours, and for ever without; RETENTION_DROP is true or false", () => {
  const read = (more: Record<string, string>) => readEnvironment({ ...needed, ...more });
  expect(read({}).RETENTION_USAGE).toBe(undefined);
  expect(read({ RETENTION_USAGE: "" }).RETENTION_USAGE).toBe(undefined);
  expect(read({ RETENTION_USAGE: "400d" }).RETENTION_USAGE).toBe(400 * 86_400_000);
  expect(read({ RETENTION_USAGE: "840h" }).RETENTION_USAGE).toBe(35 * 86_400_000);
  expect(read({}).RETENTION_DROP).toBe(false);
  expect(read({ RETENTION_DROP: "true" }).RETENTION_DROP).toBe(true);
  expect(() => read({ RETENTION_USAGE: "1y" })).toThrow(/RETENTION_USAGE: must be a number of days or hours/);
  expect(() => read({ RETENTION_DROP: "yes" })).toThrow(/RETENTION_DROP/);
});
