import type { Policy, Route } from "../config/schema.ts";
import { serverToolNames } from "../dialects/find-server-tool.ts";
import { serverTools, type ServerToolName } from "../dialects/server-tools.ts";

/** Which server tools a model's clients may declare (service.md "Model"). */
export type ToolCapabilities = Readonly<Record<ServerToolName, boolean>>;

/** True only when the model can call tools, the tool is switched on and, for search, its engine is active. */
export function toolCapabilities(route: Route, policy: Policy | undefined): ToolCapabilities {
  const may = (name: ServerToolName) => {
    const tool = policy?.[serverTools[name].key] ?? null;
    return route.capabilities.toolCalling && tool !== null && !("engine" in tool && tool.engine === null);
  };
  return Object.fromEntries(serverToolNames.map((name) => [name, may(name)])) as Record<
    ServerToolName,
    boolean
  >;
}

/** Whether all server tools are switched off: no ToolPolicy, or none of its tools enabled (rule 3.17). */
export const allToolsOff = (policy: Policy | undefined): boolean =>
  policy === undefined || serverToolNames.every((name) => policy[serverTools[name].key] === null);
