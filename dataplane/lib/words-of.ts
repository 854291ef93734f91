import { causesOf, sqlStateOf } from "./causes.ts";

/** SQLSTATE of what is not in the schema: a table, a column, a function, a type. */
const ABSENT = new Set(["42P01", "42703", "42883", "42704"]);

export const NOT_MIGRATED = "this database has not the schema of this release; run `migrate` first";

/** What went wrong, in a line for whoever started a program. */
export function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  for (const cause of causesOf(error)) {
    // Node's own error of a name with several addresses says nothing; each try has its words.
    if (cause instanceof AggregateError && cause.message === "")
      return [...new Set(cause.errors.map(wordsOf))].join(", ");
    if (ABSENT.has(sqlStateOf(cause) ?? "")) return `${error.message}: ${NOT_MIGRATED}`;
  }
  return error.message;
}
