import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { afterEach, expect, test } from "vitest";
import { sampleSnapshot, sampleSource } from "../../test/fakes/sample-snapshot.ts";
import { statusSchema } from "../config/schema.ts";
import { metrics } from "../telemetry/metrics.ts";
import { createOpsServer, type OpsNeeds, type ProcessPhase } from "./ops-server.ts";

const open: ReturnType<typeof createOpsServer>[] = [];
afterEach(() => {
  for (const server of open.splice(0)) server.close().closeAllConnections();
});

async function start(needs: Partial<OpsNeeds> = {}): Promise<(path: string) => Promise<[number, string]>> {
  return askerOf(await listen(needs));
}

const askerOf =
  (url: string) =>
  async (path: string): Promise<[number, string]> => {
    const response = await fetch(`${url}${path}`);
    return [response.status, await response.text()];
  };

/** @returns its address. */
async function listen(needs: Partial<OpsNeeds> = {}): Promise<string> {
  return await listenAs(() => serving(needs));
}

const serving = (needs: Partial<OpsNeeds>): OpsNeeds => ({
  podUid: "pod-1",
  loader: { current: sampleSnapshot(), rejected: null },
  checks: [],
  draining: () => false,
  acknowledged: () => [],
  ...needs,
});

async function listenAs(phase: () => ProcessPhase): Promise<string> {
  const server = createOpsServer(pino({ level: "silent" }), phase);
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return `http://127.0.0.1:${port}`;
}

test("a process is alive even while it is not ready", async () => {
  const get = await start({ loader: { current: null, rejected: null } });
  expect(await get("/healthz")).toEqual([200, "ok\n"]);
  expect(await get("/readyz")).toEqual([503, expect.stringContaining("FAIL configuration")]);
});

test("a process that starts is alive and says what it waits for, and has no status to acknowledge", async () => {
  const url = await listenAs(() => ({ waitsFor: "postgres: connect ECONNREFUSED" }));
  const asked = await Promise.all(
    ["/healthz", "/readyz", "/config/status", "/config/dump", "/metrics"].map(async (path) => {
      const response = await fetch(`${url}${path}`);
      return [path, response.status, response.status === 503 ? await response.text() : null];
    }),
  );
  const waits = "FAIL serving: starting, waits for postgres: connect ECONNREFUSED\n";
  expect(asked).toEqual([
    ["/healthz", 200, null],
    ["/readyz", 503, waits],
    ["/config/status", 503, waits],
    ["/config/dump", 503, waits],
    ["/metrics", 200, null],
  ]);
});

test("another method than GET and HEAD is 405, and told which are allowed", async () => {
  const url = await listen();
  const ask = async (method: string) => {
    const { status, headers } = await fetch(`${url}/metrics`, { method });
    return [status, headers.get("allow")];
  };
  expect(await ask("HEAD")).toEqual([200, null]);
  expect(await ask("POST")).toEqual([405, "GET, HEAD"]);
});

test("readiness names what is wrong: a store that fails, hangs, or would forget money", async () => {
  const get = await start({
    checks: [
      { name: "postgres", run: () => Promise.reject(new Error("connection refused")) },
      { name: "redis", run: () => Promise.resolve("maxmemory-policy is allkeys-lru") },
      { name: "sleepy", run: () => new Promise(() => {}) },
      { name: "fine", run: () => Promise.resolve(null) },
    ],
  });
  const [status, text] = await get("/readyz");
  expect(status).toBe(503);
  expect(text).toMatch(/FAIL postgres: connection refused/);
  expect(text).toMatch(/FAIL redis: maxmemory-policy/);
  expect(text).toMatch(/FAIL sleepy: no answer in time/);
  expect(text).toMatch(/ok fine/);
});

test("readiness names what is amiss though requests can be served", async () => {
  const lost = { degraded: "of 3 masters 10.0.0.1:6379 does not answer" };
  const get = await start({ checks: [{ name: "redis", run: () => Promise.resolve(lost) }] });
  const [status, text] = await get("/readyz");
  expect(status).toBe(200);
  expect(text).toContain("ok redis: of 3 masters 10.0.0.1:6379 does not answer\n");
});

