/** Pages of up to 10,000 entries, each of which takes far more memory to make than its JSON has. */
import { entriesInSlices, type JsonBytes } from "../lib/json-slices.ts";
import { ANSWER_SLICE_MS } from "../lib/slices.ts";
import { MOST_LARGE_BYTES, type ListPage, type PageAsked } from "../store/list-page.ts";
import { envelopeOf } from "./list-query.ts";

/** So many entries are made at once. */
const PART = 500;

interface Part {
  readonly entries: JsonBytes;
  readonly firstId: string;
  readonly lastId: string;
}

type Show<Item> = (item: Item) => object;

/**
 * Reads a page part by part and returns its envelope, or null when the cursor names nothing in the list. Only the JSON of a part
 * is kept: if the rows of a whole page were, with the limits and sums behind them, collecting garbage would copy all of them,
 * and hold the event loop for longer than a turn may last (rule 7.3).
 * @param read reads one part; null: its cursor names nothing in the list.
 * @param shownOf prepares the function that makes the shown form of each of these.
 * @param there aborted when nobody waits for the page any more; then no further part is read.
 */
export async function longPage<Item extends { readonly id: string }>(
  asked: PageAsked,
  read: (part: PageAsked) => Promise<ListPage<Item> | null>,
  shownOf: (items: readonly Item[]) => Show<Item> | Promise<Show<Item>>,
  there: AbortSignal,
): Promise<Record<string, unknown> | null> {
  const parts: Part[] = [];
  let { limit: left, cursor } = asked;
  const side = cursor?.side ?? "after";
  let room = MOST_LARGE_BYTES;
  let hasMore = true;
  while (hasMore && left > 0 && room > 0) {
    there.throwIfAborted();
    const limit = Math.min(left, PART);
    const page = await read({ ...asked, limit, cursor, largeBytes: room });
    // The cursor of a later part may name what is gone since; then the page ends before it.
    if (page === null && parts.length === 0) return null;
    if (page === null) break;
    ({ hasMore } = page);
    const [first, last] = [page.items[0], page.items.at(-1)];
    if (first === undefined || last === undefined) break;
    const entries = await entriesInSlices(page.items, await shownOf(page.items), ANSWER_SLICE_MS);
    parts.push({ entries, firstId: first.id, lastId: last.id });
    cursor = { side, id: side === "after" ? last.id : first.id };
    left -= limit;
    room = page.items.length < limit ? 0 : room - page.largeBytes;
  }
  const inOrder = side === "after" ? parts : parts.toReversed();
  const data = inOrder.map(({ entries }) => entries);
  return envelopeOf(data, inOrder[0]?.firstId, inOrder.at(-1)?.lastId, hasMore && parts.length > 0);
}
