/** Three masters with a replica each, as real processes that form a Redis Cluster, for tests of failovers and moved slots. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { shardTag } from "../../dataplane/billing/holds/shard.ts";
import { freePort } from "../../hack/free-port.ts";
import { signalAll, stopProcess } from "../../hack/processes.ts";
import { startRedis, type RedisServer } from "../../hack/redis.ts";
import { waitFor } from "../bench/wait-for.ts";
import type { Network, Side } from "./partitions.ts";

const MASTERS = 3;
const SLOTS = 16_384;
const PASSWORD = "of-nodes";
/** Silence after which a node is taken for lost: short, so that tests are. */
const NODE_TIMEOUT_MS = 1_000;
const say = () => {};

export interface RedisCluster extends AsyncDisposable {
  /** `redis-cluster://...` of all nodes. */
  readonly url: string;
  /** Ports of the masters, by the slots that they have. */
  masters(): Promise<readonly number[]>;
  /** The master of a shard, as its own cluster says. */
  masterOf(shard: number): Promise<number>;
  /** SIGKILLs or SIGSTOPs a master. @returns brings it back, as whatever the others take it for, and waits until all is well. */
  lose(port: number, how: "SIGKILL" | "SIGSTOP"): Promise<() => Promise<void>>;
  /** Resolves when the slots of that master have another one. */
  replaced(port: number): Promise<void>;
  /** Cuts a master off; needs a network. @returns mends that and waits until all is well. */
  part(port: number, from: Side): Promise<() => Promise<void>>;
  /** Asks a replica of a master to take its place, as for an upgrade of its machine, and waits until it has. */
  plan(port: number): Promise<void>;
  /** Moves the slot of a shard to another master, key by key, as `redis-cli --cluster reshard` does. */
  move(shard: number, to: number, options?: { readonly slowly?: () => Promise<void> }): Promise<void>;
  /** SIGKILLs all nodes, or these. @returns brings them back. */
  loseAll(these?: readonly number[]): Promise<() => Promise<void>>;
  /** SIGSTOP and SIGCONT for all nodes. */
  freeze(): void;
  resume(): void;
  /** Every master has a replica that has all of its data. */
  settled(): Promise<void>;
}

interface NodeLine {
  readonly id: string;
  readonly port: number;
  readonly flags: readonly string[];
  readonly master: string;
  readonly link: string;
  readonly slots: readonly string[];
}

/** A line of `CLUSTER NODES`. */
function readNode(line: string): NodeLine {
  const [id = "", address = "", flags = "", master = "", , , , link = "", ...slots] = line.split(" ");
  return {
    id,
    port: Number(/:(\d+)@/.exec(address)?.[1]),
    flags: flags.split(","),
    master,
    link,
    slots: slots.filter((slot) => !slot.startsWith("[")),
  };
}

interface Place {
  /** Where it listens. */
  readonly port: number;
  /** Where the others find its bus. */
  readonly busPort: number;
  readonly settings: Readonly<Record<string, string>>;
}

/**
 * `network`: one whose ways can be cut, and the nodes' ports are those of its proxies; without it they talk straight.
 * `settings`: further ones of each node.
 */
