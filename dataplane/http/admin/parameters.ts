/** What the routes of the admin API read from paths and queries in the same way. */
import { invalidParameter } from "../../lib/query.ts";
import type { Query } from "../list-query.ts";

/** An id of a path. Whatever cannot be one names nothing, and never reaches the database (rule 5.7). */
export function pathId(text: string): string | null {
  return /^[A-Za-z0-9_-]{1,200}$/.test(text) ? text : null;
}

/** One value of the query among those allowed; null when it is not there. @throws ApiError 400 */
export function readChoice<Choice extends string>(
  query: Query,
  name: string,
  choices: readonly Choice[],
): Choice | null {
  const value = query[name];
  if (value === undefined) return null;
  const choice = choices.find((known) => known === value);
  if (choice === undefined) throw invalidParameter(name, `${name} must be ${choices.join(" or ")}.`);
  return choice;
}
