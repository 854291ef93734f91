/**
 * Checks each origin's robots.txt before a page is fetched from it (rule 3.14): 4xx allows; 5xx, a time-out and everything
 * else that prevents reading it deny. Answers are cached for a while; failures are not.
 */
import { request, type Dispatcher } from "undici";
import { unlessAborted } from "../../lib/unless-aborted.ts";
import { judgeUrl } from "../url-guard/judge-url.ts";
import type { EgressRules } from "../url-guard/address.ts";
import { discardBody, readPageBody } from "./body.ts";
import { isRedirect, MAX_REDIRECTS, redirectTarget } from "./redirects.ts";
import {
  AGENT_TOKEN,
  allowAll,
  MAX_ROBOTS_BYTES,
  parseRobots,
  robotsAllow,
  USER_AGENT,
  type Robots,
} from "./robots.ts";
import type { RobotsCache } from "./robots-cache.ts";

/** A site whose robots.txt takes longer denies; the rest of the time is left for the page itself. */
const MAX_WAIT_MS = 5_000;

export interface RobotsGate {
  allows(url: URL): Promise<boolean>;
}

export interface GateOptions {
  readonly cache: RobotsCache;
  /** The organization of the request: it learns nothing of another's entries in the cache. */
  readonly organizationId: string;
  /** Part of the cache's key: under another egress policy another file may answer. */
  readonly scope: string;
  readonly egress: EgressRules;
  readonly dispatcher: Dispatcher;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export function robotsGate(options: GateOptions): RobotsGate {
  return {
    async allows(url) {
      const { cache, organizationId, scope } = options;
      const place = `${scope} ${url.origin}`;
      const kept = cache.get(organizationId, place);
      const robots = kept ?? (await fetchRobots(url.origin, options));
      if (robots === null) return false;
      if (kept === undefined) cache.set(organizationId, place, robots);
      return await robotsAllow(robots, url);
    },
  };
}

/** Fetches the rules; null: they cannot be read now, which denies. */
async function fetchRobots(origin: string, options: GateOptions): Promise<Robots | null> {
  const timeout = AbortSignal.timeout(Math.min(MAX_WAIT_MS, Math.ceil(options.timeoutMs / 2)));
  const signal = AbortSignal.any([options.signal, timeout]);
  try {
    return await readRobots(`${origin}/robots.txt`, options, signal);
  } catch {
    options.signal.throwIfAborted();
    return null;
  }
}

async function readRobots(start: string, options: GateOptions, signal: AbortSignal): Promise<Robots | null> {
  let text = start;
  for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
    const verdict = judgeUrl(text, options.egress);
    if (!verdict.allowed) return null;
    const ask = () =>
      request(verdict.url, {
        dispatcher: options.dispatcher,
        signal,
        headers: { "user-agent": USER_AGENT, accept: "text/plain, */*;q=0.1", "accept-encoding": "identity" },
      });
    const { statusCode, headers, body } = await unlessAborted(ask, signal);
    if (statusCode >= 200 && statusCode <= 299) {
      const encoding = headers["content-encoding"];
      const read = await readPageBody(body, typeof encoding === "string" ? encoding : "", {
        maxBytes: MAX_ROBOTS_BYTES,
        cut: true,
      });
      return read.kind === "bytes" ? await parseRobots(read.bytes.toString("utf8"), AGENT_TOKEN) : null;
    }
    discardBody(body);
    if (statusCode >= 400 && statusCode <= 499) return allowAll;
    const next = isRedirect(statusCode) ? redirectTarget(headers["location"], verdict.url) : null;
    if (next === null) return null;
    text = next;
  }
  // RFC 9309 §2.3.1.2: after five redirects the file counts as unavailable, which allows.
  return allowAll;
}
