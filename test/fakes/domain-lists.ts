/** What a request's lists of domains are, read as a declaration's are. */
import { parseDomainLists, type DomainLists } from "../../dataplane/tools/domains.ts";

/** @throws Error when they are not valid. */
export function domainLists(allowed: string[] | null, blocked: string[] | null = null): DomainLists {
  const parsed = parseDomainLists(allowed, blocked);
  if (parsed.kind === "invalid") throw new Error(parsed.message);
  return parsed.lists;
}
