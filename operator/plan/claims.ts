/**
 * Decides which route holds a public model id or alias (rule 8.4). A served name belongs to the route that serves it
 * until that route no longer names it; between two new claims the older route wins. Under `Namespaced` each tenant's
 * namespace has names of its own.
 */
import type { ModelRouteSpec } from "../api/model-route.ts";
import type { Judge } from "./judge.ts";
import { type Declared, reference } from "./objects.ts";
import { oncePer } from "./once-per.ts";
import type { Prior } from "./prior.ts";
import { scopeOf, type Tenancy } from "./tenancy.ts";

export interface ClaimsOptions {
  readonly prior: Prior;
  readonly tenancy: Tenancy;
  readonly judge: Judge;
  /** Compiles a route, which then takes its names, unless this is done or under way; false: too many are under way. */
  readonly decide: (route: Declared) => boolean;
}

/** The ids that a valid spec names, the model first. */
export const namesOf = (object: Declared, spec: ModelRouteSpec): readonly string[] => [
  spec.model ?? object.name,
  ...(spec.aliases ?? []),
];

const wantedBy = oncePer((spec: ModelRouteSpec): ReadonlySet<string> => new Set(spec.aliases));

export class NameClaims {
  readonly #options: ClaimsOptions;
  readonly #holders = new Map<string, Declared>();
  readonly #incumbents = new Map<string, Declared>();

  /** @param routes oldest first */
  constructor(routes: readonly Declared[], options: ClaimsOptions) {
    this.#options = options;
    for (const route of routes) this.#noteIncumbent(route);
  }

  /** Whether another route holds the name, or is served under it and has not given it up. */
  isTaken(name: string, asker: Declared): boolean {
    const key = this.#key(name, asker.namespace);
    const holder = this.#holders.get(key);
    if (holder !== undefined) return holder !== asker;
    const incumbent = this.#incumbents.get(key);
    if (incumbent === undefined || incumbent === asker) return false;
    if (this.#names(incumbent, name)) return true;
    // The incumbent names others now. Whether it gets those decides whether it gives this one up.
    return !this.#options.decide(incumbent) || this.#holders.has(key);
  }

  take(names: readonly string[], holder: Declared): void {
    for (const name of names) this.#holders.set(this.#key(name, holder.namespace), holder);
  }

  /** Says to whom the name belongs; a route of another namespace than the asker's is not named. */
  describeHolder(name: string, asker: Declared): string {
    const key = this.#key(name, asker.namespace);
    const holder = this.#holders.get(key) ?? this.#incumbents.get(key);
    return holder === undefined || holder.namespace !== asker.namespace
      ? "a ModelRoute of another namespace"
      : `ModelRoute ${reference(holder)}`;
  }

  #noteIncumbent(route: Declared): void {
    const last = this.#options.prior.route(route.uid);
    if (last === undefined) return;
    const judged = this.#options.judge(route);
    if (!judged.ok && !judged.keepsLast) return;
    const scope = scopeOf(this.#options.tenancy, route.namespace);
    for (const name of [last.model, ...last.aliases]) {
      const key = this.#key(name, route.namespace);
      const other = this.#incumbents.get(key);
      // After a switch of the tenancy two routes may have one name: the one that served the same callers before stays.
      const otherScope = other === undefined ? null : this.#options.prior.route(other.uid)?.servesNamespace;
      if (other === undefined || (otherScope !== scope && last.servesNamespace === scope))
        this.#incumbents.set(key, route);
    }
  }

  /** Whether the route, as it is declared now, still has the name; an invalid one has it if its last entry stays. */
  #names(route: Declared, name: string): boolean {
    const judged = this.#options.judge(route);
    if (!judged.ok) return judged.keepsLast;
    const spec = judged.spec as ModelRouteSpec;
    return (spec.model ?? route.name) === name || wantedBy(spec).has(name);
  }

  #key(name: string, namespace: string): string {
    const scope = scopeOf(this.#options.tenancy, namespace);
    // No id contains a blank.
    return scope === undefined ? name : `${scope} ${name}`;
  }
}
