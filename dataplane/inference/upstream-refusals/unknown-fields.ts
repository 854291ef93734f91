/**
 * Upstreams that do not know a field which they get by our own doing (dialects/own-fields.ts): they refuse it, are asked
 * again without, and for a while get it no more.
 */
import type { Upstream } from "../../config/schema.ts";
import { type OwnField, refusedFields } from "../../dialects/own-fields.ts";
import type { TierPlan } from "../../dialects/tiers.ts";
import { refusalOf } from "../../dialects/upstream-error.ts";
import { steadyClock } from "../../lib/clock.ts";
import { withoutRefusedBetas } from "./refused-betas.ts";

/** So long what one organization's request taught counts for all: an upstream may have been wrong, or learn the field. */
const REFUSING_MS = 600_000;
/** Until when by `steadyClock`. Forgotten with their snapshot, so that a changed route is tried again. */
const refusing = new WeakMap<Upstream, Map<OwnField, number>>();
/**
 * What a request, known by its plan, leaves out toward which upstreams: they refused it when they got it.
 * true: that such an upstream then serves proves that it was this.
 */
const leftOut = new WeakMap<TierPlan, Map<Upstream, Map<OwnField, boolean>>>();

function unknownTo(plan: TierPlan, upstream: Upstream, now: number): ReadonlySet<OwnField> {
  const known = [...(refusing.get(upstream) ?? [])].filter(([, until]) => now < until);
  return new Set([...known.map(([field]) => field), ...(leftOut.get(plan)?.get(upstream)?.keys() ?? [])]);
}

/**
 * The plan as this upstream takes it. One without tiers cannot serve at a dearer one.
 * @param now milliseconds of `steadyClock`.
 */
export function planToward(plan: TierPlan, upstream: Upstream, now = steadyClock.now()): TierPlan {
  const taken = withoutRefusedBetas(plan, upstream);
  // Most upstreams refuse nothing.
  if (!refusing.has(upstream) && !leftOut.has(plan)) return taken;
  const unknown = unknownTo(plan, upstream, now);
  if (unknown.size === 0) return taken;
  return { ...taken, unknown: [...unknown], standard: unknown.has("service_tier") ? [] : plan.standard };
}

/** Of these fields those that an upstream may have refused. */
export function refusedOwn(error: unknown, held: readonly OwnField[]): readonly OwnField[] {
  const refusal = refusalOf(error);
  return refusal === null ? [] : refusedFields(refusal, held);
}

/** From now on the request goes to this upstream without these fields. */
export function tellWithout(plan: TierPlan, upstream: Upstream, fields: readonly OwnField[]): void {
  const byUpstream = leftOut.get(plan) ?? new Map<Upstream, Map<OwnField, boolean>>();
  const left = byUpstream.get(upstream) ?? new Map<OwnField, boolean>();
  for (const field of fields) left.set(field, true);
  leftOut.set(plan, byUpstream.set(upstream, left));
}

/** Something else is left out since: that it serves then proves nothing about these fields, which stay out of the request. */
export function proofLost(plan: TierPlan, upstream: Upstream): void {
  const left = leftOut.get(plan)?.get(upstream);
  for (const field of left?.keys() ?? []) left?.set(field, false);
}

/**
 * This upstream serves the request. What it did not before a field was left out, no request has for a while: an error's
 * words alone prove nothing, as they may be the client's.
 * @param now milliseconds of `steadyClock`.
 */
export function servedWithout(plan: TierPlan, upstream: Upstream, now = steadyClock.now()): void {
  const left = leftOut.get(plan)?.get(upstream);
  if (left === undefined) return;
  const known = refusing.get(upstream) ?? new Map<OwnField, number>();
  for (const [field, proves] of left) if (proves) known.set(field, now + REFUSING_MS);
  if (known.size > 0) refusing.set(upstream, known);
}
