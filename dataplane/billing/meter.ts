/**
 * The seam between serving a request and charging for it (design.md §5). `inference` and `loop` know this, prices and credits,
 * and nothing of holds and the ledger. Credit is held in Redis; a live request is charged there too, an item of a batch in the
 * transaction of Postgres that stores its result.
 */
import type { Span } from "@opentelemetry/api";
import type { Micros } from "./credits.ts";
import type { LimitedScope } from "./scopes.ts";
import type { Prices } from "../config/schema.ts";
import type { Charged } from "../telemetry/request-summary.ts";

/** The tiers of a provider that one upstream call was served by (rule 10.2): names of the model's `serviceTiers`. */
export interface ServedTiers {
  readonly charged: readonly string[];
  /** Sent, but the upstream reported a tier without a price instead: each is charged where that is dearer. */
  readonly doubtful: readonly string[];
}

/** Token counts of one or more upstream calls; the four input classes do not overlap. */
export interface TokenUsage {
  readonly input: number;
  readonly cacheRead: number;
  readonly cacheWrite5m: number;
  readonly cacheWrite1h: number;
  /** Reasoning included. */
  readonly output: number;
  /** Part of `output`. */
  readonly reasoning: number;
  /** Part of `input` and of `output`; absent: none. */
  readonly audioInput?: number;
  readonly audioOutput?: number;
  /** Tokens of images that the model made; part of `output`. */
  readonly imageOutput?: number;
  /** Tiers of one call; absent: the standard one. */
  readonly tiers?: ServedTiers;
}

/** Successful server-tool work, in billing units (service.md "Prices and billing rules" 2). */
export interface ToolUsage {
  readonly webSearches: number;
  readonly webFetches: number;
  readonly xSearches: number;
  readonly xPosts: number;
  readonly xProfiles: number;
}

/** Whose credit a request takes, and the key that it came with. */
export interface Payer {
  /** What the key may do: use models; use all of the admin API; read it. */
  readonly kind: "inference" | "admin" | "viewer";
  readonly organizationId: string;
  readonly keyId: string;
  /** The organization's key epoch that the key was looked up under; a hold under another epoch is refused. */
  readonly keyEpoch: number;
  /** The limits that hold for the key under that epoch: its own and its project's. */
  readonly limits: readonly LimitedScope[];
}

/** Who and what a request is; fixed when it is accepted. */
export interface MeteredRequest {
  /** The request id, also shown to the client; every operation is idempotent by it. */
  readonly id: string;
  /** Unix milliseconds, fixed with the id. */
  readonly acceptedAt: number;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  /**
   * `Payer.keyEpoch`, compared when the hold is made: a key that was revoked since is refused with 401.
   * null: the work goes on without its key (a batch item).
   */
  readonly keyEpoch: number | null;
  /** `Payer.limits`, and the key epoch that they were looked up under. */
  readonly limits: readonly LimitedScope[];
  readonly limitsEpoch: number;
  /** Public model id. */
  readonly model: string;
  /** The route's `limits.contextTokens`. */
  readonly contextTokens: number;
  readonly endpoint: "messages" | "chat" | "responses" | "batch";
  readonly batchId: string | null;
  /** As `readTags` writes them; empty: none. */
  readonly tags: string;
  /** The prices that held when the request was accepted (`pricesAt`). */
  readonly prices: Prices;
  /** Estimate of the input, for the organization's tokens-per-minute limit; corrected by what was really used. */
  readonly inputTokens: number;
}

/** What is known of a request's work so far: totals, never differences. */
export interface Observed {
  readonly tokens: TokenUsage;
  /** The tokens of each upstream call, where there were several: long prompts are dearer call by call (rule 10.3). */
  readonly calls?: readonly TokenUsage[];
  readonly tools: ToolUsage;
  /** True when any of it was counted by us instead of reported by the upstream. */
  readonly estimated: boolean;
  /** True when an upstream reported more than is possible, and was believed only up to that bound (rule 7.9). */
  readonly implausible?: boolean;
}

export interface FinalUsage extends Observed {
  /** `error` also for a failure after billed iterations; `cancelled`: the client went away. */
  readonly status: "ok" | "error" | "cancelled";
  readonly iterations: number;
  /** Name of the upstream that served the last iteration. */
  readonly upstream: string | null;
}

/** One running request's credit. The first `settle` or `release` ends it; whatever comes later changes nothing. */
export interface Bill {
  /** Rate-limit headers of the request's dialect for its answer; empty when the organization has no such limit. */
  readonly headers: Readonly<Record<string, string>>;
  /** The usage that was settled; null: not settled. */
  readonly settled: FinalUsage | null;
  /** The same with its charge; null: not settled. */
  readonly charged: Charged | null;
  /** Remembers what was seen, so that a crash of this process still charges it. Cheap; no I/O. */
  observe(observed: Observed): void;
  /**
   * One iteration ended, the next one wants `nextEstimate`: the hold becomes spent + next.
   * `false`: the credit does not cover it; the hold is then what was spent.
   */
  advance(spent: Observed, nextEstimate: Micros): Promise<boolean>;
  /**
   * Records that a part of the work (a tool's call) is done, and sets `nextEstimate` aside for the next one as far as the
   * credit goes. What was spent is charged from now on, whatever becomes of this process.
   * @returns the credit left beyond what was spent and what others hold; unless it is above 0 nothing more may begin.
   */
  spend(spent: Observed, nextEstimate: Micros): Promise<Micros>;
  /**
   * Resolves once the charge is durable; only then may the end of the answer be sent.
   * @throws ApiError 503, not to be retried, when neither store took the charge within 10 s; it is stored later.
   */
  settle(usage: FinalUsage): Promise<void>;
  /** Nothing is charged and no row is written. */
  release(): Promise<void>;
}

export interface Meter {
  /**
   * Admits a request and holds min(estimate, available).
   * @param span the request's, under which the waits for its hold and its charge are traced; null or absent: untraced.
   * @throws ApiError 401 when the key was revoked since it was looked up, 402 without credit, 429 when all credit is
   * held by others or a limit of the organization is reached, 503 when the stores are out of reach.
   */
  open(request: MeteredRequest, estimate: Micros, span?: Span | null): Promise<Bill>;
}
