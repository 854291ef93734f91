/** Readers of paths and queries that the admin API's routes share. */
import { invalidParameter } from "../../lib/query.ts";
import type { PageAsked } from "../../store/list-page.ts";
import { readListPage, unknownCursor, type ListQuery, type Query } from "../list-query.ts";

/** An id of a path; null: it cannot be one, so it names nothing and never reaches the database (rule 5.7). */
export function pathId(text: string): string | null {
  return /^[A-Za-z0-9_-]{1,200}$/.test(text) ? text : null;
}

/** Reads one page of a list whose cursors are ids. @throws ApiError 400 for a cursor that names nothing in it. */
export async function pageByIds<Page>(
  query: ListQuery,
  read: (asked: PageAsked) => Promise<Page | null>,
): Promise<Page> {
  const { cursor } = query;
  if (cursor !== null && pathId(cursor.id) === null) throw unknownCursor(cursor.parameter);
  return await readListPage(query, read);
}

/** Reads one value of the query among those allowed; null: absent. @throws ApiError 400 */
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
