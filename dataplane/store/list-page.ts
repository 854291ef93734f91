/** One page of a list, forwards or backwards from a cursor (rules 4.15, 5.6). */
import { sql, type FragmentSqlToken } from "slonik";
import { z } from "zod";

/** Bytes of `large` columns in one page: it ends early, with at least one row, where there are more. */
export const MOST_LARGE_BYTES = 8 * 1024 * 1024;

export interface PageAsked {
  readonly limit: number;
  readonly order: "asc" | "desc";
  readonly cursor: { readonly side: "after" | "before"; readonly id: string } | null;
  /** Room for bytes of `large` columns; `MOST_LARGE_BYTES` where it is not told. */
  readonly largeBytes?: number;
}

export interface ListPage<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
  /** What its `large` columns take; 0 in lists without such. */
  readonly largeBytes: number;
}

/** What `within` adds to the columns of a row: how many rows there were before the cut, and the large bytes up to this row. */
export const cutColumns = {
  found: z.bigint().transform(Number),
  largeBytes: z.bigint().transform(Number),
};
/** A row that may be one of `within`. */
type Row = Partial<z.infer<z.ZodObject<typeof cutColumns>>>;

/**
 * Makes the parts of a statement that reads one page.
 * @param place values of `columns` in the row that the cursor names, with commas between them; null without a cursor.
 * @param columns what the list is ordered by; together they name one row.
 */
export function pageFrom(
  { limit, order, cursor, largeBytes = MOST_LARGE_BYTES }: PageAsked,
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
     * What follows `from` where rows may be large: those of `rows`, with `cutColumns`, cut where there is no room for more.
     * @param rows a `select *` that ends in `walk`.
     * @param bytes how large one row is.
     * @param as name of the rows.
     */
    within: (rows: FragmentSqlToken, bytes: FragmentSqlToken, as = sql.fragment`page`) => sql.fragment`
      (
        select *, count(*) over () as found,
          (sum(${bytes}) over (${orderBy} rows unbounded preceding))::int8 as "largeBytes",
          ${bytes} as large_here
        from (${rows}) walked
      ) ${as}
      where "largeBytes" - large_here < ${largeBytes}
      ${orderBy}
    `,
    /** Returns the page that shows these rows, in the order asked for. */
    show: <Item extends object>(rows: readonly (Item & Row)[]): ListPage<Item> => {
      const page = rows.slice(0, limit);
      const found = rows[0]?.found ?? rows.length;
      const items = backwards ? page.toReversed() : page;
      return { items, hasMore: found > page.length, largeBytes: page.at(-1)?.largeBytes ?? 0 };
    },
  };
}
