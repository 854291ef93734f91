/** Moments as RFC 3339 writes them. */
import { z } from "zod";
import { field, type FieldNotes, withRules } from "./fields.ts";

/** A moment with seconds, at most six decimals, and an offset. */
export const MOMENT =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})$/;

/** The year 10000 in UTC, in milliseconds since 1970: the API server knows moments before it alone. */
const END_OF_CALENDAR = 253_402_300_800_000;

/** Returns the microseconds since 1970; null where the calendar has no such moment. */
export function momentMicros(text: string): bigint | null {
  if (!MOMENT.test(text)) return null;
  const [, whole = "", fraction = "", offset = ""] = /^([^.Z+]{19})(?:\.([0-9]+))?(.+)$/.exec(text) ?? [];
  const [sign = "+", hours = 0, minutes = 0] =
    offset === "Z" ? [] : [offset[0], Number(offset.slice(1, 3)), Number(offset.slice(4))];
  const local = Date.parse(`${whole}Z`);
  // `Date.parse` takes the 31st of a short month for the 1st of the next.
  if (Number.isNaN(local) || new Date(local).toISOString().slice(0, 19) !== whole) return null;
  if (hours > 23 || minutes > 59) return null;
  const shift = (hours * 60 + minutes) * 60_000 * (sign === "-" ? -1 : 1);
  if (local - shift >= END_OF_CALENDAR) return null;
  return BigInt(local - shift) * 1000n + BigInt(fraction.padEnd(6, "0"));
}

/** Makes a field for a moment after the beginning of 1970. */
export const moment = (description: string, notes: FieldNotes) =>
  field(
    withRules(z.string().max(40).regex(MOMENT, "must be a moment such as 2027-01-01T00:00:00Z"), [
      {
        cel: "timestamp(self) > timestamp('1970-01-01T00:00:00Z')",
        message: "must be a moment of the calendar, such as 2027-01-01T00:00:00Z",
        fault: (text) => ((momentMicros(text) ?? 0n) > 0n ? null : []),
      },
    ]),
    description,
    notes,
  );
