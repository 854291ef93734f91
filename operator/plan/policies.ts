/** ToolPolicies: engines with their credentials, and bounds. */
import type { Policy, SearchEngine } from "../../dataplane/config/schema.ts";
import { milliseconds } from "../api/fields.ts";
import { policyDefaults, type SearchEngineSpec, type ToolPolicySpec } from "../api/tool-policy.ts";
import type { CredentialCollector } from "./credentials.ts";
import type { Judge, Judged } from "./judge.ts";
import { type Declared, type Fault, type ResolvedReason, type Verdict } from "./objects.ts";
import type { Prior } from "./prior.ts";
import { sourceOf } from "./source.ts";
import { mayKeepPolicy, type Tenancy } from "./tenancy.ts";

export interface PolicyContext {
  readonly prior: Prior;
  readonly credentials: CredentialCollector;
  /** Public id of the served ModelRoute `namespace/name`. */
  readonly servedModel: (reference: string) => string | undefined;
  /** Whether any ModelRoute serves this public id to those whom the policy's namespace serves. */
  readonly isServed: (model: string, namespace: string) => boolean;
}

/** One policy that is being resolved. */
interface Resolving {
  readonly object: Declared;
  readonly context: PolicyContext;
  /** Receives its references that do not resolve. */
  readonly faults: Fault<ResolvedReason>[];
}

/** A policy whose spec has been read: before it is compiled, routes have to know whether it will be served. */
export interface ReadPolicy {
  readonly object: Declared;
  readonly read: Judged;
  /** The last good entry, if it may stay. */
  readonly last: Policy | undefined;
}

/** Judges a ToolPolicy, and finds the entry to keep where it is at fault. Routes need that before policies can be compiled. */
export function readPolicy(object: Declared, judge: Judge, prior: Prior, tenancy: Tenancy): ReadPolicy {
  const read = judge(object);
  const last = read.ok || read.keepsLast ? prior.policy(object.uid) : undefined;
  return { object, read, last: last !== undefined && mayKeepPolicy(last, tenancy) ? last : undefined };
}

/** Whether the snapshot will hold an entry: a new one, or the last good one. */
export const policyIsUsable = ({ read, last }: ReadPolicy): boolean => read.ok || last !== undefined;

/** Makes the entry of a policy, or keeps the last good one. @param context knows the routes: they are compiled before */
export function compilePolicy(
  { object, read, last }: ReadPolicy,
  context: PolicyContext,
): { readonly verdict: Verdict; readonly entry: Policy | null } {
  if (!read.ok) return keepLastGood(object, read.faults, last, context);
  const spec = read.spec as ToolPolicySpec;
  const resolved: Fault<ResolvedReason>[] = [];
  const resolving: Resolving = { object, context, faults: resolved };
  const { limits } = policyDefaults;
  const entry: Policy = {
    source: sourceOf(object),
    webSearch: webSearchEntry(resolving, spec),
    webFetch: webFetchEntry(spec),
    xSearch: xSearchEntry(resolving, spec),
    callsPerMinute: spec.limits?.callsPerMinute ?? limits.callsPerMinute,
    iterations: spec.limits?.iterations ?? limits.iterations,
    parallelCalls: spec.limits?.parallelCalls ?? limits.parallelCalls,
  };
  const verdict: Verdict = {
    object,
    accepted: [],
    resolved,
    serves: object.generation,
    notes:
      spec.webFetch?.egress?.proxyResolves === true
        ? ["names of fetched pages are resolved by the proxy, which has to guard private addresses"]
        : [],
    facts: { engine: spec.webSearch?.engine?.type ?? "None" },
  };
  return { verdict, entry };
}

function keepLastGood(
  object: Declared,
  accepted: readonly Fault[],
  last: Policy | undefined,
  { credentials }: PolicyContext,
) {
  const verdict: Verdict = {
    object,
    accepted,
    resolved: [],
    serves: last?.source.generation ?? null,
    notes: [],
    facts: {},
  };
  if (last === undefined) return { verdict, entry: null };
  for (const id of credentialsOf(last)) credentials.keep(id);
  return { verdict, entry: last };
}

/** Returns the ids of the credentials of a policy's engines. */
export function credentialsOf(policy: Policy | undefined): string[] {
  const search = policy?.webSearch?.engine;
  const posts = policy?.xSearch?.engine;
  return [
    ...(search !== null && search !== undefined && "credential" in search ? [search.credential] : []),
    posts?.credential,
  ].filter((id): id is string => typeof id === "string");
}

