import { expect, test, vi } from "vitest";
import { RobotsCache } from "./robots-cache.ts";
import type { Robots } from "./robots.ts";

const withRules = (rules: number): Robots =>
  Array.from({ length: rules }, () => ({ allow: false, pieces: ["/x"], anchored: false, length: 2 }));

test("rule 7.14: what one organization has read is unknown to another", () => {
  const cache = new RobotsCache();
  cache.set("org_a", "policy https://example.com", withRules(1));
  expect(cache.get("org_a", "policy https://example.com")).toHaveLength(1);
  expect(cache.get("org_b", "policy https://example.com")).toBeUndefined();
});

test("one organization's files, many or large, leave those of another where they are", () => {
  const cache = new RobotsCache();
  cache.set("org_b", "kept", withRules(2));
  for (let index = 0; index < 12_000; index += 1) cache.set("org_a", `site ${index}`, withRules(0));
  expect(cache.get("org_a", "site 0")).toBeUndefined();
  expect(cache.get("org_a", "site 11999")).toEqual([]);
  const large = withRules(30_000);
  for (let index = 0; index < 20; index += 1) cache.set("org_a", `large ${index}`, large);
  expect(cache.get("org_a", "large 16")).toBeUndefined();
  expect(cache.get("org_a", "large 19")).toHaveLength(30_000);
  expect(cache.get("org_b", "kept")).toHaveLength(2);
});

test("many organizations' files leave those of one with few where they are", () => {
  const cache = new RobotsCache();
  cache.set("org_small", "kept", withRules(2));
  const large = withRules(50_000);
  for (let index = 0; index < 12; index += 1) cache.set(`org_${index}`, "large", large);
  expect(cache.get("org_small", "kept")).toHaveLength(2);
  expect(cache.get("org_0", "large")).toBeUndefined();
  expect(cache.get("org_11", "large")).toHaveLength(50_000);
});

test("a file is read anew after a quarter of an hour", () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const cache = new RobotsCache();
    cache.set("org_a", "kept", withRules(2));
    vi.advanceTimersByTime(15 * 60_000 - 1);
    expect(cache.get("org_a", "kept")).toHaveLength(2);
    vi.advanceTimersByTime(1);
    expect(cache.get("org_a", "kept")).toBeUndefined();
  } finally {
    vi.useRealTimers();
  }
});

test("a file that is read again counts once", () => {
  const cache = new RobotsCache();
  for (let time = 0; time < 10; time += 1) cache.set("org_a", "again", withRules(60_000));
  cache.set("org_a", "other", withRules(30_000));
  expect(cache.get("org_a", "again")).toHaveLength(60_000);
});
