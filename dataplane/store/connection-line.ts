/**
 * A bounded wait for a connection. slonik's pool lets callers wait for as long as those before them take: while Postgres is
 * frozen each of these takes the whole time of a statement, so who comes later waits for the sum.
 */
import type { CommonQueryMethods, DatabasePool } from "slonik";
import { FairPlaces } from "../lib/fair-places.ts";
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

/**
 * Returns the pool with a line before it: whoever waited for one of its `connections` for `ms` gets StoreAway, and is asked for
 * nothing any more.
 */
export function inLine(pool: DatabasePool, connections: number, ms: number): DatabasePool {
  const line = new FairPlaces({ places: connections, waitingOfOne: Infinity, waiting: Infinity });
  const withPlace = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    const late = new AbortController();
    const tooLate = () => late.abort(new StoreAway(`no connection to Postgres was free for ${ms} ms`));
    const timer = setTimeout(tooLate, ms);
    const place = await line.take("", late.signal).finally(() => clearTimeout(timer));
    if (typeof place === "string") throw new StoreAway("no connection to Postgres is free");
    try {
      return await work();
    } finally {
      place();
    }
  };
  const methods = queryMethods.map((method) => {
    const ask = (statement: never) => withPlace(() => pool[method](statement));
    return [method, ask] as const;
  });
  const connect: DatabasePool["connect"] = (handler) => withPlace(() => pool.connect(handler));
  const transaction: DatabasePool["transaction"] = (handler, retries) =>
    withPlace(() => pool.transaction(handler, retries));
  // Its other methods, those of an EventEmitter among them, stay as they are.
  const made: DatabasePool = Object.create(pool);
  return Object.assign(made, { ...Object.fromEntries(methods), connect, transaction });
}
