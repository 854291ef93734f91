/**
 * Which namespace an organization id belongs to (rule 8.3): the one that had it first, for ever, until the platform
 * releases it. Postgres keeps it and the pods tell some of it; the snapshot carries what they told, for the time without pods.
 */
import type { ConfigStatus } from "../../dataplane/config/schema.ts";
import type { Published } from "./prior.ts";

/** Namespaces by organization id. */
export type Owners = ReadonlyMap<string, string>;

/**
 * What is known of the owners of ids that nobody is served under. A pod that holds the newest snapshot names those that the
 * snapshot remembers, unless they were released or are declared again. Others may lag behind, so that only what they do name
 * counts.
 */
export function knownOwners(
  published: Published | null,
  statuses: readonly (ConfigStatus | null)[],
): Map<string, string> {
  const telling = statuses.flatMap((status) => (status?.owners === undefined ? [] : [status]));
  const isCurrent = telling.some(({ serial }) => serial === published?.routing.serial);
  const owners = new Map(isCurrent ? [] : Object.entries(published?.routing.owners ?? {}));
  for (const { owners: told } of telling)
    for (const { id, namespace } of told ?? []) owners.set(id, namespace);
  return owners;
}

/** The same ids with the same namespaces. */
export const sameOwners = (one: Owners, other: Owners): boolean =>
  one.size === other.size && [...one].every(([id, namespace]) => other.get(id) === namespace);
