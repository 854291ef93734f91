import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { Acknowledgements } from "./acknowledgements.ts";
import type { Pod } from "./pods.ts";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

const named = (name: string, generation: number) => ({
  kind: "ModelRoute",
  namespace: "default",
  name,
  uid: `uid-${name}`,
  generation,
  notes: [],
});

/** A pod that holds these objects. */
async function podOf(name: string, objects: readonly object[]): Promise<Pod> {
  const status = { hash: null, serial: 1, podUid: name, accepts: [1], rejected: null, objects };
  const server = createServer((_, response) => response.end(JSON.stringify(status)));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  open.push(server);
  const { port } = server.address() as AddressInfo;
  return { uid: name, name, isReady: true, statusUrl: `http://127.0.0.1:${port}/`, poked: null };
}

test("what pods say alike is held once, and what they say differently is not mixed up", async () => {
  const objects = [named("same", 1), named("other", 1)];
  const pods = [
    await podOf("one", objects),
    await podOf("two", objects),
    await podOf("three", [named("same", 1), named("other", 2)]),
  ];
  const { promise: heard, resolve: hear } = Promise.withResolvers<void>();
  const acknowledgements = new Acknowledgements({
    pods: () => pods,
    pending: () => false,
    changed: () => {
      if (acknowledgements.reports() !== null) hear();
    },
    serial: () => 1,
    unheard: () => {},
    silent: () => {},
  });
  open.unshift(acknowledgements);
  acknowledgements.refresh();
  await heard;
  const held = acknowledgements.reports()?.map(({ status }) => status?.objects ?? []) ?? [];
  expect(held.map((own) => own.map(({ generation }) => generation))).toEqual([
    [1, 1],
    [1, 1],
    [1, 2],
  ]);
  const [one, two, three] = held;
  expect(two?.[0]).toBe(one?.[0]);
  expect(three?.[0]).toBe(one?.[0]);
  expect(three?.[1]).not.toBe(one?.[1]);
});

/** Whom it asks, what it is told, and how to wait for a word. */
function listening(first: readonly Pod[], serial: () => number) {
  const said = { pods: first, unheard: [] as string[], silent: [] as string[] };
  const acknowledgements = new Acknowledgements({
    pods: () => said.pods,
    pending: () => true,
    changed: () => {},
    serial,
    unheard: (pod, reason) => void said.unheard.push(`${pod}: ${reason}`),
    silent: (pod, reason) => void said.silent.push(`${pod}: ${reason}`),
    silentMs: 600,
  });
  open.unshift(acknowledgements);
  acknowledgements.refresh();
  return { said, acknowledgements };
}
const nowhere: Pod = {
  uid: "gone",
  name: "gone",
  isReady: false,
  statusUrl: "http://127.0.0.1:1/",
  poked: null,
};

test("a silence that began before the pod was ready is told once it is", async () => {
  const { said, acknowledgements } = listening([nowhere], () => 1);
  await vi.waitFor(() => expect(acknowledgements.reports()).toHaveLength(1));
  expect(said.unheard).toEqual([]);
  said.pods = [{ ...nowhere, isReady: true }];
  acknowledgements.refresh();
  await vi.waitFor(() => expect(said.unheard).toEqual(["gone: it cannot be reached"]), 10_000);
  // And once more after the time that statuses wait for.
  await vi.waitFor(() => expect(said.silent).toEqual(["gone: it cannot be reached"]), 10_000);
  expect(acknowledgements.silentCount).toBe(1);
  expect(acknowledgements.reports()).toMatchObject([{ pod: "gone", isSilent: true }]);
  expect(said.unheard).toHaveLength(1);
  said.pods = [nowhere];
  acknowledgements.refresh();
  expect(acknowledgements.silentCount).toBe(0);
});

test("a ready pod that stays at an older serial is silent, until it takes the newest", async () => {
  let newest = 2;
  const pod = await podOf("stuck", [named("a", 1)]);
  const { said, acknowledgements } = listening([pod], () => newest);
  await vi.waitFor(
    () =>
      expect(said.silent).toEqual([
        "stuck: it serves serial 1, and 2 is published; its volume may not be refreshed",
      ]),
    10_000,
  );
  newest = 1;
  await vi.waitFor(() => expect(acknowledgements.silentCount).toBe(0), 10_000);
  expect(said.silent).toHaveLength(1);
});
