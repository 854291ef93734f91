/**
 * web_fetch and page opening: turns a URL that the model asks for into text or a PDF for the model, or into one of the codes
 * of service.md "Errors of tools". Order of judgement: form, length, guard, domain lists, prior context, cache, network.
 */
import type { Policy } from "../../config/schema.ts";
import { ApiError } from "../../lib/api-error.ts";
import type { ByteLease } from "../../lib/byte-budget.ts";
import type { Clock } from "../../lib/clock.ts";
import { firstUnits } from "../../lib/first-units.ts";
import type { ToolCache } from "../cache.ts";
import type { DomainLists } from "../domains.ts";
import type { FetchedPage, FetchOutcome } from "../outcomes.ts";
import { egressRules } from "../url-guard/address.ts";
import { guardedDispatcher } from "../url-guard/dispatcher.ts";
import { judgeUrl } from "../url-guard/judge-url.ts";
import type { OwnAddresses } from "../url-guard/own-addresses.ts";
import type { Resolver } from "../url-guard/resolver.ts";
import {
  download,
  judgeHop,
  refusedFetch,
  type Downloaded,
  type DownloadRules,
  type RefusedFetch,
} from "./download.ts";
import { decodePage } from "./extract/charset.ts";
import type { ExtractionPool, PageTurn } from "./extract/pool.ts";
import { PageCache, type KeptPage } from "./page-cache.ts";
import type { PriorContext } from "./prior-context.ts";
import type { RobotsCache } from "./robots-cache.ts";
import { robotsGate } from "./robots-gate.ts";

export interface FetchRequest {
  /** The model's tool input, not yet judged: `{url: string}`. */
  readonly input: unknown;
  readonly organizationId: string;
  readonly domains: DomainLists;
  readonly prior: PriorContext;
  /** Most tokens of the text, of about 4 characters each; null: the whole page. */
  readonly maxContentTokens: number | null;
  readonly useCache: boolean;
  /** Whether the model reads PDF. */
  readonly pdf: boolean;
  /**
   * Counts the page's bytes while they are held (rule 7.2): as they come, while the page waits to be read, and, if it is
   * returned, until the caller releases the lease.
   */
  readonly lease: ByteLease;
}

/** A policy whose web_fetch is on. */
export type FetchPolicy = Pick<Policy, "source"> & { readonly webFetch: NonNullable<Policy["webFetch"]> };

export interface FetchDeps {
  readonly resolver: Resolver;
  readonly pool: ExtractionPool;
  readonly cache: ToolCache;
  readonly robots: RobotsCache;
  readonly clock: Clock;
  /** Certificate authorities to trust instead of the system's, PEM. */
  readonly ca?: string;
  /** Addresses that no policy opens; absent: none. */
  readonly own?: OwnAddresses;
}

const CHARACTERS_PER_TOKEN = 4;
const MAX_URL_CHARACTERS = 250;
/** Texts up to this size are decoded here: sending them to a child would cost more. */
const INLINE_BYTES = 128 * 1024;

/**
 * Fetches one page. Never throws for what the page or the network does; @throws the reason of `signal` when the
 * caller gave up.
 */
export async function fetchPage(
  request: FetchRequest,
  policy: FetchPolicy,
  deps: FetchDeps,
  signal: AbortSignal,
): Promise<FetchOutcome> {
  let outcome: FetchOutcome | null = null;
  try {
    outcome = await openPage(request, policy, deps, signal);
    return outcome;
  } finally {
    if (outcome?.kind !== "page") request.lease.release();
  }
}

async function openPage(
  request: FetchRequest,
  policy: FetchPolicy,
  deps: FetchDeps,
  signal: AbortSignal,
): Promise<FetchOutcome> {
  signal.throwIfAborted();
  const { webFetch } = policy;
  const rules: DownloadRules = {
    egress: egressRules(webFetch),
    domains: request.domains,
    maxBytes: webFetch.maxBytes,
    pdf: request.pdf,
    lease: request.lease,
  };
  const judged = judgeRequest(request, rules);
  if (judged.kind === "error") return judged;
  const { href } = judged.url;
  const cache = new PageCache(deps.cache, webFetch.cacheTtlMs, [
    request.organizationId,
    policy.source.uid,
    String(policy.source.generation),
  ]);
  if (request.useCache) {
    const kept = await cache.get(href);
    if (kept !== null) return fromCache(kept, request, rules);
  }
  const started = performance.now();
  const deadline = AbortSignal.timeout(webFetch.timeoutMs);
  try {
    const fetched = await downloadFresh(
      { href, organizationId: request.organizationId, rules },
      policy,
      deps,
      AbortSignal.any([signal, deadline]),
    );
    if (fetched.kind === "error") return fetched;
    // The time in which others' pages are read does not count for this one.
    const timeoutMs = Math.max(0, Math.ceil(webFetch.timeoutMs - (performance.now() - started)));
    const turn = { organizationId: request.organizationId, timeoutMs };
    const page = await readDownload(fetched, turn, deps, signal);
    if (page.kind === "error") return page;
    await cache.set(href, page.kept);
    return brought(page.kept, request, false);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof ApiError) return refusedFetch("unavailable", "no room for the page's bytes");
    if (deadline.aborted) return refusedFetch("unavailable", "timed out");
    return refusedFetch("url_not_accessible", describe(error));
  }
}

