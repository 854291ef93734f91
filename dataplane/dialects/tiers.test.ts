/** Rules 10.1 and 10.2: what of a request's tiers goes upstream. */
import { describe, expect, test } from "vitest";
import type { Dialect } from "./dialect.ts";
import {
  leavesTierOpen,
  noTiers,
  planTiers,
  servedTiers,
  standardTier,
  type TierFields,
  withoutDropped,
  type Offers,
} from "./tiers.ts";

const plan = (
  fields: TierFields,
  beta: string | undefined,
  offers: Offers,
  client: Dialect = "messages",
  upstreams: readonly Dialect[] = [client],
) => planTiers({ fields, beta, client, upstreams }, offers);

const nothing: Offers = { tiers: [], longPrompts: false, thinking: true };
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
  expect(plan(fields, undefined, nothing)).toEqual({ ...noTiers, dropped, standard: all });
});

test("a tier that only service_tier asks for is none in another field, nor the other way round", () => {
  const offers: Offers = { tiers: ["flex", "fast", "pro"], longPrompts: false, thinking: true };
  const fields = { service_tier: "fast", speed: "flex", inference_geo: "batch", mode: "flex" };
  expect(plan(fields, undefined, offers)).toMatchObject({
    asked: {},
    dropped: ["service_tier", "speed", "inference_geo", "reasoning.mode"],
  });
});

test("what is named goes, what is not stays; the account may choose among what is named", () => {
  const fields = { service_tier: "flex", speed: "fast" };
  expect(plan(fields, undefined, { ...nothing, tiers: ["flex"] })).toMatchObject({
    dropped: ["speed"],
    standard: ["messages"],
    asked: { service_tier: "flex" },
  });
  expect(plan({}, undefined, { ...nothing, tiers: ["priority"] }).standard).toEqual([]);
});

test("betas of dearer prices stay by name, the others go", () => {
  const beta = "fast-mode-2026-02-01, interleaved-thinking-2025-05-14,context-1m-2025-08-07";
  expect(plan({}, beta, nothing)).toMatchObject({
    dropped: ["anthropic-beta:fast-mode-2026-02-01", "anthropic-beta:context-1m-2025-08-07"],
    betas: "interleaved-thinking-2025-05-14",
  });
  expect(plan({}, beta, { tiers: ["fast"], longPrompts: true, thinking: true })).toMatchObject({
    dropped: [],
    betas: "fast-mode-2026-02-01, interleaved-thinking-2025-05-14,context-1m-2025-08-07",
  });
  expect(plan({}, beta, { ...nothing, tiers: ["fast"] }).dropped).toEqual([
    "anthropic-beta:context-1m-2025-08-07",
  ]);
  expect(plan({}, beta, { ...nothing, longPrompts: true }).dropped).toEqual([
    "anthropic-beta:fast-mode-2026-02-01",
  ]);
  expect(plan({}, "context-1m-2025-08-07", nothing).betas).toBeNull();
  const twice = "context-1m-2025-08-07,a,context-1m-2025-08-07,a";
  expect(plan({}, twice, nothing)).toMatchObject({
    dropped: ["anthropic-beta:context-1m-2025-08-07"],
    betas: "a",
  });
  expect(plan({}, "a,a", nothing)).toMatchObject({ dropped: [], betas: "a,a" });
});

test("a beta's letter case makes it no cheaper", () => {
  const beta = "CONTEXT-1M-2025-08-07,Fast-Mode-2026-02-01,Interleaved-Thinking-2025-05-14";
  expect(plan({}, beta, nothing)).toMatchObject({
    dropped: ["anthropic-beta:CONTEXT-1M-2025-08-07", "anthropic-beta:Fast-Mode-2026-02-01"],
    betas: "Interleaved-Thinking-2025-05-14",
  });
  expect(plan({}, beta, { tiers: ["fast"], longPrompts: true, thinking: true }).betas).toBe(beta);
});

test("a parsed body loses what is dropped and nothing else", () => {
  const body = { model: "m", speed: "fast", reasoning: { mode: "pro", effort: "low" } };
  const left = { ...noTiers, dropped: ["speed", "reasoning.mode", "anthropic-beta:x"] };
  expect(withoutDropped(body, left)).toEqual({ model: "m", reasoning: { effort: "low" } });
  expect(body.speed).toBe("fast");
});

