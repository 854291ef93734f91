import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Declared, WantedKey } from "../plan/objects.ts";
import { type Call, type KubeApi, KubeError } from "./client.ts";
import { KeyMaker } from "./key-maker.ts";
import { NotLeading } from "./lease.ts";
import { ReferencedSecrets } from "./referenced-secrets.ts";

// How long is waited for is judged by a clock that a busy machine does not move.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(() => void vi.useRealTimers());

const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** Lets time pass until the work is over. */
async function inTime<Result>(work: Promise<Result>): Promise<Result> {
  const waiting = new Set([work]);
  const over = () => waiting.clear();
  work.then(over, over);
  // Nothing but timers, which are ours, holds it up.
  while (waiting.size > 0) await vi.advanceTimersToNextTimerAsync();
  return await work;
}

const CALL_MS = 10;
const owner = { name: "acme" } as Declared;
const wanted = (secret: string, key: string, namespace = "ml"): WantedKey => ({
  namespace,
  secret,
  key,
  form: "inference",
  owner,
});

const makerFor = (api: KubeApi): KeyMaker =>
  new KeyMaker(
    api,
    new ReferencedSecrets({
      api,
      namespaces: [],
      mayWait: () => false,
      mostBytes: () => null,
      changed: () => {},
      seen: () => {},
      failed: () => {},
    }),
  );

/** An API server that takes its time, and refuses a Secret called `refused`, as a quota does, and more in one called `full`. */
function slowServer() {
  const stored = new Map<string, { version: number; data: Record<string, string> }>();
  const seen = { underWay: 0, most: 0, calls: 0 };
  const answer = ({ method, path, body }: Call): unknown => {
    const { metadata, data = {} } = (body ?? {}) as {
      metadata?: { name?: string; resourceVersion?: string };
      data?: Record<string, string>;
    };
    const name = metadata?.name ?? path.split("/").at(-1) ?? "";
    const before = stored.get(name);
    if (method === "GET" && before === undefined) throw new KubeError(404, "NotFound", "not found");
    if (method === "POST" && name === "refused") throw new KubeError(403, "Forbidden", "exceeded quota");
    if (method === "PATCH" && name === "full") throw new KubeError(422, "Invalid", "Too long");
    if (method === "POST" && before !== undefined) throw new KubeError(409, "AlreadyExists", "exists");
    if (method === "PATCH" && metadata?.resourceVersion !== String(before?.version))
      throw new KubeError(409, "Conflict", "written since");
    if (method !== "GET")
      stored.set(name, { version: (before?.version ?? 0) + 1, data: { ...before?.data, ...data } });
    const { version, data: now } = stored.get(name) ?? { version: 0, data: {} };
    return {
      metadata: { name, namespace: "ml", uid: name, resourceVersion: String(version) },
      data: { ...now },
    };
  };
  let held = { prefix: "-", until: Promise.resolve() };
  /** Of Secrets whose names begin so nothing is answered until the result is called. */
  const hold = (prefix: string): (() => void) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    held = { prefix, until: promise };
    return resolve;
  };
  const nameIn = ({ path, body }: Call): string =>
    (body as { metadata?: { name?: string } } | undefined)?.metadata?.name ?? path.split("/").at(-1) ?? "";
  const api = {
    call: async (call: Call) => {
      call.permit?.();
      seen.calls += 1;
      seen.most = Math.max(seen.most, (seen.underWay += 1));
      await (nameIn(call).startsWith(held.prefix) ? held.until : sleep(CALL_MS));
      seen.underWay -= 1;
      return answer(call);
    },
  } as unknown as KubeApi;
  return { stored, seen, call: api.call.bind(api), keys: makerFor(api), hold };
}

test("keys of many Secrets are made side by side, those of one Secret in a row, and a refusal stops no other", async () => {
  const { stored, seen, keys } = slowServer();
  const many = Array.from({ length: 40 }, (_, index) => wanted(`s${index}`, "api-key"));
  const all = [wanted("refused", "k"), wanted("s0", "second"), ...many, wanted("s0", "third")];
  const made: WantedKey[] = [];
  const failures: unknown[] = [];
  await inTime(
    keys.make(all, () => {}, {
      made: (key) => made.push(key),
      failed: (error) => failures.push(error),
      late: () => expect.unreachable(),
    }),
  );
  expect(made).toHaveLength(42);
  expect(Object.keys(stored.get("s0")?.data ?? {}).toSorted()).toEqual(["api-key", "second", "third"]);
  expect(failures).toMatchObject([{ status: 403 }]);
  expect([...keys.refused]).toEqual([["ml/refused/k", "exceeded quota"]]);
  expect(seen.most, "calls at once").toBe(8);
});

