/** Runs single calls of server tools: first the organization's limit, then the tool under the route's policy. */
import type { OrganizationEntry, Policy, Route } from "../config/schema.ts";
import type { ByteBudget, ByteLease } from "../lib/byte-budget.ts";
import type { JsonObject, WebFetchErrorCode } from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import type { AdmitToolCall, ToolCallLimits } from "./call-limit.ts";
import type { RequestedTools } from "./declarations.ts";
import type { FetchOutcome, SearchOutcome } from "./outcomes.ts";
import { fetchPage, type FetchDeps } from "./web-fetch/fetch-page.ts";
import type { PriorContext } from "./web-fetch/prior-context.ts";
import type { AskModel } from "./web-search/model-engine.ts";
import { searchWeb, type SearchDeps } from "./web-search/search-web.ts";
import { searchPosts, type PostsDeps } from "./x-search/search-posts.ts";

/** The conditions of the calls of one request. */
export interface ToolScope {
  readonly organization: Pick<OrganizationEntry, "id" | "toolCallsPerMinute">;
  readonly route: Route;
  readonly policy: Policy;
  readonly tools: RequestedTools;
  /** URLs that may be opened; grows while the request runs. */
  readonly prior: PriorContext;
  /**
   * Takes over the lease that counts the bytes of a returned page, and releases it when the request is over (rule 7.2). False:
   * the request may hold no more, and the lease is released.
   */
  readonly keep: (lease: ByteLease) => boolean;
  /** Returns a resolved credential of the snapshot. */
  readonly credential: (id: string) => string | undefined;
  /** Asks another route of the snapshot, for the Model engine. */
  readonly askModel: AskModel;
}

export type RunOutcome =
  | SearchOutcome
  | FetchOutcome
  | { readonly kind: "error"; readonly code: WebFetchErrorCode };

/** Never throws for what an engine or a page does; @throws the reason of `signal` when the caller gave up. */
export type RunTool = (
  name: ServerToolName,
  input: JsonObject,
  scope: ToolScope,
  signal: AbortSignal,
) => Promise<RunOutcome>;

/** Returns the limits of calls: a minute's are the organization's own, else those of the policy. */
export const callLimits = ({
  organization,
  policy,
}: Pick<ToolScope, "organization" | "policy">): ToolCallLimits => ({
  callsPerMinute: organization.toolCallsPerMinute ?? policy.callsPerMinute,
  parallelCalls: policy.parallelCalls,
});

export interface ToolboxDeps {
  readonly admit: AdmitToolCall;
  /** The process's body budget: pages count as bodies do. */
  readonly bodies: Pick<ByteBudget, "pageLease">;
  readonly fetch: FetchDeps;
  readonly search: Pick<SearchDeps, "dispatcher" | "cache">;
  readonly posts: Pick<PostsDeps, "dispatcher" | "clock">;
}

const failed = (code: WebFetchErrorCode): RunOutcome => ({ kind: "error", code });

export const createToolbox =
  ({ admit, bodies, fetch, search, posts }: ToolboxDeps): RunTool =>
  async (name, input, scope, signal) => {
    const { organization, route, policy, tools, prior } = scope;
    const { callsPerMinute } = callLimits(scope);
    // Without the counter no call may run: it alone keeps an organization from flooding an engine.
    const admitted = await admit(organization.id, callsPerMinute).catch(() => null);
    signal.throwIfAborted();
    if (admitted === null) return failed("unavailable");
    if (!admitted) return failed("too_many_requests");
    switch (name) {
      case "web_fetch": {
        const { webFetch } = policy;
        if (tools.webFetch === null || webFetch === null) return failed("unavailable");
        const { domains, maxContentTokens, useCache } = tools.webFetch;
        const pdf = route.capabilities.pdfInput;
        const { id: organizationId } = organization;
        const lease = bodies.pageLease(organizationId);
        const outcome = await fetchPage(
          { input, organizationId, domains, prior, maxContentTokens, useCache, pdf, lease },
          { source: policy.source, webFetch },
          fetch,
          signal,
        );
        return outcome.kind === "page" && !scope.keep(lease) ? failed("unavailable") : outcome;
      }
      case "web_search": {
        const { webSearch } = policy;
        if (tools.webSearch === null || webSearch === null || webSearch.engine === null)
          return failed("unavailable");
        const { domains, location, results } = tools.webSearch;
        const { engine, timeoutMs } = webSearch;
        return searchWeb(
          { input, organizationId: organization.id, options: { domains, location, results } },
          { source: policy.source, webSearch: { engine, timeoutMs } },
          { ...search, credential: scope.credential, askModel: scope.askModel },
          signal,
        );
      }
      case "x_search": {
        const { xSearch } = policy;
        if (tools.xSearch === null || xSearch === null || xSearch.engine === null)
          return failed("unavailable");
        const { allowedHandles, excludedHandles, fromDate, toDate } = tools.xSearch;
        const { engine, timeoutMs } = xSearch;
        return searchPosts(
          {
            input,
            options: {
              allowedHandles: allowedHandles ?? [],
              excludedHandles: excludedHandles ?? [],
              fromDate,
              toDate,
            },
          },
          { xSearch: { engine, timeoutMs } },
          { ...posts, credential: scope.credential },
          signal,
        );
      }
    }
  };
