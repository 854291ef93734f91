/**
 * Real Redis on this machine: the system's redis-server or valkey-server, else one unpacked from Debian's packages
 * into the cache folder (no root needed, nothing installed). Used by `npm start` and by the tests.
 */
import { spawn, type ChildProcess } from "node:child_process";
import * as fs from "node:fs/promises";
import { connect } from "node:net";
import { arch } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Say } from "./cache.ts";
import { findProgram, type Program } from "./debian.ts";
import { freePort } from "./postgres.ts";
import { hasEnded, isRunning, stopProcess } from "./processes.ts";

const START_TIMEOUT_MS = 60_000;
/** Servers that will do, the best first. */
export const REDIS = ["redis-server", "valkey-server"].map((program) => ({
  program,
  debianPackage: program,
}));

export interface RedisOptions {
  /** Absolute path of the folder with the append-only files; made when it is missing. */
  readonly folder: string;
  /** 0 (the default): any free port of 127.0.0.1. */
  readonly port?: number;
  /**
   * True: a reply means that the write is on the disk. False only for tests: it survives a killed process, but
   * not a power cut. Never `everysec`: docs/decisions/redis-durability.md.
   */
  readonly durable: boolean;
  readonly say: Say;
}

export interface RedisServer {
  readonly port: number;
  readonly url: string;
  readonly process: ChildProcess;
  stop(): Promise<void>;
}

/** @throws Error naming what to install when there is no server to be had. */
export async function startRedis(options: RedisOptions): Promise<RedisServer> {
  const program = await findRedis(options.say);
  const folder = resolve(options.folder);
  await fs.mkdir(folder, { recursive: true, mode: 0o700 });
  await stopLeftover(folder, options.say);

  for (let attempt = 1; ; attempt += 1) {
    const port = options.port === undefined || options.port === 0 ? await freePort() : options.port;
    const child = spawn(program.path, settings(port, folder, options), {
      cwd: folder,
      env: { ...process.env, ...program.environment },
      // Its own group: Ctrl-C in a terminal must reach the stores last, through us.
      detached: true,
      stdio: "ignore",
    });
    child.on("error", () => {});
    if (await becomesReady(child, port)) {
      return {
        port,
        url: `redis://127.0.0.1:${port}`,
        process: child,
        stop: () => stopProcess(child, "SIGTERM", 30_000),
      };
    }
    await stopProcess(child, "SIGKILL", 0);
    if (attempt === 3 || (options.port ?? 0) !== 0) {
      const log = await fs.readFile(join(folder, "redis.log"), "utf8").catch(() => "(no log)");
      throw new Error(
        `Redis did not start; the end of its log:\n${log.trimEnd().split("\n").slice(-8).join("\n")}`,
      );
    }
  }
}

function settings(port: number, folder: string, { durable }: RedisOptions): string[] {
  const values = {
    port: String(port),
    bind: "127.0.0.1",
    dir: folder,
    pidfile: join(folder, "redis.pid"),
    logfile: join(folder, "redis.log"),
    appendonly: "yes",
    appendfsync: durable ? "always" : "no",
    "maxmemory-policy": "noeviction",
    // The default of 64 MB is full after five busy seconds, and writing it anew takes one of them.
    "auto-aof-rewrite-min-size": "256mb",
    save: "",
    daemonize: "no",
  };
  return Object.entries(values).flatMap(([name, value]) => [`--${name}`, value]);
}

async function becomesReady(child: ChildProcess, port: number): Promise<boolean> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline && !hasEnded(child)) {
    if ((await ask(port, "PING")).startsWith("+PONG")) {
      // Another process may own the port: ask who answers.
      return (await ask(port, "INFO server")).includes(`process_id:${child.pid}\r`);
    }
    await sleep(10);
  }
  return false;
}

/** One inline command; an empty string when nobody answers. */
function ask(port: number, command: string): Promise<string> {
  return new Promise((done) => {
    const socket = connect({ port, host: "127.0.0.1" });
    let answer = "";
    socket.setTimeout(1000, () => socket.destroy());
    socket.on("connect", () => socket.write(`${command}\r\nQUIT\r\n`));
    socket.on("data", (bytes: Buffer) => (answer += bytes.toString("latin1")));
    socket.on("error", () => {});
    socket.on("close", () => done(answer));
  });
}

/** Stops a server that a killed parent left behind on this folder: two writers would spoil the append-only file. */
async function stopLeftover(folder: string, say: Say): Promise<void> {
  const file = join(folder, "redis.pid");
  const pid = Number(await fs.readFile(file, "utf8").catch(() => "0"));
  if (pid > 1 && isRunning(pid)) {
    const cwd = await fs.readlink(`/proc/${pid}/cwd`).catch(() => "");
    if (cwd === (await fs.realpath(folder))) {
      say(`stopping the Redis (process ${pid}) that an earlier run left behind`);
      process.kill(pid, "SIGTERM");
      const deadline = Date.now() + 10_000;
      while (isRunning(pid) && Date.now() < deadline) await sleep(20);
      if (isRunning(pid)) process.kill(pid, "SIGKILL");
    }
  }
  await fs.rm(file, { force: true });
}

/** @throws Error naming what to install. */
async function findRedis(say: Say): Promise<Program> {
  try {
    return await findProgram({ folder: `redis-${arch()}`, choices: REDIS }, say);
  } catch (error) {
    throw new Error(
      `no Redis on this machine, and none could be unpacked (${(error as Error).message}). ` +
        "Install one (apt-get install redis-server, dnf install valkey, brew install redis) or set REDIS_URL.",
      { cause: error },
    );
  }
}
