import { expect, test } from "vitest";
import { FairPlaces, type NoPlace, type PlaceLimits, type Release } from "./fair-places.ts";

const never = new AbortController().signal;
const limits: PlaceLimits = { places: 2, waitingOfOne: 30, waiting: 100 };

/** Notes in which order places are given; `done` gives the first one of an owner back. */
function world(some: Partial<PlaceLimits> = {}) {
  const places = new FairPlaces({ ...limits, ...some });
  const order: string[] = [];
  const held: { owner: string; release: Release }[] = [];
  const take = async (owner: string, isOwed = false) => {
    const release = await places.take(owner, never, isOwed);
    if (typeof release === "string") return release;
    order.push(owner);
    held.push({ owner, release });
    return "taken";
  };
  const done = async (owner: string) => {
    const at = held.findIndex((one) => one.owner === owner);
    held.splice(at, 1)[0]?.release();
    await new Promise(setImmediate);
  };
  return { order, take, done };
}

const given = (release: Release | NoPlace): Release =>
  typeof release === "string" ? expect.unreachable(release) : release;

test("who comes second goes before the thirty that wait for the first", async () => {
  const { order, take, done } = world();
  for (let index = 0; index < 30; index += 1) void take("a");
  await new Promise(setImmediate);
  expect(order).toEqual(["a", "a"]);
  void take("b");
  void take("c");
  await done("a");
  await done("a");
  await done("b");
  expect(order).toEqual(["a", "a", "b", "c", "a"]);
});

test("an owner has no more places than one may have, also while others are free", async () => {
  const { order, take, done } = world({ placesOfOne: 1 });
  for (const owner of ["a", "a", "a", "b"]) void take(owner);
  await new Promise(setImmediate);
  expect(order).toEqual(["a", "b"]);
  await done("b");
  expect(order).toEqual(["a", "b"]);
  void take("c");
  await done("a");
  expect(order).toEqual(["a", "b", "c", "a"]);
});

test("owners take turns at one place, each in its own order", async () => {
  const { order, take, done } = world({ places: 1 });
  for (const owner of ["a", "a", "a", "b", "b", "c"]) void take(owner);
  await new Promise(setImmediate);
  for (const owner of ["a", "b", "c", "a", "b"]) await done(owner);
  expect(order).toEqual(["a", "b", "c", "a", "b", "a"]);
});

test("too many of one owner are turned away, and not another's; too many of all are", async () => {
  const { take, done, order } = world({ places: 1, waitingOfOne: 2, waiting: 3 });
  expect(await take("a")).toBe("taken");
  void take("a");
  void take("b");
  void take("b");
  expect(await take("b")).toBe("busy_owner");
  expect(await take("a")).toBe("busy");
  await done("a");
  expect(order).toEqual(["a", "b"]);
});

test("when all the room is taken the last job of the owner with the most makes room for one with few", async () => {
  const { take, done, order } = world({ places: 1, waitingOfOne: 5, waiting: 10 });
  expect(await take("x")).toBe("taken");
  const [a, b] = ["a", "b"].map((owner) => Array.from({ length: 5 }, () => take(owner)));
  // Whatever others of them do: no owner is kept out, and never do more wait.
  for (let n = 0; n < 2; n += 1) void take("c");
  void take("d");
  expect(await Promise.all([a?.[4], b?.[4], a?.[3]])).toEqual(Array(3).fill("busy_owner"));
  expect(await take("b")).toBe("busy");
  for (const owner of ["x", "a", "b", "c", "d", "a", "b", "c", "a", "b", "b"]) await done(owner);
  expect(order.slice(1)).toEqual(["a", "b", "c", "d", "a", "b", "c", "a", "b", "b"]);
});

test("what is owed makes no room, and counts for nobody as much", async () => {
  const { take, done, order } = world({ places: 1, waitingOfOne: 5, waiting: 3 });
  expect(await take("x")).toBe("taken");
  const last = [take("a"), take("a")].at(-1);
  for (const owner of ["a", "a", "b", "b"]) void take(owner, true);
  void take("c");
  // The owed ones of a came later, and b has two without having taken any room.
  void take("b");
  expect(await last).toBe("busy_owner");
  expect(await take("d")).toBe("busy");
  for (const owner of ["x", "a", "b", "c", "a", "b", "a"]) await done(owner);
  expect(order.slice(1)).toEqual(["a", "b", "c", "a", "b", "a", "b"]);
});

test("who finds no room is told so as quickly however many owners wait", async () => {
  const refusals = async (owners: number) => {
    const { take, order } = world({ places: 1, waiting: owners });
    for (let index = 0; index <= owners; index += 1) void take(`owner${index}`);
    await expect.poll(() => order).toEqual(["owner0"]);
    const began = process.cpuUsage();
    for (let index = 0; index < 1_000; index += 1) expect(await take("late")).toBe("busy");
    return process.cpuUsage(began).user;
  };
  await refusals(10);
  expect((await refusals(10_000)) / (await refusals(10))).toBeLessThan(10);
});

test("who was turned away to make room is out of the line, whatever its client does then", async () => {
  const places = new FairPlaces({ ...limits, places: 1, waiting: 2 });
  const release = given(await places.take("x", never));
  const gone = new AbortController();
  const first = places.take("a", never);
  const second = places.take("a", gone.signal);
  const other = places.take("b", never);
  expect(await second).toBe("busy_owner");
  gone.abort();
  expect(await places.take("c", never)).toBe("busy");
  release();
  given(await first)();
  given(await other)();
  // Of all places and all room nothing is lost.
  given(await places.take("c", never));
  void places.take("c", never);
  void places.take("d", never);
  expect(await places.take("e", never)).toBe("busy");
});

test("however many wait that are owed to one, others find room to wait", async () => {
  const { take, done, order } = world({ places: 1, waitingOfOne: 2, waiting: 3 });
  for (let index = 0; index < 5; index += 1) void take("a", true);
  expect(await take("a")).toBe("busy_owner");
  for (const owner of ["b", "c", "d"]) void take(owner);
  expect(await take("e")).toBe("busy");
  for (const owner of ["a", "b", "c", "d"]) await done(owner);
  expect(order).toEqual(["a", "b", "c", "d", "a"]);
  void take("b");
  void take("c");
  void take("d");
  expect(await take("e")).toBe("busy");
});

test("who gives up leaves the queue, and a place given back twice is one place", async () => {
  const places = new FairPlaces({ ...limits, places: 1 });
  const first = given(await places.take("a", never));
  const gone = new AbortController();
  const left = places.take("b", gone.signal);
  const next = places.take("c", never);
  gone.abort(new Error("gone"));
  await expect(left).rejects.toThrow("gone");
  await expect(places.take("b", gone.signal)).rejects.toThrow("gone");
  first();
  first();
  const release = given(await next);
  let later = false;
  const last = places.take("a", never).then((answer) => {
    later = true;
    return answer;
  });
  await new Promise(setImmediate);
  expect(later).toBe(false);
  release();
  given(await last);
});
