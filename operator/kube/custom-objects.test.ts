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
  };
  readonly spec: object;
}
const stored = (namespace: string, name: string, version: number, size: number): Stored => ({
  metadata: {
    name,
    namespace,
    uid: `${namespace}/${name}`,
    resourceVersion: String(version),
    generation: version,
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
  const objects = new CustomObjects({
    api,
    namespaces: ["all"],
    mostBytes: (namespace) => (namespace === "evil" ? 1000 : null),
    specChanged: () => {},
    statusChanged: () => {},
    failed: () => {},
  });
  const stop = new AbortController();
  const running = objects.run(stop.signal);
  const kept = () =>
    Object.fromEntries(
      objects
        .values()
        .map(({ declared: { namespace, name, spec, faults } }) => [
          `${namespace}/${name}`,
          faults[0]?.reason ?? JSON.stringify(spec).length,
        ]),
    );
  await expect.poll(() => objects.synced).toBe(true);
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
  stop.abort();
  await running;
});
