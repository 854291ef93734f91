/** Upstreams that know no service tier: they refuse the field by which they are told to serve at the standard one. */
import type { Upstream } from "../config/schema.ts";
import type { TierPlan } from "../dialects/tiers.ts";
import { ApiError } from "../lib/api-error.ts";

/** Forgotten with their snapshot, so that a changed route is tried again. */
const refusing = new WeakSet<Upstream>();
/** The upstreams that a request, known by its plan, tells no tier: they refused it when they were told one. */
const untold = new WeakMap<TierPlan, Set<Upstream>>();

/** The plan as this upstream takes it. One without tiers cannot serve at a dearer one. */
export const tiersToward = (plan: TierPlan, upstream: Upstream): TierPlan =>
  refusing.has(upstream) || untold.get(plan)?.has(upstream) ? { ...plan, standard: [] } : plan;

/** Whether this upstream may have refused to be told a tier. */
export const rejectsTier = (error: unknown, plan: TierPlan, upstream: Upstream): boolean =>
  error instanceof ApiError &&
  error.code === "invalid_request" &&
  error.message.includes("service_tier") &&
  tiersToward(plan, upstream).standard.includes(upstream.dialect);

/** From now on the request tells this upstream no tier. */
export function tellNoTier(plan: TierPlan, upstream: Upstream): void {
  untold.set(plan, (untold.get(plan) ?? new Set()).add(upstream));
}

/** Something else was left out since: that it serves then proves nothing about tiers. */
export function tellTierAgain(plan: TierPlan, upstream: Upstream): void {
  untold.get(plan)?.delete(upstream);
}

/**
 * This upstream serves the request. Where it did not before it was told no tier, it is told none from now on: an error's
 * words alone prove nothing, as they may be the client's.
 */
export function servedTier(plan: TierPlan, upstream: Upstream): void {
  if (untold.get(plan)?.has(upstream)) refusing.add(upstream);
}
