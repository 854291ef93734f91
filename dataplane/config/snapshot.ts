import type { Credentials, OrganizationEntry, Policy, Route, Routing, SnapshotIndex } from "./schema.ts";

/** A verified snapshot with its look-ups; immutable, swapped whole. Every look-up is O(1) in the number of routes. */
export class Snapshot {
  readonly index: SnapshotIndex;
  readonly routing: Routing;
  readonly #credentials: Readonly<Record<string, string>>;
  readonly #routes = new Map<string, Route>();
  readonly #organizations = new Map<string, OrganizationEntry>();
  #newestRoutes: readonly Route[] | null = null;

  constructor(index: SnapshotIndex, routing: Routing, credentials: Credentials) {
    this.index = index;
    this.routing = routing;
    this.#credentials = credentials.values;
    for (const organization of routing.organizations) this.#organizations.set(organization.id, organization);
    // Aliases first, so that a model's own id always wins.
    for (const route of routing.routes) for (const alias of route.aliases) this.#routes.set(alias, route);
    for (const route of routing.routes) this.#routes.set(route.model, route);
  }

  /** The route of a public model id or alias. */
  route(modelOrAlias: string): Route | undefined {
    return this.#routes.get(modelOrAlias);
  }

  organization(id: string): OrganizationEntry | undefined {
    return this.#organizations.get(id);
  }

  /** All routes, newest first, ties by id; sorted when it is first asked for. */
  get newestRoutes(): readonly Route[] {
    this.#newestRoutes ??= this.routing.routes.toSorted(
      (one, other) => other.createdAt - one.createdAt || (one.model < other.model ? -1 : 1),
    );
    return this.#newestRoutes;
  }

  /** The tool policy that a route runs under. */
  policy(route: Route): Policy | undefined {
    return route.toolPolicy === null ? undefined : this.routing.policies[route.toolPolicy];
  }

  /** A resolved credential; undefined when the snapshot does not hold it. */
  credential(id: string): string | undefined {
    return Object.hasOwn(this.#credentials, id) ? this.#credentials[id] : undefined;
  }
}
