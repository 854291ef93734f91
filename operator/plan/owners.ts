/**
 * Which namespace an organization id belongs to (rule 8.3): the one that had it first, for ever, until the platform
 * releases it. Postgres keeps the owners, and the pods report some of them. The snapshot carries those, for times without pods.
 */
import type { ConfigStatus } from "../../dataplane/config/schema.ts";
import type { Published } from "./prior.ts";

/** Namespaces by organization id. */
export type Owners = ReadonlyMap<string, string>;

/**
 * Returns the known owners of ids that are not served. A pod that holds the newest snapshot names all that the snapshot
 * remembers, except those that were released or are declared again. Other pods may lag behind: what they do not name counts
 * for nothing.
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

/** Whether both have the same ids with the same namespaces. */
export const sameOwners = (one: Owners, other: Owners): boolean =>
  one.size === other.size && [...one].every(([id, namespace]) => other.get(id) === namespace);
