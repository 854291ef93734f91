/**
 * Real Redis on this machine: the system's redis-server or valkey-server, else one unpacked from Debian's packages
 * into the cache folder (no root needed, nothing installed). Used by `npm start` and by the tests.
 */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { accessSync, constants } from "node:fs";
import * as fs from "node:fs/promises";
import { connect } from "node:net";
import { arch } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { cacheFolder, type Say } from "./cache.ts";
import { freePort } from "./postgres.ts";
import { hasEnded, isRunning, stopProcess } from "./processes.ts";

const START_TIMEOUT_MS = 60_000;
const PROGRAMS = ["redis-server", "valkey-server"] as const;

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

interface Program {
  readonly path: string;
  readonly environment: NodeJS.ProcessEnv;
}

async function findRedis(say: Say): Promise<Program> {
  const folders = [
    ...(process.env["PATH"] ?? "").split(delimiter),
    "/usr/local/bin",
    "/usr/bin",
    "/usr/sbin",
  ];
  for (const name of PROGRAMS) {
    for (const folder of folders) {
      const path = join(folder, name);
      if (folder !== "" && isExecutable(path)) return { path, environment: {} };
    }
  }
  const target = join(await cacheFolder(), `redis-${arch()}`);
  const cached = await unpackedProgram(target);
  if (cached !== null) return cached;
  const problem = await unpackDebianPackages(target, say);
  const unpacked = problem === null ? await unpackedProgram(target) : null;
  if (unpacked !== null) return unpacked;
  throw new Error(
    `no Redis on this machine, and none could be unpacked (${problem ?? "the unpacked server does not run"}). ` +
      "Install one (apt-get install redis-server, dnf install valkey, brew install redis) or set REDIS_URL.",
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The server of an unpacked tree, when it runs. */
async function unpackedProgram(tree: string): Promise<Program | null> {
  const libraries = await libraryFolders(tree);
  const environment = { LD_LIBRARY_PATH: libraries.join(":") };
  for (const name of PROGRAMS) {
    const path = join(tree, "usr", "bin", name);
    if (spawnSync(path, ["--version"], { env: environment }).status === 0) return { path, environment };
  }
  return null;
}

/** Every folder of the tree that holds shared libraries. */
async function libraryFolders(tree: string): Promise<string[]> {
  const found = new Set<string>();
  for (const top of ["lib", "usr/lib"]) {
    const folder = join(tree, top);
    const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
    for (const entry of entries) if (entry.name.includes(".so")) found.add(entry.parentPath);
  }
  return [...found];
}

/** Downloads redis-server and whatever it lacks here, and unpacks it into `target`. Null, or what went wrong. */
async function unpackDebianPackages(target: string, say: Say): Promise<string | null> {
  if (spawnSync("apt-get", ["--version"]).status !== 0) return "there is no apt-get here";
  say("downloading Redis from Debian's packages (nothing is installed)");
  const work = await fs.mkdtemp(`${target}.`);
  try {
    const tree = join(work, "tree");
    await fs.mkdir(tree);
    // First with the package lists that are there, then with fresh ones of our own, which need no root.
    let problem = "";
    for (const lists of [[], await ownLists(work)]) {
      if (lists.length > 0) {
        say("fetching Debian's package lists");
        const update = apt(work, [...lists, "update"]);
        if (update.status !== 0) problem = lastLine(update.stderr);
      }
      for (const name of PROGRAMS) {
        const names = neededPackages(work, lists, name);
        const download = apt(work, [...lists, "download", ...names]);
        if (names.length === 0 || download.status !== 0) {
          problem = lastLine(download.stderr) || problem || `apt knows no ${name}`;
          continue;
        }
        for (const file of (await fs.readdir(work)).filter((entry) => entry.endsWith(".deb"))) {
          const unpack = spawnSync("dpkg", ["-x", join(work, file), tree], { encoding: "utf8" });
          if (unpack.status !== 0) return `dpkg -x ${file}: ${lastLine(unpack.stderr)}`;
        }
        await fs.rm(target, { recursive: true, force: true });
        await fs.rename(tree, target);
        return null;
      }
    }
    return problem;
  } finally {
    await fs.rm(work, { recursive: true, force: true });
  }
}

/** The package and those of its dependencies that this machine lacks. */
function neededPackages(work: string, lists: readonly string[], name: string): string[] {
  const plan = apt(work, [...lists, "install", "--print-uris", "-qq", "-y", "--no-install-recommends", name]);
  return Array.from(plan.stdout.matchAll(/^'[^']+' ([a-z0-9][a-z0-9+.-]*)_/gm), (match) => match[1] ?? "");
}

/** Options that keep apt's lists and caches in a folder of ours. */
async function ownLists(work: string): Promise<string[]> {
  const folder = join(work, "apt");
  await fs.mkdir(join(folder, "lists", "partial"), { recursive: true });
  await fs.mkdir(join(folder, "cache", "archives", "partial"), { recursive: true });
  return ["-o", `Dir::State::lists=${join(folder, "lists")}`, "-o", `Dir::Cache=${join(folder, "cache")}`];
}

function apt(cwd: string, args: readonly string[]) {
  // As root apt would download as a user of its own, who may not write here.
  return spawnSync("apt-get", ["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2", ...args], {
    cwd,
    encoding: "utf8",
    env: { ...process.env, LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive" },
    timeout: 180_000,
  });
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
