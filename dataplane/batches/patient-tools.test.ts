import { expect, test } from "vitest";
import { patientCallLimit } from "./patient-tools.ts";

test("rule 4.5: a tool call of a batch waits for room, and leaves some to live requests", async () => {
  const asked: number[] = [];
  const admit = patientCallLimit(async (_organizationId, limit) => asked.push(limit) >= 3, 1);
  expect(await admit("org", 60)).toBe(true);
  expect(asked).toEqual([48, 48, 48]);
  expect(await admit("org", 1)).toBe(true);
  expect(asked.at(-1)).toBe(1);
});
