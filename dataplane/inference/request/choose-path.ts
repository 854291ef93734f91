import type { Dialect } from "../../dialects/dialect.ts";
import type { AnyInspection } from "../inspect/body.ts";
import { declaredServerTools } from "./refuse.ts";

/**
 * How a request is served by one upstream.
 *   relay    the upstream speaks the client's dialect: bytes pass through (design.md §4.2)
 *   convert  through Messages form: another dialect, or a conversation that holds what only we can read
 *   tools    a server tool is declared: the loop, always in Messages form (design.md §4.5)
 */
export type ServingPath = "relay" | "convert" | "tools";

/** Facts of a request that decide its path, found once for all of its candidates. */
export interface PathNeeds {
  readonly dialect: Dialect;
  readonly serverTools: boolean;
  /** Server-tool history, or a compaction, must be restored, and may never go upstream as it is (rule 3.4). */
  readonly restoring: boolean;
}

export const pathNeeds = (inspection: AnyInspection): PathNeeds => ({
  dialect: inspection.dialect,
  serverTools: declaredServerTools(inspection).size > 0,
  restoring: inspection.content.serverToolHistory,
});

/** Chooses the path for one candidate: a failover may cross dialects. */
export function choosePath(needs: PathNeeds, upstream: Dialect): ServingPath {
  if (needs.serverTools) return "tools";
  return needs.dialect === upstream && !needs.restoring ? "relay" : "convert";
}
