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

test.each(["", "0", "ten", "1.0000001", "9000000001", "1e5"])("%j is refused as an amount", (amount) => {
  expect(() => parseGrant(args(amount))).toThrow("--amount");
});

test("what is missing is said", () => {
  expect(() => parseGrant(["--name", "x"])).toThrow("usage");
});
