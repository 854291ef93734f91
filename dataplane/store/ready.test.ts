import { expect, test } from "vitest";
import { faultOfRedis } from "./ready.ts";

const info = (version: string, policy: string, replicas: boolean) =>
  [
    `# Server\r\nredis_version:${version}\r\n`,
    `# Memory\r\nmaxmemory_policy:${policy}\r\n`,
    `# Replication\r\nrole:master\r\nrepl_backlog_active:${replicas ? 1 : 0}\r\n`,
  ].join("");

test.each([
  ["7.0.15", "noeviction", true, null],
  ["10.1.0", "noeviction", true, null],
  ["7.2.4", "allkeys-lru", false, "maxmemory-policy is allkeys-lru"],
  ["6.2.14", "noeviction", true, "this is Redis 6.2.14 with replicas; it must be 7.0 or newer"],
  ["6.2.14", "noeviction", false, null],
])("Redis %s with %s, replicas: %s", (version, policy, replicas, fault) => {
  const said = faultOfRedis(info(version, policy, replicas));
  if (fault === null) expect(said).toBe(null);
  else expect(said).toContain(fault);
});

test("a server that tells neither is taken as it is", () => {
  expect(faultOfRedis("# Server\r\n")).toBe(null);
});
