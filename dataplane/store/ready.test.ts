import { expect, test } from "vitest";
import { faultOfRedis, stateOfRedis } from "./ready.ts";

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

const memory = (used: number, most: number) =>
  `# Memory\r\nused_memory:${used}\r\nmaxmemory:${most}\r\nmaxmemory_policy:noeviction\r\nmem_not_counted_for_evict:10\r\n`;
const persistence = (status: string) => `# Persistence\r\naof_last_write_status:${status}\r\n`;

test.each([
  ["has room", memory(1_010, 1_000) + persistence("ok"), null],
  ["has no limit", memory(1_011, 0) + persistence("ok"), null],
  ["is full", memory(1_011, 1_000), { degraded: "its memory is full (maxmemory): new requests get 503" }],
  [
    "has a full disk",
    memory(1, 1_000) + persistence("err"),
    { degraded: "it cannot write its append-only file: new requests get 503" },
  ],
  [
    "evicts",
    memory(1_011, 1_000).replace("noeviction", "allkeys-lru"),
    expect.stringMatching(/^maxmemory-policy/),
  ],
])("a Redis that %s", (_, info, state) => {
  expect(stateOfRedis(info)).toEqual(state);
});
