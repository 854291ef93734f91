/** One organization does not take all connections of a data plane. */
import { connect, Socket } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../../test/fakes/test-server.ts";
import { ConnectionShares } from "./connection-shares.ts";
import type * as LimitsModule from "./limits.ts";
import { modelRoutes } from "./routes/models.ts";

vi.mock("./limits.ts", async (original) => {
  const { limits } = await original<typeof LimitsModule>();
  return { limits: { ...limits, connections: 12, connectionsWithoutShares: 6, connectionsOfOne: 3 } };
});

let server: TestServer;
interface Dialled {
  readonly socket: Socket;
  readonly ask: (key: string, path?: string) => Promise<{ readonly status: number; readonly text: string }>;
  readonly isClosed: () => boolean;
}
const sockets: Dialled[] = [];
beforeEach(async () => {
  server = await startTestServer([modelRoutes]);
});
afterEach(async () => {
  for (const { socket } of sockets.splice(0)) socket.destroy();
  await server[Symbol.asyncDispose]();
});

/** A connection on which each request waits for the answer to the one before. */
async function dial(): Promise<Dialled> {
  const socket = connect(server.port, "127.0.0.1");
  let got = "";
  let isClosed = false;
  socket.on("data", (bytes) => (got += bytes.toString("latin1")));
  socket.on("error", () => {});
  socket.on("close", () => (isClosed = true));
  await new Promise<void>((resolve) => socket.once("connect", () => resolve()));
  const ask = async (key: string, path = "/v1/models") => {
    got = "";
    socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\n\r\n`);
    await expect.poll(() => got).toMatch(/\r\n\r\n.*\}$/s);
    return { status: Number(got.slice(9, 12)), text: got };
  };
  const dialled = { socket, ask, isClosed: () => isClosed };
  sockets.push(dialled);
  return dialled;
}
const askAnew = async (key: string, path?: string) => await (await dial()).ask(key, path);

test("an organization has all connections while they are few, and no more while they are many; others have theirs", async () => {
  for (let n = 0; n < 6; n += 1) expect((await askAnew(sampleKeys.inference)).status).toBe(200);
  const refused = await dial();
  const { status, text } = await refused.ask(sampleKeys.inference);
  expect(status).toBe(429);
  expect(text).toMatch(/^connection: close\r$/im);
  expect(text).toMatch(/^retry-after: 1\r$/im);
  expect(text).toContain(
    "Your organization has 3 or more connections here, as many as it may have while others need the rest",
  );
  await expect.poll(refused.isClosed).toBe(true);
  // A key on a path that nothing serves keeps no connection either.
  expect((await askAnew(sampleKeys.inference, "/v1/nothing")).text).toMatch(
    / 404 [^]*^connection: close\r$/im,
  );
  for (let n = 0; n < 3; n += 1) expect((await askAnew(sampleKeys.narrow)).status).toBe(200);
  expect((await askAnew(sampleKeys.narrow)).status).toBe(429);
  // On those that it has, it goes on.
  for (const { ask } of sockets.slice(0, 6)) expect((await ask(sampleKeys.inference)).status).toBe(200);
});

test("a connection belongs to whose key was shown on it last, and to nobody once it is closed", async () => {
  for (let n = 0; n < 7; n += 1) expect((await askAnew(sampleKeys.narrow)).status).toBe(n < 6 ? 200 : 429);
  for (const { ask } of sockets.slice(0, 4)) expect((await ask(sampleKeys.inference)).status).toBe(200);
  expect((await askAnew(sampleKeys.inference)).status).toBe(429);
  expect((await askAnew(sampleKeys.narrow)).status).toBe(200);
  expect((await askAnew(sampleKeys.narrow)).status).toBe(429);
  for (const { socket } of sockets.slice(0, 2)) socket.destroy();
  await expect.poll(async () => (await askAnew(sampleKeys.narrow)).status).toBe(200);
  // As many as before, of which the other one has two.
  expect((await askAnew(sampleKeys.inference)).status).toBe(200);
  expect((await askAnew(sampleKeys.inference)).status).toBe(429);
});

test("two organizations that show each other's keys have no more than their shares", async () => {
  for (let n = 0; n < 6; n += 1) expect((await askAnew(sampleKeys.narrow)).status).toBe(200);
  for (let n = 0; n < 3; n += 1) expect((await askAnew(sampleKeys.inference)).status).toBe(200);
  // All are served with the other's key, but only as many become the other's as it could have opened alone.
  for (const { ask } of sockets.slice(0, 6)) expect((await ask(sampleKeys.inference)).status).toBe(200);
  expect((await askAnew(sampleKeys.narrow)).status).toBe(429);
  expect((await askAnew(sampleKeys.inference)).status).toBe(429);
});

test("however many organizations take what they may, one that has none finds a connection", () => {
  const shares = new ConnectionShares();
  const opened = (organizationId: string): Socket[] => {
    const mine: Socket[] = [];
    for (let socket = new Socket(); shares.take(socket, organizationId); socket = new Socket())
      mine.push(socket);
    return mine;
  };
  // Of twelve: half while they are few, then a quarter, then as many as leave half as many.
  const counts = ["first", "second", "third"].map((organizationId) => opened(organizationId).length);
  expect(counts).toEqual([6, 3, 2]);
  expect(shares.take(new Socket(), "none yet")).toBe(true);
  expect(shares.most).toBe(0);
});