/** Of somebody who wants one key of such a server. */
async function wantingOne(api: KubeApi): Promise<KeyMaker> {
  const nothing = () => {};
  const keys = makerFor(api);
  await inTime(keys.make([wanted("s", "k")], nothing, { made: nothing, failed: nothing, late: nothing }));
  return keys;
}

test.for([400, 403, 413, 422])("words of a refusal with status %i are told", async (status) => {
  const api = {
    call: async ({ method }: Call) => {
      if (method === "GET") throw new KubeError(404, "NotFound", "not found");
      // As Kyverno's webhook (400), a quota, and admission policies of the cluster's own.
      throw new KubeError(status, "", "every Secret needs an owner");
    },
  } as unknown as KubeApi;
  const keys = await wantingOne(api);
  expect([...keys.refused]).toEqual([["ml/s/k", "every Secret needs an owner"]]);
});

test.for([401, 404, 409, 429, 500])("a failure with status %i passes and is no refusal", async (status) => {
  const api = {
    call: async ({ method }: Call) => {
      throw method === "GET" ? new KubeError(404, "NotFound", "") : new KubeError(status, "", "");
    },
  } as unknown as KubeApi;
  const keys = await wantingOne(api);
  expect([...keys.refused]).toEqual([]);
});

test("a namespace whose Secrets take long to be made is waited for no longer than others' keys take, and has them in the end", async () => {
  const { stored, seen, keys, hold } = slowServer();
  const all = [
    ...Array.from({ length: 20 }, (_, index) => wanted(`slow-${index}`, "k", "evil")),
    wanted("mine", "k", "good"),
  ];
  const release = hold("slow-");
  const made: string[] = [];
  let late = 0;
  const told = {
    made: ({ secret }: WantedKey) => made.push(secret),
    failed: (error: unknown) => expect.unreachable(String(error)),
    late: () => (late += 1),
  };
  const left = () => all.filter(({ secret }) => !made.includes(secret));
  const startedAt = performance.now();
  expect(await inTime(keys.make(all, () => {}, told))).toBe(false);
  expect(performance.now() - startedAt, "milliseconds").toBeLessThan(2500);
  expect(made).toEqual(["mine"]);

  // Rounds of others go on meanwhile, and begin nothing more of that namespace.
  const before = seen.calls;
  const again = performance.now();
  all.push(wanted("another", "k", "good"));
  expect(await inTime(keys.make(left(), () => {}, told))).toBe(true);
  expect(performance.now() - again, "milliseconds").toBeLessThan(500);
  expect([made, seen.calls - before]).toEqual([["mine", "another"], 1]);

  expect(late).toBe(0);
  release();
  await expect.poll(() => late).toBe(1);
  expect(await inTime(keys.make(left(), () => {}, told))).toBe(true);
  expect([left(), stored.size]).toEqual([[], 22]);
});

test("keys of a namespace that took long are made as fast as the API server goes, not a few in each round", async () => {
  const { stored, seen, keys, call } = slowServer();
  const api = {
    call: async (asked: Call) => {
      await sleep(stored.size < 8 ? 2_000 : 1_100);
      return await call(asked);
    },
  } as unknown as KubeApi;
  const slow = makerFor(api);
  const all = Array.from({ length: 300 }, (_, index) => wanted(`s${index}`, "k"));
  const made = new Set<string>();
  const told = {
    made: ({ secret }: WantedKey) => made.add(secret),
    failed: (error: unknown) => expect.unreachable(String(error)),
    late: () => {},
  };
  const startedAt = performance.now();
  for (let round = 0; made.size < 300; round += 1) {
    expect(round, "rounds").toBeLessThan(20);
    const left = all.filter(({ secret }) => !made.has(secret));
    await inTime(slow.make(left, () => {}, told));
    // The rest of a round.
    await inTime(sleep(3_000));
  }
  expect(performance.now() - startedAt, "milliseconds").toBeLessThan(40_000);
  expect([stored.size, keys.refused.size]).toEqual([300, 0]);
  expect(seen.most, "calls at once").toBeLessThanOrEqual(16);
  // Whoever is not known to exist is not looked for first.
  expect(seen.calls).toBe(300);
});

