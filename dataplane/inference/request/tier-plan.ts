/** Plans which tiers a request asks for, and which of them its route has prices for (dialects/tiers.ts). */
import { pricesAt } from "../../billing/prices/price.ts";
import type { Prices, Route } from "../../config/schema.ts";
import type { Dialect } from "../../dialects/dialect.ts";
import { planTiers, type TierFields, type TierPlan } from "../../dialects/tiers.ts";
import type { InferenceCall } from "../call.ts";
import { noTierFields, type Facts } from "../inspect/body.ts";

/** A route's plans for requests that name no tier, which are most, by the client's dialect. */
interface UsualPlans {
  readonly prices: Prices;
  readonly plans: Partial<Record<Dialect, TierPlan>>;
}
/** By route; forgotten with its snapshot. */
const usual = new WeakMap<Route, UsualPlans>();

/**
 * @returns a plan object of this request alone: the refusals of its upstreams are remembered by it
 *   (inference/upstream-refusals/unknown-fields.ts).
 */
export function tierPlan(
  { acceptedAt, dialect, headers }: Pick<InferenceCall, "acceptedAt" | "dialect" | "headers">,
  { tierFields }: Pick<Facts, "tierFields">,
  route: Route,
): TierPlan {
  const prices = pricesAt(route.prices, acceptedAt);
  const beta = headers["anthropic-beta"];
  if (tierFields !== noTierFields || beta !== undefined)
    return newPlan(dialect, tierFields, beta, route, prices);
  let known = usual.get(route);
  if (known?.prices !== prices) {
    known = { prices, plans: {} };
    usual.set(route, known);
  }
  return { ...(known.plans[dialect] ??= newPlan(dialect, noTierFields, undefined, route, prices)) };
}

function newPlan(
  client: Dialect,
  fields: TierFields,
  beta: string | undefined,
  route: Route,
  { tiers, serviceTiers = [] }: Prices,
): TierPlan {
  return planTiers(
    { fields, beta, client, upstreams: route.upstreams.map(({ dialect }) => dialect) },
    {
      tiers: serviceTiers.map(({ name }) => name),
      longPrompts: tiers !== undefined,
      thinking: route.capabilities.thinking,
    },
  );
}
