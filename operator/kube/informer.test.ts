import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { AnswerTooLarge, type Call, type KubeApi, KubeError, type WatchCall } from "./client.ts";
import { Informer } from "./informer.ts";

const pod = (name: string, resourceVersion: string) => ({
  metadata: { name, namespace: "gw", uid: `uid-${name}`, resourceVersion },
});

/** An API server with one list, and a watch that tells these events and then nothing. */
function api(items: readonly unknown[], events: readonly unknown[]): KubeApi {
  return {
    call: async (_call: Call) => ({ metadata: { resourceVersion: "10" }, items }),
    watch: async function* ({ signal }: { signal: AbortSignal }) {
      yield* events;
      await new Promise((done) => signal.addEventListener("abort", done));
    },
  } as unknown as KubeApi;
}

test("an answer to a write that comes after the object's end brings it not back, one before is taken", async () => {
  const stop = new AbortController();
  const informer = new Informer<string>({
    api: api([pod("stays", "1"), pod("ends", "2")], [{ type: "DELETED", object: pod("ends", "12") }]),
    path: "/pods",
    read: ({ metadata }) => metadata.resourceVersion,
    changed: () => {},
    failed: () => {},
  });
  const running = informer.run(stop.signal);
  await expect.poll(() => informer.values()).toEqual(["1"]);
  informer.accept(pod("ends", "11"));
  informer.accept(pod("stays", "11"));
  expect(informer.values()).toEqual(["11"]);
  stop.abort();
  await running;
});

test("of objects so large that no page of them would fit, smaller pages are asked for, to the end of the list", async () => {
  const all = Array.from({ length: 90 }, (_, index) => pod(`p${index}`, String(index + 1)));
  const asked: number[] = [];
  const quiet = api([], []);
  const large = {
    watch: (call: WatchCall) => quiet.watch(call),
    call: async ({ query = {} }: Call) => {
      const limit = Number(query["limit"]);
      asked.push(limit);
      if (limit > 40) throw new AnswerTooLarge();
      const from = Number(query["continue"] ?? 0);
      const next = from + limit < all.length ? String(from + limit) : "";
      return { metadata: { resourceVersion: "100", continue: next }, items: all.slice(from, from + limit) };
    },
  } as unknown as KubeApi;
  const stop = new AbortController();
  const failures: unknown[] = [];
  const informer = new Informer<string>({
    api: large,
    path: "/pods",
    read: ({ metadata }) => metadata.resourceVersion,
    changed: () => {},
    failed: (error) => failures.push(error),
  });
  const running = informer.run(stop.signal);
  await expect.poll(() => informer.synced).toBe(true);
  expect([informer.values().length, failures]).toEqual([90, []]);
  expect(asked).toEqual([500, 125, 32, 32, 32]);
  stop.abort();
  await running;
});

test("a watch that each list finds expired again is tried with growing pauses, for each try lists everything", async () => {
  let lists = 0;
  const expiring = {
    call: async () => {
      lists += 1;
      return { metadata: { resourceVersion: "10" }, items: [] };
    },
    watch: async function* () {
      yield* [];
      throw new KubeError(410, "Expired", "too old resource version");
    },
  } as unknown as KubeApi;
  const stop = new AbortController();
  const informer = new Informer<string>({
    api: expiring,
    path: "/pods",
    read: ({ metadata }) => metadata.resourceVersion,
    changed: () => {},
    failed: () => {},
  });
  const running = informer.run(stop.signal);
  await sleep(2000);
  stop.abort();
  await running;
  // Half of 200, 400, 800 ms at the least: the fifth begins after 1.5 s, the sixth after 3.1 s.
  expect(lists).toBeLessThanOrEqual(5);
});
