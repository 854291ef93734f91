import { expect, test } from "vitest";
import { declaredObject } from "../../test/fakes/declared.ts";
import { readSpec } from "./read-spec.ts";

const limited = (requestsPerMinute: number) => ({ keyDefaults: { limits: { requestsPerMinute } } });
const rate = "spec.keyDefaults.limits.requestsPerMinute";
const notified = (thresholds: readonly number[]) => ({
  notifications: [{ url: "https://a.example", secretRef: { name: "hook", key: "secret" }, thresholds }],
});

test.for<[spec: object, path: string, message: string]>([
  [limited(1e300), rate, "must be at most 1000000000"],
  [limited(-1e300), rate, "must be at least 1"],
  [limited(1.5), rate, "must be an integer"],
  [notified([]), "spec.notifications[0].thresholds", "must have at least 1 entry"],
  [notified(Array(11).fill(5)), "spec.notifications[0].thresholds", "must have at most 10 entries"],
  [{ displayName: "" }, "spec.displayName", "must have at least 1 character"],
])("of %j is told what it must be", ([spec, path, message]) => {
  const faults = [{ reason: "Invalid", path, message }];
  expect(readSpec(declaredObject("Organization", "default", "acme", spec))).toEqual({ ok: false, faults });
});
