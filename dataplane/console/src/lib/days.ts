/** UTC days as `YYYY-MM-DD`: ranges of reports, both ends included as people mean them. */
const DAY_MS = 86_400_000;

export const dayOf = (unixMs: number): string => new Date(unixMs).toISOString().slice(0, 10);
export const startOfDay = (day: string): number => Date.parse(`${day}T00:00:00Z`);
export const addDays = (day: string, days: number): string => dayOf(startOfDay(day) + days * DAY_MS);
/**
 * Whether a text is a day of the calendar from 1970 on: while a year is typed, a browser's field holds days of the years 2, 20
 * and 202. No day from 9999 on, as days of years with five digits are written otherwise.
 */
export const isDay = (text: string | null): text is string =>
  text !== null &&
  /^\d{4}-\d{2}-\d{2}$/.test(text) &&
  startOfDay(text) >= 0 &&
  text < "9999" &&
  dayOf(startOfDay(text)) === text;
export const daysBetween = (from: string, to: string): number =>
  Math.round((startOfDay(to) - startOfDay(from)) / DAY_MS) + 1;
/** `2026-11-23 04:30` */
export const minute = (unixMs: number): string =>
  new Date(unixMs).toISOString().slice(0, 16).replace("T", " ");
/** Returns Unix milliseconds of a time of the API: RFC 3339, or Unix seconds. */
export const momentOf = (value: string | number): number =>
  typeof value === "number" ? value * 1000 : Date.parse(value);
