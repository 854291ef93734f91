/** The time, as an argument: everything that needs it takes one, so that tests can hold it still. */
export interface Clock {
  /** Unix milliseconds. */
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** A monotonic clock for ages: milliseconds since the process began, unaffected by steps of the machine's clock (rule 12.8). */
export const steadyClock: Clock = { now: () => performance.now() };

/** Milliseconds of a processor that this thread has had: the time of work, which waiting for a processor is no part of. */
export function workedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** Unix seconds of the last one in the year 9999: what RFC 3339, a database's time and a JavaScript date all hold. */
export const LATEST_SECOND = 253_402_300_799;
