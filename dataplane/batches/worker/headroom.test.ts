import { expect, test } from "vitest";
import { Headroom, type LiveLoad } from "./headroom.ts";

test("live requests come first: places halve while time is short, and come back one by one, or at once", () => {
  let load: LiveLoad = "none";
  const headroom = new Headroom(64, () => load);
  let now = 0;
  const look = (next: LiveLoad, running = 1) => {
    load = next;
    return headroom.places((now += 100), running);
  };
  expect(look("light")).toBe(64);
  expect(["heavy", "heavy", "heavy"].map(() => look("heavy"))).toEqual([32, 16, 8]);
  expect(look("light")).toBe(9);
  for (let looks = 0; looks < 10; looks += 1) look("heavy");
  expect(look("heavy")).toBe(1);
  expect(look("none")).toBe(64);
  // A batch that begins beside live requests begins small.
  expect(look("light", 0)).toBe(4);
  expect(look("light")).toBe(5);
});

test("items that begin and end together are no new beginning, though each look comes when none runs", () => {
  const headroom = new Headroom(64, () => "light");
  const places: number[] = [];
  for (let now = 0; now < 1_000; now += 100) {
    places.push(headroom.places(now, 0));
    headroom.began();
  }
  expect(places).toEqual([4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
  // Nothing began since the look before the last one.
  expect([headroom.places(1_000, 0), headroom.places(1_100, 0)]).toEqual([14, 4]);
});

test("it looks ten times a second, however often it is asked", () => {
  let looks = 0;
  const headroom = new Headroom(8, () => {
    looks += 1;
    return "light";
  });
  for (let now = 0; now < 1_000; now += 1) headroom.places(now, 1);
  expect(looks).toBe(10);
});
