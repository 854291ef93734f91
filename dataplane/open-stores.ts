/** The stores of a data plane that serves: opened first, closed last. */
import type { Logger } from "pino";
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import type { Environment } from "./environment.ts";
import { readLedgerId, type LedgerId } from "./billing/ledger/ledger-identity.ts";
import { Recurring } from "./lib/recurring.ts";
import { wordsOf } from "./lib/words-of.ts";
import { requireMigrated } from "./store/migrate.ts";
import { nowAndThen } from "./store/once-there.ts";
import { createPostgresPool, oncePostgresIsThere, openPostgres } from "./store/postgres.ts";
import { CLOCK_REFRESH_MS, PostgresClock } from "./store/postgres-clock.ts";
import { primaryReads, ReplicaReads, type Reads } from "./store/reads.ts";
import { openRedis } from "./store/redis.ts";
import type { RedisStore } from "./store/redis-servers.ts";

export interface OpenStores {
  readonly postgres: DatabasePool;
  /** Postgres' time, for all that expires: this machine's clock may be wrong. Read again every few seconds. */
  readonly clock: PostgresClock;
  /** Identifies the ledger of this database. */
  readonly ledger: LedgerId;
  readonly redis: RedisStore;
  /** Caches may live elsewhere: money's Redis must never be filled by them. */
  readonly cacheRedis: RedisStore;
  /** Where lists and reports are read. */
  readonly reads: Reads;
  /** Ends the regular questions to Postgres: its time, and how far the replica is. */
  stop(): Promise<void>;
  /** Never fails. */
  close(): Promise<void>;
}

/**
 * How long a start waits for Postgres. In a longer outage the process is started again and again: each time it reads its
 * environment anew, where the fault may have been corrected.
 */
const STARTS_WITHIN_MS = 300_000;

/**
 * How long anybody waits for a connection to Postgres, before it counts as away: while it is frozen each connection is taken for
 * the time of a whole statement.
 */
const CONNECTION_WITHIN_MS = 10_000;

/**
 * Opens the stores. Waits for Postgres; a store that is away later is logged.
 * @param waitsFor called with what is wrong after each failed try.
 * @throws Error when Postgres refuses us, or is away for too long.
 */
export async function openStores(
  environment: Environment,
  log: Logger,
  waitsFor: (what: string) => void,
): Promise<OpenStores> {
  // A client of Redis tries to connect twice a second, and each statement fails.
  const onError = (store: string) =>
    nowAndThen((error) => log.warn({ store, err: error }, "a store is away"));
  const { DATABASE_URL, DATABASE_READ_URL, REDIS_URL, REDIS_CACHE_URL } = environment;
  const maxConnections = environment.DATABASE_CONNECTIONS;
  const patience = { withinMs: STARTS_WITHIN_MS, onAway: tells(log, waitsFor) };
  const bounds = { maxConnections, connectionWithinMs: CONNECTION_WITHIN_MS };
  const pool = { ...bounds, onError: onError("postgres") };
  const postgres = await openPostgres(DATABASE_URL, { ...pool, ...patience }).catch(saysOfPostgres);
  const [clock, ledger] = await oncePostgresIsThere(async () => {
    requireMigrated(await readMigrated(postgres));
    return await Promise.all([PostgresClock.start(postgres), readLedgerId(postgres)]);
  }, patience).catch(saysOfPostgres);
  const redis = openRedis(REDIS_URL, { onError: onError("redis") });
  const replica =
    DATABASE_READ_URL === undefined
      ? null
      : await createPostgresPool(DATABASE_READ_URL, { ...bounds, onError: onError("postgres replica") });
  const replicaReads =
    replica === null
      ? null
      : new ReplicaReads({ primary: postgres, replica, redis, log, elapsed: () => performance.now() });
  replicaReads?.start();
  const clockKeeper = new Recurring(log, "clock", CLOCK_REFRESH_MS, () => clock.refresh());
  clockKeeper.start();
  const cacheRedis =
    REDIS_CACHE_URL === undefined ? redis : openRedis(REDIS_CACHE_URL, { onError: onError("redis cache") });
  return {
    postgres,
    clock,
    ledger,
    redis,
    cacheRedis,
    reads: replicaReads ?? primaryReads(postgres),
    stop: async () => {
      await Promise.all([clockKeeper.stop(), replicaReads?.stop()]);
    },
    close: async () => {
      await Promise.allSettled([redis.quit(), cacheRedis.quit(), postgres.end(), replica?.end()]);
    },
  };
}

const readMigrated = (pool: DatabasePool): Promise<readonly string[]> =>
  pool.anyFirst(sql.type(z.object({ name: z.string() }))`select name from schema_migrations`);

/** The error has no cause: its message holds the cause's words already. */
function saysOfPostgres(error: unknown): never {
  throw new Error(`Postgres: ${wordsOf(error)}`);
}

function tells(log: Logger, waitsFor: (what: string) => void): (error: Error) => void {
  const warn = nowAndThen((error) =>
    log.warn({ store: "postgres", err: error }, "waiting for a store before anything is served"),
  );
  return (error) => {
    waitsFor(`postgres: ${wordsOf(error)}`);
    warn(error);
  };
}
