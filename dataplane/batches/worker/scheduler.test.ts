import { describe, expect, test } from "vitest";
import { BatchScheduler, type RunningItem } from "./scheduler.ts";

const running = (organizationId: string, batchId: string): RunningItem => ({
  organizationId,
  batchId,
  model: "m",
});
const open = (...names: string[]) => names.map((id) => ({ id, organizationId: id.slice(0, 1) }));

test("rule 4.5: free places go to organizations in turn, then to their batches", () => {
  const scheduler = new BatchScheduler({ places: 12, placesOfOne: 12 });
  expect(Object.fromEntries(scheduler.share(open("a1", "a2", "b1"), 0))).toEqual({ a1: 3, a2: 3, b1: 6 });
});

test("who runs less gets the next places, and one organization never has all of them", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 6 });
  for (let index = 0; index < 4; index += 1) scheduler.begin(running("a", "a1"));
  expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 0))).toEqual({ b1: 4 });
  expect(Object.fromEntries(scheduler.share(open("a1"), 0))).toEqual({ a1: 2 });
});

test("a model that is refused halves, rests, and comes back one by one", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 8 });
  const items = Array.from({ length: 8 }, () => running("a", "a1"));
  for (const item of items) scheduler.begin(item);
  // Eight refusals of one moment count once.
  for (const item of items) scheduler.modelRefused(item, 1_000, 5_000, false);
  for (const item of items) scheduler.end(item);
  expect(scheduler.blockedModels(5_999)).toEqual(["m"]);
  expect(scheduler.blockedModels(6_000)).toEqual([]);
  expect([...scheduler.modelRooms(6_000)]).toEqual([["m", 4]]);
  for (let index = 0; index < 4; index += 1) scheduler.begin(running("a", "a1"));
  expect(scheduler.blockedModels(6_000)).toEqual(["m"]);
  for (let index = 0; index < 4; index += 1) scheduler.succeeded(running("a", "a1"), 6_000, "r");
  expect(scheduler.blockedModels(6_000)).toEqual([]);
  expect([...scheduler.modelRooms(6_000)]).toEqual([["m", 1]]);
});

test("so does one of an organization's own, and no other organization's of that name", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 8 });
  const items = Array.from({ length: 4 }, () => running("a", "a1"));
  for (const item of items) scheduler.begin(item);
  for (const item of items) scheduler.modelRefused(item, 1_000, 5_000, true);
  for (const item of items) scheduler.end(item);
  expect([scheduler.blockedModels(5_999), [...scheduler.modelRooms(6_000)]]).toEqual([[], []]);
  const rooms = [5_999, 6_000].map((now) => scheduler.askedRooms(now));
  expect(rooms).toEqual([0, 2].map((room) => [{ organizationId: "a", model: "m", room }]));
  for (let index = 0; index < 2; index += 1) scheduler.succeeded(running("a", "a1"), 6_000, "r");
  expect(scheduler.askedRooms(6_000)).toEqual([{ organizationId: "a", model: "m", room: 3 }]);
});

test("an organization whose credit is held rests; others go on", () => {
  const scheduler = new BatchScheduler({ places: 4, placesOfOne: 4 });
  const item = running("a", "a1");
  scheduler.begin(item);
  scheduler.creditRefused(item, 0, 1_000);
  scheduler.end(item);
  expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 500))).toEqual({ b1: 4 });
  expect(scheduler.share(open("a1", "b1"), 1_000).get("a1")).toBe(1);
});

test("a long answer that ends while its upstream is away does not say that others succeed", () => {
  const scheduler = new BatchScheduler({ places: 4, placesOfOne: 4 });
  for (const beganAt of [2_000, 1_000]) scheduler.succeeded(running("a", "a1"), beganAt, "r");
  expect([1_999, 2_000].map((since) => scheduler.succeededSince("r", since))).toEqual([true, false]);
  expect([scheduler.succeededSince(null, 0), scheduler.succeededSince("other", 0)]).toEqual([false, false]);
});

test("rule 9.6: a key at its limit pauses its own batch, and no other of its organization", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 8 });
  const items = Array.from({ length: 4 }, () => running("a", "a1"));
  for (const item of items) scheduler.begin(item);
  for (const item of items) scheduler.limitRefused(item, 0, 1_000);
  for (const item of items) scheduler.end(item);
  expect(Object.fromEntries(scheduler.share(open("a1", "a2"), 500))).toEqual({ a2: 8 });
  expect(scheduler.share(open("a1"), 500)).toEqual(new Map());
  expect([scheduler.blockedBatches(500), scheduler.blockedBatches(1_000)]).toEqual([["a1"], []]);
  // Then half as many as before, and one more for each so many that go well.
  expect(Object.fromEntries(scheduler.share(open("a1", "a2"), 1_000))).toEqual({ a1: 2, a2: 6 });
  for (let index = 0; index < 2; index += 1) scheduler.succeeded(running("a", "a1"), 1_000, "r");
  expect(scheduler.share(open("a1"), 1_000).get("a1")).toBe(3);
});

test("a batch that was held back is remembered for ten minutes, and for as long as it runs", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 8 });
  for (const id of ["a1", "a2"]) {
    scheduler.begin(running("a", id));
    scheduler.limitRefused(running("a", id), 0, 1_000);
  }
  const [still] = scheduler.running;
  for (const item of scheduler.running) if (item !== still) scheduler.end(item);
  const roomAt = (now: number, id: string) => scheduler.share(open(id), now).get(id) ?? 0;
  // Of either one item ran, so one may.
  expect([roomAt(1_000, "a1"), roomAt(1_000, "a2")]).toEqual([0, 1]);
  // Which are no longer needed is found out when another batch is held back.
  scheduler.limitRefused(running("a", "a3"), 601_000, 1_000);
  expect([roomAt(601_000, "a1"), roomAt(601_000, "a2")]).toEqual([0, 1]);
  scheduler.limitRefused(running("a", "a4"), 601_001, 1_000);
  expect([roomAt(601_001, "a1"), roomAt(601_001, "a2")]).toEqual([0, 7]);
});

