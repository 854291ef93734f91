import { expect, test } from "vitest";
import { Turns, type Running } from "./turns.ts";

const running = (organizationId: string, batchId: string, model = "m"): Running => ({
  organizationId,
  batchId,
  model,
});
const open = (...names: string[]) => names.map((id) => ({ id, organizationId: id.slice(0, 1) }));

test("rule 4.5: free places go to organizations in turn, then to their batches", () => {
  const turns = new Turns({ places: 12, placesOfOne: 12 });
  expect(Object.fromEntries(turns.share(open("a1", "a2", "b1"), 0))).toEqual({ a1: 3, a2: 3, b1: 6 });
});

test("who runs less gets the next places, and one organization never has all of them", () => {
  const turns = new Turns({ places: 8, placesOfOne: 6 });
  for (let index = 0; index < 4; index += 1) turns.begin(running("a", "a1"));
  expect(Object.fromEntries(turns.share(open("a1", "b1"), 0))).toEqual({ b1: 4 });
  expect(Object.fromEntries(turns.share(open("a1"), 0))).toEqual({ a1: 2 });
});

test("a model that is refused halves, rests, and comes back one by one", () => {
  const turns = new Turns({ places: 8, placesOfOne: 8 });
  const items = Array.from({ length: 8 }, () => running("a", "a1"));
  for (const item of items) turns.begin(item);
  // Eight refusals of one moment count once.
  for (const item of items) turns.modelRefused(item, 1_000, 5_000);
  for (const item of items) turns.end(item);
  expect(turns.blockedModels(5_999)).toEqual(["m"]);
  expect(turns.blockedModels(6_000)).toEqual([]);
  expect([...turns.modelRooms(6_000)]).toEqual([["m", 4]]);
  for (let index = 0; index < 4; index += 1) turns.begin(running("a", "a1"));
  expect(turns.blockedModels(6_000)).toEqual(["m"]);
  for (let index = 0; index < 4; index += 1) turns.succeeded(running("a", "a1"), 6_000);
  expect(turns.blockedModels(6_000)).toEqual([]);
  expect([...turns.modelRooms(6_000)]).toEqual([["m", 1]]);
});

test("an organization whose credit is held rests; others go on", () => {
  const turns = new Turns({ places: 4, placesOfOne: 4 });
  const item = running("a", "a1");
  turns.begin(item);
  turns.creditRefused(item, 0, 1_000);
  turns.end(item);
  expect(Object.fromEntries(turns.share(open("a1", "b1"), 500))).toEqual({ b1: 4 });
  expect(turns.share(open("a1", "b1"), 1_000).get("a1")).toBe(1);
});
