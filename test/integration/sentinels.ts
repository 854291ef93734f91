/** A master, a replica and three sentinels that watch them, as real processes, for tests of failovers. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { freePort } from "../../hack/free-port.ts";
import { signalAll, stopProcess } from "../../hack/processes.ts";
import { endWithUs } from "../../hack/reaper.ts";
import { findRedis, startRedis, type RedisServer } from "../../hack/redis.ts";
import { waitFor } from "../bench/wait-for.ts";
import type { Network, Side } from "./partitions.ts";

const MASTER = "main";
const PASSWORD = "of-data";
const SENTINEL_PASSWORD = "of-sentinels";
/** Silence after which a master is taken for lost: short, so that tests are. */
const DOWN_AFTER_MS = 1_000;
/** A master is not replaced for twice as long after the last time. */
const FAILOVER_MS = 3_000;
const say = () => {};

export interface SentinelSet extends AsyncDisposable {
  /** `redis-sentinel://...` */
  readonly url: string;
  /** Port of who is master now, as one of the sentinels says. */
  master(): Promise<number>;
  /** Asks the sentinels for another master, as for an upgrade of its machine, and waits until it is. */
  plan(): Promise<void>;
  /** SIGKILLs or SIGSTOPs the master, and waits for another one. @returns brings the old one back, as a replica. */
  lose(how: "SIGKILL" | "SIGSTOP"): Promise<() => Promise<void>>;
  /** SIGKILLs all data nodes. @returns brings them back. */
  loseAll(): Promise<() => Promise<void>>;
  /** SIGSTOP and SIGCONT for all data nodes. */
  freeze(): void;
  resume(): void;
  /** Cuts the master off, and waits for another one; needs a network. @returns mends that. */
  part(from: Side): Promise<() => Promise<void>>;
  /** The master has a replica that may take its place, and all sentinels know it. */
  settled(): Promise<void>;
}

/**
 * `network`: one whose ways can be cut, and the data nodes' ports are those of its proxies; without it they talk straight.
 * `replicas`: one, unless there shall be more.
 */
