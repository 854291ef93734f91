/** ModelRoutes: claims of public names, references, and the entry that the data plane serves. */
import type { Prices, Route, Upstream } from "../../dataplane/config/schema.ts";
import { milliseconds } from "../api/fields.ts";
import { credentialHeader, type ModelRouteSpec, routeDefaults } from "../api/model-route.ts";
import { type NameClaims, namesOf } from "./claims.ts";
import type { CredentialCollector } from "./credentials.ts";
import type { Judge } from "./judge.ts";
import { type Declared, type Fault, pathText, type ResolvedReason, type Verdict } from "./objects.ts";
import type { PriceTables } from "./prices.ts";
import type { Prior } from "./prior.ts";
import { sourceOf } from "./source.ts";
import { scopeOf, type Tenancy } from "./tenancy.ts";

export interface RouteContext {
  readonly prior: Prior;
  readonly tenancy: Tenancy;
  readonly judge: Judge;
  readonly prices: PriceTables;
  readonly credentials: CredentialCollector;
  /** Public model ids and aliases. */
  readonly claims: NameClaims;
  /** `namespace/name` of each ToolPolicy: true when the snapshot holds an entry for it. */
  readonly policies: ReadonlyMap<string, boolean>;
  /** Whether an organization of the id is served, of that namespace where one is given. */
  readonly isOrganization: (id: string, namespace: string | undefined) => boolean;
}

export interface RouteOutcome {
  readonly verdict: Verdict;
  readonly entry: Route | null;
}

/** What the outcome of a route without faults depends on, apart from the object itself. */
interface Made {
  readonly prices: Prices;
  readonly toolPolicy: string | null;
  readonly scope: string | undefined;
  /** The notes on aliases that are left out and on upstreams that nobody gets to. */
  readonly note: string;
  readonly outcome: RouteOutcome;
}
const lastMade = new WeakMap<Declared, Made>();

/**
 * Compiles one route; to be called oldest first. While nothing that it depends on changes, the outcome is the very
 * same object: an edit makes one of 10,000 anew.
 */
export function compileRoute(object: Declared, context: RouteContext): RouteOutcome {
  const { claims } = context;
  const read = context.judge(object);
  if (!read.ok)
    return read.keepsLast
      ? keepLastGood(object, context, { accepted: read.faults })
      : nothing(object, { accepted: read.faults });
  const spec = read.spec as ModelRouteSpec;
  const [model = object.name, ...wanted] = namesOf(object, spec);
  const facts = { model, upstreams: spec.upstreams.length };
  if (claims.isTaken(model, object)) {
    const fault: Fault = {
      reason: "Conflicted",
      path: "spec.model",
      message: `"${model}" belongs to ${claims.describeHolder(model, object)}, which had it first; choose another id`,
    };
    return keepLastGood(object, context, { accepted: [fault], facts });
  }
  const taken = wanted.filter((alias) => claims.isTaken(alias, object));
  const scope = scopeOf(context.tenancy, object.namespace);
  const notes = [
    ...taken.map(
      (alias) =>
        `served without the alias "${alias}", which belongs to ${claims.describeHolder(alias, object)}; remove it, or choose another`,
    ),
    ...dedicatedToNobody(spec, scope, context),
  ];
  const aliases =
    taken.length === 0 ? wanted : wanted.filter((alias) => alias !== model && !taken.includes(alias));
  claims.take([model, ...aliases], object);

  const resolved: Fault<ResolvedReason>[] = [];
  const prices = resolvePrices(object, spec, model, context, resolved);
  const toolPolicy = resolvePolicy(object, spec, context, resolved);
  const credentials = resolveCredentials(object, spec, context, resolved);
  if (prices === null || credentials === null) return keepLastGood(object, context, { resolved, facts });
  // Without faults every credential is the one that the spec names.
  const last = resolved.length === 0 ? lastMade.get(object) : undefined;
  const note = notes.join("; ");
  const isSame = last?.prices === prices && last.toolPolicy === toolPolicy;
  if (isSame && last.scope === scope && last.note === note) return last.outcome;
  const upstreams = spec.upstreams.map((upstream, index) =>
    upstreamEntry(spec, upstream, model, credentials[index] ?? null),
  );
  const names = { model, aliases: aliases.filter((alias) => alias !== model) };
  const outcome: RouteOutcome = {
    entry: routeEntry(object, spec, { names: servesOnly(names, scope), upstreams, toolPolicy, prices }),
    verdict: { object, accepted: [], resolved, serves: object.generation, notes, facts },
  };
  if (resolved.length === 0) lastMade.set(object, { prices, toolPolicy, scope, note, outcome });
  return outcome;
}

