import { expect, test } from "vitest";
import { Turns } from "./turns.ts";

test("rule 4.5: who had its turn last comes last", () => {
  const turns = new Turns();
  for (const organization of ["a", "b", "a", "c"]) turns.had(organization);
  expect(turns.organizations).toEqual(["b", "a", "c"]);
});

test("it remembers a thousand", () => {
  const turns = new Turns();
  for (let index = 0; index < 1_001; index += 1) turns.had(`org_${index}`);
  expect(turns.organizations).toHaveLength(1_000);
  expect(turns.organizations).not.toContain("org_0");
});
