import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
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
