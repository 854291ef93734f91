import { expect, test } from "vitest";
import type { Limits } from "../api/schema.ts";
import { en } from "../texts/en.ts";
import { id } from "../texts/id.ts";
import { changeOf, draftOf, expiryDraft, expiryOf } from "./limits.ts";

const { separators: english } = en;

const before: Limits = {
  credits: { amount: "12.5", per: "week" },
  models: ["demo-chat", "claude-*"],
  requests_per_minute: 60,
  tokens_per_minute: null,
  concurrent_requests: null,
};

test("a draft that nobody touched changes nothing, with limits and without", () => {
  expect(changeOf(before, draftOf(before, english), english)).toBeNull();
  expect(changeOf(null, draftOf(null, english), english)).toBeNull();
});

test("only the fields that were changed are sent; an emptied one clears", () => {
  expect(changeOf(before, { ...draftOf(before, english), requests: "", tokens: "9000" }, english)).toEqual({
    requests_per_minute: null,
    tokens_per_minute: 9000,
  });
  expect(changeOf(before, { ...draftOf(before, english), per: "total" }, english)).toEqual({
    credits: { amount: "12.5", per: "total" },
  });
  expect(changeOf(before, { ...draftOf(before, english), models: " demo-chat\n x ,y " }, english)).toEqual({
    models: ["demo-chat", "x", "y"],
  });
  expect(changeOf(before, { ...draftOf(before, english), amount: " " }, english)).toEqual({ credits: null });
});

test("an amount is written and read as the page writes figures", () => {
  const draft = draftOf(before, id.separators);
  expect(draft.amount).toBe("12,5");
  expect(changeOf(before, draft, id.separators)).toBeNull();
  expect(changeOf(before, { ...draft, amount: "0,25" }, id.separators)).toEqual({
    credits: { amount: "0.25", per: "week" },
  });
});

test("an expiry is UTC to the minute, and empty for never", () => {
  expect(expiryDraft("2027-12-31T10:20:00Z")).toBe("2027-12-31T10:20");
  expect(expiryOf("2027-12-31T10:20")).toBe("2027-12-31T10:20:00Z");
  expect([expiryDraft(null), expiryOf("")]).toEqual(["", null]);
});
