/** Keeps what was published of namespaces that should be watched and cannot be listed. */
import type { Source } from "../../dataplane/config/schema.ts";
import type { Declared } from "./objects.ts";
import { type Published, servedEntries } from "./prior.ts";

/**
 * Adds to the objects, which hold none of an unseen namespace, all that was published of these: as objects that cannot be
 * read, so that they keep their last good entries and their names.
 */
export function withUnseen(
  objects: readonly Declared[],
  published: Published | null,
  unseen: ReadonlySet<string>,
): readonly Declared[] {
  if (unseen.size === 0 || published === null) return objects;
  const kept = servedEntries(published.routing)
    .map(({ source }) => source)
    .filter(({ namespace }) => unseen.has(namespace));
  return [...objects, ...kept.map(unreadable)];
}

const unreadable = ({ kind, namespace, name, uid, generation }: Source): Declared => ({
  kind,
  namespace,
  name,
  uid,
  generation,
  creationTimestamp: null,
  createdAt: 0,
  spec: {},
  faults: [{ reason: "Unreadable", path: "", message: `namespace "${namespace}" cannot be listed` }],
});
