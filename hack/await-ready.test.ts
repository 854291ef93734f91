import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
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
