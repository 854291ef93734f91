/**
 * Scopes of limits (rules 9.1, 9.2): a key, and its project, each in a window of the calendar. A scope is an account without
 * grants: what is left of it is its amount − what its rows of the window cost − what is held. Pure.
 */
import type { LimitPeriod, Limits } from "../config/schema.ts";
import { DAY_MS } from "../lib/clock.ts";
import type { Micros } from "./credits.ts";

/** A key or a project with limits. */
export interface LimitedScope {
  readonly kind: "key" | "project";
  readonly id: string;
  readonly limits: Limits;
}

/** The scopes of a key without limits. */
export const NO_LIMITS: readonly LimitedScope[] = [];

/** Whether the id is a person's (identity/person.ts), not a key's: errors call their limits a person's. */
export const isPersonId = (keyId: string): boolean => keyId.startsWith("usr_");

/** Days since 1970. */
type Day = number;
/** Days from `from` to before `to`. */
export interface Window {
  readonly from: Day;
  readonly to: Day;
}
/** The window without beginning or end, as 32-bit numbers. */
const EVER: Window = { from: -2_147_483_648, to: 2_147_483_647 };
const letters = { day: "d", week: "w", month: "m", total: "t" } as const satisfies Record<
  LimitPeriod,
  string
>;

/** The window in which a moment lies (Unix milliseconds). */
export function windowOf(per: LimitPeriod, unixMs: number): Window {
  const day = Math.floor(unixMs / DAY_MS);
  return windowFrom(letters[per], per === "week" ? mondayOf(day) : per === "month" ? firstOf(day, 0) : day);
}

/** The window that begins at a day. */
function windowFrom(letter: string, day: Day): Window {
  switch (letter) {
    case "d":
      return { from: day, to: day + 1 };
    case "w":
      return { from: day, to: day + 7 };
    case "m":
      return { from: day, to: firstOf(day, 1) };
    default:
      return EVER;
  }
}

/** The week's Monday; 1970 began on a Thursday. */
const mondayOf = (day: Day): Day => day - ((((day + 3) % 7) + 7) % 7);

/** The first day of a day's month, or of the month `later` months after it. */
function firstOf(day: Day, later: number): Day {
  const date = new Date(day * DAY_MS);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + later, 1) / DAY_MS;
}

/** When the limit begins anew, in Unix milliseconds; null: never. */
export function beginsAnewAt(per: LimitPeriod, unixMs: number): number | null {
  const { to } = windowOf(per, unixMs);
  return to === EVER.to ? null : to * DAY_MS;
}

/** RFC 3339 without fractions: windows begin at whole seconds. null: never. */
export const anewText = (unixMs: number | null): string | null =>
  unixMs === null ? null : new Date(unixMs).toISOString().replace(".000Z", "Z");

/** The scripts' name of a window (store/meter-scopes.lua): a letter and its first day. */
function windowWord(per: LimitPeriod, unixMs: number): string {
  return per === "total" ? "t0" : letters[per] + String(windowOf(per, unixMs).from);
}

/** Texts of paced scopes, which stay the same for a key's requests of one day. */
const textsOfDays = new WeakMap<readonly LimitedScope[], { readonly day: Day; readonly text: string }>();

/**
 * The scopes of a request as the scripts take them (store/meter-scopes.lua); empty: none. `paced`: with their limits of rate
 * and number. `scopes` must not be changed in place: its text is kept for a day.
 */
export function scopesText(scopes: readonly LimitedScope[], acceptedAt: number, paced: boolean): string {
  if (!paced) return writeScopes(scopes, acceptedAt, paced);
  const day = Math.floor(acceptedAt / DAY_MS);
  const known = textsOfDays.get(scopes);
  if (known?.day === day) return known.text;
  const text = writeScopes(scopes, acceptedAt, paced);
  textsOfDays.set(scopes, { day, text });
  return text;
}

function writeScopes(scopes: readonly LimitedScope[], acceptedAt: number, paced: boolean): string {
  let text = "";
  for (const { kind, id, limits } of scopes) {
    const { credits } = limits;
    const rates = paced ? limits : {};
    const word = [
      kind === "key" ? "k" : "p",
      id,
      credits === undefined ? "-" : windowWord(credits.per, acceptedAt),
      credits?.amountMicros ?? "0",
      rates.concurrentRequests ?? 0,
      rates.requestsPerMinute ?? 0,
      rates.tokensPerMinute ?? 0,
    ].join(" ");
    text += text === "" ? word : `;${word}`;
  }
  return text;
}

/** A scope with a limit of credit, by the name that the scripts give it. */
export interface CreditScope extends Window {
  readonly name: string;
  /** Id of the key or project. */
  readonly id: string;
}

/** The scopes with a limit of credit in a text of `scopesText`. */
export function creditScopes(text: string): CreditScope[] {
  return text.split(";").flatMap((one) => {
    const [, id = "", window = "-"] = one.split(" ");
    return window === "-" ? [] : (scopeNamed(`/${id}.${window}`) ?? []);
  });
}

/** null: a scope without a window. */
export function scopeNamed(name: string): CreditScope | null {
  const match = /^\/(.+)\.([dwmt])(-?\d+)$/.exec(name);
  if (match === null) return null;
  const [, id = "", letter = "", day] = match;
  return { name, id, ...windowFrom(letter, Number(day)) };
}

/** The limits that hold for a key: its own, and for what it does not name those of its organization's `keyDefaults`. */
export function effectiveScopes(
  key: { readonly id: string; readonly limits: Limits | null; readonly defaults: Limits | null },
  project: { readonly id: string | null; readonly limits: Limits | null },
): readonly LimitedScope[] {
  const own = { ...key.defaults, ...key.limits };
  const scopes: LimitedScope[] = [];
  if (Object.keys(own).length > 0) scopes.push({ kind: "key", id: key.id, limits: own });
  if (project.id !== null && project.limits !== null && Object.keys(project.limits).length > 0)
    scopes.push({ kind: "project", id: project.id, limits: project.limits });
  return scopes.length === 0 ? NO_LIMITS : scopes;
}

/** Micro-credits that a limit of credit allows. */
export const amountOf = (credits: NonNullable<Limits["credits"]>): Micros => BigInt(credits.amountMicros);
