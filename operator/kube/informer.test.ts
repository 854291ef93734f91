import { expect, test } from "vitest";
import type { Call, KubeApi } from "./client.ts";
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