describe("a model that answers an organization no more", () => {
  const places = 8;
  const asked = { organizationId: "a", model: "m" };
  const scheduling = () => new BatchScheduler({ places, placesOfOne: places });
  /** Begins so many items at once, none of which is answered. */
  function unanswered(scheduler: BatchScheduler, count: number, now: number, leastMs = 0): void {
    const items = Array.from({ length: count }, () => running("a", "a1"));
    for (const item of items) scheduler.begin(item);
    for (const item of items) scheduler.unanswered(item, now, leastMs);
    for (const item of items) scheduler.end(item);
  }
  const room = (scheduler: BatchScheduler, now: number) => scheduler.askedRooms(now)[0]?.room;

  test("is asked by one item at a time after five in a row, with rests that grow to ten seconds", () => {
    const scheduler = scheduling();
    unanswered(scheduler, 4, 0);
    expect(scheduler.askedRooms(0)).toEqual([]);
    unanswered(scheduler, 1, 0);
    expect(scheduler.askedRooms(999)).toEqual([{ ...asked, room: 0 }]);
    expect(scheduler.askedRooms(1_000)).toEqual([{ ...asked, room: 1 }]);
    const rests: number[] = [];
    for (let now = 1_000; rests.length < 6;) {
      unanswered(scheduler, 1, now);
      const rest = [1_000, 2_000, 4_000, 8_000, 10_000].find((ms) => room(scheduler, now + ms) === 1) ?? 0;
      expect(room(scheduler, now + rest - 1)).toBe(0);
      rests.push(rest);
      now += rest;
    }
    expect(rests).toEqual([2_000, 4_000, 8_000, 10_000, 10_000, 10_000]);
  });

  test("rests for as long as it asks", () => {
    const scheduler = scheduling();
    unanswered(scheduler, 5, 0, 30_000);
    expect([room(scheduler, 29_999), room(scheduler, 30_000)]).toEqual([0, 1]);
  });

  test("holds up no other organization's, and no other model", () => {
    const scheduler = scheduling();
    unanswered(scheduler, places, 0);
    expect(scheduler.askedRooms(0)).toEqual([{ ...asked, room: 0 }]);
    expect([scheduler.blockedModels(0), scheduler.blockedBatches(0)]).toEqual([[], []]);
    expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 0))).toEqual({ a1: 4, b1: 4 });
  });

  test("is not taken for that while it refuses some: somebody is there", () => {
    const scheduler = scheduling();
    for (let time = 0; time < 10; time += 1) {
      unanswered(scheduler, 4, 0);
      scheduler.answered(running("a", "a1"));
    }
    expect(scheduler.askedRooms(0)).toEqual([]);
  });

  test("is not taken for that while some go well", () => {
    const scheduler = scheduling();
    for (let time = 0; time < 10; time += 1) {
      unanswered(scheduler, 4, 0);
      scheduler.succeeded(running("a", "a1"), 0, "r");
    }
    expect(scheduler.askedRooms(0)).toEqual([]);
  });

  test("has one more at once with each that goes well, until there is no limit any more", () => {
    const scheduler = scheduling();
    unanswered(scheduler, places, 0);
    const rooms: (number | undefined)[] = [];
    for (let time = 0; time < places; time += 1) {
      rooms.push(room(scheduler, 1_000));
      scheduler.succeeded(running("a", "a1"), 1_000, "r");
    }
    expect(rooms).toEqual([1, 2, 3, 4, 5, 6, 7, undefined]);
  });

  test("has one more for each ten seconds in which those that ask are still waiting", () => {
    const scheduler = scheduling();
    unanswered(scheduler, 5, 0);
    for (let began = 1; began <= 3; began += 1) {
      const now = 1_000 + 10_000 * (began - 1);
      expect([room(scheduler, now - 1), room(scheduler, now)]).toEqual([0, 1]);
      scheduler.begin(running("a", "a1"));
    }
  });

  test("is asked again though some hang that began before, and the ends of these say nothing new", () => {
    const scheduler = scheduling();
    const hanging = Array.from({ length: 3 }, () => running("a", "a1"));
    for (const item of hanging) scheduler.begin(item);
    unanswered(scheduler, 5, 0);
    expect(room(scheduler, 1_000)).toBe(1);
    const probe = running("a", "a1");
    scheduler.begin(probe);
    expect(room(scheduler, 1_000)).toBe(0);
    for (const item of hanging) scheduler.unanswered(item, 1_000, 0);
    scheduler.end(probe);
    expect(room(scheduler, 1_000)).toBe(1);
  });
});

test("while a store is away that an organization needs one of its items at a time finds out whether it is back", () => {
  const scheduler = new BatchScheduler({ places: 8, placesOfOne: 8 });
  const items = Array.from({ length: 6 }, () => running("a", "a1"));
  for (const item of items) scheduler.begin(item);
  for (const item of items) scheduler.storesAway(item, 0, 1_000);
  for (const item of items) scheduler.end(item);
  expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 999))).toEqual({ b1: 8 });
  expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 1_000))).toEqual({ a1: 1, b1: 7 });
  for (let time = 0; time < 8; time += 1) scheduler.succeeded(running("a", "a1"), 1_000, "r");
  expect(Object.fromEntries(scheduler.share(open("a1", "b1"), 1_000))).toEqual({ a1: 4, b1: 4 });
});
