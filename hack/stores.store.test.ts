import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPostgres, type PostgresServer } from "./postgres.ts";
import { isRunning, stopProcess } from "./processes.ts";
import { startRedis } from "./redis.ts";

let folder: string;
const said: string[] = [];
const say = (line: string) => said.push(line);
beforeAll(async () => {
  // 0700, as `mktemp -d` makes it: the dropped user cannot walk into it.
  folder = await mkdtemp(join(tmpdir(), "gapura-hack-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("Postgres", () => {
  const start = () => startPostgres({ folder: join(folder, "postgres"), durable: false, say });
  const query = async (server: PostgresServer, statement: string) => {
    const client = new pg.Client({ connectionString: server.url() });
    await client.connect();
    try {
      return (await client.query<{ n: number }>(statement)).rows;
    } finally {
      await client.end();
    }
  };

  test("data survives a clean stop, a SIGKILL and a server that was left running", async () => {
    const first = await start();
    await query(first, "create table kept as select 1 as n");
    await first.stop();

    const second = await start();
    await query(second, "insert into kept values (2)");
    await stopProcess(second.process, "SIGKILL", 5_000);

    // A killed parent leaves this one behind: nobody calls `stop`.
    const third = await start();
    expect(await query(third, "select n from kept order by n")).toEqual([{ n: 1 }, { n: 2 }]);
    const fourth = await start();
    expect(isRunning(third.process.pid ?? 0)).toBe(false);
    expect(said).toContainEqual(expect.stringContaining("an earlier run left behind"));
    expect(await query(fourth, "select n from kept order by n")).toHaveLength(2);
    await fourth.stop();
  });

  test("a stale pid file whose number belongs to another process now is no obstacle", async () => {
    const server = await start();
    const pidFile = join(folder, "postgres", "postmaster.pid");
    const lines = (await readFile(pidFile, "utf8")).split("\n");
    await stopProcess(server.process, "SIGKILL", 5_000);
    await writeFile(pidFile, [String(process.pid), ...lines.slice(1)].join("\n"));
    const next = await start();
    expect(await query(next, "select 1 as n")).toEqual([{ n: 1 }]);
    await next.stop();
  });
});

describe("Redis", () => {
  const start = (durable: boolean) => startRedis({ folder: join(folder, "redis"), durable, say });

  test("data survives a SIGKILL and a server that was left running", async () => {
    const first = await start(true);
    const redis = new Redis(first.url, { retryStrategy: () => null });
    redis.on("error", () => {});
    await redis.set("kept", "yes");
    await stopProcess(first.process, "SIGKILL", 5_000);
    redis.disconnect();

    const second = await start(true);
    const third = await start(true);
    expect(isRunning(second.process.pid ?? 0)).toBe(false);
    await using again = Object.assign(new Redis(third.url), {
      [Symbol.asyncDispose]: () => third.stop(),
    });
    expect(await again.get("kept")).toBe("yes");
    expect(await again.config("GET", "appendfsync")).toContain("always");
    expect(await again.config("GET", "maxmemory-policy")).toContain("noeviction");
    again.disconnect();
  });
});
