import type { Route } from "./schema.ts";
import type { Snapshot } from "./snapshot.ts";

/** Whether a public model id is within an organization's `models.allow`: ids, or a prefix ending in `*` (rule 1.17). */
export function isAllowed(patterns: readonly string[], model: string): boolean {
  return patterns.some((pattern) =>
    pattern.endsWith("*") ? model.startsWith(pattern.slice(0, -1)) : model === pattern,
  );
}

/**
 * The route that an organization may use under a public id or alias: one of its own namespace hides one that serves
 * all (rule 8.2). Undefined for an unknown model and for one outside `models.allow` alike (rule 1.7), which is judged by
 * the public id also for aliases. Claude Code's `[1m]` suffix is not part of a name (dialects.md §F).
 */
export function findRoute(snapshot: Snapshot, organizationId: string, model: string): Route | undefined {
  const organization = snapshot.organization(organizationId);
  if (organization === undefined) return undefined;
  const { namespace } = organization.source;
  const named = (name: string) => snapshot.route(name, namespace) ?? snapshot.route(name);
  const route = named(model) ?? named(model.replace(/\[1m\]$/i, ""));
  return route !== undefined && isAllowed(organization.allowedModels, route.model) ? route : undefined;
}

/** Every route that an organization may use, newest first, ties by id. */
export function allowedRoutes(snapshot: Snapshot, organizationId: string): Route[] {
  const organization = snapshot.organization(organizationId);
  if (organization === undefined) return [];
  const { namespace } = organization.source;
  const isOffered = ({ model, servesNamespace }: Route) =>
    servesNamespace === undefined
      ? snapshot.route(model, namespace) === undefined
      : servesNamespace === namespace;
  return snapshot.newestRoutes.filter(
    (route) => isOffered(route) && isAllowed(organization.allowedModels, route.model),
  );
}
