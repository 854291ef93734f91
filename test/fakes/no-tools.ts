import type { RunTool } from "../../dataplane/tools/toolbox.ts";

/** For tests of requests without server tools: every call would fail. */
export const noTools: RunTool = async () => ({ kind: "error", code: "unavailable" });
