/** One page of a list whose rows have a `position`, forwards or backwards from a cursor (rules 4.15, 5.6). */
import { sql } from "slonik";

export interface PageAsked {
  readonly limit: number;
  readonly order: "asc" | "desc";
  readonly cursor: { readonly side: "after" | "before"; readonly id: string } | null;
}

export interface ListPage<Item> {
  readonly items: readonly Item[];
  readonly hasMore: boolean;
}

/** @param position of the row that the cursor names; null without a cursor. */
export function pageFrom({ limit, order: shown, cursor }: PageAsked, position: bigint | null) {
  // Before the cursor means walking the other way and turning the page round.
  const backwards = cursor?.side === "before";
  const ascending = (shown === "asc") !== backwards;
  const beyond = ascending
    ? sql.fragment`and position > ${position}`
    : sql.fragment`and position < ${position}`;
  const order = ascending ? sql.fragment`order by position asc` : sql.fragment`order by position desc`;
  return {
    /** For the end of a `where`. */
    beyond: position === null ? sql.fragment`` : beyond,
    /** As the rows are walked, which the page may turn round. */
    order,
    /** For what stands behind the `where`. One row more than the page has tells whether there are more. */
    walk: sql.fragment`${order} limit ${limit + 1}`,
    /** What of the rows the page shows, in the order that was asked for. */
    show: <Row>(rows: readonly Row[]): ListPage<Row> => {
      const page = rows.slice(0, limit);
      return { items: backwards ? page.toReversed() : page, hasMore: rows.length > limit };
    },
  };
}
