import { causesOf, sqlStateOf } from "./causes.ts";

/** SQLSTATEs for a missing table, column, function or type. */
const ABSENT = new Set(["42P01", "42703", "42883", "42704"]);

export const NOT_MIGRATED = "this database has not the schema of this release; run `migrate` first";

/** Describes an error in one line, for a person who started a program. */
export function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  for (const cause of causesOf(error)) {
    // Node's AggregateError for a host with several addresses has no message; the error of each attempt has.
    if (cause instanceof AggregateError && cause.message === "")
      return [...new Set(cause.errors.map(wordsOf))].join(", ");
    if (ABSENT.has(sqlStateOf(cause) ?? "")) return `${error.message}: ${NOT_MIGRATED}`;
  }
  return error.message;
}
