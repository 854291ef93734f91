import type { Source } from "../../dataplane/config/schema.ts";
import type { Declared } from "./objects.ts";
import { oncePer } from "./once-per.ts";

/** The provenance that an entry of the snapshot carries. */
export const sourceOf = oncePer((object: Declared): Source => ({
  kind: object.kind,
  namespace: object.namespace,
  name: object.name,
  uid: object.uid,
  generation: object.generation,
}));
