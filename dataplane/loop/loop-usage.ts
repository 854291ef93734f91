/** Totals of one request over all its iterations and tool calls. */
import type { Observed, TokenUsage, ToolUsage } from "../billing/meter.ts";
import { callsOf, noTokens, noTools, sumTokens } from "../billing/token-usage.ts";
import type { MessagesUsage } from "../dialects/messages/types.ts";
import type { ServerToolName } from "../dialects/server-tools.ts";
import type { ToolOutcome } from "./results.ts";

export class LoopUsage {
  #finished = noTokens;
  /** Tokens of each upstream call of the iterations that are over. */
  readonly #calls: TokenUsage[] = [];
  /** Tokens of each call of the iteration under way; empty: there is none. */
  #current: readonly TokenUsage[] = [];
  /** The tier that the last iteration reports, for the answer; absent for the standard one. */
  #served: Pick<MessagesUsage, "service_tier" | "inference_geo" | "speed"> = {};
  #estimated = false;
  #currentEstimated = false;
  #implausible = false;
  #currentImplausible = false;
  #tools: ToolUsage = noTools;

  /** Sets what the iteration under way has used so far. */
  observe(usage: MessagesUsage): void {
    this.#current = callsOf(usage);
    const { service_tier, inference_geo, speed } = usage;
    this.#served = unusual({ service_tier, inference_geo, speed });
    this.#currentEstimated = usage.estimated === true;
    this.#currentImplausible = usage.implausible === true;
  }

  /** Ends the iteration under way: its tokens stay. */
  commit(): void {
    this.#finished = this.#current.reduce(sumTokens, this.#finished);
    this.#calls.push(...this.#current);
    this.#estimated ||= this.#currentEstimated;
    this.#implausible ||= this.#currentImplausible;
    this.discard();
  }

  /** Resets the iteration under way: one that was refused costs nothing. */
  discard(): void {
    this.#current = [];
    this.#currentEstimated = false;
    this.#currentImplausible = false;
  }

  /** Counts a call of a tool; one that failed is free (service.md "Prices and billing rules" 3). */
  tool(name: ServerToolName, outcome: ToolOutcome): void {
    if (outcome.kind === "error") return;
    const tools = this.#tools;
    if (name === "web_search") this.#tools = { ...tools, webSearches: tools.webSearches + 1 };
    else if (name === "web_fetch") this.#tools = { ...tools, webFetches: tools.webFetches + 1 };
    else if (outcome.kind === "hits") {
      this.#tools = {
        ...tools,
        xSearches: tools.xSearches + 1,
        xPosts: tools.xPosts + outcome.posts,
        xProfiles: tools.xProfiles + outcome.profiles,
      };
    }
  }

  get observed(): Observed {
    return {
      tokens: this.#current.reduce(sumTokens, this.#finished),
      calls: [...this.#calls, ...this.#current],
      tools: this.#tools,
      estimated: this.#estimated || this.#currentEstimated,
      implausible: this.#implausible || this.#currentImplausible,
    };
  }

  /** Cumulative usage as the answer shows it; x_search counts in both counters (service.md "Message"). */
  get usage(): MessagesUsage {
    const { tokens, tools } = this.observed;
    return {
      input_tokens: tokens.input,
      output_tokens: tokens.output,
      cache_creation_input_tokens: tokens.cacheWrite5m + tokens.cacheWrite1h,
      cache_read_input_tokens: tokens.cacheRead,
      cache_creation: {
        ephemeral_5m_input_tokens: tokens.cacheWrite5m,
        ephemeral_1h_input_tokens: tokens.cacheWrite1h,
      },
      output_tokens_details: { thinking_tokens: tokens.reasoning },
      server_tool_use: {
        web_search_requests: tools.webSearches + tools.xSearches,
        web_fetch_requests: tools.webFetches,
        x_search_requests: tools.xSearches,
      },
      ...this.#served,
    };
  }
}

const unusual = <T extends object>(values: T): Partial<T> =>
  Object.fromEntries(
    Object.entries(values).filter(([, value]) => typeof value === "string" && !usual.has(value)),
  ) as Partial<T>;
const usual: ReadonlySet<string> = new Set(["standard", "default"]);
