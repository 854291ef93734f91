/**
 * Compiles everything that is declared into everything that is served, with a verdict on each object. Pure and
 * deterministic: the same objects, Secrets and last snapshot give the same bytes.
 *
 * The checks of one object run in this order, and the first that fails decides its `Accepted`:
 * faults that its source found → schema and semantics → immutability → conflicts. References come after; a missing
 * one decides `ResolvedRefs`. An object that fails keeps the entry last published under its uid, and never keeps
 * another object from being served.
 */
import {
  type OrganizationEntry,
  type Policy,
  type Route,
  SCHEMA_VERSION,
} from "../../dataplane/config/schema.ts";
import { type Kind, KINDS } from "../api/kinds.ts";
import { NameClaims } from "./claims.ts";
import type { Compiled, RoutingContent } from "./compiled.ts";
import { CredentialCollector } from "./credentials.ts";
import { judgeBy, type Refusals } from "./judge.ts";
import {
  byAge,
  compareText,
  type Declared,
  reference,
  type Secrets,
  type Verdict,
  type WantedKey,
} from "./objects.ts";
import { compileOrganizations, declaredId } from "./organizations.ts";
import type { Owners } from "./owners.ts";
import { compilePolicy, policyIsUsable, readPolicy } from "./policies.ts";
import { PriceTables } from "./prices.ts";
import { Prior, type Published } from "./prior.ts";
import { overBytes, overObjects } from "./quotas.ts";
import { compileRoute, type RouteContext, type RouteOutcome } from "./routes.ts";
import { sourceOf } from "./source.ts";
import { scopeOf, type Tenancy, TRUSTED } from "./tenancy.ts";

export interface CompileInput {
  readonly objects: readonly Declared[];
  readonly secrets: Secrets;
  /** The API server's words for each Secret (`namespace/name`) that is there and may not be read. Default: none. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** Secrets (`namespace/name`) that take no further data key. Default: none. */
  readonly immutable?: ReadonlySet<string>;
  /** Why keys could not be made, by `namespace/name/key`. Default: none failed. */
  readonly refused?: ReadonlyMap<string, string>;
  /** The newest published snapshot; null on the first day. */
  readonly published: Published | null;
  /** Default: every namespace is trusted. */
  readonly tenancy?: Tenancy;
  /** Namespaces that own organization ids, in addition to those that are served under them. */
  readonly owners?: Owners;
  /** Objects that are left out because there is no room for them, and why. */
  readonly tooLarge?: Refusals;
}

/**
 * How often everything is compiled anew because objects were left out, whose names and room go to others of their namespace.
 * What still does not fit then is left out with all that is new in its namespace: nobody waits until that is sorted out.
 */
const MAX_ROUNDS = 8;

export function compile(input: CompileInput): Compiled {
  const { published, tenancy = TRUSTED, tooLarge = new Map() } = input;
  const objects = input.objects.toSorted(byAge);
  const prior = new Prior(published);
  const refusals = new Map([...overObjects(objects, prior, tenancy), ...tooLarge]);
  // Objects that are left out leave names and room to others. Each round leaves out more than the one before.
  for (let round = 1; ; round += 1) {
    const compiled = compileOnce({ ...input, objects, tenancy }, prior, refusals);
    const more = overBytes(compiled, prior, tenancy, refusals, round >= MAX_ROUNDS);
    if (more.size === 0) return compiled;
    for (const [object, refusal] of more) refusals.set(object, refusal);
  }
}

/** @param input with its objects oldest first */
function compileOnce(
  {
    objects,
    secrets,
    forbidden = new Map(),
    immutable = new Set(),
    refused = new Map(),
    published,
    tenancy = TRUSTED,
    owners = new Map(),
  }: CompileInput,
  prior: Prior,
  refusals: Refusals,
): Compiled {
  const credentials = new CredentialCollector({ secrets, forbidden }, prior);
  const ofKind = (kind: Kind) => objects.filter((object) => object.kind === kind);
  const judge = judgeBy(tenancy, refusals);

  const wanted: WantedKey[] = [];
  const known = namespacesOfIds(published, owners);
  const declared = ofKind("Organization");
  const organizations = compileOrganizations(declared, {
    prior,
    tenancy,
    judge,
    owners: known,
    secrets,
    forbidden,
    immutable,
    refused,
    credentials,
    wanted,
  });
  const organizationIds = new Map(
    entriesOf(organizations).map(({ id, source }) => [id, source.namespace] as const),
  );

  const prices = new PriceTables(ofKind("PriceTable"), refusals);
  const readPolicies = ofKind("ToolPolicy").map((object) => readPolicy(object, judge, prior, tenancy));
  const policyKeys = new Map(
    readPolicies.map((policy) => [reference(policy.object), policyIsUsable(policy)]),
  );

  const routes = compileRoutes(ofKind("ModelRoute"), {
    prior,
    tenancy,
    judge,
    prices,
    credentials,
    policies: policyKeys,
    isOrganization: (id, scope) =>
      scope === undefined ? organizationIds.has(id) : organizationIds.get(id) === scope,
  });
  const entries = entriesOf(routes);
  const policyContext = { prior, credentials, ...servedModels(entries, tenancy) };
  const policies = readPolicies.map((policy) => compilePolicy(policy, policyContext));

  const verdicts = [
    ...prices.verdicts(entries),
    ...[...routes, ...policies, ...organizations].map(({ verdict }) => verdict),
  ];
  verdicts.sort((one, other) => byKindAndName(one.object, other.object));
  return {
    routing: {
      ...routingOf(entries, entriesOf(policies), entriesOf(organizations), verdicts),
      ...unserved(
        known,
        new Set(entriesOf(organizations).map(({ id }) => id)),
        new Set(declared.flatMap((object) => declaredId(object, judge) ?? [])),
      ),
    },
    credentials: sortedByKey(Object.entries(credentials.values)),
    verdicts,
    wanted,
  };
}

