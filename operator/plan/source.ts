import type { Source } from "../../dataplane/config/schema.ts";
import type { Declared } from "./objects.ts";

/** The provenance that an entry of the snapshot carries. */
export const sourceOf = (object: Declared): Source => ({
  kind: object.kind,
  namespace: object.namespace,
  name: object.name,
  uid: object.uid,
  generation: object.generation,
});
