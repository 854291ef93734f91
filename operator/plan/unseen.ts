/** Keeps what was published of namespaces and kinds that should be watched and cannot be listed. */
import type { Source } from "../../dataplane/config/schema.ts";
import type { Kind } from "../api/kinds.ts";
import type { Declared } from "./objects.ts";
import { type Published, servedEntries } from "./prior.ts";

/** What cannot be listed, so that an object of it may well exist. */
export interface Unseen {
  readonly namespaces: ReadonlySet<string>;
  readonly kinds: ReadonlySet<Kind>;
}

/** Whether objects of this kind cannot be seen in the namespace. */
export const isUnseen = (
  { namespaces, kinds }: Unseen,
  { kind, namespace }: Pick<Source, "kind" | "namespace">,
): boolean => namespaces.has(namespace) || kinds.has(kind);

/**
 * Adds to the objects, which hold none that is unseen, all that was published of these: as objects that cannot be read, so
 * that they keep their last good entries and their names.
 */
export function withUnseen(
  objects: readonly Declared[],
  published: Published | null,
  unseen: Unseen,
): readonly Declared[] {
  if ((unseen.namespaces.size === 0 && unseen.kinds.size === 0) || published === null) return objects;
  const served = servedEntries(published.routing).map(({ source }) => source);
  const tables = published.routing.routes.map(({ prices }) => prices.source);
  const kept = new Map(
    [...served, ...tables].filter((source) => isUnseen(unseen, source)).map((source) => [source.uid, source]),
  );
  return [...objects, ...[...kept.values()].map((source) => unreadable(source, unseen))];
}

function unreadable({ kind, namespace, name, uid, generation }: Source, { kinds }: Unseen): Declared {
  const what = kinds.has(kind) ? `the kind ${kind}` : `namespace "${namespace}"`;
  return {
    kind,
    namespace,
    name,
    uid,
    generation,
    creationTimestamp: null,
    createdAt: 0,
    spec: {},
    faults: [{ reason: "Unreadable", path: "", message: `${what} cannot be listed` }],
  };
}
