import { expect, test } from "vitest";
import type { Upstream } from "../../config/schema.ts";
import { noTiers, type TierPlan } from "../../dialects/tiers.ts";
import { planToward, servedWithout, proofLost, tellWithout } from "./unknown-fields.ts";

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
  proofLost(plan, upstream);
  tellWithout(plan, upstream, ["user"]);
  expect(planToward(plan, upstream)).toMatchObject({ standard: [], unknown: ["service_tier", "user"] });
  servedWithout(plan, upstream);
  expect(planToward(newPlan(), upstream)).toMatchObject({ standard: ["chat"], unknown: ["user"] });
});

test("after ten minutes an upstream is tried with the field again", () => {
  const [plan, upstream] = [newPlan(), newUpstream()];
  tellWithout(plan, upstream, ["service_tier"]);
  servedWithout(plan, upstream, 1_000);
  expect(planToward(newPlan(), upstream, 600_999).unknown).toEqual(["service_tier"]);
  expect(planToward(newPlan(), upstream, 601_000)).toMatchObject({ standard: ["chat"], unknown: [] });
  expect(planToward(plan, upstream, 601_000).unknown).toEqual(["service_tier"]);
});

test("what a request was written without it lacks to its end: by that its answer is read", () => {
  const [first, upstream] = [newPlan(), newUpstream()];
  tellWithout(first, upstream, ["stop"]);
  servedWithout(first, upstream, 1_000);
  const plan = newPlan();
  expect(planToward(plan, upstream, 600_999).unknown).toEqual(["stop"]);
  expect(planToward(plan, upstream, 601_000).unknown).toEqual(["stop"]);
  servedWithout(plan, upstream, 601_000);
  expect(planToward(newPlan(), upstream, 601_000).unknown).toEqual([]);
});
