/**
 * The processes of a bench: the stores and the raw upstream share a core with the load, each contestant runs alone on
 * the other one. Everything is on loopback, and everything that was started is ended by its id.
 */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import pg from "pg";
import { dialectPath } from "../../dataplane/dialects/dialect.ts";
import type * as store from "../../dataplane/store/migrate.ts";
import { ALLOCATOR, NODE_FLAGS } from "../../hack/node-flags.ts";
import { freePort } from "../../hack/free-port.ts";
import { startPostgres, type PostgresServer } from "../../hack/postgres.ts";
import { stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { startRedis } from "../../hack/redis.ts";
import { dialectOf, type Mode } from "./payloads.ts";
import { metricsOf, Snapshots } from "./snapshots.ts";
import { waitFor } from "./wait-for.ts";

const root = resolve(import.meta.dirname, "../..");
const PROXY_CORE = "0";
const LOAD_CORE = "1";
const STOP_MS = 5_000;
const NGINX = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"].find((path) => existsSync(path));

const say = (line: string) => process.stderr.write(`bench: ${line}\n`);

export interface Contestant {
  readonly name: "nginx" | "bare relay" | "Gapura";
  readonly port: number;
  /** Of the process whose tree is measured. */
  readonly pid: number;
  /** Where requests for this mode go; Gapura's are its own endpoints. */
  path(mode: Mode): string;
}

export interface GapuraProcess extends Contestant {
  readonly opsPort: number;
  /** Publishes a snapshot with the bench's routes and so many others. @returns milliseconds until it is served. */
  publish(others: number, edit: string): Promise<number>;
  /** How many configurations it has served so far. */
  reloads(): Promise<number>;
  /** Ends it and waits; with `profileTo` its CPU profile lies there afterwards. */
  stop(): Promise<void>;
}

/** What a bench runs in. Dispose of it. */
export class World {
  readonly folder: string;
  readonly upstreamPort: number;
  readonly #stops: (() => Promise<void>)[];
  #postgres: PostgresServer | null = null;
  #databases = 0;

  private constructor(folder: string, upstreamPort: number, stops: (() => Promise<void>)[]) {
    this.folder = folder;
    this.upstreamPort = upstreamPort;
    this.#stops = stops;
  }

  /** @throws Error on a machine with fewer than two cores, or without taskset. */
  static async open(): Promise<World> {
    if (availableParallelism() < 2)
      throw new Error("the bench needs two cores: one for the load, one to measure");
    const pinned = spawnSync("taskset", ["-acp", LOAD_CORE, String(process.pid)], { encoding: "utf8" });
    if (pinned.status !== 0) throw new Error("the bench needs Linux and taskset (package util-linux)");
    const folder = await mkdtemp(join(tmpdir(), "gapura-bench-"));
    // nginx' workers are `nobody`.
    spawnSync("chmod", ["755", folder]);
    const stops = [() => rm(folder, { recursive: true, force: true })];
    const upstream = await program("raw-upstream.ts", []);
    stops.push(() => stopProcess(upstream.child, "SIGTERM", STOP_MS));
    return new World(folder, upstream.port, stops);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stop of this.#stops.reverse()) await stop();
  }

  async bareRelay(): Promise<Contestant> {
    const { child, port } = await program(
      "bare-relay.ts",
      [`http://127.0.0.1:${this.upstreamPort}`],
      PROXY_CORE,
    );
    this.#stops.push(() => stopProcess(child, "SIGTERM", STOP_MS));
    return { name: "bare relay", port, pid: pidOf(child), path: (mode) => `/${mode}` };
  }

  /** null when nginx is not installed. */
  async nginx(): Promise<Contestant | null> {
    if (NGINX === undefined) return null;
    const port = await freePort();
    const folder = join(this.folder, "nginx");
    await mkdir(folder);
    await writeFile(join(folder, "nginx.conf"), nginxConfiguration(folder, port, this.upstreamPort));
    const child = spawn(
      "taskset",
      ["-c", PROXY_CORE, NGINX, "-p", folder, "-c", join(folder, "nginx.conf")],
      {
        stdio: ["ignore", "ignore", "ignore"],
      },
    );
    endWithUs(child, "SIGTERM");
    this.#stops.push(() => stopProcess(child, "SIGTERM", STOP_MS));
    await accepts(port);
    return { name: "nginx", port, pid: pidOf(child), path: (mode) => `/${mode}` };
  }

  /** The real data plane with everything on, and a Redis and a database of its own. */
  async gapura(options: GapuraOptions = {}): Promise<GapuraProcess> {
    const {
      profileTo,
      configuration,
      redisSynced = true,
      checkout = root,
      tracesTo,
      podUid = "bench",
    } = options;
    const folder = await mkdtemp(join(this.folder, "gapura-"));
    const snapshots = new Snapshots(join(folder, "snapshot"), this.upstreamPort);
    const [port, opsPort] = [await freePort(), await freePort()];
    if (configuration === undefined) await snapshots.write(0, "first");
    const stores = options.stores ?? {
      databaseUrl: await this.openDatabase(checkout),
      // As `npm start` runs it: a charge is on the disk before its answer ends.
      redisUrl: await this.openRedis({ durable: redisSynced }),
    };
    const log = openSync(join(folder, "log"), "a");
    const profiling = profileTo === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileTo}`];
    const child = spawn(
      "taskset",
      ["-c", PROXY_CORE, process.execPath, ...profiling, ...NODE_FLAGS, join(checkout, "dataplane/main.ts")],
      {
        stdio: ["ignore", log, log],
        env: {
          PATH: process.env["PATH"],
          ...ALLOCATOR,
          NODE_ENV: "production",
          DATABASE_URL: stores.databaseUrl,
          REDIS_URL: stores.redisUrl,
          GAPURA_CONFIG_DIR: configuration ?? snapshots.folder,
          HOST: "127.0.0.1",
          PORT: String(port),
          OPS_PORT: String(opsPort),
          POD_UID: podUid,
          DRAIN_TIMEOUT: "2",
          ...(tracesTo === undefined ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT: tracesTo }),
        },
      },
    );
    closeSync(log);
    endWithUs(child, "SIGTERM");
    const stop = () => stopProcess(child, "SIGTERM", 20_000);
    this.#stops.push(stop);
    try {
      await ready(opsPort);
    } catch (error) {
      const tail = readFileSync(join(folder, "log"), "utf8").slice(-2_000);
      throw new Error(`the data plane did not get ready:\n${tail}`, { cause: error });
    }
    return {
      name: "Gapura",
      port,
      opsPort,
      pid: pidOf(child),
      path: (mode) => dialectPath[dialectOf(mode)],
      publish: (others, edit) => snapshots.publish(others, edit, opsPort),
      reloads: async () =>
        Number(
          /^gapura_config_reloads_total{outcome="served"} (\d+)$/m.exec(await metricsOf(opsPort))?.[1] ?? 0,
        ),
      stop,
    };
  }

  /** The operator, compiling a folder of manifests. */
  operator(manifests: string, out: string): ChildProcess {
    const program = join(root, "operator/main.ts");
    const flags = [`--manifests=${manifests}`, `--out=${out}`, `--data=${join(this.folder, "operator")}`];
    const child = spawn("taskset", ["-c", LOAD_CORE, process.execPath, program, ...flags], {
      stdio: "ignore",
    });
    endWithUs(child, "SIGTERM");
    this.#stops.push(() => stopProcess(child, "SIGTERM", STOP_MS));
    return child;
  }

  /** @returns the address of an empty Redis. */
  async openRedis(options: { readonly durable: boolean }): Promise<string> {
    const folder = await mkdtemp(join(this.folder, "redis-"));
    const redis = await startRedis({ folder: join(folder, "redis"), ...options, say });
    this.#stops.push(() => redis.stop());
    return redis.url;
  }

  /** The server of all databases, with its sessions below it. */
  get postgresPid(): number {
    if (this.#postgres === null) throw new Error("no database was opened yet");
    return pidOf(this.#postgres.process);
  }

  /** @returns the address of an empty database, migrated as that checkout does it. */
  async openDatabase(checkout = root): Promise<string> {
    if (this.#postgres === null) {
      const postgres = await startPostgres({ folder: join(this.folder, "postgres"), durable: true, say });
      this.#stops.push(() => postgres.stop());
      this.#postgres = postgres;
    }
    const name = `bench_${(this.#databases += 1)}`;
    const client = new pg.Client({ connectionString: this.#postgres.url() });
    await client.connect();
    await client.query(`CREATE DATABASE ${name}`);
    await client.end();
    const url = new URL(this.#postgres.url());
    url.pathname = `/${name}`;
    const own: typeof store = await import(join(checkout, "dataplane/store/migrate.ts"));
    await own.migrate(url.href);
    return url.href;
  }
}

export interface GapuraOptions {
  /** A folder for its CPU profile. */
  readonly profileTo?: string;
  /** A folder that somebody else writes snapshots into. */
  readonly configuration?: string;
  /** False: its Redis answers before what it wrote is on the disk. */
  readonly redisSynced?: boolean;
  /** The folder of another checkout of ours, with what it needs installed. */
  readonly checkout?: string;
  /** Those of several; else it has its own. */
  readonly stores?: { readonly databaseUrl: string; readonly redisUrl: string };
  readonly podUid?: string;
  /** An OTLP collector that is sent the spans of every request. */
  readonly tracesTo?: string;
}

const pidOf = ({ pid }: ChildProcess): number => {
  if (pid === undefined) throw new Error("a program could not be started");
  return pid;
};

/** Starts a program of this folder and reads its port from its first line. */
async function program(file: string, args: readonly string[], core: string = LOAD_CORE) {
  const command = ["-c", core, process.execPath, join(import.meta.dirname, file), ...args];
  const child = spawn("taskset", command, { stdio: ["ignore", "pipe", "inherit"] });
  endWithUs(child, "SIGTERM");
  let output = "";
  child.stdout.on("data", (bytes: Buffer) => (output += bytes.toString()));
  try {
    await waitFor(file, () => Promise.resolve(/^port \d+$/m.test(output)));
  } catch (error) {
    await stopProcess(child, "SIGTERM", STOP_MS);
    throw error;
  }
  return { child, port: Number(/^port (\d+)$/m.exec(output)?.[1]) };
}

const ready = (opsPort: number) =>
  waitFor("the data plane", async () => {
    const response = await fetch(`http://127.0.0.1:${opsPort}/readyz`);
    await response.body?.cancel();
    return response.ok;
  });

const accepts = (port: number) =>
  waitFor(`port ${port}`, async () => {
    const response = await fetch(`http://127.0.0.1:${port}/`);
    await response.body?.cancel();
    return true;
  });

/** One worker, no buffering, kept connections: what an operator would write for streams. */
function nginxConfiguration(folder: string, port: number, upstreamPort: number): string {
  return `daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid ${folder}/nginx.pid;
error_log ${folder}/error.log;
events { worker_connections 40000; }
http {
  access_log off;
  client_body_temp_path ${folder}/body;
  proxy_temp_path ${folder}/proxy;
  fastcgi_temp_path ${folder}/fastcgi;
  uwsgi_temp_path ${folder}/uwsgi;
  scgi_temp_path ${folder}/scgi;
  keepalive_requests 100000000;
  upstream raw { server 127.0.0.1:${upstreamPort}; keepalive 256; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location = / { return 204; }
    location / {
      proxy_pass http://raw;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`;
}
