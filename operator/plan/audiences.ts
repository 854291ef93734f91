/**
 * Whose tokens of an issuer for an audience are, where namespaces do not trust each other: else a tenant who declares
 * another's issuer and audience would get the other's people, and what they upload (rules 8.2, 13.1).
 */
import type { OrganizationEntry } from "../../dataplane/config/schema.ts";
import type { Prior } from "./prior.ts";
import { isTenant, type Tenancy } from "./tenancy.ts";

/** Of all platform namespaces together: they trust each other. */
const PLATFORM = "";

interface Compiled {
  readonly entry: OrganizationEntry | null;
}

/**
 * The audiences that an organization may not accept, by its entry. They belong to the platform if it declares them, else to
 * the namespace that was served under them before, else to the oldest. `outcomes`: oldest first.
 */
export function foreignAudiences(
  outcomes: readonly Compiled[],
  prior: Prior,
  tenancy: Tenancy,
): (entry: OrganizationEntry) => readonly string[] {
  if (tenancy.mode === "Trusted") return () => [];
  const ownerOf = ({ source: { namespace } }: OrganizationEntry) =>
    isTenant(tenancy, namespace) ? namespace : PLATFORM;
  const holders = new Map<string, string>();
  const accepting = outcomes.flatMap(({ entry }) => (entry?.identity === undefined ? [] : [entry]));
  const note = (entry: OrganizationEntry, audiences: readonly string[]) => {
    for (const audience of audiences) {
      const name = nameOf(entry, audience);
      if (!holders.has(name)) holders.set(name, ownerOf(entry));
    }
  };
  for (const entry of accepting)
    if (ownerOf(entry) === PLATFORM) note(entry, entry.identity?.audiences ?? []);
  for (const entry of accepting) {
    const before = prior.organization(entry.source.uid)?.identity;
    if (before?.issuer !== entry.identity?.issuer) continue;
    note(entry, entry.identity?.audiences.filter((one) => before?.audiences.includes(one)) ?? []);
  }
  for (const entry of accepting) note(entry, entry.identity?.audiences ?? []);
  return (entry) =>
    (entry.identity?.audiences ?? []).filter(
      (audience) => holders.get(nameOf(entry, audience)) !== ownerOf(entry),
    );
}

const nameOf = ({ identity }: OrganizationEntry, audience: string): string =>
  JSON.stringify([identity?.issuer, audience]);

/** The entry as one of a tenant, or of a namespace that is trusted, whichever it was when it was served last. */
export function withTrust(entry: OrganizationEntry, tenancy: Tenancy): OrganizationEntry {
  const isTenants = isTenant(tenancy, entry.source.namespace);
  if ((entry.isTenants === true) === isTenants) return entry;
  const { source, isTenants: _, ...rest } = entry;
  // In the schema's order: the text of one that is read again has to be the same.
  return isTenants ? { source, isTenants, ...rest } : { source, ...rest };
}

/** The entry without these audiences; without any left it accepts keys alone. */
export function withoutAudiences(entry: OrganizationEntry, foreign: readonly string[]): OrganizationEntry {
  const { identity, ...rest } = entry;
  if (identity === undefined || foreign.length === 0) return entry;
  const audiences = identity.audiences.filter((audience) => !foreign.includes(audience));
  return audiences.length === 0 ? rest : { ...rest, identity: { ...identity, audiences } };
}
