/** Values of the stores, of where files and seals are kept, and of migrations. */
import { podOf } from "./helm.ts";
import {
  at,
  type Case,
  CLAIM,
  dataPlane,
  env,
  imageOf,
  isThere,
  quickstart,
  secret,
} from "./value-readers.ts";

/** User and password in keys of their own. */
const apart = { existingSecret: "pg", host: "db.internal" };

export const storeCases: readonly Case[] = [
  ...(["data-plane", "migrate"] as const).flatMap((program): Case[] => [
    {
      value: "postgres.existingSecret",
      set: { postgres: { existingSecret: "other" } },
      read: env(program, "DATABASE_URL"),
      is: secret("DATABASE_URL", "other", "url"),
    },
    {
      value: "postgres.key",
      set: { postgres: { existingSecret: "pg", key: "uri" } },
      read: env(program, "DATABASE_URL"),
      is: secret("DATABASE_URL", "pg", "uri"),
    },
  ]),
  ...(
    [
      ["host", {}, "postgres://db.internal:5432/gapura?sslmode=require"],
      ["port", { port: 6432 }, "postgres://db.internal:6432/gapura?sslmode=require"],
      ["database", { database: "led/g er+" }, "postgres://db.internal:5432/led%2Fg%20er%2B?sslmode=require"],
      ["sslMode", { sslMode: "no-verify" }, "postgres://db.internal:5432/gapura?sslmode=no-verify"],
    ] as const
  ).map(([name, given, url]): Case => ({
    value: `postgres.${name}`,
    ...(name === "host" ? {} : { base: { postgres: apart } }),
    set: { postgres: { ...apart, ...given } },
    read: (rendered) => ["data-plane", "migrate"].map((program) => env(program, "DATABASE_URL")(rendered)),
    is: ["data-plane", "migrate"].map(() => ({ name: "DATABASE_URL", value: url })),
  })),
  ...(
    [
      ["migrate", "migrate", "MIGRATE_DATABASE_URL"],
      ["read", "data-plane", "DATABASE_READ_URL"],
    ] as const
  ).flatMap(([prefix, program, name]): Case[] => [
    {
      value: `postgres.${prefix}Key`,
      set: { postgres: { existingSecret: "pg", [`${prefix}Key`]: "other" } },
      read: env(program, name),
      is: secret(name, "pg", "other"),
    },
    ...(["db-direct", "db-direct:6543"] as const).map((host): Case => ({
      value: `postgres.${prefix}Host`,
      base: { postgres: apart },
      set: { postgres: { ...apart, [`${prefix}Host`]: host } },
      read: env(program, name),
      is: {
        name,
        value: `postgres://${host.includes(":") ? host : `${host}:5432`}/gapura?sslmode=require`,
      },
    })),
  ]),
  {
    value: "postgres.connections",
    set: { postgres: { existingSecret: "pg", connections: 5 } },
    read: env("data-plane", "DATABASE_CONNECTIONS"),
    is: { name: "DATABASE_CONNECTIONS", value: "5" },
  },
  ...(
    [
      ["requests", "RETENTION_REQUESTS", "12h"],
      ["audit", "RETENTION_AUDIT", "90d"],
      ["usage", "RETENTION_USAGE", "400d"],
      ["drop", "RETENTION_DROP", true],
    ] as const
  ).map(([key, name, value]): Case => ({
    value: `retention.${key}`,
    set: { retention: { [key]: value } },
    read: env("data-plane", name),
    is: { name, value: String(value) },
  })),
  {
    value: "postgres.userKey",
    base: { postgres: apart },
    set: { postgres: { ...apart, userKey: "user" } },
    read: env("migrate", "DATABASE_USER"),
    is: secret("DATABASE_USER", "pg", "user"),
  },
  {
    value: "postgres.passwordKey",
    base: { postgres: apart },
    set: { postgres: { ...apart, passwordKey: "postgres-password" } },
    read: env("data-plane", "DATABASE_PASSWORD"),
    is: secret("DATABASE_PASSWORD", "pg", "postgres-password"),
  },
  {
    value: "redis.existingSecret",
    set: { redis: { existingSecret: "other" } },
    read: env("data-plane", "REDIS_URL"),
    is: secret("REDIS_URL", "other", "url"),
  },
  {
    value: "redis.key",
    set: { redis: { existingSecret: "rd", key: "uri" } },
    read: env("data-plane", "REDIS_URL"),
    is: secret("REDIS_URL", "rd", "uri"),
  },
  {
    value: "redis.sentinelPasswordKey",
    set: { redis: { existingSecret: "rd", sentinelPasswordKey: "sentinels" } },
    read: env("data-plane", "SENTINEL_PASSWORD"),
    is: secret("SENTINEL_PASSWORD", "rd", "sentinels"),
  },
  {
    value: "redisCache.existingSecret",
    set: { redisCache: { existingSecret: "cache" } },
    read: env("data-plane", "REDIS_CACHE_URL"),
    is: secret("REDIS_CACHE_URL", "cache", "url"),
  },
  {
    value: "redisCache.key",
    base: { redisCache: { existingSecret: "cache" } },
    set: { redisCache: { existingSecret: "cache", key: "uri" } },
    read: env("data-plane", "REDIS_CACHE_URL"),
    is: secret("REDIS_CACHE_URL", "cache", "uri"),
  },
  {
    value: "sealKeys.existingSecret",
    set: { sealKeys: { existingSecret: "mine" } },
    read: (rendered) => [
      env("data-plane", "GAPURA_SEAL_KEYS")(rendered),
      env("operator", "SEAL_SECRET")(rendered),
    ],
    is: [secret("GAPURA_SEAL_KEYS", "mine", "seal-keys"), { name: "SEAL_SECRET", value: "mine" }],
  },
  {
    value: "sealKeys.key",
    base: { sealKeys: { existingSecret: "mine" } },
    set: { sealKeys: { existingSecret: "mine", key: "k" } },
    read: env("data-plane", "GAPURA_SEAL_KEYS"),
    is: secret("GAPURA_SEAL_KEYS", "mine", "k"),
  },
  {
    value: "files.s3.existingSecret",
    set: { files: { s3: { existingSecret: "s3" } } },
    read: env("data-plane", "FILES_S3_URL"),
    is: secret("FILES_S3_URL", "s3", "url"),
  },
  {
    value: "files.s3.key",
    base: { files: { s3: { existingSecret: "s3" } } },
    set: { files: { s3: { existingSecret: "s3", key: "uri" } } },
    read: env("data-plane", "FILES_S3_URL"),
    is: secret("FILES_S3_URL", "s3", "uri"),
  },
  {
    value: "migrations.enabled",
    set: { migrations: { enabled: false } },
    read: isThere("Job", "gapura-migrate"),
    is: false,
  },
  {
    value: "migrations.enabled",
    base: { quickstart },
    set: { quickstart, migrations: { enabled: false } },
    read: dataPlane("initContainers"),
    is: undefined,
  },
  {
    value: "imagePullSecrets",
    base: { quickstart, postgres: { existingSecret: "" }, redis: { existingSecret: "" } },
    set: {
      quickstart,
      postgres: { existingSecret: "" },
      redis: { existingSecret: "" },
      imagePullSecrets: [{ name: "registry" }],
    },
    // Images of the stores come from a mirror as well.
    read: (rendered) =>
      rendered
        .all("StatefulSet")
        .map((object) => (podOf(object) as { imagePullSecrets?: unknown }).imagePullSecrets),
    is: Array.from({ length: 2 }, () => [{ name: "registry" }]),
  },
  {
    value: "quickstart.enabled",
    set: { quickstart, postgres: { existingSecret: "" }, redis: { existingSecret: "" } },
    read: (rendered) => [
      ...rendered.all("StatefulSet").map(({ metadata }) => metadata.name),
      env("data-plane", "DATABASE_URL")(rendered),
      env("data-plane", "REDIS_URL")(rendered),
    ],
    is: [
      "gapura-postgres",
      "gapura-redis",
      { name: "DATABASE_URL", value: "postgres://gapura@gapura-postgres:5432/gapura" },
      { name: "REDIS_URL", value: "redis://gapura-redis:6379" },
    ],
  },
  ...(["postgres", "redis"] as const).flatMap((store): Case[] => {
    const base = { postgres: { existingSecret: "" }, redis: { existingSecret: "" }, quickstart };
    const claim = (...path: string[]) => at("StatefulSet", `gapura-${store}`, ...CLAIM, ...path);
    return [
      {
        value: "quickstart.storage",
        base,
        set: { ...base, quickstart: { ...quickstart, storage: "20Gi" } },
        read: claim("resources", "requests", "storage"),
        is: "20Gi",
      },
      {
        value: "quickstart.storageClassName",
        base,
        set: { ...base, quickstart: { ...quickstart, storageClassName: "fast" } },
        read: claim("storageClassName"),
        is: "fast",
      },
      {
        value: `quickstart.${store}.image`,
        base,
        set: { ...base, quickstart: { ...quickstart, [store]: { image: "mirror.example/x:1" } } },
        read: imageOf(store),
        is: "mirror.example/x:1",
      },
    ];
  }),
];