/** Makes all checks that need no connection. */
function judgeRequest(
  request: FetchRequest,
  rules: DownloadRules,
): { kind: "allowed"; url: URL } | RefusedFetch {
  const text = urlOf(request.input);
  if (text === null) return refusedFetch("invalid_tool_input", "url is not a string");
  if (isLonger(text, MAX_URL_CHARACTERS)) return refusedFetch("url_too_long", "over 250 characters");
  const verdict = judgeUrl(text, rules.egress);
  if (!verdict.allowed && verdict.malformed) return refusedFetch("invalid_tool_input", verdict.reason);
  const hop = judgeHop(text, rules);
  if (hop.kind === "error") return hop;
  const shown = request.prior.find(text);
  return shown === null ? refusedFetch("url_not_in_prior_context", "never appeared") : judgeHop(shown, rules);
}

function urlOf(input: unknown): string | null {
  if (typeof input !== "object" || input === null || !Object.hasOwn(input, "url")) return null;
  const { url } = input as { url: unknown };
  return typeof url === "string" && url !== "" ? url : null;
}

/** Counts code points without walking a string that may be megabytes long. */
const isLonger = (text: string, limit: number) => text.length > 2 * limit || Array.from(text).length > limit;

/** Returns a cached page, if this request's own lists and model allow it; its hops are judged again (rules 3.15, 3.16). */
function fromCache(kept: KeptPage, request: FetchRequest, rules: DownloadRules): FetchOutcome {
  for (const hop of kept.hops) {
    const judged = judgeHop(hop, rules);
    if (judged.kind === "error") return judged;
  }
  if (kept.source.type === "pdf" && !request.pdf) return refusedFetch("unsupported_content_type", "PDF");
  try {
    return brought(kept, request, true);
  } catch (error) {
    if (error instanceof ApiError) return refusedFetch("unavailable", "no room for the page's bytes");
    throw error;
  }
}

/** Returns the page as this request wants it, its bytes counted in the lease. @throws ApiError without room for them. */
function brought(kept: KeptPage, request: FetchRequest, cached: boolean): FetchOutcome {
  const page = cut(kept, request);
  const { source } = page;
  request.lease.hold(source.type === "text" ? Buffer.byteLength(source.text) : source.base64.length);
  return { kind: "page", page, cached };
}

/** A page that has to come from its server. */
interface Wanted {
  readonly href: string;
  /** Whose model asked for it. */
  readonly organizationId: string;
  readonly rules: DownloadRules;
}

/** Downloads it over connections of its own, which end with it. */
async function downloadFresh(
  { href, organizationId, rules }: Wanted,
  { webFetch, source }: FetchPolicy,
  deps: FetchDeps,
  signal: AbortSignal,
): Promise<Downloaded | RefusedFetch> {
  const { egress } = rules;
  const dispatcher = guardedDispatcher({
    rules: egress,
    resolver: deps.resolver,
    proxy: webFetch.proxy,
    signal,
    ...(deps.ca === undefined ? {} : { ca: deps.ca }),
    owner: organizationId,
    ...(deps.own === undefined ? {} : { own: deps.own }),
  });
  const gate = robotsGate({
    cache: deps.robots,
    organizationId,
    scope: `${source.uid} ${source.generation}`,
    egress,
    dispatcher,
    timeoutMs: webFetch.timeoutMs,
    signal,
  });
  try {
    return await download(href, rules, gate, dispatcher, signal);
  } finally {
    await dispatcher.destroy();
  }
}

async function readDownload(
  { hops, content, charset, bytes }: Downloaded,
  turn: PageTurn,
  deps: FetchDeps,
  signal: AbortSignal,
): Promise<{ kind: "fresh"; kept: KeptPage } | RefusedFetch> {
  const url = hops.at(-1) ?? "";
  const page = { url, hops, retrievedAt: new Date(deps.clock.now()).toISOString() };
  if (content === "pdf") {
    return {
      kind: "fresh",
      kept: { ...page, title: null, source: { type: "pdf", base64: bytes.toString("base64") } },
    };
  }
  if (content !== "html" && bytes.length <= INLINE_BYTES) {
    const text = decodePage(bytes, content, charset);
    return { kind: "fresh", kept: { ...page, title: null, source: { type: "text", text } } };
  }
  const read = await deps.pool.extract({ kind: content, charset, url, bytes }, turn, signal);
  if (read.kind === "extracted") {
    return { kind: "fresh", kept: { ...page, title: read.title, source: { type: "text", text: read.text } } };
  }
  signal.throwIfAborted();
  return read.reason === "broken"
    ? refusedFetch("url_not_accessible", "page cannot be read")
    : refusedFetch("unavailable", `extraction ${read.reason}`);
}

/** Cuts the page to this request's token limit, never inside a character. */
function cut({ hops: _hops, ...page }: KeptPage, request: FetchRequest): FetchedPage {
  if (page.source.type === "pdf" || request.maxContentTokens === null) return page;
  const { text } = page.source;
  const kept = firstUnits(text, request.maxContentTokens * CHARACTERS_PER_TOKEN);
  if (kept === text) return page;
  // A copy, as a slice would keep all of the text in memory.
  return { ...page, source: { type: "text", text: Buffer.from(kept).toString() } };
}

/** Returns an error's name and that of its cause, if any; messages may hold addresses, which are fine in a log but not needed. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return "failed";
  const { cause } = error;
  return cause instanceof Error
    ? `${error.name}: ${cause.name}`
    : `${error.name}: ${error.message.slice(0, 100)}`;
}
