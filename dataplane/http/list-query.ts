/**
 * The two pagination styles that every list accepts at once, and the one envelope that every SDK can page through
 * (service.md "Files"; dialects.md §A4; rules 4.15, 5.6).
 */
import type { ApiError } from "../lib/api-error.ts";
import { LazyList } from "../lib/json-slices.ts";
import { invalidParameter, readGiven, readInteger, requireKnownNames } from "../lib/query.ts";
import type { PageAsked } from "../store/list-page.ts";

export type Query = Readonly<Record<string, unknown>>;

export interface ListQuery {
  /** null: the client named none. */
  readonly limit: number | null;
  readonly order: "asc" | "desc";
  /** `parameter` is the name that the client used, for an error about it. */
  readonly cursor: {
    readonly side: "after" | "before";
    readonly id: string;
    readonly parameter: string;
  } | null;
}

/** The parameters of every list. */
const LIST_NAMES = ["limit", "order", "after", "after_id", "before_id", "page"];

/**
 * Returns the query without those of the filters `nullable` that are null: official SDKs, whose types let these be so, send
 * an empty value (`ids=`). Every other parameter is refused when it is empty.
 */
export const withoutNulls = (query: Query, nullable: readonly string[]): Query =>
  Object.fromEntries(
    Object.entries(query).filter(([name, value]) => value !== "" || !nullable.includes(name)),
  );

/**
 * Reads the parameters of a list with these filters, as `readListQuery`.
 * @param lists the filters that are lists
 * @throws ApiError 400, also for a parameter that is neither of lists nor in `filters`.
 */
export function readFilteredList(
  query: Query,
  maxLimit: number | undefined,
  filters: readonly string[],
  lists: readonly string[] = [],
): ListQuery {
  requireKnownNames(query, [...LIST_NAMES, ...filters], lists);
  return readListQuery(query, maxLimit);
}

/** Items of a page where no limit is asked for. */
export const USUAL_LIMIT = 20;
/** The most items of a page. */
export const MAX_LIMIT = 10_000;
/** The same with `after_id` and `before_id` (dialects.md §A4), and for organization keys, people and requests. */
export const MAX_SHORT_LIMIT = 1_000;

/**
 * @param maxLimit of a list whose maximum is the same in both styles
 * @throws ApiError 400 naming the parameter: a bad limit or order, two cursors, a malformed page token.
 */
export function readListQuery(query: Query, maxLimit?: number): ListQuery {
  const after = readGiven(query, "after");
  const afterId = readGiven(query, "after_id");
  const beforeId = readGiven(query, "before_id");
  const page = readGiven(query, "page");
  const given = Object.entries({ after, after_id: afterId, before_id: beforeId, page }).filter(
    ([, value]) => value !== null,
  );
  if (given.length > 1) {
    const names = given.map(([name]) => name).join(" and ");
    throw invalidParameter(given[1]?.[0] ?? "after", `${names} cannot be used together.`);
  }
  const byId = afterId !== null || beforeId !== null;
  const [parameter] = given[0] ?? [];
  const id = afterId ?? beforeId ?? after ?? (page === null ? null : openPage(page));
  return {
    limit: readInteger(query, "limit", 1, maxLimit ?? (byId ? MAX_SHORT_LIMIT : MAX_LIMIT)),
    order: readOrder(query),
    cursor:
      parameter === undefined || id === null
        ? null
        : { side: beforeId === null ? "after" : "before", id, parameter },
  };
}

/** The 400 for a cursor that names nothing in the caller's list. */
export const unknownCursor = (parameter: string): ApiError =>
  invalidParameter(parameter, `${parameter} does not name an object of this list.`);

/** Reads one page of a list. @param read null: the cursor names nothing in it. @throws ApiError 400 then */
export async function readListPage<Page>(
  { limit, order, cursor }: ListQuery,
  read: (asked: PageAsked) => Promise<Page | null>,
): Promise<Page> {
  const page = await read({ limit: limit ?? USUAL_LIMIT, order, cursor });
  if (page === null) throw unknownCursor(cursor?.parameter ?? "after");
  return page;
}

/** The envelope of every list. `show` makes the shown form of an item, while the list is written. */
export function listEnvelope<Item extends { readonly id: string }>(
  items: readonly Item[],
  hasMore: boolean,
  show?: (item: Item) => object,
): Record<string, unknown> {
  const data = show === undefined ? items : LazyList.of(items, (item) => [show(item)]);
  return envelopeOf(data, items[0]?.id, items.at(-1)?.id, hasMore);
}

/** The envelope of a list with these entries and the ids of the first and the last of them. */
export const envelopeOf = (
  data: Iterable<unknown>,
  firstId: string | undefined,
  lastId: string | undefined,
  hasMore: boolean,
) => ({
  object: "list",
  data,
  first_id: firstId ?? null,
  last_id: lastId ?? null,
  has_more: hasMore,
  next_page: hasMore && lastId !== undefined ? Buffer.from(lastId).toString("base64url") : null,
});

interface MemoryPage<Item> {
  readonly data: readonly Item[];
  readonly hasMore: boolean;
}

/** One page of a list that is held in memory, in the order in which it is shown. @throws ApiError 400 for an unknown cursor. */
export function pageOf<Item extends { readonly id: string }>(
  items: readonly Item[],
  query: ListQuery,
  defaultLimit: number,
): MemoryPage<Item> {
  const page = pageIn(items, { ...query, limit: query.limit ?? defaultLimit });
  if (page === null) throw unknownCursor(query.cursor?.parameter ?? "after");
  return page;
}

/** As `pageOf`; null when the cursor names none of the items. */
export function pageIn<Item extends { readonly id: string }>(
  items: readonly Item[],
  { limit, order, cursor }: PageAsked,
): MemoryPage<Item> | null {
  const shown = order === "asc" ? items.toReversed() : items;
  if (cursor === null) return { data: shown.slice(0, limit), hasMore: shown.length > limit };
  const { side, id } = cursor;
  const at = shown.findIndex((item) => item.id === id);
  if (at < 0) return null;
  if (side === "after") {
    const data = shown.slice(at + 1, at + 1 + limit);
    return { data, hasMore: at + 1 + limit < shown.length };
  }
  return { data: shown.slice(Math.max(0, at - limit), at), hasMore: at > limit };
}

function readOrder(query: Query): "asc" | "desc" {
  const text = readGiven(query, "order");
  if (text === null || text === "desc") return "desc";
  if (text === "asc") return "asc";
  throw invalidParameter("order", "order must be asc or desc.");
}

function openPage(token: string): string {
  const id = /^[A-Za-z0-9_-]+$/.test(token) ? Buffer.from(token, "base64url").toString("utf8") : "";
  if (id === "") throw invalidParameter("page", "page must be a next_page value of an earlier answer.");
  return id;
}
