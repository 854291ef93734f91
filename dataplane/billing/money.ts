/** Everything of a data plane that has to do with credit, put together and started in the right order. */
import type { RedisStore } from "../store/redis-servers.ts";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../lib/clock.ts";
import type { NewId } from "../lib/ids.ts";
import { redisReady } from "../store/redis.ts";
import { Holds, type HoldsOptions } from "./holds/holds.ts";
import type { LedgerId } from "./ledger/ledger-identity.ts";
import { Upkeep } from "./holds/upkeep.ts";

/** Longest wait for the masters of a cluster; one that is lost is asked again later. */
const CONNECT_MS = 2_000;

export interface MoneyOptions {
  /** The ledger in `pool` (`readLedgerId`). */
  readonly ledger: LedgerId;
  readonly redis: RedisStore;
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  readonly newId: NewId;
  /** The snapshot that is served now; null before the first one. */
  readonly snapshot: () => Snapshot | null;
  /** As `HoldsOptions`. */
  readonly recheckKey: HoldsOptions["recheckKey"];
  readonly limitsOf: HoldsOptions["limitsOf"];
}

export interface Money {
  readonly holds: Holds;
  readonly upkeep: Upkeep;
  /** Compares Redis with the ledger, before anything changes either. Never fails: the upkeep repeats it until it succeeds. */
  begin(): Promise<void>;
  /** Call it after the last answer: stops the upkeep and moves what was charged into the ledger. */
  stop(): Promise<void>;
  /** Call it when nothing changes accounts any more (`Upkeep.tellLast`). */
  tellLast(): Promise<void>;
}

export function startMoney(options: MoneyOptions): Money {
  const { redis, pool, clock, log, newId, snapshot } = options;
  const holds = new Holds({
    redis,
    pool,
    clock,
    log,
    ledger: options.ledger,
    newEpoch: () => newId("req"),
    limits: (organizationId) => snapshot()?.organization(organizationId)?.rateLimits,
    recheckKey: options.recheckKey,
    limitsOf: options.limitsOf,
  });
  const upkeep = new Upkeep({ redis, pool, holds, log, pod: newId("req"), random: Math.random });
  upkeep.start();
  const begin = async () => {
    try {
      await redisReady(redis, CONNECT_MS);
      await upkeep.look();
    } catch (error) {
      log.warn({ err: error }, "could not compare Redis with the ledger");
    }
  };
  return { begin, holds, upkeep, stop: () => upkeep.stop(), tellLast: () => upkeep.tellLast() };
}
