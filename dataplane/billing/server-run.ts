/**
 * Which run of the Redis server the meter's holds belong to. Redis' file does not tell all of them (meter-shard.lua), so when the
 * server was restarted the epochs that its file kept are ended before anything else is asked of it; every data plane
 * then charges and holds again what is recent, as after any loss (shard.ts).
 *
 * A server forgets its scripts when it ends, and is asked for this one whenever the meter's own is missing. That holds
 * behind a proxy as well, whose `INFO` may tell a `run_id` of its own.
 */
import { Cluster, type Redis } from "ioredis";
import type { RedisStore } from "../store/redis-servers.ts";
import { scriptDigest, textFor } from "../store/redis.ts";

/**
 * Never changed: another text would end the holds of a running server at each upgrade. Of each database of the server, as
 * scripts are the server's and keys a database's.
 */
const MARK = "return 'gapura-meter: this run of the server is known'";

/**
 * The ledger's id survives a restart of the server, so that another ledger does not take the charges for its own. A full memory
 * refuses what needs more of it until a script has freed some. A key that moves to another master must not be missing in
 * between.
 */
const END_EPOCH = `
local ledger = string.match(redis.call('GET', KEYS[1]) or '', '^[^.]+%.')
if not ledger then
  redis.call('DEL', KEYS[1])
elseif redis.pcall('SET', KEYS[1], ledger).err then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], ledger)
end
`;

/** Ends what an earlier run of a server left, once for all who ask at the same time. Each master of a cluster has its own runs. */
export class ServerRun {
  readonly #redis: RedisStore;
  readonly #epochKeys: readonly string[];
  readonly #mark: string;
  readonly #looking = new Map<Redis, Promise<void>>();

  constructor(redis: RedisStore, epochKeys: readonly string[]) {
    this.#redis = redis;
    this.#epochKeys = epochKeys;
    this.#mark = textFor(redis, MARK);
  }

  /** To be awaited before the meter's script is sent to a server that does not know it. @throws when Redis does. */
  begin(server: Redis): Promise<void> {
    const looking =
      this.#looking.get(server) ?? this.#look(server).finally(() => this.#looking.delete(server));
    this.#looking.set(server, looking);
    return looking;
  }

  async #look(server: Redis): Promise<void> {
    const [known] = (await server.script("EXISTS", scriptDigest(this.#mark))) as number[];
    if (known === 1) return;
    // One by one, as a cluster's keys lie apart; all of them before the mark, which says that it is done.
    for (const key of this.#epochKeys) await this.#end(server, key);
    await server.script("LOAD", this.#mark);
  }

  async #end(server: Redis, key: string): Promise<void> {
    try {
      await server.eval(END_EPOCH, 1, key);
    } catch (error) {
      const [what] = error instanceof Error && this.#redis instanceof Cluster ? error.message.split(" ") : [];
      // On its way to another master, and there already.
      if (what === "ASK") await this.#redis.eval(END_EPOCH, 1, key);
      // Another master's, whose run is another one.
      else if (what !== "MOVED") throw error;
    }
  }
}
