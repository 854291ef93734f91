/**
 * Decides which namespace may accept an issuer's tokens for an audience, where namespaces do not trust each other: else a
 * tenant who declares another's issuer and audience would get the other's people, and what they upload (rules 8.2, 13.1).
 */
import type { OrganizationEntry } from "../../dataplane/config/schema.ts";
import type { Prior } from "./prior.ts";
import { isTenant, type Tenancy } from "./tenancy.ts";

/** Owner of the audiences of all platform namespaces: they trust each other. */
const PLATFORM = "";

interface Compiled {
  readonly entry: OrganizationEntry | null;
}

/**
 * Returns the audiences that an organization may not accept, by its entry. An audience belongs to the platform if the platform
 * declares it, else to the namespace that was served under it before, else to the oldest. `outcomes`: oldest first.
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

/** Marks the entry as a tenant's or a trusted namespace's as of now, whichever it was when it was last served. */
export function withTrust(entry: OrganizationEntry, tenancy: Tenancy): OrganizationEntry {
  const isTenants = isTenant(tenancy, entry.source.namespace);
  if ((entry.isTenants === true) === isTenants) return entry;
  const { source, isTenants: _, ...rest } = entry;
  // In the schema's order: an entry that is read back has to have the same text.
  return isTenants ? { source, isTenants, ...rest } : { source, ...rest };
}

/** Returns the entry without the foreign audiences; when none is left it accepts keys only. */
export function withoutAudiences(entry: OrganizationEntry, foreign: readonly string[]): OrganizationEntry {
  const { identity, ...rest } = entry;
  if (identity === undefined || foreign.length === 0) return entry;
  const audiences = identity.audiences.filter((audience) => !foreign.includes(audience));
  return audiences.length === 0 ? rest : { ...rest, identity: { ...identity, audiences } };
}
