/**
 * The parameters of a decoded query: their names, and the values of those that are given once. A list parameter is written as
 * `x`, `x[]` or, by some HTTP clients, `x[0]` (dialects.md §G).
 */
import { ApiError } from "./api-error.ts";

/** Parameters by name; one that is given several times is a list. */
type Query = Readonly<Record<string, unknown>>;

/** Characters of an unknown parameter's name in the message that refuses it. */
const MOST_CHARACTERS = 100;
/** Ignored: the SDKs send it with every request (dialects.md §A3). */
const TOLERATED = ["beta"];

const plain = (name: string): string => name.replace(/\[\d*\]$/, "");

/** The names under which the list parameter `name` stands in the query. */
export const namesOfList = (query: Query, name: string): readonly string[] =>
  Object.keys(query).filter((given) => plain(given) === name && query[given] !== undefined);

/**
 * Refuses unknown parameters: an unknown filter that is silently ignored would return everything.
 * @param lists names of list parameters.
 * @throws ApiError 400 naming the parameter.
 */
export function requireKnownNames(
  query: Query,
  names: readonly string[],
  lists: readonly string[] = [],
): void {
  const unknown = Object.keys(query).find(
    (name) => !names.includes(name) && !lists.includes(plain(name)) && !TOLERATED.includes(name),
  );
  if (unknown === undefined) return;
  const name = unknown.slice(0, MOST_CHARACTERS);
  const known = [...names, ...lists].join(", ");
  throw invalidParameter(name, `${name} is no filter or other parameter here. Known are ${known}.`);
}

/** Reads a parameter; null when it is absent. @throws ApiError 400 when it is given twice or is empty. */
export function readGiven(query: Query, name: string): string | null {
  const value = query[name];
  if (value === undefined) return null;
  if (typeof value === "string" && value !== "") return value;
  throw invalidParameter(name, `${name} must be given once and not be empty.`);
}

/** Reads an integer from `least` to `most`; null when the parameter is absent. @throws ApiError 400 */
export function readInteger(query: Query, name: string, least: number, most: number): number | null {
  const text = readGiven(query, name);
  if (text === null) return null;
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  throw invalidParameter(name, `${name} must be an integer ${range}.`);
}

/** The 400 for a parameter with an invalid value. */
export const invalidParameter = (param: string, message: string) =>
  new ApiError("invalid_value", message, { param });
