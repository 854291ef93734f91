/** The result of a compilation. */
import type { Routing } from "../../dataplane/config/schema.ts";
import type { Verdict, WantedKey } from "./objects.ts";

export type RoutingContent = Omit<Routing, "serial">;

export interface Compiled {
  readonly routing: RoutingContent;
  /** By `namespace/secret/key`. */
  readonly credentials: Readonly<Record<string, string>>;
  /** One for each object, by kind, namespace and name. */
  readonly verdicts: readonly Verdict[];
  readonly wanted: readonly WantedKey[];
}
