/** Which organizations Redis knows. */
import { allServers, type RedisStore } from "../../store/redis-servers.ts";
import { SHARDS } from "./shard.ts";

/** Names of the organizations in each shard. */
export const scanOrganizations = (redis: RedisStore): Promise<string[][]> => scan(redis, "o");

/** Names of the scopes of limits in each shard. */
export const scanScopes = (redis: RedisStore): Promise<string[][]> => scan(redis, "s");

async function scan(redis: RedisStore, kind: "o" | "s"): Promise<string[][]> {
  const found = Array.from({ length: SHARDS }, () => new Set<string>());
  for (const server of allServers(redis)) {
    let cursor = "0";
    do {
      const [next, keys] = await server.scan(cursor, "MATCH", `{gapura-meter-*}:${kind}:*`, "COUNT", 1_000);
      for (const key of keys) {
        const match = /^\{gapura-meter-(\d+)-\d+\}:[os]:(.*)$/s.exec(key);
        found[Number(match?.[1])]?.add(match?.[2] ?? "");
      }
      cursor = next;
    } while (cursor !== "0");
  }
  return found.map((names) => [...names]);
}
