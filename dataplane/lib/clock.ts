/** The time, as an argument: everything that needs it takes one, so that tests can hold it still. */
export interface Clock {
  /** Unix milliseconds. */
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** A monotonic clock for ages: milliseconds since the process began, unaffected by steps of the machine's clock (rule 12.8). */
export const steadyClock: Clock = { now: () => performance.now() };

/** Returns the CPU milliseconds of this thread: its time of work, without waiting for a processor. */
export function workedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** The last Unix second of the year 9999, the latest that RFC 3339, a database's time and a JavaScript date all hold. */
export const LATEST_SECOND = 253_402_300_799;
