import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { newId } from "./ids.ts";

test("an id is its prefix and 24 base62 characters, never the same twice", () => {
  for (const prefix of ["req", "msg", "batch_req"] as const) {
    const ids = Array.from({ length: 1_000 }, () => newId(prefix));
    for (const id of ids) expect(id).toMatch(new RegExp(`^${prefix}_[0-9A-Za-z]{24}$`));
    expect(new Set(ids).size).toBe(1_000);
  }
});

test("ids of requests begin with their time, and sort by it", async () => {
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const timeOf = (id: string) =>
    Array.from(id.slice("req_".length, "req_".length + 8), (digit) => digits.indexOf(digit)).reduce(
      (sum, digit) => 62 * sum + digit,
    );
  const ids: string[] = [];
  for (let n = 0; n < 20; n += 1) {
    const before = Date.now();
    const id = newId("req");
    expect(timeOf(id)).toBeGreaterThanOrEqual(before);
    expect(timeOf(id)).toBeLessThanOrEqual(Date.now());
    ids.push(id);
    await sleep(2);
  }
  expect(ids.toSorted()).toEqual(ids);
});
