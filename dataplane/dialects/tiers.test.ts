/** Rules 10.1 and 10.2: what of a request's tiers goes upstream. */
import { expect, test } from "vitest";
import { planTiers, withoutDropped, type Offers } from "./tiers.ts";

const nothing: Offers = { tiers: [], longPrompts: false };
const all = ["messages", "chat", "responses"];

test.each([
  [{ service_tier: "priority" }, ["service_tier"]],
  [{ service_tier: "" }, ["service_tier"]],
  [{ speed: "fast", inference_geo: "us" }, ["speed", "inference_geo"]],
  [{ mode: "pro" }, ["reasoning.mode"]],
  [{ service_tier: "auto", speed: "standard", inference_geo: "global", mode: "standard" }, []],
  [{ service_tier: "default" }, []],
  [{ service_tier: "standard_only" }, []],
])("without a price %o stays here", (fields, dropped) => {
  expect(planTiers(fields, undefined, nothing)).toEqual({ dropped, betas: null, standard: all });
});

test("what is named goes, what is not stays; the account may choose among what is named", () => {
  const fields = { service_tier: "flex", speed: "fast" };
  expect(planTiers(fields, undefined, { ...nothing, tiers: ["flex"] })).toEqual({
    dropped: ["speed"],
    betas: null,
    standard: ["messages"],
  });
  expect(planTiers({}, undefined, { ...nothing, tiers: ["priority"] }).standard).toEqual([]);
});

test("betas of dearer prices stay by name, the others go", () => {
  const beta = "fast-mode-2026-02-01, interleaved-thinking-2025-05-14,context-1m-2025-08-07";
  expect(planTiers({}, beta, nothing)).toMatchObject({
    dropped: ["anthropic-beta:fast-mode-2026-02-01", "anthropic-beta:context-1m-2025-08-07"],
    betas: "interleaved-thinking-2025-05-14",
  });
  expect(planTiers({}, beta, { tiers: ["fast"], longPrompts: true })).toMatchObject({
    dropped: [],
    betas: "fast-mode-2026-02-01,interleaved-thinking-2025-05-14,context-1m-2025-08-07",
  });
  expect(planTiers({}, "context-1m-2025-08-07", nothing).betas).toBeNull();
});

test("a parsed body loses what is dropped and nothing else", () => {
  const body = { model: "m", speed: "fast", reasoning: { mode: "pro", effort: "low" } };
  const plan = { dropped: ["speed", "reasoning.mode", "anthropic-beta:x"], betas: null, standard: [] };
  expect(withoutDropped(body, plan)).toEqual({ model: "m", reasoning: { effort: "low" } });
  expect(body.speed).toBe("fast");
});
