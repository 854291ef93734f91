/**
 * Own fields (dialects/own-fields.ts) that upstreams do not know: such an upstream refuses the field, is asked again
 * without it, and for a while is not sent it.
 */
import type { Upstream } from "../../config/schema.ts";
import { type OwnField, refusedFields } from "../../dialects/own-fields.ts";
import type { TierPlan } from "../../dialects/tiers.ts";
import { accountRefusalOf, refusalOf } from "../../dialects/upstream-error.ts";
import { steadyClock } from "../../lib/clock.ts";
import { withoutRefusedBetas } from "./refused-betas.ts";

/** How long a refusal of one organization's request counts for all: an upstream may have been wrong, or learn the field. */
const REFUSING_MS = 600_000;
/** Refused fields, each with its end by `steadyClock`. Forgotten with their snapshot, so that a changed route is tried again. */
const refusing = new WeakMap<Upstream, Map<OwnField, number>>();
/**
 * Fields that a request, known by its plan, leaves out toward each upstream that refused them.
 * true: if the upstream then serves the request, that proves that it refused this field.
 */
const leftOut = new WeakMap<TierPlan, Map<Upstream, Map<OwnField, boolean>>>();

function leftOutToward(plan: TierPlan, upstream: Upstream): Map<OwnField, boolean> {
  const byUpstream = leftOut.get(plan) ?? new Map<Upstream, Map<OwnField, boolean>>();
  const left = byUpstream.get(upstream) ?? new Map<OwnField, boolean>();
  leftOut.set(plan, byUpstream.set(upstream, left));
  return left;
}

/**
 * What is known to be refused the request leaves out to its end: an answer may come minutes after it was written, and what
 * is read of it, such as where it stops, depends on what was asked for.
 */
function unknownTo(plan: TierPlan, upstream: Upstream, now: number): readonly OwnField[] {
  const left = leftOutToward(plan, upstream);
  for (const [field, until] of refusing.get(upstream) ?? [])
    if (now < until && !left.has(field)) left.set(field, false);
  return [...left.keys()];
}

/**
 * Adapts the plan to what this upstream takes. Without `service_tier` it cannot serve at a dearer tier.
 * @param now milliseconds of `steadyClock`.
 */
export function planToward(plan: TierPlan, upstream: Upstream, now = steadyClock.now()): TierPlan {
  const taken = withoutRefusedBetas(plan, upstream);
  // Most upstreams refuse nothing.
  if (!refusing.has(upstream) && !leftOut.has(plan)) return taken;
  const unknown = unknownTo(plan, upstream, now);
  if (unknown.length === 0) return taken;
  return { ...taken, unknown, standard: unknown.includes("service_tier") ? [] : plan.standard };
}

/** Returns those of these fields that an upstream may have refused. */
export function refusedOwn(error: unknown, held: readonly OwnField[]): readonly OwnField[] {
  const refusal = refusalOf(error) ?? accountRefusalOf(error);
  return refusal === null ? [] : refusedFields(refusal, held);
}

/** Leaves these fields out toward this upstream from now on. */
export function tellWithout(plan: TierPlan, upstream: Upstream, fields: readonly OwnField[]): void {
  const left = leftOutToward(plan, upstream);
  for (const field of fields) left.set(field, true);
}

/** Notes that something else was left out since: success then proves nothing about these fields, which stay left out. */
export function proofLost(plan: TierPlan, upstream: Upstream): void {
  const left = leftOut.get(plan)?.get(upstream);
  for (const field of left?.keys() ?? []) left?.set(field, false);
}

/**
 * Notes that this upstream serves the request: fields whose removal made it do so are left out of all requests for a
 * while. An error's words alone prove nothing, as they may be the client's.
 * @param now milliseconds of `steadyClock`.
 */
export function servedWithout(plan: TierPlan, upstream: Upstream, now = steadyClock.now()): void {
  const left = leftOut.get(plan)?.get(upstream);
  if (left === undefined) return;
  const known = refusing.get(upstream) ?? new Map<OwnField, number>();
  for (const [field, proves] of left) if (proves) known.set(field, now + REFUSING_MS);
  if (known.size > 0) refusing.set(upstream, known);
}
