/**
 * Everything that is declared → everything that is served, with a verdict on each object. Pure and deterministic:
 * the same objects, Secrets and last snapshot give the same bytes.
 *
 * The checks of one object run in this order, and the first that fails decides its `Accepted`:
 * what its source found wrong → schema and semantics → immutability → conflicts. References come after; what is
 * missing there is `ResolvedRefs`. An object that fails keeps the entry last published under its uid, and never
 * keeps another object from being served.
 */
import { type Routing, SCHEMA_VERSION } from "../../dataplane/config/schema.ts";
import { type Kind, KINDS } from "../api/kinds.ts";
import { Claims } from "./claims.ts";
import { CredentialCollector } from "./credentials.ts";
import {
  byAge,
  compareText,
  type Declared,
  reference,
  type Secrets,
  type Verdict,
  type WantedKey,
} from "./objects.ts";
import { compileOrganization } from "./organizations.ts";
import { compilePolicy, policyIsUsable, readPolicy } from "./policies.ts";
import { PriceTables } from "./prices.ts";
import { Prior, type Published } from "./prior.ts";
import { compileRoute } from "./routes.ts";
import { sourceOf } from "./source.ts";

export interface CompileInput {
  readonly objects: readonly Declared[];
  readonly secrets: Secrets;
  /** The newest published snapshot; null on the first day. */
  readonly published: Published | null;
}

export type RoutingContent = Omit<Routing, "serial">;

export interface Compiled {
  readonly routing: RoutingContent;
  /** By `namespace/secret/key`. */
  readonly credentials: Readonly<Record<string, string>>;
  /** One for each object, by kind, namespace and name. */
  readonly verdicts: readonly Verdict[];
  readonly wanted: readonly WantedKey[];
}

export function compile({ objects, secrets, published }: CompileInput): Compiled {
  const prior = new Prior(published);
  const credentials = new CredentialCollector(secrets, prior);
  const oldestFirst = objects.toSorted(byAge);
  const ofKind = (kind: Kind) => oldestFirst.filter((object) => object.kind === kind);

  const prices = new PriceTables(ofKind("PriceTable"));
  const readPolicies = ofKind("ToolPolicy").map(readPolicy);
  const policyKeys = new Map(
    readPolicies.map((policy) => [reference(policy.object), policyIsUsable(policy, prior)]),
  );

  const routeContext = { prior, prices, credentials, claims: new Claims(), policies: policyKeys };
  const routes = ofKind("ModelRoute").map((object) => compileRoute(object, routeContext));
  const models = new Map(
    routes.flatMap(({ entry }) => (entry === null ? [] : [[reference(entry.source), entry.model] as const])),
  );

  const served = new Set(models.values());
  const policyContext = {
    prior,
    credentials,
    servedModel: (name: string) => models.get(name),
    isServed: (model: string) => served.has(model),
  };
  const policies = readPolicies.map((policy) => compilePolicy(policy, policyContext));

  const wanted: WantedKey[] = [];
  const organizationContext = { prior, secrets, claims: new Claims(), keyDigests: new Set<string>(), wanted };
  const organizations = ofKind("Organization").map((object) =>
    compileOrganization(object, organizationContext),
  );

  const entries = routes.flatMap(({ entry }) => entry ?? []);
  const verdicts = [
    ...prices.verdicts(entries),
    ...[...routes, ...policies, ...organizations].map(({ verdict }) => verdict),
  ];
  verdicts.sort((one, other) => byKindAndName(one.object, other.object));
  return {
    routing: {
      schemaVersion: SCHEMA_VERSION,
      routes: entries.toSorted((one, other) => compareText(one.model, other.model)),
      policies: Object.fromEntries(
        policies
          .flatMap(({ entry }) => entry ?? [])
          .map((entry) => [reference(entry.source), entry] as const)
          .sort(([one], [other]) => compareText(one, other)),
      ),
      organizations: organizations
        .flatMap(({ entry }) => entry ?? [])
        .sort((one, other) => compareText(one.id, other.id)),
      objects: verdicts
        .filter((verdict) => verdict.serves === verdict.object.generation)
        .map((verdict) => sourceOf(verdict.object)),
    },
    credentials: Object.fromEntries(
      Object.entries(credentials.values).sort(([one], [other]) => compareText(one, other)),
    ),
    verdicts,
    wanted,
  };
}

function byKindAndName(one: Declared, other: Declared): number {
  return (
    KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind) ||
    compareText(one.namespace, other.namespace) ||
    compareText(one.name, other.name)
  );
}
