/** Whether the stores can do their work; asked by the ops port's `/readyz`. */
import { Cluster, type Redis } from "ioredis";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { inTime } from "../lib/in-time.ts";
import { connectionFault } from "./redis.ts";
import { mastersOf, type RedisStore } from "./redis-servers.ts";

/** What is wrong, in a few words, with a store that answers: no reason to send requests elsewhere. */
export interface Degraded {
  readonly degraded: string;
}

/** Asks Postgres; null when it answers and takes writes, as a standby before its promotion does not. @throws when it does not answer. */
export async function checkPostgres(pool: DatabasePool): Promise<Degraded | null> {
  const readOnly = await pool.oneFirst(
    sql.type(z.object({ readOnly: z.boolean() }))`
      select current_setting('transaction_read_only')::boolean as "readOnly"
    `,
  );
  if (!readOnly) return null;
  return { degraded: "it takes no writes: files, batches and changes get 503, and charges wait" };
}

/**
 * Checks Redis, or each master of a cluster: null when it answers, takes writes and evicts nothing (design.md §5: money needs
 * `noeviction`), else what is wrong. Masters that do not answer make a cluster degraded while others do, which have requests to
 * answer. Read from INFO, because hosted services forbid CONFIG. @throws when a single server does not answer.
 */
export async function checkRedis(redis: RedisStore): Promise<string | Degraded | null> {
  if (!(redis instanceof Cluster)) {
    try {
      return stateOfRedis(await infoOf(redis));
    } catch (error) {
      const fault = connectionFault(redis);
      if (fault === null) throw error;
      throw new Error(`not connected: ${fault}`, { cause: error });
    }
  }
  // While the cluster is not connected, its slots may be outdated.
  const masters = redis.status === "ready" ? [...mastersOf(redis)] : [];
  const infos = await Promise.allSettled(
    masters.map(async ([name, server]) => {
      if (server === null) throw new Error(`${name} is away`);
      return await inTime(MASTER_MS, infoOf(server), () => new Error("no answer in time"));
    }),
  );
  const lost = masters.flatMap(([name], index) => (infos[index]?.status === "rejected" ? [name] : []));
  if (lost.length === masters.length) return "no master of the cluster answers";
  const degraded: string[] = [];
  if (lost.length > 0)
    degraded.push(
      `of ${masters.length} masters ${lost.join(", ")} ${lost.length === 1 ? "does" : "do"} not answer; requests of its shards get 503`,
    );
  for (const [index, info] of infos.entries()) {
    const state = info.status === "fulfilled" ? stateOfRedis(info.value) : null;
    if (typeof state === "string") return `${masters[index]?.[0]}: ${state}`;
    if (state !== null) degraded.push(`${masters[index]?.[0]}: ${state.degraded}`);
  }
  return degraded.length === 0 ? null : { degraded: degraded.join("; ") };
}

/** One section at a time: a proxy of a hosted service may take no more. */
async function infoOf(server: Redis): Promise<string> {
  const sections = [server.info("memory"), server.info("persistence").catch(() => "")];
  return (await Promise.all(sections)).join("");
}

/** Returns what is wrong with a server by its own words: the sections `memory` and `persistence`. */
export function stateOfRedis(info: string): string | Degraded | null {
  const fault = faultOfRedis(info);
  if (fault !== null) return fault;
  const refusal = refusalOf(info);
  return refusal === null ? null : { degraded: `${refusal}: new requests get 503` };
}

/** Why a server refuses writes; null: it takes them. */
function refusalOf(info: string): string | null {
  const bytes = (field: string) => Number(new RegExp(`^${field}:(\\d+)`, "m").exec(info)?.[1] ?? 0);
  const most = bytes("maxmemory");
  // As Redis itself counts.
  const used = bytes("used_memory") - bytes("mem_not_counted_for_evict");
  if (most > 0 && used > most) return "its memory is full (maxmemory)";
  return /^aof_last_write_status:err/m.test(info) ? "it cannot write its append-only file" : null;
}

/** Time for a master to answer: one that hangs must not delay the check until that counts as failed. */
const MASTER_MS = 700;

/** Returns what is wrong with the eviction policy; null: nothing. `info`: the section `memory`. */
export function faultOfRedis(info: string): string | null {
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  if (policy === undefined || policy === "noeviction") return null;
  return `maxmemory-policy is ${policy}; it must be noeviction, or credit that is held or spent would be forgotten`;
}
