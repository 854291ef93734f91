/** Credits as people write them (decimal text) and as they are kept (micro-credits, 10^-6 credit). */

import { limitBounds } from "../config/schema.ts";

/** 10^-6 credit. */
export type Micros = bigint;

/**
 * Balances above 9×10^9 credits are refused (design.md §5): below it every sum that a Lua script compares is an
 * integer that a double holds exactly (2^53 is a little more than 9×10^15).
 */
export const MAX_MICROS: Micros = BigInt(limitBounds.credits) * 1_000_000n;

/** `-1234567n` is `"-1.234567"`, `5000000n` is `"5"`. */
export function creditsText(micros: Micros): string {
  const sign = micros < 0n ? "-" : "";
  const digits = (micros < 0n ? -micros : micros).toString().padStart(7, "0");
  const rest = digits.slice(-6).replace(/0+$/, "");
  return `${sign}${digits.slice(0, -6)}${rest === "" ? "" : `.${rest}`}`;
}

/** The reverse; null when the text is no decimal number, is finer than a micro-credit or is out of bounds. */
export function parseCredits(text: string): Micros | null {
  const micros = microsOf(text);
  return micros === null || isOutOfBounds(micros) ? null : micros;
}

/** As `parseCredits`, for any amount. */
export function microsOf(text: string): Micros | null {
  const match = /^([+-]?)(\d{1,40})(?:\.(\d{1,6}))?$/.exec(text);
  if (match === null) return null;
  const [, sign, whole = "0", rest = ""] = match;
  const micros = BigInt(whole + rest.padEnd(6, "0"));
  return sign === "-" ? -micros : micros;
}

/** Whether an amount is out of the bounds of a balance. */
export const isOutOfBounds = (micros: Micros): boolean => micros > MAX_MICROS || micros < -MAX_MICROS;
