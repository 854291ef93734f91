import { setImmediate } from "node:timers/promises";
import type { DatabasePool } from "slonik";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { systemClock } from "../lib/clock.ts";
import { KeyDirectory } from "./directory.ts";
import type { Person } from "./person.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const frozen = () => new Promise<never>(() => undefined);
const pool = { any: frozen, maybeOne: frozen } as unknown as DatabasePool;

test.each<[string, (directory: KeyDirectory) => Promise<unknown>]>([
  ["a key", async (directory) => await directory.find("ab", 30_000)],
  ["a key that waits in line", (directory) => directory.findQueued("ab", "192.0.2.1")],
  ["a key again", (directory) => directory.recheck("apikey_one")],
  ["the limits of a key", (directory) => directory.limitsOf("apikey_one", "proj_one")],
])("a Postgres that is frozen holds nobody who looks up %s for longer than two seconds", async (_, look) => {
  let over = false;
  const ended = look(new KeyDirectory({ pool, clock: systemClock })).then(
    () => expect.unreachable(),
    () => (over = true),
  );
  // It may be asked together with others of the same turn.
  for (let turn = 0; turn < 3; turn += 1) await setImmediate();
  await vi.advanceTimersByTimeAsync(1_999);
  expect(over).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await ended;
});

test.each<[string, (directory: KeyDirectory) => unknown]>([
  ["a key", (directory) => directory.find("ab", 30_000)],
  ["a person", (directory) => directory.person({ sha256: "ab", kind: "viewer", name: null } as Person)],
])(
  "%s whose project's limits changed is looked up again, and served as known where Postgres is away",
  async (_, find) => {
    const principal = { keyId: "apikey_one", organizationId: "org_one", expiresAt: null, limits: [] };
    const before = { ...principal, projectId: "proj_one", keyName: "before" };
    const after = { ...before, keyName: "after" };
    const maybeOne = vi.fn(() => Promise.reject<unknown>(new Error("away")));
    let now = 1_000_000;
    const directory = new KeyDirectory({
      pool: { maybeOne } as unknown as DatabasePool,
      clock: systemClock,
      ages: { now: () => now },
    });
    maybeOne.mockResolvedValueOnce(before);
    expect(await find(directory)).toBe(before);
    now += 1;
    directory.projectChanged("proj_two");
    expect(find(directory)).toBe(before);
    directory.projectChanged("proj_one");
    expect(await find(directory)).toBe(before);
    // It was away a moment ago: nobody waits for it.
    expect(find(directory)).toBe(before);
    now += 10_000;
    maybeOne.mockResolvedValueOnce(after);
    expect(await find(directory)).toBe(after);
    expect(find(directory)).toBe(after);
  },
);

test("a look-up from before a key was forgotten leaves the newer one to those who ask at the same time", async () => {
  const asked: PromiseWithResolvers<unknown>[] = [];
  const asking = () => {
    const answer = Promise.withResolvers<unknown>();
    asked.push(answer);
    return answer.promise;
  };
  let now = 1_000_000;
  const directory = new KeyDirectory({
    pool: { maybeOne: asking } as unknown as DatabasePool,
    clock: systemClock,
    ages: { now: () => now },
  });
  const principal = { keyId: "apikey_one", organizationId: "org_one", expiresAt: null, limits: [] };
  const find = () => Promise.resolve(directory.find("ab", 30_000));
  const known = async () => {
    const found = find();
    asked.at(-1)?.resolve(principal);
    await found;
    now += 31_000;
  };
  await known();
  const before = find();
  directory.forget("ab");
  now += 1;
  await known();
  const newer = find();
  expect(asked).toHaveLength(4);
  asked[1]?.resolve(principal);
  await before;
  const together = find();
  expect(asked).toHaveLength(4);
  asked[3]?.resolve(principal);
  expect(await Promise.all([newer, together])).toEqual([principal, principal]);
});

test("a key that ended elsewhere is asked about within a second, also when the clock was set back an hour", async () => {
  const key = { keyId: "apikey_one", organizationId: "org_one", expiresAt: null, limits: [] };
  let found: typeof key | null = key;
  let [unix, age] = [1_000_000_000, 0];
  const directory = new KeyDirectory({
    pool: { maybeOne: async () => found } as unknown as DatabasePool,
    clock: { now: () => unix },
    ages: { now: () => age },
  });
  expect(await directory.find("ab", 900)).toBe(key);
  found = null;
  unix -= 3_600_000;
  age += 1_000;
  expect(await directory.find("ab", 900)).toBe(null);
});

test("a key that is made anew after the clock was set back is remembered, though it ended before", async () => {
  const key = { keyId: "apikey_one", organizationId: "org_one", expiresAt: null, limits: [] };
  let [unix, age] = [1_000_000_000, 0];
  const directory = new KeyDirectory({
    pool: { maybeOne: async () => key } as unknown as DatabasePool,
    clock: { now: () => unix },
    ages: { now: () => age },
  });
  directory.forget("ab");
  unix -= 3_600_000;
  age += 1_000;
  await directory.find("ab", 30_000);
  expect(directory.knows("ab")).toBe(true);
});

test("that Postgres was frozen once is no reason to believe a key for minutes after: the next request asks", async () => {
  const key = { keyId: "apikey_one", organizationId: "org_one", expiresAt: null, limits: [] };
  let answer = async (): Promise<typeof key | null> => key;
  let age = 0;
  const directory = new KeyDirectory({
    pool: { maybeOne: () => answer() } as unknown as DatabasePool,
    clock: systemClock,
    ages: { now: () => age },
  });
  const find = () => directory.find("ab", 30_000);
  await find();
  age = 31_000;
  answer = () => Promise.reject(new Error("frozen"));
  expect(await find()).toBe(key);
  expect(find(), "at once").toBe(key);
  await setImmediate();
  // It is there again, and another pod ends the key before anybody asks here.
  answer = async () => null;
  age = 120_000;
  expect(await find()).toBe(null);
});

test("keys with long lists of models are remembered as far as so many with short ones would be", async () => {
  const models = Array.from({ length: 500 }, (_, n) => `${"m".repeat(125)}${n}*`);
  const organizationId = "org_one";
  const answers = Array.from({ length: 2_000 }, (_, n) => ({
    keyId: `apikey_${n}`,
    organizationId,
    expiresAt: null,
    limits: [{ kind: "key", id: `apikey_${n}`, limits: { models } }],
  }));
  const asked = answers.values();
  const directory = new KeyDirectory({
    pool: { maybeOne: async () => asked.next().value } as unknown as DatabasePool,
    clock: systemClock,
  });
  for (let n = 0; n < answers.length; n += 1) await directory.find(String(n), 30_000);
  const known = answers.filter((_, n) => directory.knows(String(n))).length;
  // 50,000 usual ones, of a kilobyte: each of these has 99, with what its list is looked through by.
  expect(known).toBeGreaterThan(500);
  expect(known).toBeLessThan(550);
  expect(directory.knows("1999")).toBe(true);
});
