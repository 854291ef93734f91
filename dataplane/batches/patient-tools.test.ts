import { expect, test } from "vitest";
import { patientCallLimit } from "./patient-tools.ts";

test("rule 4.5: a tool call of a batch waits for room, and leaves some to live requests", async () => {
  const asked: number[] = [];
  const admit = patientCallLimit(
    async (_organizationId, limit) => asked.push(limit) >= 3,
    { now: () => 0 },
    async () => {},
  );
  expect(await admit("org", 60, 1)).toBe(true);
  expect(asked).toEqual([48, 48, 48]);
  expect(await admit("org", 1, 1)).toBe(true);
  expect(asked.at(-1)).toBe(1);
});

test("rule 4.5: it waits as long as its batch has time, and then no longer", async () => {
  const minute = 60_000;
  let now = 0;
  let roomAt = 23 * 60 * minute;
  const admit = patientCallLimit(
    async () => now >= roomAt,
    { now: () => now },
    async () => {
      now += minute;
    },
  );
  const expiresAt = 24 * 60 * minute;
  expect(await admit("org", 60, expiresAt)).toBe(true);
  roomAt = Number.POSITIVE_INFINITY;
  expect(await admit("org", 60, expiresAt)).toBe(false);
  expect(now).toBe(expiresAt);
  // What runs on after the end of its batch is not held up.
  expect(await admit("org", 60, expiresAt)).toBe(false);
  expect(now).toBe(expiresAt);
});
