import { expect, test } from "vitest";
import { declaredObject } from "../../test/fakes/declared.ts";
import type { Fault } from "./objects.ts";
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

test("of more than twenty faults it is told how many are not named", () => {
  const notes = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, 1]));
  const faultsOf = (count: number) => {
    const read = readSpec(declaredObject("Organization", "default", "acme", notes(count)));
    return read.ok ? [] : read.faults.map(({ path, message }) => `${path} ${message}`);
  };
  expect(faultsOf(20)).toHaveLength(20);
  expect(faultsOf(20).at(-1)).toBe("spec.f19 is not a known field");
  expect(faultsOf(27)).toHaveLength(20);
  expect(faultsOf(27).at(-1)).toBe("spec.f19 is not a known field; the object has 7 more faults");
});

test("faults beside the spec hide none in it; what was not read has none", () => {
  const beside: Fault = { reason: "Invalid", path: "metadata.labels.a", message: "must be a string" };
  const object = declaredObject("Organization", "default", "acme", { displayName: "" });
  expect(readSpec({ ...object, faults: [beside] })).toMatchObject({
    faults: [beside, { path: "spec.displayName" }],
  });
  expect(readSpec({ ...object, spec: { displayName: "A" }, faults: [beside] })).toEqual({
    ok: false,
    faults: [beside],
  });
  const unread: Fault = { reason: "NotPermitted", path: "", message: "the quota is used up" };
  expect(readSpec({ ...object, faults: [unread] })).toEqual({ ok: false, faults: [unread] });
});