export async function startRedisCluster({
  network,
  settings = {},
}: {
  readonly network?: Network;
  readonly settings?: Readonly<Record<string, string>>;
} = {}): Promise<RedisCluster> {
  await using disposal = new AsyncDisposableStack();
  const parent = await mkdtemp(join(tmpdir(), "gapura-cluster-"));
  disposal.defer(() => rm(parent, { recursive: true, force: true }));
  /** All by the ports by which the cluster knows them. */
  const places = new Map<number, Place>();
  const servers = new Map<number, RedisServer>();
  const clients = new Map<number, Redis>();
  const placeOf = (port: number) => {
    const place = places.get(port);
    if (place === undefined) throw new Error(`no node on ${port}`);
    return place;
  };
  const start = async (known: number) => {
    const { port, settings: own } = placeOf(known);
    const server = await startRedis({
      folder: join(parent, `redis-${port}`),
      port,
      durable: false,
      cluster: { nodeTimeoutMs: NODE_TIMEOUT_MS },
      settings: { ...own, ...settings },
      say,
    });
    const open = new Redis({ port, host: "127.0.0.1" });
    await open.config("SET", "masterauth", PASSWORD, "requirepass", PASSWORD);
    open.disconnect();
    servers.set(known, server);
  };
  disposal.defer(async () => {
    for (const { process } of servers.values()) await stopProcess(process, "SIGKILL", 5_000);
  });
  disposal.defer(() => {
    for (const client of clients.values()) client.disconnect();
  });
  for (let n = 0; n < 2 * MASTERS; n += 1) {
    const known = await placeIn(network);
    places.set(known.port, known.place);
    await start(known.port);
    const client = new Redis({
      port: known.place.port,
      host: "127.0.0.1",
      password: PASSWORD,
      retryStrategy: () => 50,
    });
    client.on("error", () => {});
    clients.set(known.port, client);
  }
  const ports = [...clients.keys()];
  const clientOf = (port: number) => {
    const client = clients.get(port);
    if (client === undefined) throw new Error(`no node on ${port}`);
    return client;
  };
  const first = clientOf(ports[0]!);
  for (const port of ports.slice(1)) await first.cluster("MEET", "127.0.0.1", port, placeOf(port).busPort);
  const nodesOf = async (client: Redis) =>
    String(await client.cluster("NODES"))
      .trim()
      .split("\n")
      .map(readNode);
  await waitFor("nodes that know each other", async () =>
    (await Promise.all([...clients.values()].map(nodesOf))).every(
      (nodes) => nodes.length === ports.length && nodes.every(({ flags }) => !flags.includes("handshake")),
    ),
  );
  for (let n = 0; n < MASTERS; n += 1) {
    const from = Math.round((n * SLOTS) / MASTERS);
    const end = Math.round(((n + 1) * SLOTS) / MASTERS) - 1;
    const master = clientOf(ports[n]!);
    await master.call("CLUSTER", "ADDSLOTSRANGE", from, end);
    const id = await master.cluster("MYID");
    await clientOf(ports[n + MASTERS]!).cluster("REPLICATE", id);
  }
  const lostIn = (nodes: readonly NodeLine[]) =>
    nodes.filter(({ flags }) => flags.some((flag) => flag.startsWith("fail"))).length;
  /** What somebody says who reaches the most of the others: not a master that is cut off from them. */
  const view = async (): Promise<readonly NodeLine[]> => {
    const views = await Promise.all(
      [...clients.values()].map(async (client) => {
        if (client.status !== "ready") return null;
        const late = new Promise<null>((done) => setTimeout(() => done(null), 300).unref());
        return await Promise.race([nodesOf(client).catch(() => null), late]);
      }),
    );
    return views.filter((one) => one !== null).toSorted((one, other) => lostIn(one) - lostIn(other))[0] ?? [];
  };
  const mastersIn = (nodes: readonly NodeLine[]) =>
    nodes.filter(
      ({ flags, slots }) => flags.includes("master") && !flags.includes("fail") && slots.length > 0,
    );
  const isSettled = async () => {
    for (const client of clients.values()) {
      const nodes = await nodesOf(client);
      if (nodes.some(({ flags }) => flags.some((flag) => flag.startsWith("fail") || flag === "handshake")))
        return false;
      if (mastersIn(nodes).length !== MASTERS) return false;
      const info = await client.info("replication");
      if (
        /^role:slave/m.test(info)
          ? !/^master_link_status:up/m.test(info)
          : !/^connected_slaves:[1-9]/m.test(info)
      )
        return false;
      if (!(await client.cluster("INFO")).includes("cluster_state:ok")) return false;
    }
    return true;
  };
  const settled = () => waitFor("masters with replicas", isSettled);
  await settled();

  const slotOf = (shard: number) => first.cluster("KEYSLOT", shardTag(shard));
  const pidOf = (port: number) => {
    const pid = servers.get(port)?.process.pid;
    if (pid === undefined) throw new Error(`no server on ${port}`);
    return pid;
  };
  const hasSlot = (slot: number) => (node: NodeLine) =>
    node.slots.some((range) => {
      const [from = 0, end = from] = range.split("-").map(Number);
      return from <= slot && slot <= end;
    });
  const masterOf = async (shard: number) => {
    const slot = await slotOf(shard);
    const master = mastersIn(await view()).find(hasSlot(slot));
    if (master === undefined) throw new Error(`shard ${shard} has no master`);
    return master.port;
  };
  const replaced = (port: number) =>
    waitFor("another master", async () => {
      const masters = mastersIn(await view());
      return masters.length === MASTERS && masters.every((one) => one.port !== port);
    });
  const stops = disposal.move();
  return {
    url: `redis-cluster://:${PASSWORD}@${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
    settled,
    masters: async () => mastersIn(await view()).map(({ port }) => port),
    masterOf,
    replaced,
    plan: async (port) => {
      await settled();
      const nodes = await view();
      const id = nodes.find((node) => node.port === port)?.id;
      const replica = nodes.find(({ master }) => master === id);
      if (replica === undefined) throw new Error(`no replica of ${port}`);
      const { port: next } = replica;
      const ask = () => clientOf(next).cluster("FAILOVER");
      await ask();
      // It is given up after five seconds when too few may vote, as soon after the last one, or are too slow.
      const again = setInterval(() => {
        ask().catch(() => {});
      }, 6_000);
      await replaced(port).finally(() => clearInterval(again));
    },
    lose: async (port, how) => {
      await settled();
      signalAll([pidOf(port)], how);
      return async () => {
        if (how === "SIGSTOP") signalAll([pidOf(port)], "SIGCONT");
        else await start(port);
        await settled();
      };
    },
    part: async (port, from) => {
      if (network === undefined) throw new Error("these nodes have no network that could be parted");
      await settled();
      network.part(port, from);
      return async () => {
        network.heal();
        await settled();
      };
    },
    loseAll: async (these = ports) => {
      await settled();
      signalAll(these.map(pidOf), "SIGKILL");
      return async () => {
        await Promise.all(these.map(start));
        await settled();
      };
    },
    freeze: () => signalAll(ports.map(pidOf), "SIGSTOP"),
    resume: () => signalAll(ports.map(pidOf), "SIGCONT"),
    move: async (shard, to, { slowly } = {}) => {
      const [slot, from] = await Promise.all([slotOf(shard), masterOf(shard)]);
      const nodes = await view();
      const idOf = (port: number) => nodes.find((node) => node.port === port)?.id ?? "";
      const [source, target] = [clientOf(from), clientOf(to)];
      await target.cluster("SETSLOT", slot, "IMPORTING", idOf(from));
      await source.cluster("SETSLOT", slot, "MIGRATING", idOf(to));
      for (;;) {
        const keys = await source.cluster("GETKEYSINSLOT", slot, 2);
        if (keys.length === 0) break;
        await source.call("MIGRATE", "127.0.0.1", to, "", 0, 5_000, "AUTH", PASSWORD, "KEYS", ...keys);
        await slowly?.();
      }
      for (const client of [target, source]) await client.cluster("SETSLOT", slot, "NODE", idOf(to));
      for (const port of mastersIn(nodes).map((node) => node.port))
        await clientOf(port).cluster("SETSLOT", slot, "NODE", idOf(to));
    },
    [Symbol.asyncDispose]: () => stops.disposeAsync(),
  };
}

/** Where a node listens, and the port by which the cluster knows it. */
async function placeIn(
  network: Network | undefined,
): Promise<{ readonly port: number; readonly place: Place }> {
  // The usual port of the bus, 10,000 above, may be the one of somebody's outgoing connection.
  const [port, busPort] = [await freePort(), await freePort()];
  const settings = { "cluster-port": String(busPort) };
  if (network === undefined) return { port, place: { port, busPort, settings } };
  const { ports, address } = await network.join(port, busPort);
  const [known = 0, bus = 0] = ports;
  const announced = {
    "cluster-announce-ip": "127.0.0.1",
    "cluster-announce-port": String(known),
    "cluster-announce-bus-port": String(bus),
    "bind-source-addr": address,
  };
  return { port: known, place: { port, busPort: bus, settings: { ...settings, ...announced } } };
}
