import { expect, test } from "vitest";
import { type Call, type KubeApi } from "./client.ts";
import { CustomObjects } from "./custom-objects.ts";

interface Stored {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly generation: number;
    readonly creationTimestamp?: string;
  };
  readonly spec: object;
}
const stored = (
  namespace: string,
  name: string,
  version: number,
  size: number,
  creationTimestamp?: string,
): Stored => ({
  metadata: {
    name,
    namespace,
    uid: `${namespace}/${name}`,
    resourceVersion: String(version),
    generation: version,
    ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
  },
  spec: { unit: "x".repeat(size) },
});

/** An API server with these PriceTables; `tell` sends an event to whoever watches. */
function server(list: () => readonly Stored[]) {
  const events: unknown[] = [];
  let waiting: (() => void)[] = [];
  const wake = () => {
    for (const go of waiting) go();
    waiting = [];
  };
  const api = {
    call: async ({ path }: Call) => ({
      metadata: { resourceVersion: "100" },
      items: path.endsWith("/pricetables") ? list() : [],
    }),
    watch: async function* ({ path, signal }: { path: string; signal: AbortSignal }) {
      signal.addEventListener("abort", wake);
      while (!signal.aborted) {
        const event = path.endsWith("/pricetables") ? events.shift() : undefined;
        if (event === undefined) await new Promise<void>((done) => waiting.push(done));
        else yield event;
      }
    },
  } as unknown as KubeApi;
  const tell = (type: string, object: unknown) => {
    events.push({ type, object });
    wake();
  };
  return { api, tell };
}

test("of a namespace's objects no more than its share is kept, and what is left out is told and read again when there is room", async () => {
  let all = [
    stored("evil", "a", 1, 600),
    stored("evil", "b", 2, 600),
    stored("evil", "c", 3, 100),
    stored("good", "a", 4, 5000),
  ];
  const { api, tell } = server(() => all);
  const { objects, kept, stop } = await observing(api);
  expect(kept()).toEqual({ "evil/a": 611, "evil/b": "NotPermitted", "evil/c": 111, "good/a": 5011 });
  const [left] = objects.values().filter(({ declared }) => declared.name === "b");
  expect(left?.declared.faults[0]?.message).toMatch(
    /^the objects of namespace "evil" have more than 1000 bytes together/,
  );

  // It grows, and another one goes: neither is counted twice.
  tell("MODIFIED", stored("evil", "c", 11, 300));
  await expect.poll(kept).toMatchObject({ "evil/c": 311 });
  tell("DELETED", stored("evil", "a", 12, 600));
  await expect.poll(kept).not.toHaveProperty("evil/a");
  all = [stored("evil", "b", 2, 600), stored("evil", "c", 11, 300), stored("good", "a", 4, 5000)];
  tell("ERROR", { code: 410, reason: "Expired", message: "too old" });
  await expect.poll(kept).toEqual({ "evil/b": 611, "evil/c": 311, "good/a": 5011 });
  await stop();
});

test("the oldest of a namespace's objects are kept, in whatever order they are read and written", async () => {
  const at = (second: number) => `2026-11-29T01:00:0${second}Z`;
  let all = [
    stored("evil", "a", 1, 600, at(3)),
    stored("evil", "b", 2, 300, at(2)),
    stored("evil", "c", 3, 50, at(4)),
    stored("evil", "d", 4, 400, at(1)),
  ];
  const { api, tell } = server(() => all);
  const { kept, changed, stop } = await observing(api);
  const out = "NotPermitted";
  const oldest = { "evil/a": out, "evil/b": 311, "evil/c": 61, "evil/d": 411 };
  expect(kept()).toEqual(oldest);
  // A status that is written to one that was left out is no news of it.
  const before = changed.length;
  tell("MODIFIED", {
    ...all[0],
    metadata: { ...all[0]?.metadata, resourceVersion: "10", generation: 1 },
    status: { seen: true },
  });
  await expect.poll(() => changed.length).toBe(before + 1);
  expect(changed.at(-1)).toBe("status");

  // The oldest grows: the youngest go, until they fit again beside it.
  tell("MODIFIED", stored("evil", "d", 11, 800, at(1)));
  await expect.poll(kept).toEqual({ "evil/a": out, "evil/b": out, "evil/c": 61, "evil/d": 811 });
  expect(changed.slice(-2)).toEqual(["spec", "spec"]);
  const smaller = stored("evil", "d", 12, 400, at(1));
  tell("MODIFIED", smaller);
  await expect.poll(kept).toMatchObject({ "evil/d": 411 });
  all = [...all.slice(0, 3), smaller];
  tell("ERROR", { code: 410, reason: "Expired", message: "too old" });
  await expect.poll(kept).toEqual(oldest);
  await stop();
});

test("an object that was made anew while nobody watched keeps no place but its own", async () => {
  const at = (second: number) => `2026-11-29T01:00:0${second}Z`;
  let all = [stored("evil", "a", 1, 700, at(2))];
  const { api, tell } = server(() => all);
  const { kept, stop } = await observing(api);
  expect(kept()).toEqual({ "evil/a": 711 });
  const anew = stored("evil", "a", 2, 300, at(5));
  all = [{ ...anew, metadata: { ...anew.metadata, uid: "another" } }, stored("evil", "b", 3, 500, at(1))];
  tell("ERROR", { code: 410, reason: "Expired", message: "too old" });
  await expect.poll(kept).toEqual({ "evil/a": 311, "evil/b": 511 });
  tell("ADDED", stored("evil", "c", 4, 600, at(0)));
  await expect.poll(kept).toEqual({ "evil/a": 311, "evil/b": "NotPermitted", "evil/c": 611 });
  await stop();
});

/** What is kept of a server's objects once they were listed, of the namespace `evil` 1,000 bytes at most. */
async function observing(api: KubeApi) {
  const changed: ("spec" | "status")[] = [];
  const objects = new CustomObjects({
    api,
    namespaces: ["all"],
    mostBytes: (namespace) => (namespace === "evil" ? 1000 : null),
    specChanged: () => changed.push("spec"),
    statusChanged: () => changed.push("status"),
    failed: () => {},
  });
  const end = new AbortController();
  const running = objects.run(end.signal);
  await expect.poll(() => objects.synced).toBe(true);
  const kept = () =>
    Object.fromEntries(
      objects
        .values()
        .map(({ declared: { namespace, name, spec, faults } }) => [
          `${namespace}/${name}`,
          faults[0]?.reason ?? JSON.stringify(spec).length,
        ]),
    );
  const stop = async () => {
    end.abort();
    await running;
  };
  return { objects, kept, changed, stop };
}
