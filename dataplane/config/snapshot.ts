import type { Credentials, OrganizationEntry, Policy, Route, Routing, SnapshotIndex } from "./schema.ts";

/** A verified snapshot with its look-ups; immutable, swapped whole. Every look-up is O(1) in the number of routes. */
export class Snapshot {
  readonly index: SnapshotIndex;
  readonly routing: Routing;
  readonly #credentials: Readonly<Record<string, string>>;
  /** Routes by the namespace whose organizations they serve (undefined: all), then by public id or alias. */
  readonly #routes = new Map<string | undefined, Map<string, Route>>();
  readonly #organizations = new Map<string, OrganizationEntry>();
  #newestRoutes: readonly Route[] | null = null;
  #dedicated: ReadonlySet<string | null> | null = null;

  constructor(index: SnapshotIndex, routing: Routing, credentials: Credentials) {
    this.index = index;
    this.routing = routing;
    this.#credentials = credentials.values;
    for (const organization of routing.organizations) this.#organizations.set(organization.id, organization);
    // Aliases first, so that a model's own id always wins.
    for (const route of routing.routes)
      for (const alias of route.aliases) this.#routesOf(route.servesNamespace).set(alias, route);
    for (const route of routing.routes) this.#routesOf(route.servesNamespace).set(route.model, route);
  }

  /** Finds a public model id or alias among the routes that serve this namespace alone; undefined: that serve all. */
  route(modelOrAlias: string, servesNamespace?: string): Route | undefined {
    return this.#routes.get(servesNamespace)?.get(modelOrAlias);
  }

  organization(id: string): OrganizationEntry | undefined {
    return this.#organizations.get(id);
  }

  /** Whether there are routes that serve this namespace alone. */
  hasRoutesFor(namespace: string): boolean {
    return this.#routes.has(namespace);
  }

  /** Whether any upstream is dedicated to this organization. */
  dedicatesTo(organizationId: string): boolean {
    this.#dedicated ??= new Set(
      this.routing.routes.flatMap(({ upstreams }) => upstreams.map(({ dedicatedTo }) => dedicatedTo)),
    );
    return this.#dedicated.has(organizationId);
  }

  /** All routes, newest first, ties by id; sorted at the first use. */
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

  /** Whether any policy lets a model open pages. */
  get opensPages(): boolean {
    return Object.values(this.routing.policies).some(({ webFetch }) => webFetch !== null);
  }

  #routesOf(namespace: string | undefined): Map<string, Route> {
    let routes = this.#routes.get(namespace);
    if (routes === undefined) this.#routes.set(namespace, (routes = new Map<string, Route>()));
    return routes;
  }

  /** A resolved credential; undefined when the snapshot does not hold it. */
  credential(id: string): string | undefined {
    return Object.hasOwn(this.#credentials, id) ? this.#credentials[id] : undefined;
  }
}
