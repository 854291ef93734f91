/** The quickstart's Redis as the chart starts it: what a data plane needs of it, and what a killed one keeps. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { arch, tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { checkRedis } from "../../dataplane/store/ready.ts";
import { findProgram } from "../../hack/debian.ts";
import { freePort } from "../../hack/free-port.ts";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { REDIS } from "../../hack/redis.ts";
import { podOf, render } from "../charts/helm.ts";

let folder: string;
let port: number;
let child: ChildProcess | null = null;
let redis: Redis | null = null;

async function start(): Promise<Redis> {
  const rendered = await render({ quickstart: { enabled: true } });
  const { args } = z
    .object({ containers: z.tuple([z.object({ args: z.array(z.string()) })]) })
    .parse(podOf(rendered.get("StatefulSet", "gapura-redis"))).containers[0];
  const [program, ...flags] = args.map((arg) => (arg === "/data" ? folder : arg));
  expect(program).toBe("redis-server");
  const { path, environment } = await findProgram({ folder: `redis-${arch()}`, choices: REDIS }, () => {});
  child = spawn(path, [...flags, "--port", String(port), "--bind", "127.0.0.1"], {
    env: { ...process.env, ...environment },
    stdio: "ignore",
  });
  endWithUs(child, "SIGTERM");
  // It is not up yet: the client tries until it is.
  return new Redis(port, "127.0.0.1", { retryStrategy: () => 50, maxRetriesPerRequest: null }).on(
    "error",
    () => {},
  );
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "gapura-quickstart-"));
  port = await freePort();
});
afterAll(async () => {
  redis?.disconnect();
  if (child !== null) await stopProcess(child, "SIGKILL", 1000);
  await rm(folder, { recursive: true, force: true });
});

test("it is append-only, evicts nothing, and has every write after a SIGKILL", async () => {
  redis = await start();
  const setting = async (name: string) => (await redis?.config("GET", name))?.[1];
  expect(await setting("appendonly")).toBe("yes");
  expect(await setting("appendfsync")).toBe("always");
  expect(await checkRedis(redis)).toBeNull();
  await redis.set("charge", "1");
  if (child !== null) await stopProcess(child, "SIGKILL", 1000);
  redis.disconnect();
  redis = await start();
  expect(await redis.get("charge")).toBe("1");
});
