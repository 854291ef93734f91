import { expect, test } from "vitest";
import { parseGrant } from "./grant-command.ts";

const args = (amount: string) => ["--organization", "org_a", "--name", "top-up", "--amount", amount];

test.each([
  ["100000", 100_000_000_000n],
  ["0.000001", 1n],
  ["-5", -5_000_000n],
])("an amount of %s credits", (amount, micros) => {
  expect(parseGrant(args(amount))).toEqual({ organizationId: "org_a", name: "top-up", amount: micros });
});

test.each(["", "0", "ten", "1.0000001", "1e5"])("%j is refused as an amount", (amount) => {
  expect(() => parseGrant(args(amount))).toThrow("--amount is a number of credits");
});

test.each(["9000000001", "-9000000000.000001", "9".repeat(30)])(
  "%s is refused by the limit of amounts, not for its form",
  (amount) => {
    expect(() => parseGrant(args(amount))).toThrow("--amount lies within 9,000,000,000 credits either way");
  },
);

test("what is missing is said", () => {
  expect(() => parseGrant(["--name", "x"])).toThrow("usage");
});