/** Returns the namespaces of organizations' ids: those that the last snapshot served, and `owners`. */
function namespacesOfIds(published: Published | null, owners: Owners): Map<string, string> {
  const earlier = published?.routing.organizations.map(({ id, source }) => [id, source.namespace] as const);
  return new Map([...(earlier ?? []), ...owners]);
}

const entriesOf = <Entry>(outcomes: readonly { readonly entry: Entry | null }[]): Entry[] =>
  outcomes.flatMap(({ entry }) => (entry === null ? [] : [entry]));

const sortedByKey = <Value>(entries: readonly (readonly [string, Value])[]): Record<string, Value> =>
  Object.fromEntries(entries.toSorted(([one], [other]) => compareText(one, other)));

/** The routing part, in an order that does not depend on that of the objects. */
const routingOf = (
  routes: readonly Route[],
  policies: readonly Policy[],
  organizations: readonly OrganizationEntry[],
  verdicts: readonly Verdict[],
): RoutingContent => ({
  schemaVersion: SCHEMA_VERSION,
  routes: routes.toSorted((one, other) => compareText(one.model, other.model)),
  policies: sortedByKey(policies.map((entry) => [reference(entry.source), entry])),
  organizations: organizations.toSorted((one, other) => compareText(one.id, other.id)),
  objects: verdicts
    .filter((verdict) => verdict.serves === verdict.object.generation)
    .map((verdict) => sourceOf(verdict.object)),
});

/** Longest chain of routes that wait for each other's names; a route beyond it keeps its own. */
const MAX_CHAIN = 100;

/** Compiles routes oldest first, but a route earlier when an older one needs to know which names it gives up. */
function compileRoutes(
  routes: readonly Declared[],
  context: Omit<RouteContext, "claims">,
): readonly RouteOutcome[] {
  const outcomes = new Map<Declared, RouteOutcome>();
  const underWay = new Set<Declared>();
  const { prior, tenancy, judge } = context;
  const decide = (route: Declared): boolean => {
    if (outcomes.has(route) || underWay.has(route)) return true;
    if (underWay.size >= MAX_CHAIN) return false;
    underWay.add(route);
    outcomes.set(route, compileRoute(route, { ...context, claims }));
    underWay.delete(route);
    return true;
  };
  const claims: NameClaims = new NameClaims(routes, { prior, tenancy, judge, decide });
  for (const route of routes) decide(route);
  return routes.flatMap((route) => outcomes.get(route) ?? []);
}

/** What policies ask of the routes that are served: the model of a ModelRoute, and whether a namespace is served a model. */
function servedModels(routes: readonly Route[], tenancy: Tenancy) {
  const models = new Map(routes.map(({ source, model }) => [reference(source), model] as const));
  const served = new Set(routes.map(servedName));
  return {
    servedModel: (name: string) => models.get(name),
    isServed: (model: string, namespace: string) =>
      served.has(servedName({ model, servesNamespace: scopeOf(tenancy, namespace) })),
  };
}

const servedName = ({
  model,
  servesNamespace,
}: {
  readonly model: string;
  readonly servesNamespace?: string | undefined;
}): string => (servesNamespace === undefined ? model : `${servesNamespace} ${model}`);

/**
 * Number of owners in the snapshot whose ids nobody wants: a tenant who makes up many ids would otherwise fill it for everybody.
 * Only Postgres knows the other owners, and the data plane refuses whoever else declares their ids.
 */
const MAX_UNWANTED = 1_000;

/** Returns the owners of ids that are not served, as a part of the snapshot. @param wanted ids that an object names */
function unserved(
  owners: Owners,
  served: ReadonlySet<string>,
  wanted: ReadonlySet<string>,
): Pick<RoutingContent, "owners"> {
  const left = [...owners]
    .filter(([id]) => !served.has(id))
    .sort(([one], [other]) => compareText(one, other));
  let room = MAX_UNWANTED;
  const kept = left.filter(([id]) => wanted.has(id) || (room -= 1) >= 0);
  return kept.length === 0 ? {} : { owners: Object.fromEntries(kept) };
}

function byKindAndName(one: Declared, other: Declared): number {
  return (
    KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind) ||
    compareText(one.namespace, other.namespace) ||
    compareText(one.name, other.name)
  );
}
