/** The stores of a data plane that serves: opened first, closed last. */
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { Environment } from "./environment.ts";
import { createPostgresPool, openPostgres } from "./store/postgres.ts";
import { primaryReads, ReplicaReads, type Reads } from "./store/reads.ts";
import { openRedis } from "./store/redis.ts";
import type { RedisStore } from "./store/redis-servers.ts";

interface OpenStores {
  readonly postgres: DatabasePool;
  readonly redis: RedisStore;
  /** Caches may live elsewhere: money's Redis must never be filled by them. */
  readonly cacheRedis: RedisStore;
  /** Where lists and reports are read. */
  readonly reads: Reads;
  /** Looks no more how far the replica is. */
  stop(): Promise<void>;
  /** Never fails. */
  close(): Promise<void>;
}

/** @throws Error when Postgres does not answer; one that goes away later is logged. */
export async function openStores(environment: Environment, log: Logger): Promise<OpenStores> {
  const onError = (store: string) => (error: Error) => log.warn({ store, err: error }, "a store is away");
  const { DATABASE_URL, DATABASE_READ_URL, REDIS_URL, REDIS_CACHE_URL } = environment;
  const maxConnections = environment.DATABASE_CONNECTIONS;
  const postgres = await openPostgres(DATABASE_URL, { maxConnections, onError: onError("postgres") });
  const redis = openRedis(REDIS_URL, { onError: onError("redis") });
  const replica =
    DATABASE_READ_URL === undefined
      ? null
      : await createPostgresPool(DATABASE_READ_URL, { maxConnections, onError: onError("postgres replica") });
  const replicaReads =
    replica === null
      ? null
      : new ReplicaReads({ primary: postgres, replica, redis, log, elapsed: () => performance.now() });
  replicaReads?.start();
  const cacheRedis =
    REDIS_CACHE_URL === undefined ? redis : openRedis(REDIS_CACHE_URL, { onError: onError("redis cache") });
  return {
    postgres,
    redis,
    cacheRedis,
    reads: replicaReads ?? primaryReads(postgres),
    stop: async () => await replicaReads?.stop(),
    close: async () => {
      await Promise.allSettled([redis.quit(), cacheRedis.quit(), postgres.end(), replica?.end()]);
    },
  };
}