/** Returns notes on upstreams that are dedicated to an organization that is not served. */
function dedicatedToNobody(
  spec: ModelRouteSpec,
  scope: string | undefined,
  { isOrganization }: RouteContext,
): string[] {
  const nobody = scope === undefined ? "no Organization" : `no Organization of namespace "${scope}"`;
  return spec.upstreams.flatMap(({ dedicatedTo }, index) =>
    dedicatedTo === undefined || isOrganization(dedicatedTo, scope)
      ? []
      : [
          `${pathText(["spec", "upstreams", index, "dedicatedTo"])}: nothing goes to this upstream, as ${nobody} has the id "${dedicatedTo}"; declare the Organization, or correct the id`,
        ],
  );
}

const nothing = (object: Declared, found: Partial<Verdict>): RouteOutcome => ({
  entry: null,
  verdict: {
    object,
    accepted: found.accepted ?? [],
    resolved: found.resolved ?? [],
    serves: null,
    notes: [],
    facts: found.facts ?? {},
  },
});

/** Keeps the last entry of this very object, unless its model is another route's now, or its prices or credentials are gone. */
function keepLastGood(object: Declared, context: RouteContext, found: Partial<Verdict>): RouteOutcome {
  const { claims, prices, tenancy } = context;
  const none = nothing(object, found);
  const last = context.prior.route(object.uid);
  if (last === undefined || claims.isTaken(last.model, object)) return none;
  const { namespace, name } = last.prices.source;
  if (prices.isRefused(namespace, name)) return none;
  const credentials = last.upstreams.flatMap((upstream) => upstream.credential?.id ?? []);
  if (!credentials.every((id) => context.credentials.keep(id))) return none;
  const { source, model, aliases: before, servesNamespace: _, ...rest } = last;
  const aliases = before.filter((alias) => !claims.isTaken(alias, object));
  claims.take([model, ...aliases], object);
  const current = prices.find(namespace, name, model);
  const entry: Route = {
    // In the field order of a new entry: the same content gives the same bytes.
    source,
    ...servesOnly({ model, aliases }, scopeOf(tenancy, object.namespace)),
    ...rest,
    prices: "prices" in current ? current.prices : last.prices,
  };
  return { entry, verdict: { ...none.verdict, serves: last.source.generation } };
}

type Names = Pick<Route, "model" | "aliases" | "servesNamespace">;

const servesOnly = (names: Pick<Route, "model" | "aliases">, scope: string | undefined): Names =>
  scope === undefined ? names : { ...names, servesNamespace: scope };

/**
 * Returns the model's price. When it disappeared, it stays with the route that is served at it (rule 1.12), and with
 * no other: none may be sold at a price that is gone.
 */
function resolvePrices(
  object: Declared,
  spec: ModelRouteSpec,
  model: string,
  { prices, prior }: RouteContext,
  faults: Fault<ResolvedReason>[],
): Prices | null {
  const table = spec.priceTableRef?.name ?? routeDefaults.reference;
  const current = prices.find(object.namespace, table, model);
  if ("prices" in current) return current.prices;
  faults.push({
    reason: "PriceNotFound",
    path: spec.priceTableRef === undefined ? "spec.model" : "spec.priceTableRef",
    message: current.missing,
  });
  if (prices.isRefused(object.namespace, table)) return null;
  const last = prior.route(object.uid);
  if (
    last?.model === model &&
    last.prices.source.namespace === object.namespace &&
    last.prices.source.name === table
  )
    return last.prices;
  // A new route of a table that is not accepted now gets the price that the table had for the model before.
  const uid = prices.uidOfBroken(object.namespace, table);
  return (uid === undefined ? undefined : prior.prices(uid, model)) ?? null;
}

/** Key of the route's policy; null: no server tools. */
function resolvePolicy(
  object: Declared,
  spec: ModelRouteSpec,
  { policies }: RouteContext,
  faults: Fault<ResolvedReason>[],
): string | null {
  const name = spec.toolPolicyRef?.name ?? routeDefaults.reference;
  const key = `${object.namespace}/${name}`;
  const usable = policies.get(key);
  if (usable === true) return key;
  if (usable === false || spec.toolPolicyRef !== undefined)
    faults.push({
      reason: "ToolPolicyNotFound",
      path: "spec.toolPolicyRef",
      message:
        usable === false
          ? `ToolPolicy "${name}" is not accepted; see its own status`
          : `ToolPolicy "${name}" is not in namespace "${object.namespace}"`,
    });
  return null;
}

/** Returns the credential id of each upstream, null for one that needs none; null in place of all: one is missing. */
function resolveCredentials(
  object: Declared,
  spec: ModelRouteSpec,
  { credentials, prior }: RouteContext,
  faults: Fault<ResolvedReason>[],
): readonly (string | null)[] | null {
  const isHeld = (candidate: string) =>
    prior.route(object.uid)?.upstreams.some(({ credential }) => credential?.id === candidate) === true;
  let complete = true;
  const ids = spec.upstreams.map((upstream, index) => {
    if (upstream.credentials === undefined) return null;
    const { id, fault } = credentials.resolve(
      object.namespace,
      upstream.credentials.secretKeyRef,
      () => pathText(["spec", "upstreams", index, "credentials", "secretKeyRef"]),
      isHeld,
    );
    if (fault !== null) faults.push(fault);
    if (id === null) complete = false;
    return id;
  });
  return complete ? ids : null;
}

