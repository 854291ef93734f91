/** The data plane as a process with real stores: its environment, its readiness, its end. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { endWithUs } from "../../hack/reaper.ts";
import { openRedis, redisReady } from "../../dataplane/store/redis.ts";
import {
  slotFiles,
  sampleKeys,
  sampleRoute,
  sampleRouting,
  sampleUpstream,
  writeFiles,
} from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";
import { programEnvironment } from "../fakes/program-environment.ts";

const main = resolve(import.meta.dirname, "../../dataplane/main.ts");
let database: TestDatabase;
let redis: TestStore;
let upstream: FakeUpstream;
let directory: string;
beforeAll(async () => {
  [database, redis, upstream] = await Promise.all([freshDatabase(), freshRedis(), startUpstream()]);
  directory = await mkdtemp(join(tmpdir(), "gapura-http-"));
  const routes = [
    sampleRoute("alpha", { upstreams: [sampleUpstream({ url: `${upstream.url}/v1/messages` })] }),
  ];
  await writeFiles(directory, slotFiles("a", sampleRouting(Date.now(), { routes })));
});
afterAll(async () => {
  await upstream.close();
  await redis[Symbol.asyncDispose]();
  await database.drop();
  await rm(directory, { recursive: true });
});

/** Those that a test started; one that fails leaves them running. */
const children = new Set<ChildProcess>();
afterEach(() => {
  for (const child of children) child.kill("SIGKILL");
  children.clear();
});

interface DataPlane {
  readonly child: ChildProcess;
  readonly url: string;
  readonly ops: string;
  readonly output: () => string;
  readonly ended: Promise<number | null>;
}

async function start(more: Record<string, string> = {}): Promise<DataPlane> {
  const { child, output, ended } = run({
    ...more,
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    GAPURA_CONFIG_DIR: directory,
    HOST: "127.0.0.1",
    PORT: "0",
    OPS_PORT: "0",
  });
  await expect.poll(output, { timeout: 30_000 }).toMatch(/"msg":"serving"/);
  const serving =
    output()
      .split("\n")
      .find((line) => line.includes('"msg":"serving"')) ?? "";
  const { address, ops } = JSON.parse(serving) as { address: string; ops: number };
  return { child, url: address, ops: `http://127.0.0.1:${ops}`, output, ended };
}

function run(environment: Record<string, string>, ...args: string[]) {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...programEnvironment(), ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.add(child);
  endWithUs(child, "SIGTERM");
  let said = "";
  child.stdout.on("data", (bytes: Buffer) => (said += bytes.toString()));
  child.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const ended = new Promise<number | null>((done) => child.once("exit", (code) => done(code)));
  return { child, output: () => said, ended };
}

const ready = async (ops: string): Promise<[number, string]> => {
  const response = await fetch(`${ops}/readyz`);
  return [response.status, await response.text()];
};

test("an incomplete environment is told by name, without a value, and ends with 1", async () => {
  const { output, ended } = run({ DATABASE_URL: "mysql://secret@x", PORT: "99999" });
  expect(await ended).toBe(1);
  expect(output()).toMatch(/DATABASE_URL: must start with postgres:/);
  expect(output()).toMatch(/REDIS_URL is missing/);
  expect(output()).toMatch(/PORT: /);
  expect(output()).not.toContain("secret");
});

test.each([
  ["migrate", 1],
  ["adopt", 1],
  ["reconcile", 2],
])("%s with an argument does nothing: it takes none", async (command, code) => {
  const { output, ended } = run({ DATABASE_URL: database.url, REDIS_URL: redis.url }, command, "--help");
  expect(await ended).toBe(code);
  expect(output()).toBe(`gapura: usage: ${command}, without arguments\n`);
});

test("readiness says when Redis would forget money, and when it is away", async () => {
  const plane = await start();
  const client = openRedis(redis.url, { onError: () => {} });
  try {
    await expect
      .poll(() => ready(plane.ops), { timeout: 10_000 })
      .toEqual([200, expect.stringContaining("ok redis")]);
    await redisReady(client, 5000);
    await client.config("SET", "maxmemory-policy", "allkeys-lru");
    await expect
      .poll(() => ready(plane.ops), { timeout: 10_000 })
      .toEqual([503, expect.stringMatching(/FAIL redis: maxmemory-policy is allkeys-lru/)]);
    await client.config("SET", "maxmemory-policy", "noeviction");
    await expect.poll(async () => (await ready(plane.ops))[0], { timeout: 10_000 }).toBe(200);
    redis.freeze();
    await expect
      .poll(() => ready(plane.ops), { timeout: 15_000 })
      .toEqual([503, expect.stringContaining("FAIL redis")]);
    redis.resume();
    await expect.poll(async () => (await ready(plane.ops))[0], { timeout: 15_000 }).toBe(200);
  } finally {
    redis.resume();
    client.disconnect();
    plane.child.kill("SIGTERM");
  }
  expect(await plane.ended).toBe(0);
});

test("SIGTERM, sent three times, lets a stream end well: readiness flips first, exit is 0 (rule 1.7)", async () => {
  const plane = await start();
  upstream.reset();
  upstream.model("upstream-model", {
    ...text("one two three four five six"),
    faults: { delayBetweenEventsMs: 150 },
  });
  const response = await fetch(`${plane.url}/v1/messages`, {
    method: "POST",
    headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
    body: JSON.stringify({
      model: "alpha",
      max_tokens: 50,
      stream: true,
      messages: [{ role: "user", content: "Hello" }],
    }),
  });
  expect(response.status).toBe(200);
  for (let n = 0; n < 3; n += 1) plane.child.kill("SIGTERM");
  await expect
    .poll(() => ready(plane.ops), { timeout: 5000 })
    .toEqual([503, expect.stringContaining("draining")]);
  expect(await response.text()).toMatch(/message_stop/);
  expect(await plane.ended).toBe(0);
  expect(plane.output()).toMatch(/"clean":true,"msg":"drained"/);
  expect(plane.output()).not.toContain(sampleKeys.inference);
});

test("rules 1.16, 2.13: what outlasts the drain ends in its own dialect's error, and is told and logged as our doing", async () => {
  const plane = await start({ DRAIN_TIMEOUT: "1" });
  upstream.reset();
  upstream.model("upstream-model", { ...text("one two three four"), faults: { stallAtEvent: 4 } });
  const ask = (stream: boolean) =>
    fetch(`${plane.url}/v1/messages`, {
      method: "POST",
      headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
      body: JSON.stringify({
        model: "alpha",
        max_tokens: 50,
        stream,
        messages: [{ role: "user", content: "Hello" }],
      }),
    });
  const streamed = await ask(true);
  upstream.reset();
  upstream.model("upstream-model", { ...text("one"), faults: { hang: true } });
  const whole = ask(false);
  await expect.poll(() => upstream.requests.length).toBe(1);
  plane.child.kill("SIGTERM");
  expect(await streamed.text()).toMatch(/event: error\ndata: .*"api_error".*\n\n$/);
  const answer = await whole;
  expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
  expect(await answer.json()).toMatchObject({ type: "error", error: { type: "api_error" } });
  expect(await plane.ended).toBe(0);
  expect(plane.output()).toMatch(/"clean":false,"msg":"drained"/);
  const lines = plane
    .output()
    .split("\n")
    .filter((line) => line.includes('"path":"/v1/messages"'));
  expect(lines.map((line) => JSON.parse(line) as object)).toEqual([
    expect.objectContaining({ status: 200, streamed: true, error: "unavailable" }),
    expect.objectContaining({ status: 503, error: "unavailable" }),
  ]);
});
