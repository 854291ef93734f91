import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { sampleKeys } from "../../test/fakes/sample-snapshot.ts";
import { startTestServer } from "../../test/fakes/test-server.ts";
import type * as LimitsModule from "./limits.ts";
import { inferenceRoutes } from "./routes/inference.ts";

vi.mock("./limits.ts", async (original) => {
  const { limits } = await original<typeof LimitsModule>();
  // The time-out of a whole request stays at ten minutes.
  return { limits: { ...limits, connectionsCheckMs: 50, restMs: 1_500, restIdleMs: 400, lingering: 3 } };
});

const serve = () => Promise.reject(new Error("not served here"));
const meter = { open: () => Promise.reject(new Error("not metered here")) };

/** Begins a body that is refused for its length; `isRefused`: the answer has come. */
function sendLargeBody(port: number, key: string) {
  const socket = connect(port, "127.0.0.1");
  let answer = "";
  socket.on("data", (bytes) => (answer += bytes.toString("latin1")));
  socket.on("error", () => {});
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: ${key}\r\n` +
      `content-type: application/json\r\ncontent-length: ${512 * 1024 * 1024}\r\n\r\n{`,
  );
  return { socket, closed, isRefused: () => /^HTTP\/1\.1 413 [^]*larger than/.test(answer) };
}

test.each([
  { who: "goes on sending", everyMs: 20 },
  { who: "falls silent", everyMs: null },
])(
  "a refused client that $who is not listened to for ever",
  async ({ everyMs }) => {
    await using server = await startTestServer([inferenceRoutes({ meter, serve })]);
    const { socket, closed, isRefused } = sendLargeBody(server.port, sampleKeys.inference);
    const sending = everyMs === null ? undefined : setInterval(() => socket.write("x"), everyMs);
    await expect.poll(isRefused).toBe(true);
    await Promise.race([closed, sleep(20_000)]);
    clearInterval(sending);
    expect(socket.destroyed).toBe(true);
  },
  30_000,
);

test("one organization's refused clients make only each other's go", async () => {
  await using server = await startTestServer([inferenceRoutes({ meter, serve })]);
  const clients: ReturnType<typeof sendLargeBody>[] = [];
  for (const key of [sampleKeys.narrow, ...Array.from({ length: 4 }, () => sampleKeys.inference)]) {
    const client = sendLargeBody(server.port, key);
    clients.push(client);
    await expect.poll(client.isRefused, { interval: 5 }).toBe(true);
  }
  // Three may linger: the two oldest of the organization that has four of five are closed.
  await Promise.all(clients.slice(1, 3).map(({ closed }) => closed));
  expect(clients.map(({ socket }) => socket.destroyed)).toEqual([false, true, true, false, false]);
  for (const { socket } of clients) socket.destroy();
}, 30_000);
