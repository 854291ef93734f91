import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type Call, type KubeApi, KubeError } from "./client.ts";
import { ReferencedSecrets } from "./referenced-secrets.ts";

const CALL_MS = 10;

test("of a Secret only what is named is kept, and no more of a value than a credential can have", async () => {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const metadata = { name: "big", namespace: "ml", uid: "u", resourceVersion: "5" };
  const data = { used: base64("value\n"), long: base64("x".repeat(900_000)), other: base64("kept out") };
  let reads = 0;
  const api = {
    call: async ({ path }: Call) => {
      if (path.endsWith("/secrets")) return { metadata: { resourceVersion: "5" }, items: [{ metadata }] };
      reads += 1;
      return { metadata, data };
    },
    watch: async function* ({ signal }: { signal: AbortSignal }) {
      yield* [];
      await new Promise((done) => signal.addEventListener("abort", done));
    },
  } as unknown as KubeApi;
  const nothing = () => {};
  const secrets = new ReferencedSecrets({
    api,
    namespaces: [],
    mayWait: () => false,
    mostBytes: () => null,
    changed: nothing,
    seen: nothing,
    failed: nothing,
  });
  const stop = new AbortController();
  const running = secrets.run(stop.signal);
  await expect.poll(() => secrets.synced).toBe(true);
  const named = async (...keys: string[]) =>
    (await secrets.read(new Map([["ml/big", new Set(keys)]]))).get("ml/big");
  expect(await named("used")).toEqual({ used: "value\n" });
  expect(await named("used")).toEqual({ used: "value\n" });
  expect(reads).toBe(1);
  // What is named later is read then.
  const both = await named("used", "long", "absent");
  expect([both?.["used"], Object.keys(both ?? {}), reads]).toEqual(["value\n", ["used", "long"], 2]);
  expect(both?.["long"]?.length).toBe(8 * 1024 + 1);
  stop.abort();
  await running;
});

test("of a namespace's values no more than its share is kept, others' are, and what is gone makes room", async () => {
  const value = Buffer.from("v".repeat(400)).toString("base64");
  const api = {
    call: async ({ path }: Call) => {
      const [, , , , namespace, , name] = path.split("/");
      const metadata = { namespace, name, uid: path, resourceVersion: "1" };
      if (name !== undefined) return { metadata, data: { k: value } };
      const items = ["a", "b", "c"].map((each) => ({ metadata: { ...metadata, name: each, uid: each } }));
      return { metadata: { resourceVersion: "1" }, items };
    },
    watch: async function* ({ signal }: { signal: AbortSignal }) {
      yield* [];
      await new Promise((done) => signal.addEventListener("abort", done));
    },
  } as unknown as KubeApi;
  const secrets = new ReferencedSecrets({
    api,
    namespaces: ["evil", "good"],
    mayWait: () => false,
    mostBytes: (namespace) => (namespace === "evil" ? 1000 : null),
    changed: () => {},
    seen: () => {},
    failed: (error) => expect.unreachable(String(error)),
  });
  const stop = new AbortController();
  const running = secrets.run(stop.signal);
  await expect.poll(() => secrets.synced).toBe(true);
  const lengths = async (...keys: string[]) => {
    const read = await secrets.read(new Map(keys.map((key) => [key, new Set(["k"])])));
    return [...read.values()].map(({ k }) => k?.length);
  };
  const TOO_LONG = 8 * 1024 + 1;
  expect(await lengths("evil/a", "evil/b", "evil/c", "good/a", "good/b", "good/c")).toEqual([
    400,
    400,
    TOO_LONG,
    400,
    400,
    400,
  ]);
  expect(await lengths("evil/b", "evil/c"), "the other is named no more").toEqual([400, 400]);
  expect(await lengths("evil/a", "evil/b", "evil/c")).toEqual([TOO_LONG, 400, 400]);
  stop.abort();
  await running;
});

