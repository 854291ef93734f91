import { expect, test } from "vitest";
import type { LimitPeriod } from "../config/schema.ts";
import {
  anewText,
  beginsAnewAt,
  creditScopes,
  effectiveScopes,
  scopeNamed,
  scopesText,
  windowOf,
} from "./scopes.ts";

const at = (text: string) => Date.parse(text);
const day = (text: string) => at(`${text}T00:00:00Z`) / 86_400_000;

test.each<[LimitPeriod, string, string, string]>([
  ["day", "2026-11-23T00:00:00Z", "2026-11-23", "2026-11-24"],
  ["day", "2026-11-23T23:59:59.999Z", "2026-11-23", "2026-11-24"],
  // A Monday, and the Sunday before it.
  ["week", "2026-11-23T00:00:00Z", "2026-11-23", "2026-11-30"],
  ["week", "2026-11-22T23:59:59.999Z", "2026-11-16", "2026-11-23"],
  ["week", "2027-01-01T12:00:00Z", "2026-12-28", "2027-01-04"],
  ["month", "2026-12-31T23:59:59.999Z", "2026-12-01", "2027-01-01"],
  ["month", "2028-02-29T10:00:00Z", "2028-02-01", "2028-03-01"],
])("rule 9.2: the %s of %s is from %s to %s", (per, moment, from, to) => {
  expect(windowOf(per, at(moment))).toEqual({ from: day(from), to: day(to) });
  expect(beginsAnewAt(per, at(moment))).toBe(at(`${to}T00:00:00Z`));
  // What the scripts know of it says the same.
  const limits = { credits: { amountMicros: "1", per } };
  const [scope] = creditScopes(scopesText([{ kind: "key", id: "apikey_x", limits }], at(moment), true));
  expect(scope).toMatchObject({ id: "apikey_x", from: day(from), to: day(to) });
});

test("a total has neither beginning nor end", () => {
  expect(beginsAnewAt("total", Date.now())).toBeNull();
  expect(scopeNamed("/apikey_x.t0")).toMatchObject(windowOf("total", 0));
  expect(scopeNamed("/apikey_x")).toBeNull();
});

test("the scripts are told both scopes, batch items without their limits of rate", () => {
  const credits = { amountMicros: "500", per: "total" } as const;
  const scopes = [
    { kind: "key", id: "k1", limits: { credits, requestsPerMinute: 3 } },
    { kind: "project", id: "p1", limits: { tokensPerMinute: 7, concurrentRequests: 2 } },
  ] as const;
  expect(scopesText(scopes, 0, true)).toBe("k k1 t0 500 0 3 0;p p1 - 0 2 0 7");
  expect(scopesText(scopes, 0, false)).toBe("k k1 t0 500 0 0 0;p p1 - 0 0 0 0");
});

test("rule 9.4: defaults hold for what a key does not name itself", () => {
  const defaults = { requestsPerMinute: 60, models: ["a"] };
  const key = (limits: { requestsPerMinute: number } | null) =>
    effectiveScopes({ id: "k", limits, defaults }, { id: "p", limits: {} });
  expect(key(null)).toEqual([{ kind: "key", id: "k", limits: defaults }]);
  expect(key({ requestsPerMinute: 5 })).toEqual([
    { kind: "key", id: "k", limits: { requestsPerMinute: 5, models: ["a"] } },
  ]);
});

test("who has no limits has no scope, and a project's stand beside the key's", () => {
  const none = { id: "k", limits: {}, defaults: null };
  expect(effectiveScopes(none, { id: null, limits: { requestsPerMinute: 1 } })).toEqual([]);
  expect(effectiveScopes(none, { id: "p", limits: {} })).toEqual([]);
  expect(effectiveScopes(none, { id: "p", limits: null })).toEqual([]);
  const one = { id: "k", limits: { requestsPerMinute: 2 }, defaults: null };
  expect(effectiveScopes(one, { id: "p", limits: { requestsPerMinute: 1 } })).toEqual([
    { kind: "key", id: "k", limits: { requestsPerMinute: 2 } },
    { kind: "project", id: "p", limits: { requestsPerMinute: 1 } },
  ]);
  expect(effectiveScopes(none, { id: "p", limits: { requestsPerMinute: 1 } })).toEqual([
    { kind: "project", id: "p", limits: { requestsPerMinute: 1 } },
  ]);
});

test("a moment is told in whole seconds, and no moment as null", () => {
  expect(anewText(at("2026-11-24T00:00:00Z"))).toBe("2026-11-24T00:00:00Z");
  expect(anewText(null)).toBeNull();
});
