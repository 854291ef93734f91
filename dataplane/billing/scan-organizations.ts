/** Which organizations Redis knows. */
import type { Redis } from "ioredis";
import { SHARDS } from "./shard.ts";

/** Names of the organizations in each shard. */
export const scanOrganizations = (redis: Redis): Promise<string[][]> => scan(redis, "o");

/** Names of the scopes of limits in each shard. */
export const scanScopes = (redis: Redis): Promise<string[][]> => scan(redis, "s");

async function scan(redis: Redis, kind: "o" | "s"): Promise<string[][]> {
  const found = Array.from({ length: SHARDS }, () => new Set<string>());
  let cursor = "0";
  do {
    const [next, keys] = await redis.scan(cursor, "MATCH", `{gapura-meter-*}:${kind}:*`, "COUNT", 1_000);
    for (const key of keys) {
      const match = /^\{gapura-meter-(\d+)\}:[os]:(.*)$/s.exec(key);
      found[Number(match?.[1])]?.add(match?.[2] ?? "");
    }
    cursor = next;
  } while (cursor !== "0");
  return found.map((names) => [...names]);
}
