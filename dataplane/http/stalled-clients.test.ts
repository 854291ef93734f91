import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { limits } from "./limits.ts";
import { hasStalled, StalledClients } from "./stalled-clients.ts";

const LOOKS = limits.stalledClientMs / limits.connectionsCheckMs;
const large = Buffer.alloc(32 * 1024 * 1024, "z");

let ours: Socket;
let client: Socket;
let clients: StalledClients;

beforeEach(async () => {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.on("error", () => {});
  client.pause();
  [ours] = (await once(server, "connection")) as [Socket];
  ours.on("error", () => {});
  server.close();
  clients = new StalledClients(new Set([ours]));
});
afterEach(() => {
  client.destroy();
  ours.destroy();
});

const look = (times: number) => {
  for (let time = 0; time < times; time += 1) clients.look();
};
/** Waits until the kernel takes no more, or all: until as much is left as two tenths of a second before. */
async function stands(): Promise<void> {
  for (let left = -1; left !== ours.writableLength; await sleep(200)) left = ours.writableLength;
}
/** Reads at least so many bytes, and waits until nothing more moves. */
async function take(bytes: number): Promise<void> {
  let got = 0;
  const onData = (chunk: Buffer) => {
    got += chunk.length;
    if (got >= bytes) client.pause();
  };
  client.on("data", onData);
  client.resume();
  await expect.poll(() => got).toBeGreaterThanOrEqual(bytes);
  client.off("data", onData);
  client.pause();
  await stands();
}

test("a client that takes nothing is cut when the time is up, and not a look before", async () => {
  ours.write(large);
  await stands();
  look(LOOKS);
  expect(ours.destroyed).toBe(false);
  look(1);
  expect([ours.destroyed, hasStalled(ours)]).toEqual([true, true]);
});

test("a part of one large write counts as taken: the time begins anew", async () => {
  ours.write(large);
  await stands();
  look(LOOKS);
  await take(8 * 1024 * 1024);
  look(LOOKS);
  expect(ours.destroyed).toBe(false);
  look(1);
  expect(ours.destroyed).toBe(true);
});

test("less than makes a writer wait is enough, more of it does not begin the time anew", async () => {
  // As much as the kernel takes, and the rest of it is ours.
  ours.write(large.subarray(0, 8 * 1024 * 1024));
  await stands();
  expect(ours.writableLength).toBeGreaterThan(0);
  for (let time = 0; time <= LOOKS; time += 1) {
    ours.write("data: 1\n\n");
    look(1);
  }
  expect(ours.destroyed).toBe(true);
});

test("a client to which nothing is owed is left alone, also after a time in which it was behind", async () => {
  ours.write(large);
  await stands();
  look(LOOKS);
  await take(large.length);
  look(3 * LOOKS);
  expect([ours.destroyed, hasStalled(ours)]).toEqual([false, false]);
});
