import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { listenOnBarredPort } from "../test/fakes/barred-port.ts";
import { becomesReady, servedConfiguration } from "./await-ready.ts";

/** An ops port that takes requests and says nothing. */
const silent = createServer();
let address: string;
beforeAll(async () => {
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
});
afterAll(() => {
  silent.closeAllConnections();
  silent.close();
});

test.each([
  ["health", becomesReady],
  ["configuration", servedConfiguration],
])(
  "whoever waits for the %s of a data plane that says nothing ends at once when told to",
  async (_, wait) => {
    const ending = new AbortController();
    const asked = new Promise<IncomingMessage>((resolve) => silent.once("request", resolve));
    const waiting = wait(address, ending.signal).catch((error: unknown) => error);
    await asked;
    const reason = new Error("told to end");
    const told = performance.now();
    ending.abort(reason);
    expect(await waiting).toBe(reason);
    expect(performance.now() - told).toBeLessThan(1_000);
  },
);

test("a data plane is asked until it is ready, also at an ops port that browsers bar", async () => {
  let status = 503;
  const asked = vi.fn<(path: string) => void>();
  const server = createServer((request, response) => {
    asked(request.url ?? "");
    response.writeHead(status).end("FAIL postgres: away\n");
  });
  try {
    const port = await listenOnBarredPort(server);
    let isReady = false;
    const ready = becomesReady(`http://127.0.0.1:${port}`, AbortSignal.timeout(10_000)).then(
      () => (isReady = true),
    );
    await vi.waitFor(() => expect(asked.mock.calls.length).toBeGreaterThan(1), 5_000);
    expect(isReady).toBe(false);
    status = 200;
    await ready;
    expect(new Set(asked.mock.calls.flat())).toEqual(new Set(["/readyz"]));
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
