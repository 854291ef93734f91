import { expect, test } from "vitest";
import { within } from "./within.ts";

const never = () => new Promise<void>(() => undefined);

test("work is waited for until it is done, the time is up, or it has to hurry", async () => {
  expect(await within(600_000, () => Promise.resolve())).toBe(true);
  expect(await within(1, never)).toBe(false);
  const hurry = new AbortController();
  const late = within(600_000, never, hurry.signal);
  hurry.abort();
  expect(await late).toBe(false);
  expect(await within(600_000, never, hurry.signal)).toBe(false);
});
