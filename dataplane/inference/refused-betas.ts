/**
 * Betas that an upstream refuses: it is asked again without them (dialects.md §F). Clients send new ones before every
 * server of the Messages dialect knows them.
 */
import type { Upstream } from "../config/schema.ts";
import type { TierPlan } from "../dialects/tiers.ts";
import { refusalOf } from "../dialects/upstream-error.ts";

/** How upstreams name the header or its values: Anthropic and Vertex AI, then Bedrock. */
const rejection = /anthropic[-_]beta|\bbeta (?:flag|header|value)/i;

/** What requests, known by their plans, leave out toward which upstreams. */
const leftOut = new WeakMap<TierPlan, Map<Upstream, ReadonlySet<string>>>();

const namesIn = (betas: string): string[] => betas.split(",").map((name) => name.trim());

/** Of the betas that an upstream was sent those that it refuses: the ones that it names, or all. */
export function refusedBetas(error: unknown, sent: string | null): readonly string[] {
  const refusal = refusalOf(error);
  if (sent === null || refusal === null || !rejection.test(refusal.message)) return [];
  const names = namesIn(sent);
  const named = names.filter((name) => refusal.message.includes(name));
  return named.length > 0 ? named : names;
}

/** From now on the request goes to this upstream without these betas. */
export function leaveOutBetas(plan: TierPlan, upstream: Upstream, names: readonly string[]): void {
  const byUpstream = leftOut.get(plan) ?? new Map<Upstream, ReadonlySet<string>>();
  leftOut.set(plan, byUpstream.set(upstream, new Set([...(byUpstream.get(upstream) ?? []), ...names])));
}

/** The plan as this upstream takes it: what stays here is named like any other beta that does. */
export function withoutRefusedBetas(plan: TierPlan, upstream: Upstream): TierPlan {
  const refused = leftOut.get(plan)?.get(upstream);
  if (refused === undefined || plan.betas === null) return plan;
  const kept = namesIn(plan.betas).filter((name) => !refused.has(name));
  return {
    ...plan,
    betas: kept.length === 0 ? null : kept.join(","),
    dropped: [...plan.dropped, ...Array.from(refused, (name) => `anthropic-beta:${name}`)],
  };
}
