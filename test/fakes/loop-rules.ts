import type { LoopRules } from "../../dataplane/loop/loop.ts";

/** The rules of a Messages client that asks for nothing of its own. */
export const loopRules = (over: Partial<LoopRules> = {}): LoopRules => ({
  dialect: "messages",
  iterations: 8,
  maxUses: { web_search: null, web_fetch: null, x_search: null },
  maxToolCalls: null,
  clientFunctions: false,
  maxOutputTokens: 1_000,
  toolChoice: undefined,
  ...over,
});
