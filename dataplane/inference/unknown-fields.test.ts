import { expect, test } from "vitest";
import type { Upstream } from "../config/schema.ts";
import { noTiers, type TierPlan } from "../dialects/tiers.ts";
import { planToward, servedWithout, tellAgain, tellWithout } from "./unknown-fields.ts";

const newPlan = (): TierPlan => ({ ...noTiers, standard: ["chat"] });
const newUpstream = () => ({ name: "one", dialect: "chat" }) as Upstream;

test("an upstream that serves once a field is left out gets it no more in later requests either", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellWithout(plan, upstream, ["service_tier"]);
  expect(planToward(newPlan(), upstream)).toMatchObject({ standard: ["chat"], unknown: [] });
  servedWithout(plan, upstream);
  expect(planToward(newPlan(), upstream)).toMatchObject({ standard: [], unknown: ["service_tier"] });
});

test("fields that are refused one after the other are all left out", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellWithout(plan, upstream, ["stream_options"]);
  tellWithout(plan, upstream, ["max_completion_tokens"]);
  servedWithout(plan, upstream);
  const later = planToward(newPlan(), upstream);
  expect(later).toMatchObject({ standard: ["chat"], unknown: ["stream_options", "max_completion_tokens"] });
});

test("that it serves proves nothing where something else was left out since", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellWithout(plan, upstream, ["service_tier"]);
  tellAgain(plan, upstream);
  expect(planToward(plan, upstream).standard).toEqual(["chat"]);
  servedWithout(plan, upstream);
  expect(planToward(newPlan(), upstream).standard).toEqual(["chat"]);
});