describe("by what a request may be charged, for its hold", () => {
  const tiers = ["priority", "flex", "fast", "us", "pro"];
  const cases: [string, TierFields, Dialect, Dialect[], string[]][] = [
    [
      "what it asks for, or the standard",
      { speed: "fast" },
      "messages",
      ["messages"],
      ["", "us", "priority", "priority+us", "fast", "fast+us"],
    ],
    [
      "nothing dearer where it says so",
      { service_tier: "standard_only", inference_geo: "global" },
      "messages",
      ["messages"],
      [""],
    ],
    ["what the account may choose", {}, "chat", ["chat"], ["", "priority", "flex"]],
    ["that, or the standard", { service_tier: "flex" }, "responses", ["chat"], ["", "flex"]],
    [
      "that of an upstream which does not know the field",
      { service_tier: "flex" },
      "chat",
      ["chat", "messages"],
      ["", "flex", "priority", "us"],
    ],
    [
      "a mode of reasoning",
      { service_tier: "default", mode: "pro" },
      "responses",
      ["responses"],
      ["", "pro"],
    ],
  ];
  test.each(cases)("%s: %o", (_what, fields, client, upstreams, expected) => {
    const { possible } = plan(
      fields,
      undefined,
      { tiers, longPrompts: false, thinking: true },
      client,
      upstreams,
    );
    const sets = possible.map((set) => set.join("+"));
    for (const set of expected) expect(sets).toContain(set);
    if (!("speed" in fields) && client !== "chat") expect(sets.toSorted()).toEqual(expected.toSorted());
  });
});

test("the client's own word for the standard is told to every upstream", () => {
  const offers = { tiers: ["priority"], longPrompts: false, thinking: true };
  expect(plan({ service_tier: "default" }, undefined, offers, "chat").standard).toEqual(all);
  expect(plan({ service_tier: "auto" }, undefined, offers, "chat").standard).toEqual([]);
});

test.each<[string, TierFields, TierFields, string[], string[], boolean]>([
  [
    "without a report, what was sent",
    { service_tier: "flex", speed: "fast" },
    {},
    ["flex", "fast"],
    [],
    true,
  ],
  ["what is reported", { service_tier: "flex" }, { service_tier: "priority" }, ["priority"], [], true],
  [
    "what is reported though nothing was sent",
    {},
    { service_tier: "flex", inference_geo: "us" },
    ["flex", "us"],
    [],
    true,
  ],
  [
    "the standard, as it is reported",
    { service_tier: "flex", speed: "fast" },
    { service_tier: "default", speed: "standard" },
    [],
    [],
    true,
  ],
  ["`auto` is no report", { service_tier: "flex" }, { service_tier: "auto" }, ["flex"], [], true],
  [
    "without a price it is flagged, and what was sent is doubtful",
    { service_tier: "flex" },
    { service_tier: "scale" },
    [],
    ["flex"],
    false,
  ],
  [
    "each field by itself",
    { service_tier: "flex", speed: "fast" },
    { service_tier: "scale" },
    ["fast"],
    ["flex"],
    false,
  ],
])("charged is %s", (_what, sent, reported, charged, doubtful, isPriced) => {
  const served = servedTiers({ sent, offered: ["flex", "priority", "fast", "us"] }, reported);
  expect(served.tiers ?? { charged: [], doubtful: [] }).toEqual({ charged, doubtful });
  expect(served.isPriced).toBe(isPriced);
});

test("each dialect has a word for the standard, and what is not said leaves the account its choice", () => {
  expect((["messages", "chat", "responses"] as const).map(standardTier)).toEqual([
    "standard_only",
    "default",
    "default",
  ]);
  expect([undefined, null, "auto", "default", "", 7].map(leavesTierOpen)).toEqual([
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});

test("a mode of thinking goes only where the model thinks", () => {
  const offers: Offers = { tiers: ["pro"], longPrompts: false, thinking: true };
  expect(plan({ mode: "pro" }, undefined, offers)).toMatchObject({ asked: { mode: "pro" }, dropped: [] });
  expect(plan({ mode: "pro" }, undefined, { ...offers, thinking: false })).toMatchObject({
    asked: {},
    dropped: ["reasoning.mode"],
  });
});
