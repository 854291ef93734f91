/** Lines of a report on broken invariants. Pure. */

/** Lines for one broken invariant; the rest is counted. */
export const MOST_LINES = 50;

/** A line for each row, up to a limit; the rest of `count` is only counted. */
export function firstLines<Row>(
  rows: readonly Row[],
  line: (row: Row) => string,
  count = rows.length,
): string[] {
  const lines = rows.slice(0, MOST_LINES).map(line);
  return count > MOST_LINES ? [...lines, `and ${count - MOST_LINES} more of the same`] : lines;
}