test.for(["a while each", "for ever"])(
  "many keys of a slow namespace that take %s leave room for a key of another one",
  async (takes) => {
    const server = slowServer();
    let callMs = 2_000;
    let underWay = 0;
    let most = 0;
    const api = {
      call: async (call: Call) => {
        most = Math.max(most, (underWay += 1));
        await sleep(callMs);
        return await server.call(call).finally(() => (underWay -= 1));
      },
    } as unknown as KubeApi;
    const keys = makerFor(api);
    const made: string[] = [];
    const told = {
      made: ({ secret }: WantedKey) => made.push(secret),
      failed: (error: unknown) => expect.unreachable(String(error)),
      late: () => {},
    };
    // Both took long once.
    await inTime(keys.make([wanted("evil", "k", "evil"), wanted("first", "k", "good")], () => {}, told));
    await inTime(sleep(1_000));
    expect(made.toSorted()).toEqual(["evil", "first"]);
    callMs = 1_100;
    const release = takes === "for ever" ? server.hold("evil") : () => {};

    const evil = Array.from({ length: 300 }, (_, index) => wanted(`evil${index}`, "k", "evil"));
    await inTime(keys.make(evil, () => {}, told));
    await inTime(sleep(500));
    const left = evil.filter(({ secret }) => !made.includes(secret));
    await inTime(keys.make([...left, wanted("second", "k", "good")], () => {}, told));
    await inTime(sleep(2_500));
    expect(made).toContain("second");
    expect(most, "calls at once").toBeLessThanOrEqual(16);
    release();
  },
);

test("very many keys whose time is over are left to the next round at once", async () => {
  const { keys, hold } = slowServer();
  const told = { made: () => {}, failed: () => {}, late: () => {} };
  const release = hold("evil");
  await inTime(keys.make([wanted("evil", "k", "evil")], () => {}, told));
  release();
  await inTime(sleep(100));
  const releaseMany = hold("evil");
  const many = Array.from({ length: 20_000 }, (_, index) => wanted(`evil${index}`, "k", "evil"));
  await inTime(keys.make(many, () => {}, told));
  await inTime(sleep(11_000));
  const began = process.cpuUsage();
  releaseMany();
  await inTime(sleep(100));
  expect(process.cpuUsage(began).user).toBeLessThan(400_000);
});

test("a Secret that the watch has not shown yet keeps its values", async () => {
  const { stored, keys } = slowServer();
  stored.set("s", { version: 1, data: { k: "bWluZQ==" } });
  const made: string[] = [];
  const told = { made: ({ key }: WantedKey) => made.push(key), failed: () => {}, late: () => {} };
  await inTime(keys.make([wanted("s", "k"), wanted("s", "other")], () => {}, told));
  expect(made).toEqual(["other"]);
  expect(stored.get("s")?.data).toMatchObject({ k: "bWluZQ==", other: expect.any(String) });
});

test("further keys of a Secret that was just made are added to it, as the watch may show it only later", async () => {
  const { seen, keys } = slowServer();
  const made: string[] = [];
  const told = { made: ({ key }: WantedKey) => made.push(key), failed: () => {}, late: () => {} };
  const three = ["a", "b", "c"].map((key) => wanted("s", key));
  expect(await inTime(keys.make(three, () => {}, told))).toBe(true);
  expect(made).toEqual(["a", "b", "c"]);
  // One is created; a quota would refuse to create it again where nothing is left of it. The others are read and written.
  expect(seen.calls).toBe(5);
});

test("many namespaces whose Secrets take for ever to be made keep nobody's keys from being made", async () => {
  const { seen, keys, hold } = slowServer();
  const all = Array.from({ length: 48 }, (_, index) =>
    wanted(`slow-${index}`, "k", `evil-${Math.floor(index / 2)}`),
  );
  const release = hold("slow-");
  const made: string[] = [];
  const told = { made: ({ secret }: WantedKey) => made.push(secret), failed: () => {}, late: () => {} };
  const left = () => all.filter(({ secret }) => !made.includes(secret));
  const startedAt = performance.now();
  for (let index = 0; index < 4; index += 1) {
    all.push(wanted(`mine-${index}`, "k", "good"));
    while (left().some(({ namespace }) => namespace === "good")) {
      expect(performance.now() - startedAt, "milliseconds").toBeLessThan(8_000);
      if (await inTime(keys.make(left(), () => {}, told))) await inTime(sleep(20));
    }
  }
  expect(seen.underWay, "calls that hang").toBeLessThanOrEqual(40);
  release();
}, 30_000);

