/** ModelRoutes: claims of public names, references, and the entry that the data plane serves. */
import type { Prices, Route, Upstream } from "../../dataplane/config/schema.ts";
import { milliseconds } from "../api/fields.ts";
import { credentialHeader, type ModelRouteSpec, routeDefaults } from "../api/model-route.ts";
import type { Claims } from "./claims.ts";
import type { CredentialCollector } from "./credentials.ts";
import { type Declared, type Fault, pathText, type ResolvedReason, type Verdict } from "./objects.ts";
import type { PriceTables } from "./prices.ts";
import type { Prior } from "./prior.ts";
import { readSpec } from "./read-spec.ts";
import { sourceOf } from "./source.ts";

export interface RouteContext {
  readonly prior: Prior;
  readonly prices: PriceTables;
  readonly credentials: CredentialCollector;
  /** Public model ids and aliases. */
  readonly claims: Claims;
  /** `namespace/name` of each ToolPolicy: true when the snapshot holds an entry for it. */
  readonly policies: ReadonlyMap<string, boolean>;
}

interface Outcome {
  readonly verdict: Verdict;
  readonly entry: Route | null;
}

/** What the outcome of a route without faults depends on beside the object itself. */
interface Made {
  readonly prices: Prices;
  readonly toolPolicy: string | null;
  readonly outcome: Outcome;
}
const lastMade = new WeakMap<Declared, Made>();

/**
 * One route; to be called oldest first. While nothing that it depends on changes, the outcome is the very same
 * object: of 10,000 routes an edit makes one anew.
 */
export function compileRoute(object: Declared, context: RouteContext): Outcome {
  const read = readSpec(object);
  if (!read.ok) return keepLastGood(object, context, { accepted: read.faults });
  const spec = read.spec as ModelRouteSpec;
  const model = spec.model ?? object.name;
  const facts = { model, upstreams: spec.upstreams.length };
  const names = [model, ...(spec.aliases ?? [])];
  const taken = context.claims.takenIndex(names, object);
  if (taken >= 0) {
    const name = names[taken] ?? model;
    const fault: Fault = {
      reason: "Conflicted",
      path: taken === 0 ? "spec.model" : `spec.aliases[${taken - 1}]`,
      message: `"${name}" belongs to ${context.claims.describeHolder(name, object)}`,
    };
    return keepLastGood(object, context, { accepted: [fault], facts });
  }
  context.claims.take(names, object);

  const resolved: Fault<ResolvedReason>[] = [];
  const prices = resolvePrices(object, spec, model, context, resolved);
  const toolPolicy = resolvePolicy(object, spec, context, resolved);
  const credentials = resolveCredentials(object, spec, context, resolved);
  if (prices === null || credentials === null) return keepLastGood(object, context, { resolved, facts });
  // Without faults every credential is the one that the spec names.
  const last = resolved.length === 0 ? lastMade.get(object) : undefined;
  if (last?.prices === prices && last.toolPolicy === toolPolicy) return last.outcome;
  const upstreams = spec.upstreams.map((upstream, index) =>
    upstreamEntry(spec, upstream, model, credentials[index] ?? null),
  );
  const outcome: Outcome = {
    entry: routeEntry(object, spec, model, upstreams, toolPolicy, prices),
    verdict: { object, accepted: [], resolved, serves: object.generation, notes: [], facts },
  };
  if (resolved.length === 0) lastMade.set(object, { prices, toolPolicy, outcome });
  return outcome;
}

/** The last published entry of this very object, unless its names belong to somebody else by now. */
function keepLastGood(object: Declared, context: RouteContext, found: Partial<Verdict>): Outcome {
  const verdict: Verdict = {
    object,
    accepted: found.accepted ?? [],
    resolved: found.resolved ?? [],
    serves: null,
    notes: [],
    facts: found.facts ?? {},
  };
  const last = context.prior.route(object.uid);
  if (last === undefined) return { entry: null, verdict };
  const names = [last.model, ...last.aliases];
  if (context.claims.takenIndex(names, object) >= 0) return { entry: null, verdict };
  const credentials = last.upstreams.flatMap((upstream) => upstream.credential?.id ?? []);
  if (!credentials.every((id) => context.credentials.keep(id))) return { entry: null, verdict };
  context.claims.take(names, object);
  const { namespace, name } = last.prices.source;
  const current = context.prices.find(namespace, name, last.model);
  const entry = "prices" in current ? { ...last, prices: current.prices } : last;
  return { entry, verdict: { ...verdict, serves: last.source.generation } };
}

/**
 * The model's price; one that disappeared from under a served route stays (rule 1.12): with that very route, since
 * no other may be sold at a price that is gone.
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
  const last = prior.route(object.uid);
  if (
    last?.model === model &&
    last.prices.source.namespace === object.namespace &&
    last.prices.source.name === table
  )
    return last.prices;
  // A new route of a table that is broken just now: what the table said of the model before.
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

/** Ids of the upstreams' credentials; null among them: none is asked for; null: one is missing. */
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

/** Most routes say nothing of these: thousands share one object. */
const usualCapabilities = capabilitiesOf({});
const usualTimeouts = timeoutsOf({});
const usualRetries = retriesOf({});

function routeEntry(
  object: Declared,
  spec: ModelRouteSpec,
  model: string,
  upstreams: Upstream[],
  toolPolicy: string | null,
  prices: Prices,
): Route {
  return {
    source: sourceOf(object),
    model,
    aliases: (spec.aliases ?? []).filter((alias) => alias !== model),
    displayName: spec.displayName ?? model,
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
