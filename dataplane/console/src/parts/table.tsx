/**
 * A list as a table; on a narrow screen each row is a card with its columns' names. A long list is shown in pages of
 * fifty rows, so that a browser never draws more. Roles are explicit, as the CSS `display` would remove the implicit ones.
 */
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useStore } from "../lib/store.ts";
import { place } from "../router.ts";
import { formatCount, useTexts } from "../texts/texts.ts";
import { Button } from "./basics.tsx";

export interface Column<Row> {
  readonly title: string;
  readonly cell: (row: Row) => ComponentChildren;
  readonly numeric?: boolean;
  /** Whether the column names the row. */
  readonly heads?: boolean;
  /** Whether its text may be long and without a space. */
  readonly long?: boolean;
}

interface TableProps<Row> {
  /** The table's name for screen readers. */
  readonly name: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly id: (row: Row) => string;
  /** The total, shown beneath the rows of every page. */
  readonly total?: Row;
}

const PAGE_ROWS = 50;

export function Table<Row>({ name, columns, rows, id, total }: TableProps<Row>) {
  const [page, setPage] = useState(0);
  const at = useStore(place);
  // Another address shows other rows, from the first page on.
  useEffect(() => setPage(0), [at]);
  const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
  const shown = Math.min(page, pages - 1);
  useEffect(() => {
    if (shown !== page) setPage(shown);
  }, [shown, page]);
  const first = shown * PAGE_ROWS;
  const frame = useRef<HTMLDivElement>(null);
  const scrolls = useScrolls(frame);
  return (
    <div
      class="table-frame"
      ref={frame}
      {...(scrolls ? { tabIndex: 0, role: "region", "aria-label": name } : {})}
    >
      <table role="table" aria-label={name} aria-rowcount={rows.length + (total === undefined ? 1 : 2)}>
        <thead role="rowgroup">
          <tr role="row" aria-rowindex={1}>
            {columns.map(({ title, numeric }) => (
              <th key={title} role="columnheader" scope="col" class={numeric === true ? "number" : undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.slice(first, first + PAGE_ROWS).map((row, index) => (
            <tr key={id(row)} role="row" aria-rowindex={first + index + 2}>
              {columns.map((column) => cellOf(column, row))}
            </tr>
          ))}
          {total !== undefined && (
            <tr role="row" class="total" aria-rowindex={rows.length + 2}>
              {columns.map((column) => cellOf(column, total))}
            </tr>
          )}
        </tbody>
      </table>
      {pages > 1 && <Pager page={shown} pages={pages} total={rows.length} onPage={setPage} />}
    </div>
  );
}

/** Whether a frame is too narrow for its contents: it can have the focus then, so that keys scroll it. */
function useScrolls(frame: RefObject<HTMLElement | null>): boolean {
  const [scrolls, setScrolls] = useState(false);
  useEffect(() => {
    const { current } = frame;
    if (current === null) return undefined;
    const observer = new ResizeObserver(() => setScrolls(current.scrollWidth > current.clientWidth));
    for (const element of [current, ...current.children]) observer.observe(element);
    return () => observer.disconnect();
  }, [frame]);
  return scrolls;
}

function cellOf<Row>({ title, cell, numeric, heads, long }: Column<Row>, row: Row) {
  const inner = (
    <>
      {title !== "" && (
        <span class="card-label" aria-hidden="true">
          {title}
        </span>
      )}
      <span class="cell">{cell(row)}</span>
    </>
  );
  if (heads === true)
    return (
      <th key={title} role="rowheader" scope="row">
        {inner}
      </th>
    );
  return (
    <td key={title} role="cell" class={numeric === true ? "number" : long === true ? "long" : undefined}>
      {inner}
    </td>
  );
}

interface PagerProps {
  readonly page: number;
  readonly pages: number;
  /** Rows of all pages. */
  readonly total: number;
  readonly onPage: (page: number) => void;
}

function Pager({ page, pages, total, onPage }: PagerProps) {
  const t = useTexts();
  const first = page * PAGE_ROWS;
  const last = Math.min(first + PAGE_ROWS, total);
  const to = (name: string, target: number, isThere: boolean) => (
    <Button disabled={!isThere} onClick={() => onPage(target)}>
      {name}
    </Button>
  );
  // Of two pages each is the one or the other already.
  const hasEnds = pages > 2;
  const [isBehind, isBefore] = [page > 0, page < pages - 1];
  return (
    <div class="pager">
      <span role="status">
        {t.common.range(formatCount(first + 1, t), formatCount(last, t), formatCount(total, t))}
      </span>
      {hasEnds && to(t.common.first, 0, isBehind)}
      {to(t.common.previous, page - 1, isBehind)}
      {to(t.common.next, page + 1, isBefore)}
      {hasEnds && to(t.common.last, pages - 1, isBefore)}
    </div>
  );
}
