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
import { pathToFileURL } from "node:url";
import type { Say } from "./cache.ts";
import { findProgram, type Program } from "./debian.ts";
import { freePort } from "./free-port.ts";
import { hasEnded, isRunning, signalAll, stopProcess } from "./processes.ts";
import { endWithUs } from "./reaper.ts";
import { ourselves, socketFolder } from "./socket-folder.ts";

const START_TIMEOUT_MS = 60_000;
const SOCKET = "redis.sock";
type Where = { readonly port: number; readonly host: string } | { readonly path: string };
/** Suitable servers, the best first. */
export const REDIS = ["redis-server", "valkey-server"].map((program) => ({
  program,
  debianPackage: program,
}));

export interface RedisOptions {
  /** Absolute path of the folder with the append-only files; made when it is missing. */
  readonly folder: string;
  /** Listen on a socket in a folder of mode 0700, and on no port. */
  readonly socket?: boolean;
  /** Without a socket; 0 (the default): any free port of 127.0.0.1. */
  readonly port?: number;
  /**
   * True: a reply means that the write is on the disk. False only for tests: it survives a killed process, but
   * not a power cut. Never `everysec`: docs/decisions/redis-durability.md.
   */
  readonly durable: boolean;
  /** Port of 127.0.0.1 of the master that it copies. */
  readonly replicaOf?: number;
  /** Makes it a node of a cluster, which knows no other yet. */
  readonly cluster?: { readonly nodeTimeoutMs: number };
  /** Further settings, by their names in `redis.conf`. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly say: Say;
}

export interface RedisServer {
  /** 0: none. */
  readonly port: number;
  /** `redis://` with a port of 127.0.0.1, or `unix://` with a path. */
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
  const sockets = options.socket === true ? await socketFolder(folder, SOCKET, ourselves()) : null;

  for (let attempt = 1; ; attempt += 1) {
    const where =
      sockets === null
        ? { port: options.port || (await freePort()), host: "127.0.0.1" }
        : { path: join(sockets, SOCKET) };
    const child = spawn(program.path, argumentsOf(where, folder, options), {
      cwd: folder,
      env: { ...process.env, ...program.environment },
      // Its own group: Ctrl-C in a terminal must reach the stores last, through us.
      detached: true,
      stdio: "ignore",
    });
    endWithUs(child, "SIGTERM", "store");
    child.on("error", () => {});
    if (await becomesReady(child, where)) {
      return {
        port: "path" in where ? 0 : where.port,
        url:
          "path" in where
            ? `unix://${pathToFileURL(where.path).pathname}`
            : `redis://${where.host}:${where.port}`,
        process: child,
        stop: () => stopProcess(child, "SIGTERM", 30_000),
      };
    }
    await stopProcess(child, "SIGKILL", 0);
    if (attempt === 3 || sockets !== null || (options.port ?? 0) !== 0) {
      const log = await fs.readFile(join(folder, "redis.log"), "utf8").catch(() => "(no log)");
      throw new Error(
        `Redis did not start; the end of its log:\n${log.trimEnd().split("\n").slice(-8).join("\n")}`,
      );
    }
  }
}

function argumentsOf(
  where: Where,
  folder: string,
  { durable, replicaOf, cluster, settings }: RedisOptions,
): string[] {
  const values = {
    // A socket that a killed server left is removed by the next one.
    ...("path" in where
      ? // Beside its data by its name alone, which is never too long.
        {
          port: "0",
          unixsocket: where.path === join(folder, SOCKET) ? SOCKET : where.path,
          unixsocketperm: "700",
        }
      : { port: String(where.port), bind: where.host }),
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
    ...(replicaOf === undefined ? {} : { replicaof: `127.0.0.1 ${replicaOf}` }),
    ...(cluster === undefined
      ? {}
      : {
          "cluster-enabled": "yes",
          "cluster-node-timeout": String(cluster.nodeTimeoutMs),
          // Other masters keep serving while a master is missing.
          "cluster-require-full-coverage": "no",
        }),
    ...settings,
  };
  return Object.entries(values).flatMap(([name, value]) => [`--${name}`, value]);
}

async function becomesReady(child: ChildProcess, where: Where): Promise<boolean> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline && !hasEnded(child)) {
    if ((await ask(where, "PING")).startsWith("+PONG")) {
      // Another process may own the port, or have taken the socket's place: ask who answers, until it does on a busy machine.
      const [, id] = /^process_id:(\d+)\r$/m.exec(await ask(where, "INFO server")) ?? [];
      if (id !== undefined) return Number(id) === child.pid;
    }
    await sleep(10);
  }
  return false;
}

/** One inline command; an empty string when nobody answers. */
function ask(where: Where, command: string): Promise<string> {
  return new Promise((done) => {
    const socket = connect(where);
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
      signalAll([pid], "SIGTERM");
      const deadline = Date.now() + 10_000;
      while (isRunning(pid) && Date.now() < deadline) await sleep(20);
      if (isRunning(pid)) signalAll([pid], "SIGKILL");
    }
  }
  await fs.rm(file, { force: true });
}

/** @throws Error naming what to install. */
export async function findRedis(say: Say): Promise<Program> {
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
