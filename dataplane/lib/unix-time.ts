/** Unix milliseconds in the forms that API answers use. */

/** `2026-11-21T08:30:00Z` */
export const isoSeconds = (unixMs: number): string => `${new Date(unixMs).toISOString().slice(0, 19)}Z`;

/** The same with the milliseconds of a moment that has some: `2026-11-21T08:30:00.250Z` */
export const isoExact = (unixMs: number): string => new Date(unixMs).toISOString().replace(".000Z", "Z");

export const unixSeconds = (unixMs: number): number => Math.floor(unixMs / 1000);
