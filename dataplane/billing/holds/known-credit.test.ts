import { expect, test } from "vitest";
import { KnownCredit } from "./known-credit.ts";

test("another organization's ten thousand keys do not make what is known of one be forgotten", () => {
  const known = new KnownCredit();
  known.learn("org_small", true);
  for (let index = 0; index < 10_000; index += 1) known.learn(`apikey_${index}`, true);
  expect(known.mayBegin("org_small")).toBe(true);
  known.learn("org_small", false);
  expect(known.mayBegin("org_small")).toBe(false);
});
