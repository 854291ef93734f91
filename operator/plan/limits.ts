/** Limits of keys and projects: into the snapshot, and as a fact for kubectl's columns. */
import type { Limits, OrganizationEntry } from "../../dataplane/config/schema.ts";
import type { LimitsSpec, OrganizationSpec } from "../api/organization.ts";
import { micros } from "./decimal.ts";

const periods = { Day: "day", Week: "week", Month: "month", Total: "total" } as const;
/** Number of limits that fit a column. */
const MOST_SHOWN = 3;

/** Returns limits in the snapshot's form, without those that are not set. */
export function limitsOf({ credits, models, ...rates }: LimitsSpec): Limits {
  const allowed = models?.allow;
  const given = Object.entries(rates).filter(([, rate]) => rate !== undefined);
  return {
    ...(credits === undefined
      ? {}
      : { credits: { amountMicros: micros(credits.amount).toString(), per: periods[credits.per] } }),
    ...(allowed === undefined ? {} : { models: allowed }),
    ...(Object.fromEntries(given) as Pick<
      Limits,
      "requestsPerMinute" | "tokensPerMinute" | "concurrentRequests"
    >),
  };
}

/** Returns the limits of the projects that have any. */
export function projectLimits({ projects = [] }: OrganizationSpec): Pick<OrganizationEntry, "projectLimits"> {
  const limited = projects.flatMap(({ name, limits }) =>
    limits === undefined ? [] : [[name, limitsOf(limits)] as const],
  );
  return limited.length === 0 ? {} : { projectLimits: Object.fromEntries(limited) };
}

/** Returns the limits of credit that an Organization declares: `each key 50/Month, project lab 5000/Month`. */
export function limitFacts({ keyDefaults, projects = [], apiKeys = [] }: OrganizationSpec): {
  readonly limits?: string;
} {
  const declared = [
    { whose: "each key", limits: keyDefaults?.limits },
    ...projects.map(({ name, limits }) => ({ whose: `project ${name}`, limits })),
    ...apiKeys.map(({ name, limits }) => ({ whose: `key ${name}`, limits })),
  ];
  const texts = declared.flatMap(({ whose, limits }) =>
    limits?.credits === undefined ? [] : [`${whose} ${limits.credits.amount}/${limits.credits.per}`],
  );
  if (texts.length === 0) return {};
  const more = texts.length > MOST_SHOWN ? [`${texts.length - MOST_SHOWN} more`] : [];
  return { limits: [...texts.slice(0, MOST_SHOWN), ...more].join(", ") };
}
