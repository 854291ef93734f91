import { expect, test } from "vitest";
import {
  creditReserved,
  ledgerBehind,
  limitReached,
  limitReserved,
  limitSpent,
  meterUnavailable,
  rateLimitHeaders,
  retryAfter,
  tooManyAtOnce,
} from "./rate-limits.ts";

const at = Date.parse("2027-03-03T10:00:00.400Z");
const state = (kind: "requests" | "tokens", fullInMs: number) => ({
  kind,
  limit: 60,
  remaining: 7,
  fullInMs,
});

test("a Messages client is told of its limits in the headers of its SDK, a reset in whole seconds", () => {
  expect(rateLimitHeaders("messages", [state("requests", 600), state("tokens", 601)], at)).toEqual({
    "anthropic-ratelimit-requests-limit": "60",
    "anthropic-ratelimit-requests-remaining": "7",
    "anthropic-ratelimit-requests-reset": "2027-03-03T10:00:01Z",
    "anthropic-ratelimit-tokens-limit": "60",
    "anthropic-ratelimit-tokens-remaining": "7",
    "anthropic-ratelimit-tokens-reset": "2027-03-03T10:00:02Z",
  });
});

test.each([
  [0, "0ms"],
  [999, "999ms"],
  [1000, "1s"],
  [1001, "2s"],
  [59_000, "59s"],
  [59_001, "1m0s"],
  [60_000, "1m0s"],
  [61_000, "1m1s"],
  [3_725_000, "62m5s"],
])("a client of OpenAI's dialects hears that %i ms are %s", (fullInMs, text) => {
  for (const endpoint of ["chat", "responses"] as const)
    expect(rateLimitHeaders(endpoint, [state("tokens", fullInMs)], at)).toEqual({
      "x-ratelimit-limit-tokens": "60",
      "x-ratelimit-remaining-tokens": "7",
      "x-ratelimit-reset-tokens": text,
    });
});

test("rule 1.5: to be asked again after a second at the least, and a minute at the most", () => {
  expect([0, 1, 1000, 1001, 59_001, 60_001, 3_600_000].map(retryAfter)).toEqual([1, 1, 1, 2, 60, 60, 60]);
});

test("whose limit it is stands in the words: the organization's, a key's, a person's, their project's", () => {
  const said = (letter: string | undefined, keyId: string) => tooManyAtOnce({ letter, keyId }, 3).message;
  expect(said("o", "apikey_1")).toBe(
    "The limit of the organization of 3 requests at the same time is reached.",
  );
  expect(said(undefined, "apikey_1")).toContain("limit of the organization of");
  expect(said("k", "apikey_1")).toContain("limit of this key of");
  expect(said("k", "usr_1")).toContain("limit of this person of");
  expect(said("p", "apikey_1")).toContain("limit of this key's project of");
  expect(said("p", "usr_1")).toContain("limit of this person's project of");
  expect(limitReserved("project", "apikey_1")).toMatchObject({
    message: expect.stringContaining("limit of this key's project is reserved"),
    retryAfterSeconds: 1,
  });
});

test("tokens and requests that are too many are told apart, with the wait and the headers", () => {
  const owner = { letter: "k", keyId: "apikey_1" };
  const reached = (kind: "requests" | "tokens") => limitReached(owner, kind, 5, 2500, { x: "y" });
  expect(reached("tokens")).toMatchObject({
    code: "tokens_rate_limited",
    retryAfterSeconds: 3,
    headers: { x: "y" },
  });
  expect(reached("requests")).toMatchObject({ code: "rate_limited" });
  expect(reached("requests").message).toBe("The limit of this key of 5 requests per minute is reached.");
  expect(tooManyAtOnce(owner, 3).retryAfterSeconds).toBe(1);
});

test("what passes by itself may be asked again in a second", () => {
  const refusals = [creditReserved(), meterUnavailable(), ledgerBehind()];
  expect(refusals.map(({ code, retryAfterSeconds }) => [code, retryAfterSeconds])).toEqual([
    ["rate_limited", 1],
    ["unavailable", 1],
    ["unavailable", 1],
  ]);
});

test("rule 9.3: a limit of credit that is spent says how much it was and when it begins anew", () => {
  const credits = { amountMicros: "2500000", per: "day" } as const;
  const ofKey = limitSpent({ kind: "key", id: "k", limits: { credits } }, "apikey_1", at);
  expect(ofKey).toMatchObject({
    code: "key_limit_reached",
    message:
      "The limit of this key of 2.5 credits per day is reached. It begins anew at 2027-03-04T00:00:00Z.",
    details: { begins_anew_at: "2027-03-04T00:00:00Z" },
  });
  const total = { ...credits, per: "total" } as const;
  const ofProject = limitSpent({ kind: "project", id: "p", limits: { credits: total } }, "apikey_1", at);
  expect(ofProject).toMatchObject({
    code: "project_limit_reached",
    message: "The limit of this key's project of 2.5 credits in total is reached. It does not begin anew.",
    details: { begins_anew_at: null },
  });
});
