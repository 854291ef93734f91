/** web_search: one query to the policy's engine, bounded and cached; its results are checked against the domain lists. */
import { createHash } from "node:crypto";
import type { Dispatcher } from "undici";
import type { Policy, SearchEngine } from "../../config/schema.ts";
import type { ToolCache } from "../cache.ts";
import { domainAllowed } from "../domains.ts";
import { callEngine, type EngineAnswer } from "../engine-call.ts";
import { failedSearch, NO_RESULT, type SearchHit, type SearchOutcome } from "../outcomes.ts";
import { judgeQuery, MAX_RESULTS, resultUrl, snippet, titleText } from "../search-query.ts";
import { httpEngines, type RawHit, type SearchOptions } from "./engines.ts";
import { modelHits, modelRequest, type AskModel } from "./model-engine.ts";

export interface SearchRequest {
  /** The model's tool input, not yet judged: `{query: string}`. */
  readonly input: unknown;
  readonly organizationId: string;
  readonly options: SearchOptions;
}

/** A policy whose web_search is on and has an engine. */
export type SearchPolicy = Pick<Policy, "source"> & {
  readonly webSearch: { readonly engine: SearchEngine; readonly timeoutMs: number };
};

export interface SearchDeps {
  readonly dispatcher: Dispatcher;
  readonly cache: ToolCache;
  /** Returns a credential of the request's own snapshot. */
  readonly credential: (id: string) => string | undefined;
  readonly askModel: AskModel;
}

/** How long results are cached: news change, but a conversation may search for the same thing twice. */
const CACHE_MS = 5 * 60_000;

/** Never throws for what the engine does; @throws the reason of `signal` when the caller gave up. */
export async function searchWeb(
  request: SearchRequest,
  policy: SearchPolicy,
  deps: SearchDeps,
  signal: AbortSignal,
): Promise<SearchOutcome> {
  signal.throwIfAborted();
  const judged = judgeQuery(request.input);
  if (judged.kind === "error") return judged;
  const { query } = judged;
  const options = {
    ...request.options,
    results: Math.min(MAX_RESULTS, Math.max(1, request.options.results)),
  };
  const key = cacheKey(request, policy, query, options);
  const kept = await deps.cache.get(key);
  if (kept !== null) return hits(JSON.parse(kept.toString("utf8")) as SearchHit[]);
  const deadline = AbortSignal.timeout(policy.webSearch.timeoutMs);
  try {
    const raw = await ask(policy.webSearch.engine, query, options, deps, AbortSignal.any([signal, deadline]));
    if (typeof raw === "string") return failedSearch(raw);
    const found = tidyHits(raw, options);
    await deps.cache.set(request.organizationId, key, Buffer.from(JSON.stringify(found)), CACHE_MS);
    return hits(found);
  } catch (error) {
    signal.throwIfAborted();
    return failedSearch(deadline.aborted ? "timed out" : error instanceof Error ? error.name : "failed");
  }
}

const hits = (found: readonly SearchHit[]): SearchOutcome => ({
  kind: "hits",
  hits: found,
  posts: 0,
  profiles: 0,
});

/** Returns raw hits, or the error's `detail`. */
async function ask(
  engine: SearchEngine,
  query: string,
  options: SearchOptions,
  deps: SearchDeps,
  signal: AbortSignal,
): Promise<readonly RawHit[] | string> {
  if (engine.type === "model") {
    const { dialect, body } = await deps.askModel(
      engine.model,
      (to) => modelRequest(to, query, options),
      signal,
    );
    return modelHits(dialect, body) ?? NO_RESULT;
  }
  const form = httpEngines[engine.type];
  const baseUrl = engine.baseUrl === "" ? form.defaultBaseUrl : engine.baseUrl;
  if (baseUrl === null) return "engine without address";
  const key = engine.credential === null ? null : (deps.credential(engine.credential) ?? null);
  const call = (located: boolean): Promise<EngineAnswer> =>
    callEngine(form.request(baseUrl, key, query, options, located), deps.dispatcher, signal);
  let answer = await call(true);
  // Engines refuse countries that they do not know; the search matters more than the location, so it is asked again without.
  const refused = answer.kind === "failed" && (answer.status === 400 || answer.status === 422);
  if (refused && options.location !== null) answer = await call(false);
  if (answer.kind === "failed") return answer.detail;
  return form.read(answer.json, answer.timing) ?? NO_RESULT;
}

/** Returns at most as many hits as wanted, each URL once, only from domains that the lists allow. */
function tidyHits(raw: readonly RawHit[], options: SearchOptions): SearchHit[] {
  const found = new Map<string, SearchHit>();
  for (const hit of raw) {
    const url = resultUrl(hit.url);
    if (url === null || found.has(url.href) || !domainAllowed(url, options.domains)) continue;
    found.set(url.href, {
      url: url.href,
      title: titleText(hit.title),
      text: snippet(hit.text),
      age: titleText(hit.age),
    });
    if (found.size === options.results) break;
  }
  return [...found.values()];
}

function cacheKey(
  request: SearchRequest,
  policy: SearchPolicy,
  query: string,
  options: SearchOptions,
): string {
  const { uid, generation } = policy.source;
  const parts = JSON.stringify([request.organizationId, uid, generation, query, options]);
  return `search:${createHash("sha256").update(parts).digest("base64url")}`;
}
