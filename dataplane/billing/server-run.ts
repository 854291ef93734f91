/**
 * Which run of the Redis server the meter's holds belong to. Redis' file does not tell all of them (meter-shard.lua), so when the
 * server was restarted the epochs that its file kept are ended before anything else is asked of it; every data plane
 * then charges and holds again what is recent, as after any loss (shard.ts).
 *
 * A server forgets its scripts when it ends, and is asked for this one whenever the meter's own is missing. That holds
 * behind a proxy as well, whose `INFO` may tell a `run_id` of its own.
 */
import type { Redis } from "ioredis";
import { scriptDigest, textFor } from "../store/redis.ts";

/**
 * Never changed: another text would end the holds of a running server at each upgrade. Of each database of the server, as
 * scripts are the server's and keys a database's.
 */
const MARK = "return 'gapura-meter: this run of the server is known'";

/**
 * The ledger's id survives a restart of the server, so that another ledger does not take the charges for its own. Deleted first, as a full memory
 * refuses what needs more of it until a script has freed some.
 */
const END_EPOCH = `
local ledger = string.match(redis.call('GET', KEYS[1]) or '', '^[^.]+%.')
redis.call('DEL', KEYS[1])
if ledger then
  redis.call('SET', KEYS[1], ledger)
end
`;

/** Ends what an earlier run of the server left, once for all who ask at the same time. */
export class ServerRun {
  readonly #redis: Redis;
  readonly #epochKeys: readonly string[];
  readonly #mark: string;
  #looking: Promise<void> | null = null;

  constructor(redis: Redis, epochKeys: readonly string[]) {
    this.#redis = redis;
    this.#epochKeys = epochKeys;
    this.#mark = textFor(redis, MARK);
  }

  /** To be awaited before the meter's script is sent to a server that does not know it. @throws when Redis does. */
  begin(): Promise<void> {
    this.#looking ??= this.#look().finally(() => (this.#looking = null));
    return this.#looking;
  }

  async #look(): Promise<void> {
    const [known] = (await this.#redis.script("EXISTS", scriptDigest(this.#mark))) as number[];
    if (known === 1) return;
    // One by one, as a cluster's keys lie apart; all of them before the mark, which says that it is done.
    for (const key of this.#epochKeys) await this.#redis.eval(END_EPOCH, 1, key);
    await this.#redis.script("LOAD", this.#mark);
  }
}
