/** The whole product of a soak: stores, two data planes behind proxies, the operator on a folder, upstreams, an engine. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { createWriteStream, mkdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { freePort } from "../../hack/free-port.ts";
import { NODE_FLAGS } from "../../hack/node-flags.ts";
import { hasEnded, stopProcess } from "../../hack/processes.ts";
import { DataPlane } from "../fakes/data-plane.ts";
import { watchForSurprises } from "../fakes/surprises.ts";
import { TcpProxy } from "../fakes/tcp-proxy.ts";
import { singlePostgres, singleRedis, type TestStore } from "../integration/stores.ts";
import type { Edited } from "./manifests.ts";
import { writeSoakManifests } from "./manifests.ts";
import type { Failure, Window } from "./log.ts";
import { planeIndexes, type PlaneIndex, type StoreName } from "./plan.ts";
import { Provider } from "./provider.ts";

const root = resolve(import.meta.dirname, "../..");
const OPERATOR_STOPS_WITHIN_MS = 15_000;
/** Room of the stores' file systems. */
const DISK_MB = { postgres: 512, redis: 128 } as const;

/** A program of ours while it lives. */
export interface Life {
  readonly name: string;
  readonly process: ChildProcess;
  readonly bornAt: number;
  /** Of inside.ts. */
  readonly inside: string;
}

export interface WorldOptions {
  /** Put the stores on file systems that can be filled; needs the right to mount. */
  readonly disks: boolean;
  readonly random: () => number;
}

export class SoakWorld implements AsyncDisposable {
  readonly folder: string;
  readonly stores: Readonly<Record<StoreName, TestStore>>;
  readonly proxies: Readonly<Record<StoreName, TcpProxy>>[];
  readonly provider: Provider;
  readonly mounted: readonly string[];
  readonly windows: Window[] = [];
  /** Programs that ended by themselves, and what escaped in them. */
  readonly surprises: string[] = [];
  edited: Edited = { grants: 1, priced: 0, extra: null, broken: false };
  readonly planes: (Life & { readonly plane: DataPlane })[] = [];
  operator: Life | null = null;
  readonly #ports: (readonly [number, number])[];
  readonly #began = performance.now();
  /** Those that somebody means to end. */
  readonly #doomed = new Set<ChildProcess>();
  #lives = 0;
  #nextMarker = 1_000;

  private constructor(
    folder: string,
    stores: SoakWorld["stores"],
    proxies: SoakWorld["proxies"],
    provider: Provider,
    ports: (readonly [number, number])[],
    mounted: readonly string[],
  ) {
    this.folder = folder;
    this.stores = stores;
    this.proxies = proxies;
    this.provider = provider;
    this.#ports = ports;
    this.mounted = mounted;
  }

