/**
 * Upstreams that do not know a field which they get by our own doing (dialects/own-fields.ts): they refuse it, are asked
 * again without, and from then on get it no more.
 */
import type { Upstream } from "../config/schema.ts";
import { type OwnField, refusedFields } from "../dialects/own-fields.ts";
import type { TierPlan } from "../dialects/tiers.ts";
import { refusalOf } from "../dialects/upstream-error.ts";

/** Forgotten with their snapshot, so that a changed route is tried again. */
const refusing = new WeakMap<Upstream, ReadonlySet<OwnField>>();
/** What a request, known by its plan, leaves out toward which upstreams: they refused it when they got it. */
const leftOut = new WeakMap<TierPlan, Map<Upstream, ReadonlySet<OwnField>>>();

const unknownTo = (plan: TierPlan, upstream: Upstream): ReadonlySet<OwnField> =>
  new Set([...(refusing.get(upstream) ?? []), ...(leftOut.get(plan)?.get(upstream) ?? [])]);

/** The plan as this upstream takes it. One without tiers cannot serve at a dearer one. */
export function planToward(plan: TierPlan, upstream: Upstream): TierPlan {
  const unknown = unknownTo(plan, upstream);
  if (unknown.size === 0) return plan;
  return { ...plan, unknown: [...unknown], standard: unknown.has("service_tier") ? [] : plan.standard };
}

/** Of these fields those that an upstream may have refused. */
export function refusedOwn(error: unknown, held: readonly OwnField[]): readonly OwnField[] {
  const refusal = refusalOf(error);
  return refusal === null ? [] : refusedFields(refusal, held);
}

/** From now on the request goes to this upstream without these fields. */
export function tellWithout(plan: TierPlan, upstream: Upstream, fields: readonly OwnField[]): void {
  const byUpstream = leftOut.get(plan) ?? new Map<Upstream, ReadonlySet<OwnField>>();
  byUpstream.set(upstream, new Set([...(byUpstream.get(upstream) ?? []), ...fields]));
  leftOut.set(plan, byUpstream);
}

/** Something else was left out since: that it serves then proves nothing about these fields. */
export function tellAgain(plan: TierPlan, upstream: Upstream): void {
  leftOut.get(plan)?.delete(upstream);
}

/**
 * This upstream serves the request. What it did not before a field was left out, no request has from now on: an error's
 * words alone prove nothing, as they may be the client's.
 */
export function servedWithout(plan: TierPlan, upstream: Upstream): void {
  const fields = leftOut.get(plan)?.get(upstream);
  if (fields !== undefined) refusing.set(upstream, new Set([...(refusing.get(upstream) ?? []), ...fields]));
}
