import { pino } from "pino";
import { expect, test, vi } from "vitest";
import { CurrentLimits, type CurrentLimitsOptions } from "./current-limits.ts";
import type { HeldBill } from "./held-bill.ts";

const billOf = (limitsEpoch: number, organizationId = "org_1") => {
  const chargeUnder = vi.fn();
  const request = { id: "req_1", organizationId, keyId: "apikey_1", projectId: "proj_1", limitsEpoch };
  return { bill: { request, chargeUnder } as unknown as HeldBill, chargeUnder };
};

function limitsThat(limitsOf: CurrentLimitsOptions["limitsOf"]) {
  const asked = vi.fn(limitsOf);
  return { asked, limits: new CurrentLimits({ limitsOf: asked, log: pino({ level: "silent" }) }) };
}

test("only where a request came under a newer epoch of the same organization is anything looked up", async () => {
  const now = { limits: [], keyEpoch: 3 };
  const { asked, limits } = limitsThat(async () => now);
  const { bill, chargeUnder } = billOf(2);
  expect(limits.renew(bill)).toBeUndefined();
  for (const epoch of [1, 2]) limits.saw(billOf(epoch).bill);
  limits.saw(billOf(9, "org_2").bill);
  expect(limits.renew(bill)).toBeUndefined();
  limits.saw(billOf(3).bill);
  await limits.renew(bill);
  expect(asked.mock.calls).toEqual([["apikey_1", "proj_1"]]);
  expect(chargeUnder.mock.calls).toEqual([[now]]);
});

test("an organization whose requests go on is not forgotten for the many others", async () => {
  const { asked, limits } = limitsThat(async () => ({ limits: [], keyEpoch: 3 }));
  limits.saw(billOf(3).bill);
  for (let index = 0; index < 10_000; index += 1) limits.saw(billOf(1, `org_other_${index}`).bill);
  await limits.renew(billOf(2).bill);
  expect(asked).toHaveBeenCalledOnce();
});

test.each<[string, CurrentLimitsOptions["limitsOf"]]>([
  ["the store is away", () => Promise.reject(new Error("away"))],
  ["a person has no key", async () => ({ limits: [], keyEpoch: 0 })],
  ["what is known is as old", async () => ({ limits: [], keyEpoch: 2 })],
])("it is charged as it was admitted where %s", async (_why, limitsOf) => {
  const { limits } = limitsThat(limitsOf);
  const { bill, chargeUnder } = billOf(2);
  limits.saw(billOf(3).bill);
  await limits.renew(bill);
  expect(chargeUnder).not.toHaveBeenCalled();
});
