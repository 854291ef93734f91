import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chmod,
  glob,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import pg from "pg";
import { Redis } from "ioredis";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { openPostgres } from "../dataplane/store/postgres.ts";
import { openRedis, redisReady } from "../dataplane/store/redis.ts";
import { startPostgres, type PostgresServer } from "./postgres.ts";
import { isRunning, signalAll, stopProcess } from "./processes.ts";
import { startRedis } from "./redis.ts";
import { ourselves, socketFolder } from "./socket-folder.ts";

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

  test("whoever works in its folder is left alone, and Postgres' own processes are not", async () => {
    const first = await start();
    const somebody = await stranger(join(folder, "postgres"));
    try {
      const second = await start();
      expect(isRunning(first.process.pid ?? 0)).toBe(false);
      expect(isRunning(somebody.pid ?? 0)).toBe(true);
      expect(await query(second, "select 1 as n")).toEqual([{ n: 1 }]);
      await second.stop();
    } finally {
      await stopProcess(somebody, "SIGKILL", 5_000);
    }
  });
});

/** A program of somebody's who works in a store's folder, such as a shell. */
async function stranger(cwd: string): Promise<ChildProcess> {
  const child = spawn("sleep", ["600"], { cwd, stdio: "ignore" });
  await once(child, "spawn");
  return child;
}

/** Numbers of the sockets that a process listens on over TCP: state 0A in its own /proc. */
async function tcpListeners(pid: number): Promise<string[]> {
  const inodes = new Set<string>();
  for (const entry of await readdir(`/proc/${pid}/fd`)) {
    const target = await readlink(`/proc/${pid}/fd/${entry}`).catch(() => "");
    const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
    if (inode !== undefined) inodes.add(inode);
  }
  const tables = await Promise.all(
    ["tcp", "tcp6"].map((name) => readFile(`/proc/${pid}/net/${name}`, "utf8")),
  );
  return tables
    .flatMap((table) => table.split("\n").slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode = ""]) => state === "0A" && inodes.has(inode))
    .map(([, local = ""]) => local);
}

const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);

describe("rule 7.16: on sockets in folders of mode 0700, not on TCP", () => {
  /** A folder whose sockets have paths that no kernel takes. */
  const long = () =>
    join(folder, "a-folder-with-a-name-of-fifty-characters-or-so-one", "and-another-one-of-fifty-characters");

  test.each([
    ["beside the data", () => join(folder, "short")],
    ["where that path is too long", long],
    ["in a folder whose name would mean more in an address", () => join(folder, "a#b?c%41 é&d")],
  ])("%s; a second start and one after a SIGKILL find the same address", async (_, data) => {
    await mkdir(data(), { recursive: true, mode: 0o700 });
    const open = async () => {
      const postgres = await startPostgres({
        folder: join(data(), "postgres"),
        socket: true,
        durable: false,
        say,
      });
      const redis = await startRedis({ folder: join(data(), "redis"), socket: true, durable: false, say });
      return { postgres, redis };
    };
    const use = async ({ postgres, redis }: Awaited<ReturnType<typeof open>>) => {
      const pool = await openPostgres(postgres.url(), { maxConnections: 1, onError: () => {} });
      const one = await pool.oneFirst(sql.type(z.object({ n: z.number() }))`select 1 as n`);
      await pool.end();
      const client = openRedis(redis.url, { onError: () => {} });
      await redisReady(client, 5_000);
      const pong = await client.ping();
      client.disconnect();
      return [one, pong];
    };
    const first = await open();
    const urls = { postgres: first.postgres.url(), redis: first.redis.url };
    const sockets = [
      join(decodeURIComponent(new URL(urls.postgres).hostname), ".s.PGSQL.5432"),
      decodeURIComponent(new URL(urls.redis).pathname),
    ];
    for (const socket of sockets) {
      expect((await stat(socket)).isSocket()).toBe(true);
      expect(await modeOf(dirname(socket))).toBe("700");
    }
    for (const { process: server } of [first.postgres, first.redis])
      expect(await tcpListeners(server.pid ?? 0)).toEqual([]);
    expect(await use(first)).toEqual([1, "PONG"]);
    await Promise.all(
      [first.postgres, first.redis].map((server) => stopProcess(server.process, "SIGKILL", 5_000)),
    );

    const second = await open();
    expect({ postgres: second.postgres.url(), redis: second.redis.url }).toEqual(urls);
    expect(await use(second)).toEqual([1, "PONG"]);
    await Promise.all([second.postgres.stop(), second.redis.stop()]);
    const third = await open();
    expect(await use(third)).toEqual([1, "PONG"]);
    await Promise.all([third.postgres.stop(), third.redis.stop()]);
    for (const socket of sockets)
      if (!socket.startsWith(folder)) await rm(dirname(socket), { recursive: true, force: true });
  });

  test("a listener on TCP is seen by this test", async () => {
    const server = createServer();
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    expect(await tcpListeners(process.pid)).not.toEqual([]);
    server.close();
  });

  test("a folder that somebody else has made beside the temporary files is not used", async () => {
    const store = join(long(), "theirs");
    const where = await socketFolder(store, "x.sock", ourselves());
    await chmod(where, 0o755);
    await expect(socketFolder(store, "x.sock", ourselves())).rejects.toThrow("belongs to somebody else");
    await rm(where, { recursive: true });
    await symlink(folder, where);
    await expect(socketFolder(store, "x.sock", ourselves())).rejects.toThrow("belongs to somebody else");
    await rm(where);
  });
});

/** Hangs with a store of its worker's beside that of the run. */
const hanging = (stores: string) => `
import { test } from "vitest";
import { freshRedis } from ${stores};
test("it hangs", { timeout: 600_000 }, async () => {
  await freshRedis();
  console.log("hanging");
  await new Promise(() => {});
});`;

test.each(["SIGTERM", "SIGHUP", "SIGKILL"] as const)(
  "a run of tests that ends by %s leaves no store behind",
  async (signal) => {
    const home = await mkdtemp(join(folder, "run-"));
    const root = resolve(import.meta.dirname, "..");
    const stores = JSON.stringify(join(root, "test/integration/stores.ts"));
    await symlink(join(root, "node_modules"), join(home, "node_modules"));
    await writeFile(join(home, "hanging.test.ts"), hanging(stores));
    const config = `export default { test: { globalSetup: [${stores}], include: ["hanging.test.ts"] } };`;
    await writeFile(join(home, "vitest.config.mjs"), config);
    const run = spawn(process.execPath, [join(root, "node_modules/vitest/vitest.mjs"), "run"], {
      cwd: home,
      env: { ...process.env, TMPDIR: home },
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    run.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
    const pids: number[] = [];
    try {
      await expect.poll(() => output, { timeout: 50_000 }).toContain("hanging\n");
      for await (const file of glob("gapura-store*/*/{postmaster,redis}.pid", { cwd: home }))
        pids.push(Number.parseInt(await readFile(join(home, file), "utf8"), 10));
      expect(pids.map(isRunning)).toEqual([true, true]);
      run.kill(signal);
      await expect.poll(() => pids.map(isRunning), { timeout: 15_000 }).toEqual([false, false]);
    } finally {
      run.kill("SIGKILL");
      signalAll(pids, "SIGKILL");
    }
  },
);

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
