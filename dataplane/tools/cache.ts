/**
 * A cache for what tools fetched and what Responses answers said: pages, search results, output items. Failing is no error: a
 * cache that does not answer is a miss. Entries are at most 1 MiB. When the total is full (design.md §5: money's Redis may be the
 * same one, so a cache must never fill it), the organization that has most in it gives up what expires first of its own: one
 * that caches much pushes out nothing of those that have little.
 */
import { inTime } from "../lib/in-time.ts";
import type { RedisStore } from "../store/redis-servers.ts";
import { loadScript } from "../store/redis.ts";

export interface ToolCache {
  /** null: not there, or no answer. */
  get(key: string): Promise<Buffer | null>;
  /** Keeps the value for `ttlMs`, counted to an organization; too large ones are not kept. `key`: of no other organization's. */
  set(organizationId: string, key: string, value: Buffer, ttlMs: number): Promise<void>;
}

export const MAX_ENTRY_BYTES = 1024 * 1024;
const MAX_CACHE_BYTES = 256 * 1024 * 1024;
/** A page is fetched again rather than waited for. */
const ANSWER_TIMEOUT_MS = 300;

/** All keys share one hash tag, so that the script may touch the index and the entries it removes in a cluster. */
const PREFIX = "gapura:{tool-cache}";

const put = loadScript(new URL("./cache-put.lua", import.meta.url), (reply) => reply === 1);

/** @param maxBytes largest total of all entries, over every pod that uses this Redis. */
export function redisToolCache(redis: RedisStore, maxBytes = MAX_CACHE_BYTES): ToolCache {
  return {
    async get(key) {
      return await answered(redis.getBuffer(`${PREFIX}:entry:${key}`));
    },
    async set(organizationId, key, value, ttlMs) {
      if (value.length > MAX_ENTRY_BYTES || ttlMs <= 0) return;
      const keys = ["index", "sizes", "total", "owners", "shares"].map((name) => `${PREFIX}:${name}`);
      const size = value.length + key.length;
      const prefixes = [`${PREFIX}:entry:`, `${PREFIX}:of:`];
      await answered(put(redis, keys, [key, value, ttlMs, size, maxBytes, organizationId, ...prefixes]));
    },
  };
}

/** What the store says, or null when it fails or takes too long. */
async function answered<T>(asking: Promise<T>): Promise<T | null> {
  try {
    return await inTime(ANSWER_TIMEOUT_MS, asking, () => new Error("late"));
  } catch {
    return null;
  }
}
