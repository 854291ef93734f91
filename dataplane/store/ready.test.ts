import { expect, test } from "vitest";
import { faultOfRedis } from "./ready.ts";

const info = (version: string, policy: string) =>
  `# Server\r\nredis_version:${version}\r\n# Memory\r\nmaxmemory_policy:${policy}\r\n`;

test.each([
  ["7.0.15", "noeviction", null],
  ["10.1.0", "noeviction", null],
  ["7.2.4", "allkeys-lru", "maxmemory-policy is allkeys-lru"],
  ["6.2.14", "noeviction", "this is Redis 6.2.14; it must be 7.0 or newer"],
])("Redis %s with %s", (version, policy, fault) => {
  const said = faultOfRedis(info(version, policy));
  if (fault === null) expect(said).toBe(null);
  else expect(said).toContain(fault);
});

test("a server that tells neither is taken as it is", () => {
  expect(faultOfRedis("# Server\r\n")).toBe(null);
});