function webSearchEntry(resolving: Resolving, { webSearch: tool }: ToolPolicySpec): Policy["webSearch"] {
  if (tool === undefined || tool.enabled === false) return null;
  return {
    engine:
      tool.engine === undefined
        ? null
        : (searchEngine(resolving, tool.engine) ?? lastSearchEngine(resolving)),
    timeoutMs: milliseconds(tool.timeout ?? policyDefaults.webSearch.timeout),
  };
}

/** The engine with its references resolved; null when one is missing. */
function searchEngine(resolving: Resolving, engine: SearchEngineSpec): SearchEngine | null {
  if (engine.type === "SearXNG")
    return { type: "searxng", baseUrl: withoutSlash(engine.baseURL ?? ""), credential: null };
  if (engine.type === "Model") {
    const { object, context, faults } = resolving;
    const model = context.servedModel(`${object.namespace}/${engine.modelRoute}`);
    if (model !== undefined) return { type: "model", model };
    faults.push({
      reason: "ModelRouteNotFound",
      path: "spec.webSearch.engine.modelRoute",
      message: `ModelRoute "${engine.modelRoute}" is not served in namespace "${object.namespace}"`,
    });
    return null;
  }
  const credential = engineCredential(resolving, engine, "spec.webSearch.engine");
  if (credential === null) return null;
  return {
    type: engine.type === "Brave" ? "brave" : "tavily",
    baseUrl: withoutSlash(engine.baseURL ?? policyDefaults.baseURL[engine.type]),
    credential,
  };
}

/** Returns the last engine, for use while a reference of the spec's is missing (rule 6.5); null: the tool is not active. */
function lastSearchEngine({ object, context }: Resolving): SearchEngine | null {
  const last = context.prior.policy(object.uid)?.webSearch?.engine ?? null;
  if (last === null) return null;
  if (last.type === "model") return context.isServed(last.model, object.namespace) ? last : null;
  return keeps(last.credential, context) ? last : null;
}

const keeps = (credential: string | null, { credentials }: PolicyContext): boolean =>
  credential === null || credentials.keep(credential);

function engineCredential(
  { object, context: { prior, credentials }, faults }: Resolving,
  engine: Pick<SearchEngineSpec, "credentials">,
  path: string,
): string | null {
  if (engine.credentials === undefined) return null;
  const held = new Set(credentialsOf(prior.policy(object.uid)));
  const { id, fault } = credentials.resolve(
    object.namespace,
    engine.credentials.secretKeyRef,
    () => `${path}.credentials.secretKeyRef`,
    (candidate) => held.has(candidate),
  );
  if (fault !== null) faults.push(fault);
  return id;
}

function webFetchEntry(spec: ToolPolicySpec): Policy["webFetch"] {
  const tool = spec.webFetch;
  if (tool === undefined || tool.enabled === false) return null;
  const egress = tool.egress ?? {};
  return {
    timeoutMs: milliseconds(tool.timeout ?? policyDefaults.webFetch.timeout),
    maxBytes: tool.maxBytes ?? policyDefaults.webFetch.maxBytes,
    cacheTtlMs: milliseconds(tool.cacheTTL ?? policyDefaults.webFetch.cacheTTL),
    allowCidrs: egress.allowCIDRs ?? [],
    allowPorts: egress.allowPorts ?? [],
    proxy:
      egress.proxy === undefined
        ? null
        : { url: withoutSlash(egress.proxy), resolves: egress.proxyResolves ?? false },
  };
}

function xSearchEntry(resolving: Resolving, { xSearch: tool }: ToolPolicySpec): Policy["xSearch"] {
  if (tool === undefined || tool.enabled === false) return null;
  return {
    engine: tool.engine === undefined ? null : postEngine(resolving, tool.engine),
    timeoutMs: milliseconds(tool.timeout ?? policyDefaults.xSearch.timeout),
  };
}

/** Resolves the engine for posts. Without its credential the last engine answers; null: the tool is not active. */
function postEngine(
  resolving: Resolving,
  engine: NonNullable<NonNullable<ToolPolicySpec["xSearch"]>["engine"]>,
): NonNullable<Policy["xSearch"]>["engine"] {
  const credential = engineCredential(resolving, engine, "spec.xSearch.engine");
  if (credential !== null)
    return { baseUrl: withoutSlash(engine.baseURL ?? policyDefaults.baseURL.X), credential };
  const { object, context } = resolving;
  const last = context.prior.policy(object.uid)?.xSearch?.engine ?? null;
  return last !== null && keeps(last.credential, context) ? last : null;
}

const withoutSlash = (url: string) => url.replace(/\/+$/, "");
