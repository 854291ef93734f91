import { inTime } from "../lib/in-time.ts";

/** How long a request waits for what Postgres knows: a frozen one must not hold every request. */
const LOOKUP_MS = 2_000;

/** @throws Error after `LOOKUP_MS`. */
export const lookedUpInTime = <Value>(work: Promise<Value>): Promise<Value> =>
  inTime(LOOKUP_MS, work, () => new Error(`Postgres did not answer in ${LOOKUP_MS} ms`));