const dialects = { Messages: "messages", ChatCompletions: "chat", Responses: "responses" } as const;
const paths = {
  Messages: "/v1/messages",
  ChatCompletions: "/v1/chat/completions",
  Responses: "/v1/responses",
} as const;

function upstreamEntry(
  spec: ModelRouteSpec,
  upstream: ModelRouteSpec["upstreams"][number],
  model: string,
  credentialId: string | null,
): Upstream {
  const base = upstream.baseURL.replace(/\/+$/, "");
  const path = upstream.path ?? paths[upstream.dialect];
  const query = new URLSearchParams(upstream.query ?? {}).toString();
  const address = (tail: string) => `${base}${path}${tail}${query === "" ? "" : `?${query}`}`;
  const counts =
    upstream.dialect === "Messages" &&
    (spec.capabilities?.countTokens ?? routeDefaults.capabilities.countTokens);
  return {
    name: upstream.name,
    dialect: dialects[upstream.dialect],
    url: address(""),
    countTokensUrl: counts ? address("/count_tokens") : null,
    model: upstream.model ?? model,
    priority: upstream.priority ?? routeDefaults.priority,
    weight: upstream.weight ?? routeDefaults.weight,
    credential:
      credentialId === null
        ? null
        : { id: credentialId, header: credentialHeader(upstream.dialect, upstream.credentials?.header) },
    headers: Object.fromEntries(
      Object.entries(upstream.headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]),
    ),
    dedicatedTo: upstream.dedicatedTo ?? null,
    ...((upstream.propagateTrace ?? routeDefaults.propagateTrace) ? { propagateTrace: true } : {}),
  };
}

const triggers = {
  Connect: "connect",
  RateLimited: "rate_limited",
  ServerError: "server_error",
  FirstByteTimeout: "first_byte_timeout",
} as const;

function capabilitiesOf(given: NonNullable<ModelRouteSpec["capabilities"]>): Route["capabilities"] {
  const capability = (name: keyof typeof routeDefaults.capabilities) =>
    given[name] ?? routeDefaults.capabilities[name];
  return {
    toolCalling: capability("toolCalling"),
    imageInput: capability("imageInput"),
    pdfInput: capability("pdfInput"),
    thinking: capability("thinking"),
    countTokens: capability("countTokens"),
    documentCitations: capability("documentCitations"),
    samplingParameters: capability("samplingParameters"),
  };
}

const timeoutsOf = (given: NonNullable<ModelRouteSpec["timeouts"]>): Route["timeouts"] => ({
  connectMs: milliseconds(given.connect ?? routeDefaults.timeouts.connect),
  firstByteMs: given.firstByte === undefined ? null : milliseconds(given.firstByte),
  streamIdleMs: milliseconds(given.streamIdle ?? routeDefaults.timeouts.streamIdle),
  requestMs: milliseconds(given.request ?? routeDefaults.timeouts.request),
});

const retriesOf = (given: NonNullable<ModelRouteSpec["retries"]>): Route["retries"] => ({
  attempts: given.attempts ?? routeDefaults.retries.attempts,
  retryOn: (given.retryOn ?? routeDefaults.retries.retryOn).map((name) => triggers[name]),
});

/** The defaults, which most routes have: thousands share one object. */
const usualCapabilities = capabilitiesOf({});
const usualTimeouts = timeoutsOf({});
const usualRetries = retriesOf({});

/** What a route's names and references came to. */
interface ResolvedRoute {
  readonly names: Names;
  readonly upstreams: Upstream[];
  /** `namespace/name`; null: the route has no policy. */
  readonly toolPolicy: string | null;
  readonly prices: Prices;
}

function routeEntry(
  object: Declared,
  spec: ModelRouteSpec,
  { names, upstreams, toolPolicy, prices }: ResolvedRoute,
): Route {
  return {
    source: sourceOf(object),
    ...names,
    displayName: spec.displayName ?? names.model,
    ownedBy: spec.ownedBy ?? routeDefaults.ownedBy,
    createdAt: object.createdAt,
    capabilities: spec.capabilities === undefined ? usualCapabilities : capabilitiesOf(spec.capabilities),
    limits: { contextTokens: spec.limits.contextTokens, maxOutputTokens: spec.limits.maxOutputTokens },
    upstreams,
    affinity: (spec.affinity ?? routeDefaults.affinity) === "Prompt" ? "prompt" : "none",
    timeouts: spec.timeouts === undefined ? usualTimeouts : timeoutsOf(spec.timeouts),
    retries: spec.retries === undefined ? usualRetries : retriesOf(spec.retries),
    toolPolicy,
    prices,
  };
}
