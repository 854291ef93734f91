/**
 * The names in a decoded query (dialects.md §G): a list parameter is written as `x`, `x[]` or, by some HTTP clients, `x[0]`.
 */
import { ApiError } from "./api-error.ts";

type Query = Readonly<Record<string, unknown>>;

/** Of names that nothing here knows, in the message that refuses one. */
const MOST_CHARACTERS = 100;
/** The SDKs put it on every request of theirs; it says nothing (dialects.md §A3). */
const TOLERATED = ["beta"];

const plain = (name: string): string => name.replace(/\[\d*\]$/, "");

/** The names under which the list parameter `name` stands in the query. */
export const namesOfList = (query: Query, name: string): readonly string[] =>
  Object.keys(query).filter((given) => plain(given) === name && query[given] !== undefined);

/**
 * Refuses what would be left out unseen: a filter that is none here would be answered with everything.
 * @param lists those of the parameters that are lists.
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
  throw new ApiError("invalid_value", `${name} is no filter or other parameter here. Known are ${known}.`, {
    param: name,
  });
}
