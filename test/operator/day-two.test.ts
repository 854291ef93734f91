/**
 * "Day two" of docs/operations.md, walked from end to end: the chart installed by Helm on a real API server, its programs with
 * real stores behind it, and each of the page's own commands run by bash, in the page's order. Only controllers, kubelet and
 * Service are the test's.
 */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { KubeAccess } from "../../hack/kube-apiserver.ts";
import { freePort } from "../../hack/free-port.ts";
import { type FakeUpstream, startUpstream } from "../fakes/upstream/server.ts";
import { freshDatabase, freshPostgres, freshRedis, type TestStore } from "../integration/stores.ts";
import { Controllers } from "./controllers.ts";
import { type Desk, openDesk } from "./desk.ts";
import { KubeClient } from "./kube-client.ts";
import { Objects } from "./objects.ts";

const access = inject("kube");
const root = resolve(import.meta.dirname, "../..");
const home = "gapura";
const team = "ml";

/** The page's steps: the heading, and its blocks of shell. */
async function readSteps(): Promise<Map<string, readonly string[]>> {
  const page = await readFile(join(root, "docs/operations.md"), "utf8");
  const [, section = ""] = /\n## Day two\n(.*?)\n## /s.exec(page) ?? [];
  const steps = new Map<string, readonly string[]>();
  for (const part of section.split(/^### /m)) {
    const heading = part.slice(0, part.indexOf("\n"));
    steps.set(
      heading,
      Array.from(part.matchAll(/^```sh\n(.*?)^```$/gms), ([, block = ""]) => block),
    );
  }
  return steps;
}
const steps = await readSteps();
const [preamble = ""] = steps.values().next().value ?? [];
const walked = new Set<string>();

describe.skipIf(access === null)("day two", { timeout: 300_000 }, () => {
  const api = access as KubeAccess;
  let folder: string;
  let client: KubeClient;
  let objects: Objects;
  let postgres: TestStore;
  let redis: TestStore;
  let upstreams: readonly [FakeUpstream, FakeUpstream];
  let controllers: Controllers;
  let desk: Desk;
  /** What the reader of the page has set. */
  const settings: Record<string, string> = {};

  /** `stop` ends what does not end by itself. */
  const run = async (script: string, stop?: AbortSignal) => {
    const child = spawn("bash", ["-euo", "pipefail", "-c", script], {
      cwd: folder,
      env: {
        PATH: `${desk.tools}:${dirname(process.execPath)}:${process.env["PATH"]}`,
        HOME: folder,
        KUBECONFIG: api.kubeconfig,
        ...settings,
      },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    stop?.addEventListener("abort", () => process.kill(-(child.pid ?? 0), "SIGTERM"));
    let out = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => (out += text));
    const code = await new Promise<number | null>((done) => child.once("close", done));
    if (code !== 0 && stop?.aborted !== true)
      throw new Error(`exit ${code} of:\n${script}\n${out}\n${controllers.output.slice(-3000)}`);
    return out;
  };
  /** Runs one block of a step as it stands. @returns all that it printed. */
  const walk = (heading: string, block = 0, stop?: AbortSignal): Promise<string> => {
    const script = steps.get(heading)?.[block];
    if (script === undefined) throw new Error(`"${heading}" has no block ${block}`);
    walked.add(`${heading} ${block}`);
    return run(`${preamble}\n${script}`, stop);
  };

  const message = (key: string) => ({
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/json" },
    body: JSON.stringify({ model: "sonnet", max_tokens: 50, messages: [{ role: "user", content: "hello" }] }),
  });
  const ask = async (key = settings["KEY"] ?? "") => {
    const answer = await fetch(`${settings["GATEWAY"]}/v1/messages`, message(key));
    return {
      status: answer.status,
      text: await answer.text(),
      id: answer.headers.get("request-id") ?? "",
    };
  };
  const credits = async () => {
    const answer = await fetch(`${settings["GATEWAY"]}/v1/organization/credits`, {
      headers: { "x-api-key": settings["ADMIN_KEY"] ?? "" },
    });
    return (await answer.json()) as { granted: string; used: string };
  };
  const becomes = async (what: string, holds: () => Promise<boolean>, timeoutMs = 30_000) => {
    await objects.until(what, holds, timeoutMs);
  };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "gapura-day-two-"));
    client = new KubeClient(api);
    controllers = new Controllers(api, client, home);
    objects = new Objects(client, team, () => controllers.operators.map(({ output }) => output()).join(""));
    [postgres, redis] = await Promise.all([freshPostgres(), freshRedis()]);
    upstreams = [await startUpstream(), await startUpstream()];
    desk = await openDesk(folder, controllers);
    settings["GATEWAY"] = desk.gateway;
    await controllers.start();

    for (const name of [home, team]) await client.makeNamespace(name);
    for (const [name, url] of [
      ["pg", postgres.url],
      ["rd", redis.url],
    ] as const)
      await client.must("POST", `/api/v1/namespaces/${home}/secrets`, {
        apiVersion: "v1",
        kind: "Secret",
        metadata: { name },
        stringData: { url },
      });
    const values = {
      postgres: { existingSecret: "pg" },
      redis: { existingSecret: "rd" },
      // Other tests declare on the same API server.
      watchNamespaces: [team],
      platformNamespaces: [team],
      operator: { replicas: 1 },
      dataPlane: { drainTimeout: 15 },
    };
    await writeFile(join(folder, "values.json"), JSON.stringify(values));
    await symlink(join(root, "charts"), join(folder, "charts"));
    await run("helm install gapura charts/gapura -n gapura --values values.json --timeout 5m");
    await run("helm install gapura-crds charts/gapura-crds -n gapura --take-ownership --force-conflicts");

    await objects.applySecret("provider", { "api-key": "first-provider-key" });
    await objects.apply("PriceTable", "default", {
      unit: "USD",
      models: [{ model: "sonnet", input: "3", output: "15" }],
    });
    await objects.apply("ModelRoute", "sonnet", {
      limits: { contextTokens: 1000, maxOutputTokens: 100 },
      upstreams: upstreams.map(({ url }, index) => ({
        name: ["primary", "spare"][index],
        dialect: "Messages",
        baseURL: url,
        credentials: { secretKeyRef: { name: "provider", key: "api-key" } },
        ...(index === 0 ? {} : { weight: 1 }),
      })),
    });
    await objects.apply("Organization", "acme", {
      credits: { grants: [{ name: "first", amount: "100000" }] },
      apiKeys: [{ name: "ci", secretKeyRef: { name: "acme-ci", key: "api-key" } }],
      adminKeys: [{ name: "root", secretKeyRef: { name: "acme-admin", key: "admin-key" } }],
    });
    await run("kubectl -n gapura rollout status deployment/gapura-data-plane --timeout 3m");
    await objects.untilCondition("Organization", "acme", "Ready", /^True/, 120_000);
    await objects.untilCondition("ModelRoute", "sonnet", "Ready", /^True/, 60_000);
    settings["KEY"] = (await objects.secret("acme-ci"))?.["api-key"] ?? "";
    settings["ADMIN_KEY"] = (await objects.secret("acme-admin"))?.["admin-key"] ?? "";
  });
  afterAll(async () => {
    await controllers.close();
    desk.close();
    for (const upstream of upstreams) await upstream.close();
    await Promise.all([postgres[Symbol.asyncDispose](), redis[Symbol.asyncDispose]()]);
    await client.close();
    await rm(folder, { recursive: true, force: true });
  });

  test("Rotate a provider's key", async () => {
    settings["PROVIDER_KEY"] = "second-provider-key";
    await walk("Rotate a provider's key");
    const newest = async () => {
      await ask();
      const [last] = upstreams.flatMap(({ requests }) => requests.slice(-1));
      return last?.headers["x-api-key"];
    };
    await expect.poll(newest, { timeout: 30_000 }).toBe("second-provider-key");
  });

  test("Rotate an organization's key", async () => {
    const old = settings["KEY"] ?? "";
    const fresh = (await walk("Rotate an organization's key")).trim().split("\n").at(-1) ?? "";
    expect(fresh).toMatch(/sk-svc-/);
    settings["KEY"] = /sk-svc-\S+/.exec(fresh)?.[0] ?? "";
    expect([(await ask(old)).status, (await ask()).status]).toEqual([200, 200]);
    await walk("Rotate an organization's key", 1);
    expect([(await ask(old)).status, (await ask()).status]).toEqual([401, 200]);
  });

  test("Revoke a key that leaked", async () => {
    const made = await fetch(`${settings["GATEWAY"]}/v1/organizations/api_keys`, {
      method: "POST",
      headers: { "x-api-key": settings["ADMIN_KEY"] ?? "", "content-type": "application/json" },
      body: JSON.stringify({ name: "intern" }),
    });
    const { id, key } = (await made.json()) as { id: string; key: string };
    expect((await ask(key)).status).toBe(200);
    settings["LEAKED"] = id;
    const out = await walk("Revoke a key that leaked");
    expect(out).toContain('"name":"intern"');
    expect((await ask(key)).status).toBe(401);
  });

  test("Give credit", async () => {
    const before = Number((await credits()).granted);
    const out = await walk("Give credit");
    expect(out).toContain("the grant goodwill-1 of org_ml_acme was applied before; nothing changed");
    expect(Number((await credits()).granted) - before).toBe(5000);
  });

  test("Suspend an organization", async () => {
    await walk("Suspend an organization");
    expect((await ask()).status).toBe(401);
    await walk("Suspend an organization", 1);
    expect((await ask()).status).toBe(200);
  });

  test("Change a price at midnight", async () => {
    const before = Number((await credits()).used);
    const price = async () => {
      const used = Number((await credits()).used);
      await ask();
      return Number((await credits()).used) - used;
    };
    const today = await price();
    expect(Number((await credits()).used)).toBeGreaterThan(before);
    const out = await walk("Change a price at midnight");
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    expect(out).toContain(`${tomorrow}T00:00:00`);
    // Until then nothing changes.
    expect(await price()).toBeCloseTo(today, 6);
  });

  test("Drain an upstream", async () => {
    const [primary, spare] = upstreams;
    expect(await walk("Drain an upstream")).toContain("gapura_upstream_active_requests");
    const [served, others] = [primary.requests.length, spare.requests.length];
    for (let n = 0; n < 5; n += 1) expect((await ask()).status).toBe(200);
    expect([primary.requests.length - served, spare.requests.length - others]).toEqual([0, 5]);
    await walk("Drain an upstream", 1);
    await becomes("it gets traffic again", async () => {
      await ask();
      return primary.requests.length > served;
    });
  });

  test("Why did a request fail?", async () => {
    const refused = await fetch(`${settings["GATEWAY"]}/v1/messages`, {
      ...message(settings["KEY"] ?? ""),
      body: JSON.stringify({
        model: "no-such-model",
        max_tokens: 5,
        messages: [{ role: "user", content: "x" }],
      }),
    });
    expect(refused.status).toBe(404);
    settings["REQUEST"] = refused.headers.get("request-id") ?? "";
    // Records are written in batches.
    const known = () =>
      run(`${preamble}\nplane why "$REQUEST"`).then(
        () => true,
        () => false,
      );
    await becomes("it is known", known);
    expect(await walk("Why did a request fail?")).toMatch(/^status: 404$/m);
  });

  test("Who changed a key?", async () => {
    const out = await walk("Who changed a key?");
    const lines = out.trim().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as { action: string }).action)).toEqual([
      "key.updated",
      "key.created",
    ]);
  });

  test("Rotate the seal key", async () => {
    const before = (await new Objects(client, home, () => "").secret("gapura-seal"))?.["seal-keys"] ?? "";
    const pods = controllers.pods.map(({ url }) => url);
    await walk("Rotate the seal key");
    const after = (await new Objects(client, home, () => "").secret("gapura-seal"))?.["seal-keys"] ?? "";
    const [first = "", second] = after.split(",");
    expect(second).toBe(before);
    expect(first).not.toBe(before);
    expect(controllers.pods.map(({ url }) => url).filter((url) => pods.includes(url))).toEqual([]);
    for (const pod of controllers.pods) expect(pod.environment["GAPURA_SEAL_KEYS"]).toBe(after);
    expect((await ask()).status).toBe(200);
  });

  test("Upgrade", async () => {
    const out = await walk("Upgrade");
    expect(out).toMatch(/^exact: /m);
    expect((await ask()).status).toBe(200);
  });

  test("Restore Postgres", async () => {
    await settled();
    await postgres.save();
    // It stood still for that moment, and pods without it are not ready.
    await becomes("pods serve again", async () => (await ask()).status === 200);
    const { used } = await credits();
    for (let n = 0; n < 3; n += 1) expect((await ask()).status).toBe(200);
    await settled();
    const spent = Number((await credits()).used);
    expect(spent).toBeGreaterThan(Number(used));
    await walk("Restore Postgres");
    // The API server forgets a pod a moment before its process is gone.
    await expect.poll(() => controllers.pods.length, { timeout: 60_000 }).toBe(0);
    await postgres.rollBack();
    const out = await walk("Restore Postgres", 1);
    expect(out).toMatch(/main\.ts adopt/);
    expect(out).toMatch(/lost [\d.]+ credits/);
    expect(Number((await credits()).used)).toBeCloseTo(spent, 6);
    expect((await ask()).status).toBe(200);
  });

  test("Retention", async () => {
    expect(JSON.parse(await walk("Retention"))).toHaveProperty("storage.bytes");
  });

  test("Move a snapshot", async () => {
    await walk("Move a snapshot");
    expect((await stat(join(folder, "snapshot"))).mode & 0o077).toBe(0);
    const [database, second, port, opsPort] = [
      await freshDatabase({ migrated: false }),
      await freshRedis(),
      await freePort(),
      await freePort(),
    ];
    Object.assign(settings, {
      DATABASE_URL: database.url,
      REDIS_URL: second.url,
      PORT: String(port),
      OPS_PORT: String(opsPort),
      HOST: "127.0.0.1",
    });
    for (const name of ["dataplane", "node_modules", "package.json"])
      await symlink(join(root, name), join(folder, name));
    const stop = new AbortController();
    const serving = walk("Move a snapshot", 1, stop.signal);
    const answers = () =>
      fetch(`http://127.0.0.1:${port}/v1/messages`, message(settings["KEY"] ?? "")).then(
        async (answer) => answer.status === 200 && (await answer.text()).includes('"stop_reason"'),
        () => false,
      );
    await expect.poll(answers, { timeout: 60_000 }).toBe(true);
    stop.abort();
    await serving;
    await Promise.all([database.drop(), second[Symbol.asyncDispose]()]);
  });

  test("Capacity", async () => {
    const out = await walk("Capacity");
    for (const name of ["body_bytes", "usage_lag_entries"]) expect(out).toContain(`gapura_${name}`);
    expect(controllers.pods.filter(({ isReady }) => isReady)).toHaveLength(3);
  });

  test("each command of the page was run, in its order", () => {
    const all = [...steps].slice(1).flatMap(([heading, blocks]) => blocks.map((_, n) => `${heading} ${n}`));
    expect([...walked]).toEqual(all);
    expect(all.length).toBeGreaterThan(15);
  });

  /** What was charged is in Postgres, and nothing is on its way any more. */
  async function settled(): Promise<void> {
    const isSettled = async () => {
      for (const { opsUrl } of controllers.pods) {
        const metrics = await (await fetch(`${opsUrl}/metrics`)).text();
        if (/^gapura_usage_lag_entries\S* [1-9]/m.test(metrics)) return false;
      }
      const out = await run(`${preamble}\nplane reconcile || true`);
      return /^exact: /m.test(out);
    };
    await becomes("the books are exact", isSettled, 60_000);
  }
});
