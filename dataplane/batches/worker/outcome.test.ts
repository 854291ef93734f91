import { expect, test } from "vitest";
import { creditReserved, limitReserved } from "../../billing/holds/rate-limits.ts";
import { ApiError } from "../../lib/api-error.ts";
import { NoAnswer } from "../../upstream/failure.ts";
import { backOff, judgeRun, type RunEnd } from "./outcome.ts";
import { TOOLS_IN_USE } from "./tool-room.ts";

const end = (error: ApiError, more: Partial<RunEnd> = {}): RunEnd => ({
  error,
  charged: false,
  admitted: true,
  faults: 0,
  ownFaults: 0,
  now: 0,
  expiresAt: 0,
  othersSucceed: false,
  ...more,
});
const failed = (upstreamStatus: number) => new ApiError("upstream_error", "x", { cause: { upstreamStatus } });

/** What a try ends in, and whether others of its model succeed meanwhile. */
type Try = readonly [error: ApiError, othersSucceed: boolean];
const timeout = new ApiError("timeout", "x");

const times = (count: number, ...one: Try): Try[] => Array.from({ length: count }, () => one);

/** Runs of one item, until one is the last. @returns how often each verdict was given. */
function tries(ends: readonly Try[]): Record<string, number> {
  const verdicts: Record<string, number> = {};
  let [faults, ownFaults] = [0, 0];
  for (const [error, othersSucceed] of ends) {
    const verdict = judgeRun(end(error, { faults, ownFaults, othersSucceed }), 0);
    verdicts[verdict.kind] = (verdicts[verdict.kind] ?? 0) + 1;
    if (verdict.kind !== "fault") break;
    [faults, ownFaults] = [faults + 1, ownFaults + verdict.own];
  }
  return verdicts;
}

test("what was charged is never run again", () => {
  for (const code of ["upstream_error", "timeout", "rate_limited", "unavailable"] as const)
    expect(judgeRun(end(new ApiError(code, "x"), { charged: true }), 0).kind).toBe("errored");
});

test("rule 4.1: credit that others hold is waited for; none at all is the end", () => {
  expect(judgeRun(end(new ApiError("rate_limited", "x"), { admitted: false }), 0)).toMatchObject({
    because: "credit",
  });
  expect(judgeRun(end(new ApiError("insufficient_credit", "x"), { admitted: false }), 0).kind).toBe(
    "errored",
  );
});

test("rule 9.6: what is left of a key's limit and held by others is no lack of the organization's credit", () => {
  for (const kind of ["key", "project"] as const)
    expect(judgeRun(end(limitReserved(kind, "apikey_1"), { admitted: false }), 0)).toMatchObject({
      kind: "again",
      because: "limit",
    });
  expect(judgeRun(end(creditReserved(), { admitted: false }), 0)).toMatchObject({ because: "credit" });
});

test("rule 4.5: an item that may not begin for its organization's tool calls is no lack of credit", () => {
  const inUse = new ApiError("rate_limited", "x", { retryAfterSeconds: 1, cause: TOOLS_IN_USE });
  expect(judgeRun(end(inUse, { admitted: false }), 0)).toEqual({
    kind: "again",
    waitMs: 1_000,
    because: "tools",
  });
});

test("rule 4.4: faults are tried for as long as the upstream fails for everybody", () => {
  expect(tries(times(1_000, failed(500), false))).toEqual({ fault: 1_000 });
  expect(judgeRun(end(new ApiError("overloaded", "x", { retryAfterSeconds: 30 })), 0)).toEqual({
    kind: "fault",
    waitMs: 30_000,
    own: 0,
    restMs: 30_000,
  });
});

test("an item that fails while others of its model succeed is given up after twelve tries, or three that time out", () => {
  const beside = times(100, failed(500), true);
  expect(tries([[failed(500), false], ...beside])).toEqual({ fault: 11, errored: 1 });
  expect(tries(times(100, timeout, false))).toEqual({ fault: 2, errored: 1 });
});

