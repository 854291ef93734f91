import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type Call, type KubeApi, KubeError } from "./client.ts";
import { LeaseHolder } from "./lease.ts";

interface Lease {
  readonly metadata: { readonly resourceVersion: string };
  readonly spec: Readonly<Record<string, unknown>>;
}

/** An API server with one Lease, which another client annotates when `annotate` is called. */
function server(spec: Lease["spec"] | null = null) {
  let version = 1;
  let stored: Lease | null = spec === null ? null : { metadata: { resourceVersion: "1" }, spec };
  const write = (next: Lease["spec"]) => {
    version += 1;
    stored = { metadata: { resourceVersion: String(version) }, spec: next };
    return stored;
  };
  const calls: string[] = [];
  const api = {
    /** Told of each call before it is answered. */
    before: (_method: string) => {},
    call: async ({ method, body }: Call) => {
      calls.push(method);
      api.before(method);
      if (method === "GET" && stored === null) throw new KubeError(404, "NotFound", "");
      if (method === "GET") return stored;
      const given = body as Lease;
      if (method === "PUT" && given.metadata.resourceVersion !== stored?.metadata.resourceVersion)
        throw new KubeError(409, "Conflict", "the object has been modified");
      return write(given.spec);
    },
  };
  return {
    calls,
    api,
    annotate: () => {
      if (stored !== null) write(stored.spec);
    },
  };
}

const holderOf = (api: unknown) =>
  new LeaseHolder({
    api: api as KubeApi,
    namespace: "gw",
    name: "gapura-operator",
    identity: "operator-0",
    now: () => Date.now(),
    failed: () => {},
  });

test("a lease that somebody annotates between a look and a renewal is not lost", async () => {
  const { api, annotate, calls } = server();
  const holder = holderOf(api);
  const stop = new AbortController();
  await holder.acquire(stop.signal);
  let renewals = 0;
  api.before = (method) => {
    if (method !== "PUT") return;
    renewals += 1;
    if (renewals === 1) annotate();
  };
  let isOver = false;
  const holding = holder.hold(stop.signal).then(() => (isOver = true));
  await expect.poll(() => renewals).toBe(2);
  await sleep(50);
  expect([isOver, holder.isHeld, calls.at(-1)]).toEqual([false, true, "PUT"]);
  stop.abort();
  await holding;
});

test("a lease that another one took while we renewed it is lost at the next look", async () => {
  const { api } = server();
  const holder = holderOf(api);
  const stop = new AbortController();
  await holder.acquire(stop.signal);
  const { call } = api;
  let taken = false;
  api.call = async (request: Call) => {
    if (request.method === "PUT" && !taken) {
      taken = true;
      const lease = (await call({ method: "GET", path: "" })) as Lease;
      await call({ method: "PUT", path: "", body: { ...lease, spec: { holderIdentity: "operator-1" } } });
    }
    return call(request);
  };
  await holder.hold(stop.signal);
  expect(holder.isHeld).toBe(false);
});

test("rule 6.10: a dead holder's lease is taken over, also where somebody annotates it again and again", async () => {
  const { api, annotate } = server({
    holderIdentity: "operator-dead",
    leaseDurationSeconds: 1,
    renewTime: "2026-01-01T00:00:00.000000Z",
  });
  const annotating = setInterval(annotate, 400);
  try {
    const holder = holderOf(api);
    await holder.acquire(AbortSignal.timeout(8000));
    expect(holder.isHeld).toBe(true);
  } finally {
    clearInterval(annotating);
  }
});
