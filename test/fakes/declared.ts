/** Objects as users declare them, for what compiles them. */
import type { Declared } from "../../operator/plan/objects.ts";

/** @param creationTimestamp Unix milliseconds; null: a folder's, which has none */
export const declaredObject = (
  kind: Declared["kind"],
  namespace: string,
  name: string,
  spec: unknown,
  creationTimestamp: number | null = null,
): Declared => ({
  kind,
  namespace,
  name,
  uid: `${kind} ${namespace}/${name}`,
  generation: 1,
  creationTimestamp,
  createdAt: creationTimestamp ?? 0,
  spec,
  faults: [],
});
