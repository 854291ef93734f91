import { expect, test } from "vitest";
import { tellKeyEpoch } from "./tell-key-epoch.ts";

test.each([
  [2, null],
  [3, { code: "unavailable", message: expect.stringMatching(/^This was done, but /), retryAfterSeconds: 5 }],
])("of a change Redis is told up to three times (%i fail)", async (failures, fault) => {
  const told: (readonly string[])[] = [];
  const refresh = async (ids: readonly string[]) => {
    told.push(ids);
    if (told.length <= failures) throw new Error("away");
  };
  const outcome = await tellKeyEpoch({ refresh }, "org_a").catch((error: unknown) => error);
  if (fault === null) expect(outcome).toBeUndefined();
  else expect(outcome).toMatchObject(fault);
  expect(told).toEqual([["org_a"], ["org_a"], ["org_a"]]);
});
