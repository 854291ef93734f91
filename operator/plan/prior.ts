/** The last published snapshot, for what is kept when something breaks: by uid, never by name. */
import type { OrganizationEntry, Policy, Prices, Route, Routing } from "../../dataplane/config/schema.ts";

/** The newest snapshot that was published, as it is read back. */
export interface Published {
  readonly routing: Routing;
  /** Resolved credentials by `namespace/secret/key`. */
  readonly credentials: Readonly<Record<string, string>>;
}

/** What the snapshot holds of one object. */
export type ServedEntry = Route | Policy | OrganizationEntry;

type Entries = Pick<Routing, "routes" | "policies" | "organizations">;

export const servedEntries = ({ routes, policies, organizations }: Entries): ServedEntry[] => [
  ...routes,
  ...Object.values(policies),
  ...organizations,
];

/** Lookups in the published snapshot. Routes and prices may be thousands: their maps are made when first needed. */
export class Prior {
  readonly #published: Published | null;
  readonly #policies = new Map<string, Policy>();
  readonly #organizations = new Map<string, OrganizationEntry>();
  #routes: ReadonlyMap<string, Route> | null = null;
  /** By uid of the table and model. */
  #prices: ReadonlyMap<string, Prices> | null = null;

  constructor(published: Published | null) {
    this.#published = published;
    for (const policy of Object.values(published?.routing.policies ?? {}))
      this.#policies.set(policy.source.uid, policy);
    for (const organization of published?.routing.organizations ?? [])
      this.#organizations.set(organization.source.uid, organization);
  }

  route(uid: string): Route | undefined {
    this.#routes ??= new Map(this.#published?.routing.routes.map((route) => [route.source.uid, route]));
    return this.#routes.get(uid);
  }

  policy(uid: string): Policy | undefined {
    return this.#policies.get(uid);
  }

  organization(uid: string): OrganizationEntry | undefined {
    return this.#organizations.get(uid);
  }

  entry(uid: string): ServedEntry | undefined {
    return this.route(uid) ?? this.policy(uid) ?? this.organization(uid);
  }

  /** Returns the model's price in the table's newest generation that a route is served by: the table lost any older one. */
  prices(tableUid: string, model: string): Prices | undefined {
    this.#prices ??= newestPrices(this.#published?.routing.routes ?? []);
    return this.#prices.get(`${tableUid} ${model}`);
  }

  /** Uids of everything that is served in some generation. */
  get servedUids(): ReadonlySet<string> {
    if (this.#published === null) return new Set();
    const { routing } = this.#published;
    return new Set([
      ...servedEntries(routing).map(({ source }) => source.uid),
      ...routing.routes.map(({ prices }) => prices.source.uid),
      ...routing.objects.map(({ uid }) => uid),
    ]);
  }

  credential(id: string): string | undefined {
    const credentials = this.#published?.credentials ?? {};
    return Object.hasOwn(credentials, id) ? credentials[id] : undefined;
  }
}

/** Returns the newest generation of each PriceTable, by uid, at whose prices a route is served. */
export function servedTables(routes: readonly Route[]): ReadonlyMap<string, number> {
  const newest = new Map<string, number>();
  for (const { prices } of routes) {
    const { uid, generation } = prices.source;
    newest.set(uid, Math.max(generation, newest.get(uid) ?? 0));
  }
  return newest;
}

function newestPrices(routes: readonly Route[]): ReadonlyMap<string, Prices> {
  const newest = servedTables(routes);
  return new Map(
    routes
      .filter(({ prices }) => prices.source.generation === newest.get(prices.source.uid))
      .map(({ model, prices }) => [`${prices.source.uid} ${model}`, prices]),
  );
}
