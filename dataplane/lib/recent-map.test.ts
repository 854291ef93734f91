import { expect, test } from "vitest";
import { RecentMap } from "./recent-map.ts";

test("what is set or used goes on, however many others come; what is not is forgotten", () => {
  const map = new RecentMap<number>(100);
  for (const key of ["set", "got", "left"]) map.set(key, 1);
  for (let index = 0; index < 1_000; index += 1) {
    map.set(`other ${index}`, index);
    map.set("set", index);
    expect(map.get("got")).toBe(1);
  }
  expect(map.get("set")).toBe(999);
  expect(map.get("other 999")).toBe(999);
  expect(map.get("left")).toBeUndefined();
});

test("an entry used once outlives as many new ones as fit", () => {
  const map = new RecentMap<number>(100);
  for (let index = 0; index < 100; index += 1) map.set(`first ${index}`, index);
  for (let index = 0; index < 100; index += 1) map.set(`second ${index}`, index);
  expect(map.get("first 0")).toBe(0);
});

test("a value that was set anew is not the one of before", () => {
  const map = new RecentMap<number>(2);
  map.set("a", 1);
  map.set("b", 1);
  map.set("c", 1);
  map.set("a", 2);
  expect(map.get("a")).toBe(2);
});
