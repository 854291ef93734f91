/**
 * Turns of organizations at the connections to Postgres, for what one of them may ask for many hundred times at once: its uploads, its
 * batches and what it asks of its files. These have a part of the connections, so that the look-up of another's key, or its charge, never stands
 * behind them: the pool itself serves in the order of arrival (rule 7.7).
 */
import type { DatabasePool } from "slonik";
import { FairPlaces } from "../lib/fair-places.ts";

/** Part of a pool's connections for all statements in turns; at least one. */
const SHARE = 0.3;

const turns = new WeakMap<DatabasePool, FairPlaces>();

function turnsOf(pool: DatabasePool): FairPlaces {
  const known = turns.get(pool);
  if (known !== undefined) return known;
  const places = Math.max(1, Math.floor((pool.configuration.maxPoolSize ?? 1) * SHARE));
  // Whoever waits has been let in by its key, its credit and its rate.
  const made = new FairPlaces({ places, waitingOfOne: Infinity, waiting: Infinity });
  turns.set(pool, made);
  return made;
}

const statements: ReadonlySet<PropertyKey> = new Set<keyof DatabasePool>([
  "any",
  "exists",
  "maybeOne",
  "maybeOneFirst",
  "one",
  "oneFirst",
  "query",
  "transaction",
]);

/**
 * Returns the pool for an organization's statements and transactions: each is run when it is the organization's turn. One within
 * another would wait for itself.
 */
export function poolInTurns(pool: DatabasePool, organizationId: string): DatabasePool {
  const places = turnsOf(pool);
  return new Proxy(pool, {
    get(target, name) {
      const run: unknown = Reflect.get(target, name);
      if (!statements.has(name) || typeof run !== "function") return run;
      return async (...args: unknown[]): Promise<unknown> => {
        const release = await places.take(organizationId, new AbortController().signal);
        try {
          return await (Reflect.apply(run, target, args) as Promise<unknown>);
        } finally {
          if (typeof release === "function") release();
        }
      };
    },
  });
}
