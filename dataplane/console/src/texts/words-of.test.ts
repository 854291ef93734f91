import { expect, test } from "vitest";
import { ApiProblem } from "../api/client.ts";
import { SignInProblem } from "../provider.ts";
import { en } from "./en.ts";
import { wordsOf } from "./words-of.ts";

const ofProxy = (status: number) => wordsOf(new ApiProblem(status, null, null, null), en);

test("the service's own words stand as they are", () => {
  expect(wordsOf(new ApiProblem(503, "Come back later.", "unavailable", null), en)).toBe("Come back later.");
  expect(wordsOf(new TypeError("failed to fetch"), en)).toBe(en.common.unreachable);
});

test("that a person's provider is away is not told of the service", () => {
  expect(wordsOf(new SignInProblem("away"), en)).toBe(en.signIn.away);
});

test("to try again is advised only where what stands in front of the service may let the next one through", () => {
  for (const status of [408, 425, 429, 500, 502, 503, 504, 520])
    expect(ofProxy(status)).toBe(
      `The service does not answer; something in front of it did, with HTTP ${status}. Try again in a moment.`,
    );
  for (const status of [400, 401, 403, 404, 405, 414, 431, 501, 505])
    expect(ofProxy(status)).toBe(
      `The service does not answer; something in front of it did, with HTTP ${status}.`,
    );
  expect(ofProxy(413)).toBe(
    "The service does not answer; something in front of it did, with HTTP 413. This was too large for it.",
  );
});