test("what was left out of a full namespace is there all the same, and is read again once others are smaller or gone", async () => {
  const sizes = new Map<string, Record<string, number>>(["a", "b", "c"].map((name) => [name, { k: 400 }]));
  const versions = new Map(["a", "b", "c"].map((name) => [name, 1]));
  const metadataOf = (name: string) => ({
    namespace: "evil",
    name,
    uid: name,
    resourceVersion: String(versions.get(name)),
  });
  let happened = Promise.withResolvers<string>();
  const api = {
    call: async ({ path }: Call) => {
      const [, , , , , , name] = path.split("/");
      if (name === undefined)
        return {
          metadata: { resourceVersion: "1" },
          items: [...sizes.keys()].map((each) => ({ metadata: metadataOf(each) })),
        };
      const data = sizes.get(name);
      if (data === undefined) throw new KubeError(404, "NotFound", "is gone");
      const values = Object.entries(data).map(([key, size]) => [
        key,
        Buffer.from("v".repeat(size)).toString("base64"),
      ]);
      return { metadata: metadataOf(name), data: Object.fromEntries(values) };
    },
    watch: async function* ({ signal }: { signal: AbortSignal }) {
      signal.addEventListener("abort", () => happened.resolve(""));
      for (;;) {
        const name = await happened.promise;
        if (signal.aborted) return;
        yield { type: "MODIFIED", object: { metadata: metadataOf(name) } };
      }
    },
  } as unknown as KubeApi;
  let changes = 0;
  const secrets = new ReferencedSecrets({
    api,
    namespaces: ["evil"],
    mayWait: () => true,
    mostBytes: () => 1000,
    changed: () => (changes += 1),
    seen: () => {},
    failed: (error) => expect.unreachable(String(error)),
  });
  const stop = new AbortController();
  const running = secrets.run(stop.signal);
  await expect.poll(() => secrets.synced).toBe(true);
  const change = async (name: string, data: Record<string, number> | null) => {
    if (data === null) sizes.delete(name);
    else sizes.set(name, data);
    versions.set(name, (versions.get(name) ?? 0) + 1);
    const before = changes;
    const told = happened;
    happened = Promise.withResolvers();
    told.resolve(name);
    await expect.poll(() => changes).toBe(before + 1);
  };
  const round = async (keysOfA: readonly string[] = ["k"]) => {
    const named = new Map(
      ["a", "b", "c"].map((name) => [`evil/${name}`, new Set(name === "a" ? keysOfA : ["k"])]),
    );
    const read = await secrets.read(named);
    const lengths = [...read].map(([key, { k }]) => [key.slice("evil/".length), k?.length]);
    return [Object.fromEntries(lengths), secrets.behind.size];
  };
  const TOO_LONG = 8 * 1024 + 1;
  expect(await round()).toEqual([{ a: 400, b: 400, c: TOO_LONG }, 0]);

  // Whoever reads it finds it gone before the watch has told so.
  await change("b", null);
  expect(await round()).toEqual([{ a: 400, c: TOO_LONG }, 1]);
  expect(await round()).toEqual([{ a: 400, c: 400 }, 0]);

  await change("b", { k: 400 });
  expect(await round()).toEqual([{ a: 400, b: TOO_LONG, c: 400 }, 0]);
  await change("a", { k: 100, more: 300 });
  expect(await round()).toEqual([{ a: 100, b: TOO_LONG, c: 400 }, 1]);
  expect(await round()).toEqual([{ a: 100, b: 400, c: 400 }, 0]);

  // What is named no more of a Secret takes no room either.
  expect(await round(["k", "more"])).toEqual([{ a: TOO_LONG, b: 400, c: 400 }, 0]);
  expect(await round()).toEqual([{ a: 100, b: 400, c: 400 }, 0]);
  stop.abort();
  await running;
});

test("thousands of Secrets of one namespace hold up no round: they are read in later ones, and keep their values meanwhile", async () => {
  const names = [...Array.from({ length: 2000 }, (_, index) => `evil/s${index}`), "good/mine"];
  let version = 1;
  const told = Promise.withResolvers<void>();
  const metadataOf = (key: string) => {
    const [namespace = "", name = ""] = key.split("/");
    return { namespace, name, uid: key, resourceVersion: String(version) };
  };
  const api = {
    call: async ({ path }: Call) => {
      if (path === "/api/v1/secrets")
        return {
          metadata: { resourceVersion: "1" },
          items: names.map((key) => ({ metadata: metadataOf(key) })),
        };
      await sleep(CALL_MS);
      const [, , , , namespace, , name] = path.split("/");
      const value = Buffer.from(`value-${version}`).toString("base64");
      return { metadata: metadataOf(`${namespace}/${name}`), data: { k: value } };
    },
    watch: async function* ({ signal }: { signal: AbortSignal }) {
      await told.promise;
      version = 2;
      for (const key of names) yield { type: "MODIFIED", object: { metadata: metadataOf(key) } };
      await new Promise((done) => signal.addEventListener("abort", done));
    },
  } as unknown as KubeApi;
  let changes = 0;
  const secrets = new ReferencedSecrets({
    api,
    namespaces: [],
    mayWait: (namespace) => namespace === "evil",
    mostBytes: () => null,
    changed: () => (changes += 1),
    seen: () => {},
    failed: (error) => expect.unreachable(String(error)),
  });
  const stop = new AbortController();
  const running = secrets.run(stop.signal);
  await expect.poll(() => secrets.synced).toBe(true);

  const named = new Map(names.map((key) => [key, new Set(["k"])]));
  const round = async () => {
    const begun = performance.now();
    const read = await secrets.read(named);
    expect(performance.now() - begun, "milliseconds").toBeLessThan(2000);
    return read;
  };
  const untilAllAreRead = async () => {
    for (let rounds = 1; secrets.behind.size > 0; rounds += 1) {
      await round();
      expect(rounds, "rounds").toBeLessThan(20);
    }
  };
  expect((await round()).get("good/mine")).toEqual({ k: "value-1" });
  expect([[...secrets.behind], [...secrets.unread]]).toEqual([["evil"], ["evil"]]);
  await untilAllAreRead();
  expect([(await round()).size, secrets.unread.size]).toEqual([2001, 0]);

  told.resolve();
  await expect.poll(() => changes).toBe(2001);
  const read = await round();
  expect([read.get("good/mine"), read.get("evil/s1999")]).toEqual([{ k: "value-2" }, { k: "value-1" }]);
  expect([[...secrets.behind], [...secrets.unread]]).toEqual([["evil"], []]);
  await untilAllAreRead();
  expect((await round()).get("evil/s1999")).toEqual({ k: "value-2" });
  stop.abort();
  await running;
}, 60_000);
