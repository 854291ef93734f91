/**
 * Betas that an upstream refuses: it is asked again without them (dialects.md §F). Clients send new ones before every
 * server of the Messages dialect knows them.
 */
import type { Upstream } from "../../config/schema.ts";
import { betaNames, droppedBeta, isBetaOfTier, type TierPlan } from "../../dialects/tiers.ts";
import { refusalOf } from "../../dialects/upstream-error.ts";

/** How upstreams name the header or its values: Anthropic and Vertex AI, then Bedrock. */
const rejection = /anthropic[-_]beta|\bbeta (?:flag|header|value)/i;

/** Betas that a request, known by its plan, leaves out toward each upstream. */
const leftOut = new WeakMap<TierPlan, Map<Upstream, ReadonlySet<string>>>();

/** The betas that an upstream was sent. */
export interface SentBetas {
  readonly names: readonly string[];
  /** Betas that stay in the request, whatever the upstream refuses. */
  readonly needed: readonly string[];
}

/** Under strict all betas are needed; else that of a tier that is asked for, as the tier would be charged. */
export function sentBetas(plan: TierPlan, upstream: Upstream, strict: boolean): SentBetas {
  const names = betaNames(betasToward(plan, upstream));
  return { names, needed: strict ? names : names.filter((name) => isBetaOfTier(name, plan.asked)) };
}

/**
 * Returns the sent betas that an upstream refuses and the request can do without: those that it names, or all. null:
 * the refusal is about something else.
 */
export function refusedBetas(error: unknown, { names, needed }: SentBetas): readonly string[] | null {
  const refusal = refusalOf(error);
  if (names.length === 0 || refusal === null || !rejection.test(refusal.message)) return null;
  const words = new Set(refusal.message.split(/[^\w.-]|\.(?!\w)/));
  const named = names.filter((name) => words.has(name));
  return (named.length > 0 ? named : names).filter((name) => !needed.includes(name));
}

/** Leaves these betas out toward this upstream from now on. */
export function leaveOutBetas(plan: TierPlan, upstream: Upstream, names: readonly string[]): void {
  const byUpstream = leftOut.get(plan) ?? new Map<Upstream, ReadonlySet<string>>();
  leftOut.set(plan, byUpstream.set(upstream, new Set([...(byUpstream.get(upstream) ?? []), ...names])));
}

/** Adapts the plan to what this upstream takes: its refused betas are named as dropped. */
export function withoutRefusedBetas(plan: TierPlan, upstream: Upstream): TierPlan {
  const refused = leftOut.get(plan)?.get(upstream);
  if (refused === undefined) return plan;
  const kept = betaNames(plan.betas).filter((name) => !refused.has(name));
  return {
    ...plan,
    betas: kept.length === 0 ? null : kept.join(","),
    dropped: [...plan.dropped, ...Array.from(refused, droppedBeta)],
  };
}

/** Returns the header's value for this upstream; null: none. */
export const betasToward = (plan: TierPlan, upstream: Upstream): string | null =>
  upstream.dialect === "messages" ? withoutRefusedBetas(plan, upstream).betas : null;
