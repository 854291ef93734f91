/** The filters of the four reports (rules 5.13, 9.5, 14.4). */
import { invalidParameter, readGiven, requireKnownNames } from "../lib/query.ts";
import { isTagName, type Tag } from "../lib/tags.ts";
import { readList, readMoment, type ReportQuery } from "./parameters.ts";

/** The filters of a report; null: not filtered by this. Values match exactly; a value that nothing has gives an empty report. */
export interface Filters {
  readonly models: readonly string[] | null;
  readonly keyIds: readonly string[] | null;
  /** People, whose ids are stored in place of a key's id (rule 13.2). */
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
/** Names of a range's ends in the other family of reports: a client that sends one query to both families uses both names. */
const OTHER_FAMILY: Readonly<Record<string, string>> = {
  starting_at: "start_time",
  ending_at: "end_time",
  start_time: "starting_at",
  end_time: "ending_at",
};
/** Other parameters of all four reports, besides the listed filters and the range; the last is told to whoever looks for it. */
const OTHERS = ["bucket_width", "limit", "page", "batch", "tags[NAME]"];

/**
 * Reads the filters of all four reports, under the names of both families. An unknown parameter is refused: ignoring it would
 * answer with unfiltered sums (rules 5.13, 9.5, 14.4), also for an official filter by what usage is not kept by here.
 * @param range the names of the two ends of the report's range.
 * @throws ApiError 400 naming the parameter, also one that the report does not know.
 */
export function readFilters(query: ReportQuery, range: readonly string[]): Filters {
  const untagged = Object.fromEntries(Object.entries(query).filter(([name]) => !TAG_FILTER.test(name)));
  // The other family's name is allowed only beside this one's: alone it would leave the range at its default.
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

/** Reads the tag of a filter `tags[NAME]=value`; null: none. @throws ApiError 400 naming the parameter. */
export function readTagFilter(query: ReportQuery): Tag | null {
  const given = Object.keys(query).filter((name) => TAG_FILTER.test(name));
  const [param, second] = given;
  if (param === undefined) return null;
  if (second !== undefined) throw invalidParameter(second, `${second}: a report is filtered by one tag.`);
  const [, name = ""] = /^tags\[(.*)\]$/.exec(param) ?? [];
  if (!isTagName(name)) throw invalidParameter(param, `${param}: a tag is written as tags[NAME]=value.`);
  return { name, value: readGiven(query, param) ?? "" };
}
