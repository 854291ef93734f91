/**
 * Bounded waits for a connection to Postgres, and turns of organizations at them. slonik's pool serves in the order of arrival, and lets
 * callers wait for as long as those before them take: while Postgres is frozen each of these takes the whole time of a statement, so who
 * comes later waits for the sum.
 */
import type { CommonQueryMethods, DatabasePool } from "slonik";
import { FairPlaces, type Release } from "../lib/fair-places.ts";
import { StoreAway } from "./store-away.ts";

/** The methods of a pool that take a statement. */
export const queryMethods = [
  "any",
  "anyFirst",
  "exists",
  "many",
  "manyFirst",
  "maybeOne",
  "maybeOneFirst",
  "one",
  "oneFirst",
  "query",
] as const satisfies readonly (keyof CommonQueryMethods)[];

/** Part of a pool's connections for all statements in turns of organizations; at least one. */
const SHARE = 0.3;
/** How long a statement waits for its turn: where an organization asks for many hundred at once the last ones take seconds. */
const TURN_WITHIN_MS = 60_000;

const turns = new WeakMap<DatabasePool, FairPlaces>();

/**
 * Returns the pool with a line before it: whoever waited for one of its `connections` for `ms` gets StoreAway, and is asked for
 * nothing any more.
 */
export function inLine(pool: DatabasePool, connections: number, ms: number): DatabasePool {
  const line = placesFor(connections);
  return withPlaces(pool, () => placeWithin(line, "", ms));
}

/**
 * Returns the pool for what one organization may ask for many hundred times at once: its uploads, its batches and what it asks of its
 * files. Each statement and transaction is run when it is the organization's turn, and all of them have a part of the connections, so that
 * the look-up of another's key, or its charge, never stands behind them (rule 7.7). One within another would wait for itself.
 */
export function poolInTurns(
  pool: DatabasePool,
  organizationId: string,
  ms: number = TURN_WITHIN_MS,
): DatabasePool {
  const places = turnsOf(pool);
  return withPlaces(pool, () => placeWithin(places, organizationId, ms));
}

function turnsOf(pool: DatabasePool): FairPlaces {
  const known = turns.get(pool);
  if (known !== undefined) return known;
  const places = Math.max(1, Math.floor((pool.configuration.maxPoolSize ?? 1) * SHARE));
  // Statements of one organization may all wait for a lock on its sums: where there are several places, one is left to others.
  const made = placesFor(places, Math.max(1, places - 1));
  turns.set(pool, made);
  return made;
}

/** Nobody is turned away: whoever waits has been let in by its key, its credit and its rate. */
const placesFor = (places: number, placesOfOne = places): FairPlaces =>
  new FairPlaces({ places, placesOfOne, waitingOfOne: Infinity, waiting: Infinity });

/** @throws StoreAway when none was free for `ms`. */
async function placeWithin(places: FairPlaces, owner: string, ms: number): Promise<Release> {
  const late = new AbortController();
  const tooLate = () => late.abort(new StoreAway(`no connection to Postgres was free for ${ms} ms`));
  const timer = setTimeout(tooLate, ms);
  const place = await places.take(owner, late.signal).finally(() => clearTimeout(timer));
  if (typeof place === "string") throw new StoreAway("no connection to Postgres is free");
  return place;
}

/** Returns the pool with a place taken for each statement, connection and transaction. */
function withPlaces(pool: DatabasePool, take: () => Promise<Release>): DatabasePool {
  const placed = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    const release = await take();
    try {
      return await work();
    } finally {
      release();
    }
  };
  const methods = queryMethods.map((method) => {
    const ask = (statement: never) => placed(() => pool[method](statement));
    return [method, ask] as const;
  });
  const connect: DatabasePool["connect"] = (handler) => placed(() => pool.connect(handler));
  const transaction: DatabasePool["transaction"] = (handler, retries) =>
    placed(() => pool.transaction(handler, retries));
  // Its other methods, those of an EventEmitter among them, stay as they are.
  const made: DatabasePool = Object.create(pool);
  return Object.assign(made, { ...Object.fromEntries(methods), connect, transaction });
}
