/** What the four reports are filtered by (rules 5.13, 9.5, 14.4). */
import { invalidParameter, readGiven, requireKnownNames } from "../lib/query.ts";
import { isTagName, type Tag } from "../lib/tags.ts";
import { readList, readMoment, type ReportQuery } from "./parameters.ts";

/** What a report is narrowed to; null: not by this. Values match exactly, and what matches nothing finds nothing. */
export interface Filters {
  readonly models: readonly string[] | null;
  readonly keyIds: readonly string[] | null;
  /** People, who stand where a key's id stands (rule 13.2). */
  readonly userIds: readonly string[] | null;
  /** `default` is the organization's default project (rule 5.1). */
  readonly projectIds: readonly string[] | null;
  readonly serviceTiers: readonly string[] | null;
  /** Context windows, in tokens. */
  readonly contextTokens: readonly string[] | null;
  readonly batch: boolean | null;
  readonly tag: Tag | null;
}

const TAG_FILTER = /^tags(?:$|\[)/;
const FILTER_LISTS = {
  models: ["models", "model_ids"],
  keyIds: ["api_key_ids", "api_key_id"],
  userIds: ["user_ids"],
  projectIds: ["project_ids", "workspace_ids"],
  serviceTiers: ["service_tiers"],
  contextTokens: ["context_window"],
} as const;
/** The same ends of a range in the other family: whoever asks both with one query sends both names. */
const OTHER_FAMILY: Readonly<Record<string, string>> = {
  starting_at: "start_time",
  ending_at: "end_time",
  start_time: "starting_at",
  end_time: "ending_at",
};
/** Of all four reports, beside the filters and their range. */
const OTHERS = ["bucket_width", "limit", "page", "batch"];

/**
 * The filters of all four reports, under the names of both families: one that was left out unseen would be answered
 * with sums of everything (rules 5.13, 9.5, 14.4), and so would an official one by what usage is not kept by here.
 * @param range the names under which the report's range is asked for.
 * @throws ApiError 400 naming the parameter, also one that the report does not know.
 */
export function readFilters(query: ReportQuery, range: readonly string[]): Filters {
  const untagged = Object.fromEntries(Object.entries(query).filter(([name]) => !TAG_FILTER.test(name)));
  // Alone the other family's name would leave the range as it is by default.
  const doubled = range.flatMap((name) => (query[name] === undefined ? [] : (OTHER_FAMILY[name] ?? [])));
  for (const name of doubled) readMoment(query, name);
  requireKnownNames(
    untagged,
    [...range, ...doubled, ...OTHERS],
    ["group_by", ...Object.values(FILTER_LISTS).flat()],
  );
  return {
    models: readList(query, FILTER_LISTS.models),
    keyIds: readList(query, FILTER_LISTS.keyIds),
    userIds: readList(query, FILTER_LISTS.userIds),
    projectIds: readList(query, FILTER_LISTS.projectIds),
    serviceTiers: readList(query, FILTER_LISTS.serviceTiers),
    contextTokens: readList(query, FILTER_LISTS.contextTokens),
    batch: readBoolean(query, "batch"),
    tag: readTagFilter(query),
  };
}

function readBoolean(query: ReportQuery, name: string): boolean | null {
  const text = readGiven(query, name);
  if (text === null) return null;
  if (text === "true" || text === "false") return text === "true";
  throw invalidParameter(name, `${name} must be true or false.`);
}

/** The tag that `tags[NAME]=value` filters by; null: none. @throws ApiError 400 naming the parameter. */
export function readTagFilter(query: ReportQuery): Tag | null {
  const given = Object.keys(query).filter((name) => TAG_FILTER.test(name));
  const [param, second] = given;
  if (param === undefined) return null;
  if (second !== undefined) throw invalidParameter(second, `${second}: a report is filtered by one tag.`);
  const [, name = ""] = /^tags\[(.*)\]$/.exec(param) ?? [];
  if (!isTagName(name)) throw invalidParameter(param, `${param}: a tag is written as tags[NAME]=value.`);
  return { name, value: readGiven(query, param) ?? "" };
}