  static async open({ disks, random }: WorldOptions): Promise<SoakWorld> {
    const folder = await mkdtemp(join(tmpdir(), "gapura-soak-"));
    const mounted = disks ? (["postgres", "redis"] as const).map((name) => mount(folder, name)) : [];
    const [where, other] = mounted;
    const [postgres, redis] = await Promise.all([singlePostgres(where), singleRedis(other)]);
    const proxies = await Promise.all(
      planeIndexes.map(async () => ({
        postgres: await TcpProxy.open(postgres.url),
        redis: await TcpProxy.open(redis.url),
      })),
    );
    const ports: [number, number][] = [];
    for (const _ of planeIndexes) ports.push([await freePort(), await freePort()]);
    const provider = await Provider.open(random);
    const world = new SoakWorld(folder, { postgres, redis }, proxies, provider, ports, mounted);
    try {
      mkdirSync(world.snapshot);
      world.edit({});
      world.startOperator();
      for (const index of planeIndexes) await world.startPlane(index);
      await Promise.all(planeIndexes.map((index) => world.ready(index)));
      return world;
    } catch (error) {
      await world[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Milliseconds since it was opened. */
  now(): number {
    return performance.now() - this.#began;
  }

  marker(): number {
    this.#nextMarker += 1;
    return this.#nextMarker;
  }

  get snapshot(): string {
    return join(this.folder, "snapshot");
  }

  url(index: PlaneIndex): string {
    return `http://127.0.0.1:${this.#ports[index]?.[0]}`;
  }

  /** Of its ops port. */
  opsUrl(index: PlaneIndex): string {
    return `http://127.0.0.1:${this.#ports[index]?.[1]}`;
  }

  /** Changes what is declared. */
  edit(change: Partial<Edited>): void {
    this.edited = { ...this.edited, ...change };
    const { upstreams, engine, enginePort: pagesPort } = this.provider;
    const addresses = { upstreams: upstreams.map(({ url }) => url), engine, pagesPort };
    writeSoakManifests(join(this.folder, "manifests"), addresses, this.edited);
  }

  /** Such failures are explained from now on, until `to` of the window is set. */
  open(text: string, planes: readonly PlaneIndex[], failures: readonly Failure[]): Window {
    const window: Window = { text, from: this.now(), to: null, planes, failures };
    this.windows.push(window);
    return window;
  }

  /** A fault of now explains failures of this data plane. */
  troubled(index: PlaneIndex): boolean {
    return this.windows.some(({ to, planes }) => planes.includes(index) && (to === null || to >= this.now()));
  }

  async startPlane(index: PlaneIndex): Promise<void> {
    const proxies = this.proxies[index];
    const ports = this.#ports[index];
    if (proxies === undefined || ports === undefined) throw new Error("no such data plane");
    const name = `data plane ${"ab"[index]}`;
    const inside = this.#inside();
    const plane = await DataPlane.spawn({
      stores: { postgresUrl: proxies.postgres.url, redisUrl: proxies.redis.url },
      snapshot: this.snapshot,
      ports,
      node: preloaded,
      environment: { POD_UID: name, LOG_LEVEL: "warn", GAPURA_SOAK_INSIDE: inside },
      surprised: (error) => this.surprises.push(error.message),
    });
    const life = { name, process: plane.process, plane, bornAt: this.now(), inside };
    this.planes[index] = life;
    this.#watch(life);
  }

  plane(index: PlaneIndex): DataPlane {
    const life = this.planes[index];
    if (life === undefined) throw new Error("it was never started");
    return life.plane;
  }

  ready(index: PlaneIndex): Promise<void> {
    return this.plane(index).ready();
  }

  startOperator(): void {
    const inside = this.#inside();
    const child = spawn(
      process.execPath,
      [
        ...NODE_FLAGS,
        ...preloaded,
        "operator/main.ts",
        `--manifests=${join(this.folder, "manifests")}`,
        `--out=${this.snapshot}`,
        `--data=${join(this.folder, "operator")}`,
        `--ack=${this.opsUrl(0)}/config/status`,
      ],
      {
        cwd: root,
        stdio: ["ignore", "pipe", "pipe"],
        env: { PATH: process.env["PATH"], GAPURA_SOAK_INSIDE: inside },
      },
    );
    watchForSurprises(child, "the operator", (error) => this.surprises.push(error.message));
    this.operator = { name: "operator", process: child, bornAt: this.now(), inside };
    this.#watch(this.operator);
  }

  /** Ends one of our programs on purpose. */
  async end(life: Life, signal: NodeJS.Signals): Promise<void> {
    this.#doomed.add(life.process);
    await stopProcess(life.process, signal, OPERATOR_STOPS_WITHIN_MS + 10_000);
  }

  /** All that run. */
  get lives(): readonly Life[] {
    return [...this.planes, ...(this.operator === null ? [] : [this.operator])].filter(
      ({ process: child }) => !hasEnded(child),
    );
  }

  #inside(): string {
    this.#lives += 1;
    return join(this.folder, `inside-${this.#lives}`);
  }

  #watch({ name, process: child }: Life): void {
    const log = createWriteStream(join(this.folder, `${name.replaceAll(" ", "-")}.log`), { flags: "a" });
    child.stdout?.pipe(log);
    child.once("exit", (code, signal) => {
      if (!this.#doomed.has(child)) this.surprises.push(`${name} ended by itself: ${code ?? signal}`);
    });
  }

  /** Ends everything. Its folder, with the programs' logs, stays when `keep` says so. */
  async close(keep: boolean): Promise<void> {
    for (const life of this.lives) await this.end(life, "SIGKILL");
    for (const proxies of this.proxies) await Promise.all([proxies.postgres.close(), proxies.redis.close()]);
    await this.provider.close();
    await Promise.all(Object.values(this.stores).map((store) => store[Symbol.asyncDispose]()));
    for (const point of this.mounted) spawnSync("umount", [point]);
    if (!keep) await rm(this.folder, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close(false);
  }
}

const preloaded = ["--expose-gc", "--import", join(import.meta.dirname, "inside.ts")];

/** A file system in memory, of which nobody else may take room. @throws Error without the right to mount. */
function mount(folder: string, name: keyof typeof DISK_MB): string {
  const point = join(folder, `disk-${name}`);
  mkdirSync(point);
  const options = `size=${DISK_MB[name]}m,mode=755`;
  const { status, stderr } = spawnSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", point], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`cannot mount a small file system: ${stderr.trim()}`);
  return point;
}

/** Whether file systems can be mounted here, where nobody else sees them (`unshare --mount`). */
export const canMount = (): boolean => spawnSync("unshare", ["--mount", "true"]).status === 0;
