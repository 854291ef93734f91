import { expect, test } from "vitest";
import { KeyLookupQueue } from "./key-lookup-queue.ts";
import type { Principal } from "./principal.ts";

const principal = (keyId: string): Principal => ({
  kind: "inference",
  keyId,
  keyName: "",
  expiresAt: null,
  limits: [],
  organizationId: "org",
  projectId: null,
  keyEpoch: 0,
});

test("thousands of keys cost a few queries, each key is told what is true of it, and one too many is refused", async () => {
  const queries: number[] = [];
  const line = new KeyLookupQueue((keys) => {
    queries.push(keys.length);
    return Promise.resolve(
      new Map(keys.filter((key) => key.endsWith("7")).map((key) => [key, principal(key)])),
    );
  });
  const asked = Array.from({ length: 6_000 }, (_, index) => line.find(`key ${index}`, "192.0.2.1"));
  const answers = await Promise.allSettled(asked);
  const of = (index: number) => answers[index];
  expect(of(7)).toMatchObject({ status: "fulfilled", value: { keyId: "key 7" } });
  expect(of(8)).toEqual({ status: "fulfilled", value: null });
  // The first went at once, and 5,000 others could wait.
  expect(answers.filter(({ status }) => status === "rejected").length).toBe(6_000 - 5_001);
  expect(of(5_999)).toMatchObject({ reason: { code: "rate_limited", retryAfterSeconds: 1 } });
  expect(queries.length).toBeLessThanOrEqual(11);
});

test("who asks for few keys waits for no more than one query, and has room, whatever another asks for", async () => {
  const queries: (readonly string[])[] = [];
  const line = new KeyLookupQueue((keys) => {
    queries.push(keys);
    return Promise.resolve(new Map(keys.map((key) => [key, principal(key)])));
  });
  const guesses = Array.from({ length: 5_001 }, (_, index) => line.find(`guess ${index}`, "192.0.2.1"));
  const few = ["a", "b"].map((key) => line.find(key, "192.0.2.2"));
  // The same key from two addresses is looked up once.
  const same = line.find("a", "192.0.2.3");
  const answers = await Promise.allSettled(guesses);
  expect((await Promise.all([...few, same])).map((found) => found?.keyId)).toEqual(["a", "b", "a"]);
  expect(queries[1]).toHaveLength(499);
  expect(queries[1]?.slice(0, 4)).toEqual(["guess 1", "a", "guess 2", "b"]);
  const refused = answers.flatMap(({ status }, index) => (status === "rejected" ? [index] : []));
  expect(refused).toEqual([4_998, 4_999, 5_000]);
});

test("of more askers than fit into a query, those who had no turn yet are first in the next one", async () => {
  const queries: (readonly string[])[] = [];
  const line = new KeyLookupQueue((keys) => {
    queries.push(keys);
    return Promise.resolve(new Map());
  });
  const askers = Array.from({ length: 600 }, (_, index) => `2001:db8:0:${index}::/64`);
  await Promise.all(
    ["first", "second"].flatMap((key) => askers.map((asker, index) => line.find(`${key} ${index}`, asker))),
  );
  expect(queries.map((keys) => keys.length)).toEqual([1, 500, 500, 199]);
  expect(queries[2]?.[0]).toBe("first 501");
  expect(queries[2]?.slice(99, 101)).toEqual(["second 0", "second 1"]);
});

test("a key asked for again while it is looked up is looked up again: it may have been made meanwhile", async () => {
  const valid = new Set<string>();
  const first = Promise.withResolvers<void>();
  const line = new KeyLookupQueue(async (keys) => {
    const known = new Map(keys.filter((key) => valid.has(key)).map((key) => [key, principal(key)]));
    await first.promise;
    return known;
  });
  const early = line.find("a", "192.0.2.1");
  valid.add("a");
  const late = line.find("a", "192.0.2.1");
  first.resolve();
  expect(await early).toBeNull();
  expect(await late).toMatchObject({ keyId: "a" });
});

test("a look-up that fails is those keys' own failure", async () => {
  let away = true;
  const line = new KeyLookupQueue(() =>
    away ? Promise.reject(new Error("away")) : Promise.resolve(new Map()),
  );
  await expect(line.find("a", "192.0.2.1")).rejects.toThrow("away");
  away = false;
  expect(await line.find("a", "192.0.2.1")).toBeNull();
});