export async function startSentinels({
  network,
  replicas = 1,
}: { readonly network?: Network; readonly replicas?: number } = {}): Promise<SentinelSet> {
  await using disposal = new AsyncDisposableStack();
  const parent = await mkdtemp(join(tmpdir(), "gapura-sentinels-"));
  disposal.defer(() => rm(parent, { recursive: true, force: true }));
  /** By the ports by which the sentinels know them. */
  const servers = new Map<number, RedisServer>();
  const settingsOf = new Map<number, Readonly<Record<string, string>>>();
  const start = async (known: number, port: number, replicaOf?: number) => {
    const server = await startRedis({
      folder: join(parent, `redis-${port}`),
      port,
      durable: false,
      settings: settingsOf.get(known) ?? {},
      say,
      ...(replicaOf === undefined ? {} : { replicaOf }),
    });
    servers.set(known, server);
    const redis = new Redis({ port, host: "127.0.0.1" });
    await redis.config("SET", "masterauth", PASSWORD, "requirepass", PASSWORD);
    redis.disconnect();
  };
  /** @returns the port by which the sentinels know it. */
  const add = async (replicaOf?: number) => {
    const port = await freePort();
    const node = await network?.join(port);
    const known = node?.ports[0] ?? port;
    if (node !== undefined)
      settingsOf.set(known, {
        "replica-announce-ip": "127.0.0.1",
        "replica-announce-port": String(known),
        "bind-source-addr": node.address,
      });
    await start(known, port, replicaOf);
    return known;
  };
  disposal.defer(async () => {
    for (const { process } of servers.values()) await stopProcess(process, "SIGKILL", 5_000);
  });
  const first = await add();
  for (let n = 0; n < replicas; n += 1) await add(first);

  const program = await findRedis(say);
  const ports: number[] = [];
  for (let n = 0; n < 3; n += 1) {
    const port = await freePort();
    const file = join(parent, `sentinel-${n}.conf`);
    // Sentinels write what they learn into their own files.
    await writeFile(
      file,
      [
        `port ${port}`,
        "bind 127.0.0.1",
        // Their ports can be reached; only what they ask the data nodes may be lost.
        ...(network === undefined
          ? []
          : [`bind-source-addr ${(await network.join()).address}`, "sentinel announce-ip 127.0.0.1"]),
        `dir ${parent}`,
        `requirepass ${SENTINEL_PASSWORD}`,
        `sentinel sentinel-pass ${SENTINEL_PASSWORD}`,
        `sentinel monitor ${MASTER} 127.0.0.1 ${first} 2`,
        `sentinel auth-pass ${MASTER} ${PASSWORD}`,
        `sentinel down-after-milliseconds ${MASTER} ${DOWN_AFTER_MS}`,
        `sentinel failover-timeout ${MASTER} ${FAILOVER_MS}`,
      ].join("\n"),
    );
    const child = spawn(program.path, [file, "--sentinel"], {
      env: { ...process.env, ...program.environment },
      stdio: "ignore",
    });
    endWithUs(child, "SIGTERM");
    child.on("error", () => {});
    disposal.defer(() => stopProcess(child, "SIGKILL", 5_000));
    ports.push(port);
  }
  const sentinels = ports.map((port) => {
    const sentinel = new Redis({
      port,
      host: "127.0.0.1",
      password: SENTINEL_PASSWORD,
      retryStrategy: () => 50,
    });
    sentinel.on("error", () => {});
    disposal.defer(() => sentinel.disconnect());
    return sentinel;
  });
  const masterOf = async (sentinel: Redis) => {
    const [, port] = (await sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)) as [string, string];
    return Number(port);
  };
  const master = () => masterOf(sentinels[0]!);
  const ask = (sentinel: Redis, what: string) => sentinel.call("SENTINEL", what, MASTER);
  const field = (fields: readonly string[], name: string) => fields[fields.indexOf(name) + 1];
  /** Whether it knows the two others and a replica that is well: before, none could replace the master. */
  const isReady = async (sentinel: Redis) => {
    const state = (await ask(sentinel, "MASTER")) as string[];
    const replicas = (await ask(sentinel, "REPLICAS")) as string[][];
    return (
      field(state, "num-other-sentinels") === "2" &&
      field(state, "flags") === "master" &&
      replicas.some(
        (replica) => field(replica, "flags") === "slave" && field(replica, "master-link-status") === "ok",
      )
    );
  };
  const settled = () =>
    waitFor("a replica that may become master", async () =>
      (await Promise.all(sentinels.map(isReady))).every(Boolean),
    );
  /** Each sentinel names another: before, only the one that leads the failover does, and clients may ask any. */
  const replaced = (old: number) =>
    waitFor("another master", async () => {
      const named = await Promise.all(sentinels.map(masterOf));
      return named.every((port) => port !== old);
    });
  await settled();

  /** Hurts the master and waits for another one. */
  const without = async (hurt: (port: number) => (() => unknown) | Promise<() => unknown>) => {
    await settled();
    const old = await master();
    const undo = await hurt(old);
    await replaced(old);
    return async () => void (await undo());
  };
  const signalTo = (signal: NodeJS.Signals) =>
    signalAll(
      [...servers.values()].flatMap((server) => server.process.pid ?? []),
      signal,
    );
  const stops = disposal.move();
  return {
    settled,
    loseAll: async () => {
      await settled();
      const first = await master();
      signalTo("SIGKILL");
      return async () => {
        for (const [known, { port }] of servers)
          await start(known, port, known === first ? undefined : first);
        await settled();
      };
    },
    freeze: () => signalTo("SIGSTOP"),
    resume: () => signalTo("SIGCONT"),
    url: `redis-sentinel://:${PASSWORD}@${ports.map((port) => `127.0.0.1:${port}`).join(",")}/${MASTER}?sentinelPassword=${SENTINEL_PASSWORD}`,
    master,
    plan: async () => {
      await settled();
      const old = await master();
      // The sentinels refuse another one so soon after the last.
      await waitFor("the sentinels' agreement", async () => {
        const [sentinel] = sentinels;
        return sentinel !== undefined && (await ask(sentinel, "FAILOVER")) === "OK";
      });
      await replaced(old);
    },
    lose: (how) =>
      without((old) => {
        const server = servers.get(old);
        if (server?.process.pid === undefined) throw new Error(`no server on ${old}`);
        const { pid } = server.process;
        signalAll([pid], how);
        return how === "SIGSTOP"
          ? () => signalAll([pid], "SIGCONT")
          : async () => await start(old, server.port, await master());
      }),
    part: (from) =>
      without((old) => {
        if (network === undefined) throw new Error("these servers have no network that could be parted");
        network.part(old, from);
        return () => network.heal();
      }),
    [Symbol.asyncDispose]: () => stops.disposeAsync(),
  };
}
