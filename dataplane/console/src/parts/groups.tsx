/** The choices by what a report is grouped and for which tag, and their form in its address. */
import { useFilters } from "../lib/filters.ts";
import type { Names } from "../lib/organization.ts";
import type { TagFilter, UsageGroup } from "../lib/reports.ts";
import { useStore } from "../lib/store.ts";
import { place, refine } from "../router.ts";
import { useTexts } from "../texts/texts.ts";
import type { Texts } from "../texts/en.ts";
import { Field } from "./basics.tsx";
import { Choice } from "./choice.tsx";

/** Groups of the reports; `tag` is the tag that another field names. */
export const groups = ["model", "api_key_id", "project_id", "service_tier", "batch", "tag"] as const;
type Group = (typeof groups)[number] | "line_item";

/** Returns the group of an address; a tag counts only when it has a name. */
export function groupOf(query: URLSearchParams): UsageGroup | null {
  const group = groups.find((one) => one === query.get("group")) ?? null;
  const name = tagName(query);
  if (group === "tag") return name === "" ? null : `tag:${name}`;
  return group;
}

const tagName = (query: URLSearchParams): string => (query.get("tag") ?? "").trim();

export function tagsOf(query: URLSearchParams): TagFilter {
  const [name, value] = [tagName(query), (query.get("value") ?? "").trim()];
  return name === "" || value === "" ? {} : { [name]: value };
}

export const groupTitle = (group: UsageGroup, t: Texts): string =>
  group.startsWith("tag:") ? group.slice("tag:".length) : t.reports.groups[group as Exclude<Group, "tag">];

/** Returns the shown name of a group's value. */
export function valueTitle(
  group: UsageGroup | "line_item",
  value: string,
  { keyName, projectName }: Names,
  t: Texts,
): string {
  if (group === "api_key_id") return keyName(value);
  if (group === "project_id") return projectName(value);
  if (group === "batch") return value === "true" ? t.reports.batch : t.reports.live;
  return value === "" ? t.reports.untagged : value;
}

/** @param none whether "no group" is a choice, and then the default */
export function GroupChoice({ groups: shown, none = false }: { groups: readonly Group[]; none?: boolean }) {
  const t = useTexts();
  const { query } = useStore(place);
  const chosen = shown.find((one) => one === query.get("group")) ?? (none ? "" : (shown[0] ?? ""));
  return (
    <Choice
      label={t.reports.groupBy}
      value={chosen}
      onInput={(group) => refine({ group })}
      choices={[
        ...(none ? [["", t.common.none] as const] : []),
        ...shown.map((one) => [one, t.reports.groups[one]] as const),
      ]}
    />
  );
}

export function TagFields() {
  const t = useTexts();
  const { query } = useStore(place);
  const filtered = useFilters();
  const isWanted = query.get("group") === "tag" && tagName(query) === "";
  return (
    <>
      <Field
        label={t.reports.groups.tag}
        {...filtered("tag")}
        {...(isWanted ? { hint: t.reports.tagHint } : {})}
      />
      <Field label={t.reports.tagValue} {...filtered("value")} />
    </>
  );
}
