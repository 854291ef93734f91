/**
 * The query parameters of the four reports (service.md "Admin API"; rules 5.11–5.13, 5.17, 5.19). Pure: the present moment is
 * an argument. Every parameter that cannot be read is a 400 that names it as the client wrote it.
 */
import { DAY_MS, HOUR_MS } from "../lib/clock.ts";
import { parseMoment } from "../lib/moment.ts";
import { invalidParameter, namesOfList, readGiven, readInteger } from "../lib/query.ts";
import { isTagName } from "../lib/tags.ts";

const DEFAULT_RANGE_MS = 7 * DAY_MS;
const MAX_VALUES = 1000;

/** A decoded query: a parameter that was given several times is a list. */
export type ReportQuery = Readonly<Record<string, unknown>>;

/** Whose report is asked for, and how. */
export interface ReportAsked {
  readonly organizationId: string;
  readonly query: ReportQuery;
  /** Unix milliseconds. */
  readonly now: number;
}

/** Whole UTC days or hours, contiguous; times in Unix milliseconds, the end exclusive. */
export interface BucketRange {
  readonly from: number;
  readonly to: number;
  readonly widthMs: number;
}

/** The part of a range that one page shows. */
export interface BucketPage {
  readonly range: BucketRange;
  readonly hasMore: boolean;
  /** Number of the next page; null on the last one. */
  readonly next: number | null;
}

export type Width = "1d" | "1h";

/**
 * Reads a range of buckets. A start inside of a bucket snaps down to the bucket's start, and the bucket in which the end lies is
 * shown whole.
 * @param names of the parameters with its start (default: 7 days ago) and its end (default: now).
 * @param mostDays the most whole days between the two, before they are rounded to buckets.
 * @throws ApiError 400: no date, an end at or before the start, or too many days.
 */
export function readRange(
  query: ReportQuery,
  names: readonly [start: string, end: string],
  width: Width,
  now: number,
  mostDays = Number.POSITIVE_INFINITY,
): BucketRange {
  const [startName, endName] = names;
  const given = readMoment(query, startName);
  const start = given ?? now - DEFAULT_RANGE_MS;
  const end = readMoment(query, endName);
  const startWords = given === null ? `${startName} (7 days ago)` : startName;
  if ((end ?? now) <= start) {
    throw end === null
      ? invalidParameter(startName, `${startName} must be before now.`)
      : invalidParameter(endName, `${endName} must be after ${startWords}.`);
  }
  if (Math.floor(((end ?? now) - start) / DAY_MS) > mostDays) {
    throw given === null
      ? invalidParameter(endName, `${endName} must be at most ${mostDays} days after ${startWords}.`)
      : invalidParameter(startName, `${startName} must be at most ${mostDays} days before the end.`);
  }
  const widthMs = width === "1h" ? HOUR_MS : DAY_MS;
  return {
    from: Math.floor(start / widthMs) * widthMs,
    to: Math.ceil((end ?? now) / widthMs) * widthMs,
    widthMs,
  };
}

/** @throws ApiError 400 naming the parameter. */
export function readWidth(query: ReportQuery, widths: readonly Width[]): Width {
  const text = readGiven(query, "bucket_width");
  const width = text === null ? widths[0] : widths.find((known) => known === text);
  if (width === undefined)
    throw invalidParameter("bucket_width", `bucket_width must be ${widths.join(" or ")}.`);
  return width;
}

/** Buckets of a page without a `limit`. */
export const USUAL_BUCKETS = 20;

/** Reads the page that `page` (default 1) and `limit` (buckets of a page) select. @throws ApiError 400 */
export function readBucketPage(query: ReportQuery, range: BucketRange, maxLimit: number): BucketPage {
  const limit = readInteger(query, "limit", 1, maxLimit) ?? USUAL_BUCKETS;
  const page = readInteger(query, "page", 1, Number.MAX_SAFE_INTEGER) ?? 1;
  const buckets = (range.to - range.from) / range.widthMs;
  // Compared as numbers of buckets: a huge page is past the end, not an overflow.
  const first = Math.min((page - 1) * limit, buckets);
  const last = Math.min(first + limit, buckets);
  const hasMore = last < buckets;
  return {
    range: { ...range, from: range.from + first * range.widthMs, to: range.from + last * range.widthMs },
    hasMore,
    next: hasMore ? page + 1 : null,
  };
}

/**
 * Reads the part of a range that a report of one page shows (rule 5.19): all of it, whatever the `limit`, and nothing past
 * `page` 1. @throws ApiError 400
 */
export function readOnlyPage(query: ReportQuery, range: BucketRange): BucketRange {
  readInteger(query, "limit", 1, Number.MAX_SAFE_INTEGER);
  const page = readInteger(query, "page", 1, Number.MAX_SAFE_INTEGER) ?? 1;
  return page === 1 ? range : { ...range, from: range.to };
}

const TAG_GROUP = "tag:";

/** The grouping of a report: names, and at most one tag (rule 14.4). */
export interface Groups<Group extends string> {
  readonly groups: readonly Group[];
  /** Name of the tag; null: none. */
  readonly tag: string | null;
}

/** Reads distinct names to group by, each one of `known`, or `tag:NAME`. @throws ApiError 400 naming `group_by`. */
export function readGroups<Group extends string>(query: ReportQuery, known: readonly Group[]): Groups<Group> {
  const asked = new Set(readList(query, ["group_by"]));
  const tags = [...asked].filter((text) => text.startsWith(TAG_GROUP));
  const [tag = null] = tags.map((text) => text.slice(TAG_GROUP.length));
  if (tags.length > 1) throw invalidParameter("group_by", "group_by can have one tag.");
  if (tag !== null && !isTagName(tag))
    throw invalidParameter("group_by", "group_by has a tag that cannot be.");
  const groups = [...asked].flatMap((text) => {
    if (text.startsWith(TAG_GROUP)) return [];
    const group = known.find((one) => one === text);
    if (group === undefined)
      throw invalidParameter("group_by", `group_by can be ${known.join(", ")}, tag:NAME.`);
    return [group];
  });
  return { groups, tag };
}

/**
 * Reads all values of a list parameter under any of its names: `x`, `x[]`, `x[0]`, repeated, or separated by commas. null
 * when it is absent. @throws ApiError 400 for an empty value.
 */
export function readList(query: ReportQuery, names: readonly string[]): readonly string[] | null {
  const values: string[] = [];
  let given = false;
  for (const name of names.flatMap((plain) => namesOfList(query, plain))) {
    given = true;
    for (const text of [query[name]].flat()) {
      const parts = typeof text === "string" ? text.split(",").map((part) => part.trim()) : [""];
      if (parts.includes("")) throw invalidParameter(name, `${name} must not hold an empty value.`);
      values.push(...parts);
    }
    if (values.length > MAX_VALUES)
      throw invalidParameter(name, `${name} can have at most ${MAX_VALUES} values.`);
  }
  return given ? values : null;
}

/** Reads a moment in Unix milliseconds; null when it is absent. @throws ApiError 400 naming the parameter. */
export function readMoment(query: ReportQuery, name: string): number | null {
  const text = readGiven(query, name);
  if (text === null) return null;
  const moment = parseMoment(text);
  if (moment !== null) return moment;
  throw invalidParameter(
    name,
    `${name} must be an ISO 8601 date-time such as 2026-11-21T00:00:00Z, a date such as 2026-11-21, or Unix seconds.`,
  );
}