test("namespaces whose Secrets took long are not waited for again, rest after a failure, and let others go first", async () => {
  let takesMs = 1200;
  let calls = 0;
  const server = slowServer();
  const api = {
    call: async (call: Call) => {
      const isEvil = call.path.includes("/evil-");
      if (isEvil) calls += 1;
      if (isEvil) await sleep(takesMs);
      if (isEvil) throw new KubeError(500, "InternalError", "failed calling webhook");
      return await server.call(call);
    },
  } as unknown as KubeApi;
  const keys = makerFor(api);
  const evil = Array.from({ length: 80 }, (_key, index) => wanted(`s${index}`, "k", `evil-${index % 8}`));
  const made: string[] = [];
  const told = { made: ({ secret }: WantedKey) => made.push(secret), failed: () => {}, late: () => {} };
  // Each of them ends in time, and is wanted again in the next round.
  for (let round = 0; !made.includes("mine"); round += 1) {
    expect(round, "rounds").toBeLessThan(2);
    await inTime(keys.make([...evil, wanted("mine", "k", "good")], () => {}, told));
  }
  takesMs = 2000;
  expect(await inTime(keys.make(evil, () => {}, told))).toBe(false);
  await inTime(sleep(700));
  const before = calls;
  const startedAt = performance.now();
  expect(await inTime(keys.make([...evil, wanted("another", "k", "good")], () => {}, told))).toBe(true);
  expect(performance.now() - startedAt, "milliseconds").toBeLessThan(500);
  expect([made, calls - before]).toEqual([["mine", "another"], 0]);
}, 30_000);

test("a data key called like a property of every object is made too", async () => {
  const { stored, keys } = slowServer();
  stored.set("s", { version: 1, data: { other: "kept" } });
  const made: string[] = [];
  await inTime(
    keys.make([wanted("s", "constructor")], () => {}, {
      made: ({ key }) => made.push(key),
      failed: (error) => expect.unreachable(String(error)),
      late: () => expect.unreachable(),
    }),
  );
  expect(made).toEqual(["constructor"]);
  expect(Object.keys(stored.get("s")?.data ?? {})).toEqual(["other", "constructor"]);
});

test("thousands of keys of one namespace that cannot be made hold up neither a round nor another's key", async () => {
  const { stored, seen, keys } = slowServer();
  stored.set("full", { version: 1, data: { other: "kept" } });
  const many = Array.from({ length: 300 }, (_, index) => wanted("full", `k${index}`, "evil"));
  const each = Array.from({ length: 300 }, (_, index) => wanted(`many${index}`, "k", "evil"));
  const all = [...many, ...each, wanted("mine", "api-key", "good"), ...many.slice(0, 1)];
  const made: string[] = [];
  const told = { made: ({ secret }: WantedKey) => made.push(secret), failed: () => {}, late: () => {} };
  const startedAt = performance.now();
  expect(await inTime(keys.make(all, () => {}, told))).toBe(false);
  expect(performance.now() - startedAt, "milliseconds").toBeLessThan(2000);
  expect(made).toContain("mine");
  // What is left is made in rounds to come, and the refusals are not tried again in each.
  const left = () => all.filter(({ secret }) => !made.includes(secret));
  for (let round = 0; !(await inTime(keys.make(left(), () => {}, told))); round += 1)
    expect(round, "rounds").toBeLessThan(30);
  expect(made).toHaveLength(301);
  expect(keys.refused.get("evil/full/k299")).toBe("Too long");
  const before = seen.calls;
  expect(await inTime(keys.make(many, () => {}, told))).toBe(true);
  expect(seen.calls - before, "calls").toBe(0);
  expect(keys.refused.size).toBe(300);
}, 60_000);

test("whoever leads no more makes no key", async () => {
  const { stored, keys } = slowServer();
  const permit = () => {
    throw new NotLeading();
  };
  const failed = (error: unknown) => expect.unreachable(String(error));
  await expect(
    inTime(
      keys.make([wanted("a", "k"), wanted("b", "k")], permit, {
        made: () => {},
        failed,
        late: () => {},
      }),
    ),
  ).rejects.toThrow(NotLeading);
  expect(stored.size).toBe(0);
});
