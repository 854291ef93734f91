import { ApiError } from "../lib/api-error.ts";
import { MOST_MODEL_NAME } from "../lib/names.ts";
import type { Limits, Route } from "./schema.ts";
import type { Snapshot } from "./snapshot.ts";

/** A list of ids and of prefixes ending in `*`, compiled for look-ups: a list may have hundreds, and so may the models. */
interface Patterns {
  readonly ids: ReadonlySet<string>;
  /** The prefixes, sorted; none begins with another. */
  readonly beginnings: readonly string[];
}

const compiled = new WeakMap<readonly string[], Patterns>();

function compile(patterns: readonly string[]): Patterns {
  const beginnings: string[] = [];
  const [ids, wild]: [string[], string[]] = [[], []];
  for (const pattern of patterns)
    if (pattern.endsWith("*")) wild.push(pattern.slice(0, -1));
    else ids.push(pattern);
  // A prefix that begins with an earlier one matches nothing more.
  for (const beginning of wild.toSorted((one, other) => (one < other ? -1 : 1))) {
    const last = beginnings.at(-1);
    if (last === undefined || !beginning.startsWith(last)) beginnings.push(beginning);
  }
  return { ids: new Set(ids), beginnings };
}

/** Whether a public model id is within an organization's `models.allow`: ids, or a prefix ending in `*` (rule 1.17). */
function isAllowed(patterns: readonly string[], model: string): boolean {
  let known = compiled.get(patterns);
  if (known === undefined) compiled.set(patterns, (known = compile(patterns)));
  const { ids, beginnings } = known;
  if (ids.has(model)) return true;
  // Only the last prefix that sorts before the id can match: what sorts between a match and the id begins with it too.
  let [from, to] = [0, beginnings.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((beginnings[middle] as string) <= model) from = middle + 1;
    else to = middle;
  }
  return from > 0 && model.startsWith(beginnings[from - 1] as string);
}

/** By route: the route as each organization with a dedicated upstream may use it, and as all others ("") may. */
const shares = new WeakMap<Route, Map<string, Route | undefined>>();

/**
 * Returns the route as this organization may use it: without the upstreams that are dedicated to another one (rule 7.12).
 * Undefined when none is left. The same route gives the same object each time.
 */
export function routeFor(route: Route, organizationId: string): Route | undefined {
  const { upstreams } = route;
  if (upstreams.every(({ dedicatedTo }) => dedicatedTo === null)) return route;
  const own = upstreams.some(({ dedicatedTo }) => dedicatedTo === organizationId) ? organizationId : "";
  let known = shares.get(route);
  if (known === undefined) shares.set(route, (known = new Map()));
  if (!known.has(own)) {
    const open = upstreams.filter(({ dedicatedTo }) => dedicatedTo === null || dedicatedTo === own);
    known.set(own, open.length === 0 ? undefined : { ...route, upstreams: open });
  }
  return known.get(own);
}

/** A caller: its organization, and the limits of its key and project, each of which must allow a model. */
export interface ModelUser {
  readonly organizationId: string;
  readonly limits: readonly { readonly limits: Limits }[];
}

/** Whether the limits of a key and its project allow a model. */
export const isWithinLimits = (limits: ModelUser["limits"], model: string): boolean =>
  limits.every(({ limits: { models } }) => models === undefined || isAllowed(models, model));

const mayUse = ({ limits }: ModelUser, allowed: readonly string[], model: string): boolean =>
  isAllowed(allowed, model) && isWithinLimits(limits, model);

/**
 * Finds the route that an organization's key may use under a public id or alias: one of its own namespace hides one that
 * serves all (rule 8.2). Undefined for an unknown model, for one outside `models.allow` and for one without an upstream for
 * this organization alike (rule 1.7). `models.allow` holds public ids, which aliases are judged by as well. Claude Code's
 * `[1m]` suffix is not part of a name (dialects.md §F).
 */
export function findRoute(snapshot: Snapshot, user: ModelUser, model: string): Route | undefined {
  const { organizationId } = user;
  const organization = snapshot.organization(organizationId);
  if (organization === undefined) return undefined;
  const { namespace } = organization.source;
  const named = (name: string) => snapshot.route(name, namespace) ?? snapshot.route(name);
  const route = named(model) ?? named(model.replace(/\[1m\]$/i, ""));
  if (route === undefined || !mayUse(user, organization.allowedModels, route.model)) return undefined;
  return routeFor(route, organizationId);
}

/** Whether the limits of the caller's key and project name models. */
export const isLimitedToModels = ({ limits }: Pick<ModelUser, "limits">): boolean =>
  limits.some(({ limits: { models } }) => models !== undefined);

/** Whether only the limits of the caller's key and project keep a model from them. */
export function isHidden(snapshot: Snapshot, user: ModelUser, model: string): boolean {
  if (!isLimitedToModels(user)) return false;
  const { organizationId } = user;
  return (
    findRoute(snapshot, user, model) === undefined &&
    findRoute(snapshot, { organizationId, limits: [] }, model) !== undefined
  );
}

/** Makes the error for an unknown model and for one that the organization may not use (rule 1.7), in words that Claude Code knows. */
export const modelNotFound = (model: string): ApiError =>
  new ApiError("model_not_found", `model: ${model.slice(0, MOST_MODEL_NAME)}`, { param: "model" });

/** Lists every route that an organization's key may use, newest first, ties by id. */
export function allowedRoutes(snapshot: Snapshot, user: ModelUser): Route[] {
  const { organizationId } = user;
  const organization = snapshot.organization(organizationId);
  if (organization === undefined) return [];
  const { namespace } = organization.source;
  const isOffered = ({ model, servesNamespace }: Route) =>
    servesNamespace === undefined
      ? snapshot.route(model, namespace) === undefined
      : servesNamespace === namespace;
  return snapshot.newestRoutes.flatMap((route) =>
    isOffered(route) && mayUse(user, organization.allowedModels, route.model)
      ? (routeFor(route, organizationId) ?? [])
      : [],
  );
}
