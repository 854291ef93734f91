import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { afterEach, expect, test, vi } from "vitest";
import { TRUSTED } from "../plan/tenancy.ts";
import { KubeApi } from "./client.ts";
import { type ClusterOptions, runCluster } from "./run.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/** An operator that speaks to an API server on this port. */
const optionsOf = (port: number, watchNamespaces: readonly string[]): ClusterOptions => ({
  readAccess: async () => ({
    url: `http://127.0.0.1:${port}`,
    proxy: null,
    authorization: null,
    tls: {},
    freshForMs: 60_000,
  }),
  namespace: "gapura",
  podName: "operator-1",
  watchNamespaces,
  tenancy: TRUSTED,
  dataPlaneSelector: "app=gapura",
  snapshotName: "gapura",
  sealSecret: null,
  opsPort: 0,
  log: pino({ level: "silent" }),
  now: () => Date.now(),
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
  const running = runCluster(optionsOf(port, []), stop.signal);
  await asked.promise;
  expect(endWithin).not.toHaveBeenCalled();
  stop.abort();
  await running;
  expect(endWithin).toHaveBeenCalledExactlyOnceWith(10_000);
  server.closeAllConnections();
  server.close();
});

test("a namespace that is named twice is watched once: its objects would conflict with themselves", async () => {
  const lists: string[] = [];
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://localhost");
    if (searchParams.has("watch")) return response.writeHead(200).flushHeaders();
    lists.push(pathname);
    response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const stop = new AbortController();
  const running = runCluster(optionsOf(port, ["ml", "ml"]), stop.signal);
  const asked = (plural: string) => lists.filter((path) => path.endsWith(`/namespaces/ml/${plural}`));
  await expect.poll(() => asked("secrets")).not.toHaveLength(0);
  await expect.poll(() => asked("organizations")).not.toHaveLength(0);
  stop.abort();
  await running;
  expect([asked("secrets"), asked("organizations")].map(({ length }) => length)).toEqual([1, 1]);
  server.closeAllConnections();
  server.close();
});
