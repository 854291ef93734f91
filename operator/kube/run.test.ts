import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { afterEach, expect, test, vi } from "vitest";
import { TRUSTED } from "../plan/tenancy.ts";
import { KubeApi } from "./client.ts";
import { runCluster } from "./run.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

test("an operator that ends gives its last calls ten seconds, whatever the API server does", async () => {
  const asked = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
    // Whoever asks for the lease waits; lists are empty, and watches silent.
    if (pathname.endsWith("-operator")) return asked.resolve();
    if (searchParams.has("watch")) return response.writeHead(200).flushHeaders();
    response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const endWithin = vi.spyOn(KubeApi.prototype, "endWithin");
  const stop = new AbortController();
  const access = {
    url: `http://127.0.0.1:${port}`,
    proxy: null,
    authorization: null,
    tls: {},
    freshForMs: 60_000,
  };
  const running = runCluster(
    {
      readAccess: async () => access,
      namespace: "gapura",
      podName: "operator-1",
      watchNamespaces: [],
      tenancy: TRUSTED,
      dataPlaneSelector: "app=gapura",
      snapshotName: "gapura",
      sealSecret: null,
      opsPort: 0,
      log: pino({ level: "silent" }),
      now: () => Date.now(),
    },
    stop.signal,
  );
  await asked.promise;
  expect(endWithin).not.toHaveBeenCalled();
  stop.abort();
  await running;
  expect(endWithin).toHaveBeenCalledExactlyOnceWith(10_000);
  server.closeAllConnections();
  server.close();
});
