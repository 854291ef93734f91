/** Writes numbers and times of reports. Amounts stay integers until they are text: no float ever rounds them. */
import { creditsText, type Micros } from "../billing/credits.ts";

/** JSON text of a number that `JSON.stringify` copies as it stands; Node's own, not yet in TypeScript's library. */
export interface RawJson {
  readonly rawJSON: string;
}
const rawJson = (text: string): RawJson =>
  (JSON as unknown as { rawJSON(json: string): RawJson }).rawJSON(text);

/** An integer as a JSON number, exact at any size. */
export const whole = (value: bigint): RawJson => rawJson(value.toString());

/** A charge in rupiah, 100 to the credit, as decimal text: `1234567n` micro-credits are `"123.4567"`. */
export const rupiahText = (micros: Micros): string => creditsText(micros * 100n);

/** The same as an exact JSON number. */
export const rupiahNumber = (micros: Micros): RawJson => rawJson(rupiahText(micros));
export const unixTime = (unixMs: number): number => unixMs / 1000;
