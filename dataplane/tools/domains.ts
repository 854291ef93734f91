/**
 * Domain lists of web_search and web_fetch declarations (service.md "Server tools", rule 3.11): plain
 * domains with an optional path. A rule matches its domain and all subdomains; host case and a trailing dot do not
 * matter; the path is a prefix in which `*` stands for any run of characters. Pure.
 */
import { domainToASCII } from "node:url";
import { plainPath } from "./plain-path.ts";
import { isHostName } from "./url-guard/judge-url.ts";

export interface DomainRule {
  /** ASCII, lower case, without a trailing dot. */
  readonly domain: string;
  /** Literal pieces of the path between its `*`; empty without a path. */
  readonly path: readonly string[];
}

export interface DomainLists {
  /** null: every domain. */
  readonly allowed: readonly DomainRule[] | null;
  readonly blocked: readonly DomainRule[];
}

export const anyDomain: DomainLists = { allowed: null, blocked: [] };

export type ParsedDomains =
  | { readonly kind: "lists"; readonly lists: DomainLists }
  /** `param` is relative to the tool, such as `allowed_domains[2]`; `message` is for the client. */
  | { readonly kind: "invalid"; readonly param: string; readonly message: string };

/** Limits that keep judging a URL cheap; the caller may have a lower limit of domains. */
const MAX_DOMAINS = 1_000;
const MAX_RULE_LENGTH = 2_048;
const MAX_STARS = 1_000;

/** Reads the two lists of a declaration; null, absent and empty lists are no lists. */
export function parseDomainLists(allowed: unknown, blocked: unknown, limit = MAX_DOMAINS): ParsedDomains {
  const given = (list: unknown) =>
    list !== undefined && list !== null && !(Array.isArray(list) && list.length === 0);
  if (given(allowed) && given(blocked)) {
    const message = "allowed_domains and blocked_domains cannot be used together";
    return { kind: "invalid", param: "blocked_domains", message };
  }
  const rules: DomainRule[] = [];
  let stars = 0;
  const [param, list] = given(allowed)
    ? ["allowed_domains", allowed]
    : ["blocked_domains", given(blocked) ? blocked : []];
  if (!Array.isArray(list)) return { kind: "invalid", param, message: `${param} must be a list of domains` };
  if (list.length > limit)
    return { kind: "invalid", param, message: `${param} may hold at most ${limit} domains` };
  for (const [index, entry] of list.entries()) {
    const rule = parseDomainRule(entry);
    const place = `${param}[${index}]`;
    if (typeof rule === "string") return { kind: "invalid", param: place, message: rule };
    stars += Math.max(0, rule.path.length - 1);
    if (stars > MAX_STARS)
      return { kind: "invalid", param: place, message: `${param} may hold at most ${MAX_STARS} * in all` };
    rules.push(rule);
  }
  return {
    kind: "lists",
    lists: given(allowed) ? { allowed: rules, blocked: [] } : { allowed: null, blocked: rules },
  };
}

/** Returns a rule, or the reason why the entry is none. */
export function parseDomainRule(entry: unknown): DomainRule | string {
  if (typeof entry !== "string" || entry === "") return "a domain must be a non-empty string";
  if (entry.length > MAX_RULE_LENGTH) return "domain too long";
  if (entry.includes("://") || entry.startsWith("//")) return "a domain must be given without a scheme";
  if (/[\s\\@?#]/.test(entry)) return "a domain may hold only a host and a path";
  const slash = entry.indexOf("/");
  const host = slash < 0 ? entry : entry.slice(0, slash);
  if (host.includes("*")) return "* is allowed only in the path";
  if (host.includes(":")) return "a domain must be given without a port";
  const name = domainToASCII(host);
  if (!isHostName(name)) return "not a domain";
  const domain = name.replace(/\.$/, "");
  // Normalized as a URL's path is: `..` goes up.
  const path = slash < 0 ? "/" : new URL(`http://${domain}${entry.slice(slash)}`).pathname;
  return { domain, path: path === "/" ? [] : path.split("*").map(plainPath) };
}

/** True when the lists let the URL pass. */
export function domainAllowed(url: URL, lists: DomainLists): boolean {
  const host = url.hostname.replace(/\.$/, "");
  const path = plainPath(url.pathname + url.search);
  const matches = (rule: DomainRule) =>
    (host === rule.domain || host.endsWith(`.${rule.domain}`)) && matchesPath(path, rule.path);
  return (lists.allowed === null || lists.allowed.some(matches)) && !lists.blocked.some(matches);
}

/** Whether the path begins with the first piece and the others follow in order; leftmost matches suffice, in linear time. */
function matchesPath(path: string, pieces: readonly string[]): boolean {
  const [first = "", ...rest] = pieces;
  if (!path.startsWith(first)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = path.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return true;
}
