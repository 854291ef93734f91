/** One page of a list, forwards or backwards from a cursor (rules 4.15, 5.6). */
import { sql, type FragmentSqlToken } from "slonik";

/** Bytes of `large` columns in one page: it ends early, with at least one row, where there are more. */
const MOST_LARGE_BYTES = 8 * 1024 * 1024;

export interface PageAsked {
  readonly limit: number;
  readonly order: "asc" | "desc";
  readonly cursor: { readonly side: "after" | "before"; readonly id: string } | null;
}

export interface ListPage<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

/**
 * Makes the parts of a statement that reads one page.
 * @param place values of `columns` in the row that the cursor names, with commas between them; null without a cursor.
 * @param columns what the list is ordered by; together they name one row.
 */
export function pageFrom(
  { limit, order, cursor }: PageAsked,
  place: bigint | FragmentSqlToken | null,
  columns: readonly string[] = ["position"],
) {
  // A page before the cursor is read the other way, and then reversed.
  const backwards = cursor?.side === "before";
  const ascending = (order === "asc") !== backwards;
  const names = columns.map((column) => sql.identifier([column]));
  const here = sql.fragment`(${sql.join(names, sql.fragment`, `)})`;
  const direction = ascending ? sql.fragment`asc` : sql.fragment`desc`;
  const directed = names.map((name) => sql.fragment`${name} ${direction}`);
  const orderBy = sql.fragment`order by ${sql.join(directed, sql.fragment`, `)}`;
  return {
    /** Condition for the end of a `where`. */
    beyond:
      place === null
        ? sql.fragment``
        : ascending
          ? sql.fragment`and ${here} > (${place})`
          : sql.fragment`and ${here} < (${place})`,
    /** What follows the `where`. It reads one row more than the page has, which shows whether there are more. */
    walk: sql.fragment`
      ${orderBy}
      limit ${limit + 1}
    `,
    /**
     * What follows `from` where rows may be large: those of `rows`, cut where a page would have more than `MOST_LARGE_BYTES`.
     * @param rows a `select *` that ends in `walk`.
     * @param bytes how large one row is.
     * @param as name of the rows. In addition to its columns each has `found`: how many rows there were before the cut.
     */
    within: (rows: FragmentSqlToken, bytes: FragmentSqlToken, as = sql.fragment`page`) => sql.fragment`
      (
        select *, count(*) over () as found,
          sum(${bytes}) over (${orderBy} rows between unbounded preceding and 1 preceding) as bytes_before
        from (${rows}) walked
      ) ${as}
      where coalesce(bytes_before, 0) < ${MOST_LARGE_BYTES}
      ${orderBy}
    `,
    /** Returns the rows that the page shows, in the order asked for. @param found how many there were before a cut of `within`. */
    show: <Row>(rows: readonly Row[], found = rows.length): ListPage<Row> => {
      const page = rows.slice(0, limit);
      return { items: backwards ? page.toReversed() : page, hasMore: found > page.length };
    },
  };
}
