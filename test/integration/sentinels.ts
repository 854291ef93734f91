/** A master, a replica and three sentinels that watch them, as real processes, for tests of failovers. */
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { freePort } from "../../hack/free-port.ts";
import { signalAll, stopProcess } from "../../hack/processes.ts";
import { findRedis, startRedis, type RedisServer } from "../../hack/redis.ts";
import { waitFor } from "../bench/wait-for.ts";

const MASTER = "main";
const PASSWORD = "of-data";
const SENTINEL_PASSWORD = "of-sentinels";
/** Silence after which a master is taken for lost: short, so that tests are. */
const DOWN_AFTER_MS = 1_000;
const say = () => {};

export interface SentinelSet extends AsyncDisposable {
  /** `redis-sentinel://...` */
  readonly url: string;
  /** Port of who is master now, as the sentinels say. */
  master(): Promise<number>;
  /** Asks the sentinels for another master, as for an upgrade of its machine, and waits until it is. */
  plan(): Promise<void>;
  /** SIGKILLs or SIGSTOPs the master, and waits for another one. @returns brings the old one back, as a replica. */
  lose(how: "SIGKILL" | "SIGSTOP"): Promise<() => Promise<void>>;
}

export async function startSentinels(): Promise<SentinelSet> {
  await using disposal = new AsyncDisposableStack();
  const parent = await mkdtemp(join(tmpdir(), "gapura-sentinels-"));
  disposal.defer(() => rm(parent, { recursive: true, force: true }));
  const servers = new Map<number, RedisServer>();
  const start = async (port: number, replicaOf?: number) => {
    const server = await startRedis({
      folder: join(parent, `redis-${servers.size}-${port}`),
      port,
      durable: false,
      say,
      ...(replicaOf === undefined ? {} : { replicaOf }),
    });
    servers.set(server.port, server);
    const redis = new Redis({ port: server.port, host: "127.0.0.1" });
    await redis.config("SET", "masterauth", PASSWORD, "requirepass", PASSWORD);
    redis.disconnect();
    return server;
  };
  disposal.defer(async () => {
    for (const { process } of servers.values()) await stopProcess(process, "SIGKILL", 5_000);
  });
  const first = await start(0);
  await start(0, first.port);

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
        `dir ${parent}`,
        `requirepass ${SENTINEL_PASSWORD}`,
        `sentinel sentinel-pass ${SENTINEL_PASSWORD}`,
        `sentinel monitor ${MASTER} 127.0.0.1 ${first.port} 2`,
        `sentinel auth-pass ${MASTER} ${PASSWORD}`,
        `sentinel down-after-milliseconds ${MASTER} ${DOWN_AFTER_MS}`,
        `sentinel failover-timeout ${MASTER} 5000`,
      ].join("\n"),
    );
    const child = spawn(program.path, [file, "--sentinel"], {
      env: { ...process.env, ...program.environment },
      stdio: "ignore",
    });
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
  const master = async () => {
    const [sentinel] = sentinels;
    const [, port] = (await sentinel!.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)) as [
      string,
      string,
    ];
    return Number(port);
  };
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
  const replaced = (old: number) => waitFor("another master", async () => (await master()) !== old);
  await settled();

  const stops = disposal.move();
  return {
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
    lose: async (how) => {
      await settled();
      const old = await master();
      const server = servers.get(old);
      if (server?.process.pid === undefined) throw new Error(`no server on ${old}`);
      const { pid } = server.process;
      signalAll([pid], how);
      await replaced(old);
      return async () => {
        if (how === "SIGSTOP") signalAll([pid], "SIGCONT");
        else await start(old, await master());
      };
    },
    [Symbol.asyncDispose]: () => stops.disposeAsync(),
  };
}
