/** Reading fields of parsed JSON that somebody else wrote: the value of the wanted kind, or null. */
import { isObject } from "../lib/json-object.ts";
import type { JsonObject, JsonValue } from "./messages/types.ts";

export const objectOf = (value: unknown): JsonObject | null =>
  isObject(value) ? (value as JsonObject) : null;

export const arrayOf = (value: unknown): JsonValue[] | null =>
  Array.isArray(value) ? (value as JsonValue[]) : null;

export const stringOf = (value: unknown): string | null => (typeof value === "string" ? value : null);

/** A string with something in it. */
export const textOf = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? value : null;

/** A counter: a whole number that is not negative; anything else is 0. */
export const countOf = (value: unknown): number =>
  typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.floor(value) : 0;

/** Parsed JSON, or undefined when it is none (no JSON text parses to undefined). */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Whether a value nests deeper than this: such a one cannot be written again, because JSON.stringify recurses. */
export function isDeeperThan(value: unknown, depth: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (depth === 0) return true;
  return Object.values(value).some((inner) => isDeeperThan(inner, depth - 1));
}
