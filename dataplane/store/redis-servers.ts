/** The servers of a Redis: one, or the masters of a cluster (rule 12.1). */
import { Cluster, Command, type Redis } from "ioredis";

/** One Redis, whichever server is its master now, or a cluster of several masters, each with a part of the slots. */
export type RedisStore = Redis | Cluster;

const slots = new Map<string, number>();
/** Keys whose slots are remembered: those of the meter's shards, which are asked for all the time. */
const MOST_SLOTS = 1_000;

function slotOf(key: string): number {
  let slot = slots.get(key);
  if (slot === undefined) {
    slot = new Command("get", [key]).getSlot() ?? 0;
    if (slots.size < MOST_SLOTS) slots.set(key, slot);
  }
  return slot;
}

/** Returns the address of the master that has a key, as far as is known; null: there is only one server. */
export function masterName(redis: RedisStore, key: string): string | null {
  return redis instanceof Cluster ? (redis.slots[slotOf(key)]?.[0] ?? "unknown") : null;
}

/**
 * Returns the connection to the server that has a key, as far as is known; null: there is none now. In a cluster it leads to one
 * run of one server only, as it is never made anew, and that server answers `MOVED` when it does not have the key any more.
 */
export function serverOf(redis: RedisStore, key: string): Redis | null {
  if (!(redis instanceof Cluster)) return redis;
  return masterNamed(redis, masterName(redis, key) ?? "");
}

const nameOf = ({ options: { host = "", port = 0 } }: Redis) => `${host}:${port}`;
const masterNamed = (cluster: Cluster, name: string) =>
  cluster.nodes("master").find((node) => nameOf(node) === name) ?? null;

/** Returns the servers that share the slots, by their addresses; null for one without a connection now. */
export function mastersOf(cluster: Cluster): ReadonlyMap<string, Redis | null> {
  const names = new Set(cluster.slots.flatMap((nodes) => nodes?.[0] ?? []));
  return new Map(Array.from(names, (name) => [name, masterNamed(cluster, name)]));
}

/** Returns every server that has keys. @throws Error when one of them cannot be asked. */
export function allServers(redis: RedisStore): readonly Redis[] {
  if (!(redis instanceof Cluster)) return [redis];
  const servers = Array.from(mastersOf(redis), ([name, server]) => {
    if (server === null) throw new Error(`the Redis master ${name} is away`);
    return server;
  });
  if (servers.length === 0) throw new Error("no master of the Redis cluster is known");
  return servers;
}

/** Asks a cluster who has which slots now, as a server did not answer. Returns at once, and asks once at a time. */
export function lookForMasters(redis: RedisStore): void {
  if (redis instanceof Cluster && redis.status === "ready") redis.refreshSlotsCache();
}

/** Whether this error, or one that it was caused by, says that the slot of a command's keys is being moved to another master. */
export function isSlotMoving(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return error.message.startsWith("Too many Cluster redirections") || isSlotMoving(error.cause);
}

/** Makes a client of its own for what other clients publish, which does not subscribe by itself again. */
export function duplicateToListen(redis: RedisStore): RedisStore {
  if (!(redis instanceof Cluster)) return redis.duplicate({ autoResubscribe: false });
  const copy = redis.duplicate();
  connectAtOnce(copy);
  return copy;
}

/**
 * Connects to each node before it is needed: to a replica as well, which is the next master. A node that does not answer is
 * forgotten until another one names it again, so that nobody waits for it.
 */
export function connectAtOnce(cluster: Cluster): void {
  cluster.on("+node", (node: Redis) => {
    node.connect().catch(() => undefined);
  });
}

/**
 * Which run of which server a connection leads to, asked once for each connection. A proxy may report a run of its own; the
 * meter's script asks the server itself (store/meter-shard.lua).
 */
export class ServerRuns {
  readonly #known = new WeakMap<Redis, Promise<string>>();

  /** Returns the server's `run_id`; empty: it reports none. @throws what ioredis throws. */
  of(server: Redis): Promise<string> {
    const known = this.#known.get(server);
    if (known !== undefined) return known;
    const asked = server.info("server").then((info) => /run_id:(\w+)/.exec(info)?.[1] ?? "");
    this.#known.set(server, asked);
    const forget = () => {
      server.off("close", forget);
      if (this.#known.get(server) === asked) this.#known.delete(server);
    };
    server.on("close", forget);
    asked.catch(forget);
    return asked;
  }

  /** Whether the connection was asked and has not been broken since. */
  knows(server: Redis): boolean {
    return this.#known.has(server);
  }
}