test("who asks may leave out what it can do without, which is told all the same", async () => {
  let asked = 0;
  const get = await start({
    checks: [
      {
        name: "postgres",
        run: () => {
          asked += 1;
          return Promise.reject(new Error("connection refused"));
        },
      },
      { name: "redis", run: () => Promise.resolve(null) },
    ],
  });
  const [all, without, ofAnother, ofBoth] = await Promise.all(
    ["", "?exclude=postgres", "?exclude=redis&x", "?exclude=redis&exclude=postgres"].map((query) =>
      get(`/readyz${query}`),
    ),
  );
  expect(all).toEqual([503, expect.stringContaining("FAIL postgres: connection refused\n")]);
  expect(without).toEqual([200, expect.stringContaining("ok postgres: excluded: connection refused\n")]);
  expect(ofAnother).toEqual(all);
  expect(ofBoth).toEqual(without);
  expect(asked).toBe(1);
});

test("metrics tell of each check whether it is well, also of what is degraded, and of a start", async () => {
  const lines = async (get: (path: string) => Promise<[number, string]>) =>
    (await get("/metrics"))[1].match(/^gapura_ready\{.*$/gm);
  let starts = true;
  const away: OpsNeeds["checks"] = [
    { name: "postgres", run: () => Promise.reject(new Error("connection refused")) },
    { name: "redis", run: () => Promise.resolve({ degraded: "of 3 masters 10.0.0.1:6379 does not answer" }) },
    { name: "ledger", run: () => Promise.resolve(null) },
  ];
  const get = askerOf(await listenAs(() => (starts ? { waitsFor: "postgres" } : serving({ checks: away }))));
  metrics.ready.reset();
  expect(await lines(get)).toEqual(['gapura_ready{check="serving"} 0']);
  starts = false;
  const told = [
    'gapura_ready{check="serving"} 1',
    'gapura_ready{check="configuration"} 1',
    'gapura_ready{check="postgres"} 0',
    'gapura_ready{check="redis"} 0',
    'gapura_ready{check="ledger"} 1',
  ];
  await expect.poll(() => lines(get), { timeout: 2000 }).toEqual(told);
});

test("readiness flips while draining", async () => {
  let draining = false;
  const get = await start({ draining: () => draining });
  expect((await get("/readyz"))[0]).toBe(200);
  draining = true;
  await expect.poll(async () => (await get("/readyz"))[0], { timeout: 2000 }).toBe(503);
});

test("the status is what the operator reads, and a rejected publication shows in it", async () => {
  const rejected = { serial: 9, error: "schema version 9 is not one of 1" };
  const refused = [{ ...sampleSource("Organization", "beyond"), reason: "NamesUsedUp" }];
  const get = await start({ loader: { current: sampleSnapshot(), rejected }, refused: () => refused });
  const [, text] = await get("/config/status");
  const status = statusSchema.parse(JSON.parse(text));
  expect(status).toMatchObject({ serial: 1, podUid: "pod-1", accepts: [1], rejected, refused });
  const none = await start({ loader: { current: null, rejected: null } });
  expect(JSON.parse((await none("/config/status"))[1])).toMatchObject({ hash: null, serial: null });
});

test("the dump holds routing and no credentials, values of static headers included (rule 7.15)", async () => {
  const snapshot = sampleSnapshot();
  const [route] = snapshot.routing.routes;
  const [upstream] = route?.upstreams ?? [];
  if (upstream !== undefined) Object.assign(upstream, { headers: { "x-account": "SECRET" } });
  const get = await start({ loader: { current: snapshot, rejected: null } });
  const [status, text] = await get("/config/dump");
  expect(status).toBe(200);
  expect(Object.keys(JSON.parse(text))).toEqual(["index", "routing"]);
  expect(text).toContain('"x-account"');
  expect(text).not.toContain("SECRET");
});

test("metrics are in Prometheus' text form, other paths 404", async () => {
  const get = await start();
  const [status, text] = await get("/metrics");
  expect(status).toBe(200);
  expect(text).toMatch(/^# TYPE gapura_requests_total counter$/m);
  expect((await get("/constructor"))[0]).toBe(404);
});
