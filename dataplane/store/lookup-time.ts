import { inTime } from "../lib/in-time.ts";

/** How long a request waits for a look-up in Postgres: a frozen one must not hold up every request. */
const LOOKUP_MS = 2_000;

/** @throws Error after `LOOKUP_MS`. */
export const lookedUpInTime = <Value>(work: Promise<Value>): Promise<Value> =>
  inTime(LOOKUP_MS, work, () => new Error(`Postgres did not answer in ${LOOKUP_MS} ms`));
