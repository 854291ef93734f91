/** The last published snapshot, for what is kept when something breaks: by uid, never by name. */
import type { OrganizationEntry, Policy, Prices, Route, Routing } from "../../dataplane/config/schema.ts";

/** The newest snapshot that was published, as it is read back. */
export interface Published {
  readonly routing: Routing;
  /** Resolved credentials by `namespace/secret/key`. */
  readonly credentials: Readonly<Record<string, string>>;
}

export class Prior {
  readonly #routes = new Map<string, Route>();
  readonly #policies = new Map<string, Policy>();
  readonly #organizations = new Map<string, OrganizationEntry>();
  /** By uid of the table and model. */
  readonly #prices = new Map<string, Prices>();
  readonly #credentials: Readonly<Record<string, string>>;

  constructor(published: Published | null) {
    this.#credentials = published?.credentials ?? {};
    for (const route of published?.routing.routes ?? []) {
      this.#routes.set(route.source.uid, route);
      this.#prices.set(`${route.prices.source.uid} ${route.model}`, route.prices);
    }
    for (const policy of Object.values(published?.routing.policies ?? {}))
      this.#policies.set(policy.source.uid, policy);
    for (const organization of published?.routing.organizations ?? [])
      this.#organizations.set(organization.source.uid, organization);
  }

  route(uid: string): Route | undefined {
    return this.#routes.get(uid);
  }

  policy(uid: string): Policy | undefined {
    return this.#policies.get(uid);
  }

  organization(uid: string): OrganizationEntry | undefined {
    return this.#organizations.get(uid);
  }

  prices(tableUid: string, model: string): Prices | undefined {
    return this.#prices.get(`${tableUid} ${model}`);
  }

  credential(id: string): string | undefined {
    return Object.hasOwn(this.#credentials, id) ? this.#credentials[id] : undefined;
  }
}
