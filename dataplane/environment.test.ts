import { expect, test } from "vitest";
import { readEnvironment } from "./environment.ts";

const needed = { DATABASE_URL: "postgres://x", REDIS_URL: "redis://x", GAPURA_CONFIG_DIR: "/x" };
const budget = (value: string) => readEnvironment({ ...needed, BODY_BUDGET: value }).BODY_BUDGET;

test.each([
  ["268435456", 268_435_456],
  ["64Mi", 64 * 1024 ** 2],
  ["2Gi", 2 * 1024 ** 3],
  ["", undefined],
])("BODY_BUDGET=%j is %s bytes", (value, bytes) => {
  expect(budget(value)).toBe(bytes);
});

test.each(["0", "-1", "1.5Gi", "1 Gi", "2G", "2GiB", "Mi", "1e9", "9999999999999999Gi"])(
  "BODY_BUDGET=%j is refused by name",
  (value) => {
    expect(() => budget(value)).toThrow(/BODY_BUDGET: /);
  },
);
