import type { Policy, Route } from "../config/schema.ts";

/** Which server tools a model's clients may declare (service.md "Model"). */
export interface ToolCapabilities {
  readonly webSearch: boolean;
  readonly webFetch: boolean;
  readonly xSearch: boolean;
}

/** True only when the model can call tools, the tool is switched on and, for search, its engine is active. */
export function toolCapabilities(route: Route, policy: Policy | undefined): ToolCapabilities {
  const calls = route.capabilities.toolCalling;
  return {
    webSearch: calls && (policy?.webSearch?.engine ?? null) !== null,
    webFetch: calls && (policy?.webFetch ?? null) !== null,
    xSearch: calls && (policy?.xSearch?.engine ?? null) !== null,
  };
}

/** Server tools are switched off entirely: no ToolPolicy, or none of its tools enabled (rule 3.17). */
export function allToolsOff(policy: Policy | undefined): boolean {
  return (
    policy === undefined || (policy.webSearch === null && policy.webFetch === null && policy.xSearch === null)
  );
}
