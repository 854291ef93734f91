/** Moments as people and clients write them, in a query or a command (rules 5.12, 5.13). */
import { DAY_MS, LATEST_SECOND } from "./clock.ts";

/** The last midnight of the year 9999: the end of every day that begins up to it still has a year of four digits. */
const LATEST_MS = (LATEST_SECOND + 1) * 1000 - DAY_MS;

const dateTime =
  /^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?([Zz]|[+ -]\d\d(?::?\d\d)?)?)?$/;

/**
 * Returns Unix milliseconds of an ISO 8601 date-time (without an offset: UTC), a date (its first moment in UTC), or whole
 * Unix seconds. null for anything else, for days that do not exist, and outside of the years 1970 to 9999.
 */
export function parseMoment(text: string): number | null {
  if (/^\d{1,12}$/.test(text)) return inBounds(Number(text) * 1000);
  const match = dateTime.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour = "0", minute = "0", second = "0", fraction = "", offset = "Z"] = match;
  const midnight = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const date = new Date(midnight);
  // Date.UTC rolls 30 February over into March, and takes the year 70 for 1970.
  if (date.toISOString().slice(0, 10) !== `${year}-${month}-${day}`) return null;
  if (Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return null;
  const ahead = parseOffset(offset);
  if (ahead === null) return null;
  const inDay = (Number(hour) * 60 + Number(minute)) * 60 + Number(second);
  const milliseconds = Number(fraction.padEnd(3, "0").slice(0, 3));
  return inBounds(midnight + inDay * 1000 + milliseconds - ahead);
}

/** Returns milliseconds ahead of UTC. A blank counts as a plus, which decodes to a blank when a URL does not escape it. */
function parseOffset(text: string): number | null {
  if (/^z$/i.test(text)) return 0;
  const [, sign, hours, minutes = "0"] = /^([+ -])(\d\d)(?::?(\d\d))?$/.exec(text) ?? [];
  if (Number(hours) > 23 || Number(minutes) > 59) return null;
  return (sign === "-" ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
}

const inBounds = (ms: number): number | null => (ms >= 0 && ms <= LATEST_MS ? ms : null);
