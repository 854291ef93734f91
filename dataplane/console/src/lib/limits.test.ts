import { expect, test } from "vitest";
import type { Limits } from "../api/schema.ts";
import { changeOf, draftOf, expiryDraft, expiryOf } from "./limits.ts";

const before: Limits = {
  credits: { amount: "12.5", per: "week" },
  models: ["demo-chat", "claude-*"],
  requests_per_minute: 60,
  tokens_per_minute: null,
  concurrent_requests: null,
};

test("a draft that nobody touched changes nothing, with limits and without", () => {
  expect(changeOf(before, draftOf(before))).toBeNull();
  expect(changeOf(null, draftOf(null))).toBeNull();
});

test("only the fields that were changed are sent; an emptied one clears", () => {
  expect(changeOf(before, { ...draftOf(before), requests: "", tokens: "9000" })).toEqual({
    requests_per_minute: null,
    tokens_per_minute: 9000,
  });
  expect(changeOf(before, { ...draftOf(before), per: "total" })).toEqual({
    credits: { amount: "12.5", per: "total" },
  });
  expect(changeOf(before, { ...draftOf(before), models: " demo-chat\n x ,y " })).toEqual({
    models: ["demo-chat", "x", "y"],
  });
  expect(changeOf(before, { ...draftOf(before), amount: " " })).toEqual({ credits: null });
});

test("an expiry is UTC to the minute, and empty for never", () => {
  expect(expiryDraft("2027-12-31T10:20:00Z")).toBe("2027-12-31T10:20");
  expect(expiryOf("2027-12-31T10:20")).toBe("2027-12-31T10:20:00Z");
  expect([expiryDraft(null), expiryOf("")]).toEqual(["", null]);
});
