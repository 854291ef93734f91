/** Upstreams that know no service tier: they refuse the field by which they are told to serve at the standard one. */
import type { Upstream } from "../config/schema.ts";
import type { TierPlan } from "../dialects/tiers.ts";
import { ApiError } from "../lib/api-error.ts";

/** As long as their snapshot: a changed route is tried anew. */
const refusing = new WeakSet<Upstream>();

/** The plan as this upstream takes it. One without tiers cannot serve at a dearer one. */
export const tiersToward = (plan: TierPlan, upstream: Upstream): TierPlan =>
  refusing.has(upstream) ? { ...plan, standard: [] } : plan;

/** Whether this upstream refused to be told a tier; it is told none from now on, and is worth one more try. */
export function rejectsTier(error: unknown, upstream: Upstream): boolean {
  const isRejected =
    error instanceof ApiError && error.code === "invalid_request" && error.message.includes("service_tier");
  if (!isRejected || refusing.has(upstream)) return false;
  refusing.add(upstream);
  return true;
}
