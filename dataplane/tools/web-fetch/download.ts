/**
 * Follows a URL to its body through the guard: before anything is sent to a hop, its URL is judged by the guard, the
 * domain lists and the robots.txt of its origin.
 */
import { request, type Dispatcher } from "undici";
import type { ByteLease } from "../../lib/byte-budget.ts";
import type { WebFetchErrorCode } from "../../dialects/messages/types.ts";
import { domainAllowed, type DomainLists } from "../domains.ts";
import type { EgressRules } from "../url-guard/address.ts";
import { judgeUrl } from "../url-guard/judge-url.ts";
import { ACCEPT_ENCODING, discardBody, readPageBody } from "./body.ts";
import { isPdf, readContentType, sniffKind, type ContentType } from "./content-type.ts";
import { isRedirect, MAX_REDIRECTS, redirectTarget } from "./redirects.ts";
import type { RobotsGate } from "./robots-gate.ts";
import { USER_AGENT } from "./robots.ts";

export interface DownloadRules {
  readonly egress: EgressRules;
  readonly domains: DomainLists;
  readonly maxBytes: number;
  /** Whether a PDF may be returned. */
  readonly pdf: boolean;
  /** Counts the page's bytes as they come, compressed ones after decompression (rule 7.2). */
  readonly lease: Pick<ByteLease, "take">;
}

export interface Downloaded {
  readonly kind: "downloaded";
  /** Every URL of the redirect chain, the last one being the page's. */
  readonly hops: readonly string[];
  readonly content: Exclude<ContentType["kind"], "unsupported" | null>;
  readonly charset: string | null;
  readonly bytes: Buffer;
}

export interface RefusedFetch {
  readonly kind: "error";
  readonly code: WebFetchErrorCode;
  readonly detail: string;
}

/** Largest PDF; it is passed as a whole (service.md "Limits"). */
const MAX_PDF_BYTES = 10 * 1024 * 1024;

const ACCEPT = "text/html, application/xhtml+xml, application/json, application/pdf, text/*;q=0.9, */*;q=0.1";

/** @param detail for logs. */
export const refusedFetch = (code: WebFetchErrorCode, detail: string): RefusedFetch => ({
  kind: "error",
  code,
  detail,
});

/** @throws when the connection fails or `signal` aborts; ApiError without room for the bytes. */
export async function download(
  start: string,
  rules: DownloadRules,
  gate: RobotsGate,
  dispatcher: Dispatcher,
  signal: AbortSignal,
): Promise<Downloaded | RefusedFetch> {
  const hops: string[] = [];
  let text = start;
  while (hops.length <= MAX_REDIRECTS) {
    const hop = judgeHop(text, rules);
    if (hop.kind === "error") return hop;
    const { url } = hop;
    if (!(await gate.allows(url))) return refusedFetch("url_not_accessible", "robots.txt refuses");
    hops.push(url.href);
    const response = await request(url, {
      dispatcher,
      signal,
      headers: { "user-agent": USER_AGENT, accept: ACCEPT, "accept-encoding": ACCEPT_ENCODING },
    });
    if (!isRedirect(response.statusCode)) return await readPage(response, hops, rules);
    discardBody(response.body);
    const next = redirectTarget(response.headers["location"], url);
    if (next === null) return refusedFetch("url_not_accessible", "redirect without a target");
    text = next;
  }
  return refusedFetch("url_not_accessible", "too many redirects");
}

/** Judges one URL of the redirect chain, of a fetch or of a cached page. */
export function judgeHop(
  text: string,
  rules: Pick<DownloadRules, "egress" | "domains">,
): { readonly kind: "allowed"; readonly url: URL } | RefusedFetch {
  const verdict = judgeUrl(text, rules.egress);
  if (!verdict.allowed) return refusedFetch("url_not_accessible", verdict.reason);
  const { url } = verdict;
  url.hash = "";
  return domainAllowed(url, rules.domains)
    ? { kind: "allowed", url }
    : refusedFetch("url_not_allowed", "domain lists");
}

async function readPage(
  response: Dispatcher.ResponseData,
  hops: readonly string[],
  rules: DownloadRules,
): Promise<Downloaded | RefusedFetch> {
  const { statusCode, headers, body } = response;
  const { kind, charset } = readContentType(single(headers["content-type"]));
  const early = refusedByHead(statusCode, kind, Number(single(headers["content-length"]) ?? 0), rules);
  if (early !== null) {
    discardBody(body);
    return early;
  }
  const read = await readPageBody(body, single(headers["content-encoding"]) ?? "", {
    maxBytes: rules.maxBytes,
    take: (bytes) => rules.lease.take(bytes),
  });
  if (read.kind === "failed") return refusedFetch("url_not_accessible", read.detail);
  const content = kind ?? sniffKind(read.bytes);
  if (content === "unsupported" || (content === "pdf" && !(rules.pdf && isPdf(read.bytes)))) {
    return refusedFetch("unsupported_content_type", "content type");
  }
  if (content === "pdf" && read.bytes.length > MAX_PDF_BYTES)
    return refusedFetch("url_not_accessible", "PDF too large");
  return { kind: "downloaded", hops, content, charset, bytes: read.bytes };
}

function refusedByHead(
  status: number,
  kind: ContentType["kind"],
  length: number,
  rules: DownloadRules,
): RefusedFetch | null {
  if (status < 200 || status > 299) return refusedFetch("url_not_accessible", `status ${status}`);
  if (kind === "unsupported" || (kind === "pdf" && !rules.pdf)) {
    return refusedFetch("unsupported_content_type", "content type");
  }
  return length > rules.maxBytes ? refusedFetch("url_not_accessible", "body too large") : null;
}

const single = (header: string | string[] | undefined) =>
  Array.isArray(header) ? header.join(", ") : header;
