/**
 * A cache for what tools fetched and what Responses answers said: pages, search results, output items. Its failures are no
 * errors: a cache that does not answer is a miss. Entries are at most 1 MiB. When the total is full (design.md §5: money's Redis
 * may be the same one, so a cache must never fill it), the organization that has most in it loses its own entries that expire
 * first: one that caches much evicts nothing of those that have little.
 */
import { inTime } from "../lib/in-time.ts";
import type { RedisStore } from "../store/redis-servers.ts";
import { loadScript } from "../store/redis.ts";

export interface ToolCache {
  /** Returns an entry; null: there is none, or no answer, for those who must know the difference: then it calls `silent`. */
  get(key: string, silent?: () => void): Promise<Buffer | null>;
  /** Stores a value for `ttlMs`, counted to an organization, unless it is too large. `key`: used by no other organization. */
  set(organizationId: string, key: string, value: Buffer, ttlMs: number): Promise<void>;
}

export const MAX_ENTRY_BYTES = 1024 * 1024;
const MAX_CACHE_BYTES = 256 * 1024 * 1024;
/** Time-out of the cache: after it a page is rather fetched again. */
const ANSWER_TIMEOUT_MS = 300;

/** All keys share one hash tag, so that in a cluster the script may access the index and the entries that it removes. */
const PREFIX = "gapura:{tool-cache}";

const put = loadScript(new URL("./cache-put.lua", import.meta.url), (reply) => reply === 1);

/** @param maxBytes largest total of all entries, over every pod that uses this Redis. */
export function redisToolCache(redis: RedisStore, maxBytes = MAX_CACHE_BYTES): ToolCache {
  return {
    async get(key, silent) {
      return await answered(redis.getBuffer(`${PREFIX}:entry:${key}`), silent);
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

/** Returns the store's answer, or null when it fails or takes too long. */
async function answered<T>(asking: Promise<T>, silent?: () => void): Promise<T | null> {
  try {
    return await inTime(ANSWER_TIMEOUT_MS, asking, () => new Error("late"));
  } catch {
    silent?.();
    return null;
  }
}
