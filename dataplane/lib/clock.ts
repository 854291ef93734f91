/** The time, as an argument: everything that needs it takes one, so that tests can hold it still. */
export interface Clock {
  /** Unix milliseconds. */
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** For ages alone: milliseconds since the process began, whatever steps the machine's clock takes (rule 12.8). */
export const steadyClock: Clock = { now: () => performance.now() };

export const DAY_MS = 86_400_000;
