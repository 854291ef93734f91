/** Reads the forms of `REDIS_URL` (rule 12.1). */
import type { RedisOptions } from "ioredis";
import { addressFault, BARE_PERCENT } from "./address-fault.ts";

const FORMS =
  "must be redis://, rediss:// (TLS), unix:// with the path of a socket, " +
  "redis-sentinel://USER:PASS@HOST:26379,HOST:26379/MASTER_NAME/DB (rediss-sentinel:// for TLS), or " +
  "redis-cluster://USER:PASS@HOST:6379,HOST:6379 (rediss-cluster:// for TLS)";
const SENTINEL = /^(rediss?)-sentinel:\/\/(?:([^@/]*)@)?([^@/?]+)\/([^/?]+)(?:\/(\d{1,5}))?\/?(?:\?(.*))?$/;
const CLUSTER = /^(rediss?)-cluster:\/\/(?:([^@/]*)@)?([^@/?]+)\/?$/;
const SENTINEL_PORT = 26_379;
const CLUSTER_PORT = 6_379;
/** How long a disconnect waits for the server: a master that stopped may never answer. */
const GOODBYE_MS = 500;
const SENTINEL_TIMEOUT_MS = 2_000;
/** Returns the pause before an attempt to connect again, counted from 1. */
export const reconnectDelayMs = (attempt: number) => Math.min(50 * attempt, 1_000);

/** Where a Redis is, as options of the library. */
export type RedisPlace = Omit<RedisOptions, "replyMapping">;

/** Where a Redis Cluster is: some of its nodes, which name the others. */
export interface ClusterPlace {
  readonly nodes: { host: string; port: number }[];
  readonly login: Pick<RedisPlace, "username" | "password" | "tls">;
}

/** Reads `redis-cluster://`. @returns null for every other form. @throws Error that holds nothing of the address. */
export function readClusterAddress(url: string): ClusterPlace | null {
  if (!/^rediss?-cluster:/.test(url)) return null;
  const [, scheme, login, hosts = ""] = CLUSTER.exec(url) ?? [];
  if (scheme === undefined) throw new Error(FORMS);
  return {
    nodes: hosts.split(",").map((host) => readHost(host, CLUSTER_PORT)),
    login: { ...readLogin(login), ...(scheme === "rediss" ? { tls: {} } : {}) },
  };
}

/** @throws Error, that holds nothing of the address, when it is of no known form. */
export function checkRedisAddress(url: string): void {
  if (readClusterAddress(url) === null) readRedisAddress(url);
}

/**
 * Reads an address. Sentinels are asked anew for the master at each connection; a failover that they announce ends the
 * connection, as an old master may be stopped or cut off and never say so.
 * `user:pass` are the data nodes'; sentinels are asked without, or with `?sentinelPassword=`.
 * @returns null for `redis://`, `rediss://`, which the library reads itself. @throws Error that holds nothing of the address.
 */
export function readRedisAddress(url: string): RedisPlace | null {
  if (/^unix:|^rediss?:\/\//.test(url)) {
    const fault = addressFault(url);
    if (fault !== null) throw new Error(fault);
    // The library takes a socket as a path.
    return url.startsWith("unix:") ? { path: decodeURIComponent(new URL(url).pathname) } : null;
  }
  const [, scheme, login, hosts = "", name = "", db, query] = SENTINEL.exec(url) ?? [];
  if (scheme === undefined) throw new Error(FORMS);
  const sentinelPassword = new URLSearchParams(query).get("sentinelPassword");
  return {
    sentinels: hosts.split(",").map((host) => readHost(host, SENTINEL_PORT)),
    name: decoded(name),
    ...readLogin(login),
    ...(sentinelPassword ? { sentinelPassword } : {}),
    ...(db === undefined ? {} : { db: Number(db) }),
    ...(scheme === "rediss" ? { tls: {}, enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
    failoverDetector: true,
    disconnectTimeout: GOODBYE_MS,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    sentinelRetryStrategy: reconnectDelayMs,
    sentinelReconnectStrategy: reconnectDelayMs,
  };
}

function readLogin(login: string | undefined): { username?: string; password?: string } {
  const [user, ...password] = login?.split(":") ?? [];
  return {
    ...(user ? { username: decoded(user) } : {}),
    ...(password.length > 0 ? { password: decoded(password.join(":")) } : {}),
  };
}

function readHost(text: string, usualPort: number): { host: string; port: number } {
  const { hostname = "", port = "" } = URL.parse(`redis://${text}`) ?? {};
  if (hostname === "") throw new Error(FORMS);
  return {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? usualPort : Number(port),
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error(BARE_PERCENT);
  }
}

/** Adds the sentinels' password to an address of sentinels; others stay as they are. */
export function withSentinelPassword(url: string, password: string): string {
  if (password === "" || !/^rediss?-sentinel:/.test(url)) return url;
  return `${url}${url.includes("?") ? "&" : "?"}sentinelPassword=${encodeURIComponent(password)}`;
}
