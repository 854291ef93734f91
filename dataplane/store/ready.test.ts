import { expect, test } from "vitest";
import { faultOfRedis } from "./ready.ts";

test.each([
  ["noeviction", null],
  ["allkeys-lru", "maxmemory-policy is allkeys-lru; it must be noeviction"],
])("a Redis with %s", (policy, fault) => {
  const said = faultOfRedis(`# Memory\r\nmaxmemory_policy:${policy}\r\n`);
  if (fault === null) expect(said).toBe(null);
  else expect(said).toContain(fault);
});

test("a server that does not tell it is taken as it is", () => {
  expect(faultOfRedis("# Memory\r\n")).toBe(null);
});
