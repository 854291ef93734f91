import { expect, test } from "vitest";
import type { Upstream } from "../config/schema.ts";
import { noTiers, type TierPlan } from "../dialects/tiers.ts";
import { servedTier, tellNoTier, tellTierAgain, tiersToward } from "./standard-tier.ts";

const newPlan = (): TierPlan => ({ ...noTiers, standard: ["chat"] });
const newUpstream = () => ({ name: "one", dialect: "chat" }) as Upstream;

test("an upstream that serves once it is told no tier is told none by later requests either", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellNoTier(plan, upstream);
  expect(tiersToward(newPlan(), upstream).standard).toEqual(["chat"]);
  servedTier(plan, upstream);
  expect(tiersToward(newPlan(), upstream).standard).toEqual([]);
});

test("that it serves proves nothing where something else was left out since", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellNoTier(plan, upstream);
  tellTierAgain(plan, upstream);
  expect(tiersToward(plan, upstream).standard).toEqual(["chat"]);
  servedTier(plan, upstream);
  expect(tiersToward(newPlan(), upstream).standard).toEqual(["chat"]);
});
