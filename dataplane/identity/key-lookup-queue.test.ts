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
  const asked = Array.from({ length: 6_000 }, (_, index) => line.find(`key ${index}`));
  const answers = await Promise.allSettled(asked);
  const of = (index: number) => answers[index];
  expect(of(7)).toMatchObject({ status: "fulfilled", value: { keyId: "key 7" } });
  expect(of(8)).toEqual({ status: "fulfilled", value: null });
  // The first went at once, and 5,000 others could wait.
  expect(answers.filter(({ status }) => status === "rejected").length).toBe(6_000 - 5_001);
  expect(of(5_999)).toMatchObject({ reason: { code: "rate_limited", retryAfterSeconds: 1 } });
  expect(queries.length).toBeLessThanOrEqual(11);
});

test("a key asked for again while it is looked up is looked up again: it may have been made meanwhile", async () => {
  const valid = new Set<string>();
  const first = Promise.withResolvers<void>();
  const line = new KeyLookupQueue(async (keys) => {
    const known = new Map(keys.filter((key) => valid.has(key)).map((key) => [key, principal(key)]));
    await first.promise;
    return known;
  });
  const early = line.find("a");
  valid.add("a");
  const late = line.find("a");
  first.resolve();
  expect(await early).toBeNull();
  expect(await late).toMatchObject({ keyId: "a" });
});

test("a look-up that fails is those keys' own failure", async () => {
  let away = true;
  const line = new KeyLookupQueue(() =>
    away ? Promise.reject(new Error("away")) : Promise.resolve(new Map()),
  );
  await expect(line.find("a")).rejects.toThrow("away");
  away = false;
  expect(await line.find("a")).toBeNull();
});