test("rule 4.4: a proxy that waited in vain for its upstream says nothing against the item", () => {
  const waited = new ApiError("timeout", "x", { cause: { upstreamStatus: 504 } });
  expect(tries(times(100, waited, false))).toEqual({ fault: 100 });
  expect(tries(times(100, waited, true))).toEqual({ fault: 11, errored: 1 });
});

test("an answer that tells of an error of no known kind is asked for three times, whatever becomes of others", () => {
  const told = new ApiError("upstream_error", "x", { cause: { inBand: { type: "odd", code: "" } } });
  expect(tries(times(100, told, false))).toEqual({ fault: 2, errored: 1 });
  expect(tries(times(100, told, true))).toEqual({ fault: 2, errored: 1 });
});

test("and what it failed while the upstream was away for everybody is not counted against it afterwards", () => {
  const away = times(500, failed(500), false);
  expect(tries([...away, ...times(100, failed(500), true)])).toEqual({ fault: 510, errored: 1 });
  expect(tries([...away, ...times(100, timeout, true)])).toEqual({ fault: 502, errored: 1 });
});

test("rule 4.4: only where nobody serves any others of its model are held back", () => {
  const rest = (error: ApiError) => {
    const verdict = judgeRun(end(error), 0);
    return verdict.kind === "fault" ? verdict.restMs : verdict.kind;
  };
  expect(rest(new NoAnswer("upstream_error", "x"))).toBe(0);
  expect(rest(new NoAnswer("timeout", "x"))).toBe(0);
  expect([500, 502, 504].map((status) => rest(failed(status)))).toEqual([0, 0, 0]);
  expect(rest(new ApiError("unavailable", "x", { retryAfterSeconds: 5 }))).toBe(5_000);
  expect(rest(new ApiError("overloaded", "x", { retryAfterSeconds: 7 }))).toBe(7_000);
  // One that broke off in the middle, one that had begun when its time was over, a bug of ours: the next may fare better.
  expect(rest(new ApiError("upstream_error", "x", { cause: { corrupt: "cut" } }))).toBeNull();
  expect([timeout, new ApiError("internal", "x")].map(rest)).toEqual([null, null]);
});

test("an item waits no longer than ten seconds for who is away for everybody, and back off beside others that go well", () => {
  const away = new NoAnswer("upstream_error", "x");
  const wait = (othersSucceed: boolean) => judgeRun(end(away, { faults: 20, othersSucceed }), 0);
  expect(wait(false)).toMatchObject({ kind: "fault", waitMs: 10_000, own: 0 });
  expect(wait(true)).toMatchObject({ kind: "fault", waitMs: 60_000, own: 1 });
});

test("rule 4.8: what is ours to mend is not tried again", () => {
  for (const status of [401, 402, 403, 404, 301])
    expect(judgeRun(end(failed(status)), 0).kind).toBe("errored");
});

test("back-off grows from half a second to a minute and a half", () => {
  expect([0, 1, 2, 3, 20].map((faults) => backOff(faults, 0))).toEqual([500, 1_000, 2_000, 4_000, 60_000]);
  expect(backOff(20, 0.999)).toBeLessThan(90_001);
});

test("rule 9.6: an item over a limit waits until that begins anew, unless its batch ends before", () => {
  const spent = (anew: string | null) =>
    new ApiError("key_limit_reached", "x", { details: { begins_anew_at: anew } });
  const now = Date.parse("2026-11-30T23:59:40Z");
  const of = (error: ApiError, expiresAt: string) =>
    judgeRun(end(error, { admitted: false, now, expiresAt: Date.parse(expiresAt) }), 0);
  const anew = "2026-12-01T00:00:00Z";
  expect(of(spent(anew), "2026-12-01T12:00:00Z")).toEqual({
    kind: "again",
    waitMs: 20_000,
    because: "limit",
  });
  expect(of(spent(anew), "2026-12-01T00:00:00Z").kind).toBe("errored");
  expect(of(spent(null), "2026-12-01T12:00:00Z").kind).toBe("errored");
  // It is looked at now and then, as the limit may be raised.
  expect(of(spent("2026-12-30T00:00:00Z"), "2027-01-01T00:00:00Z")).toMatchObject({ waitMs: 30_000 });
});
