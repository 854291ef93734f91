/**
 * What runs beside the requests of a data plane to keep the money right: heartbeats, the sweeper, the drainer, the
 * look for accounts that Redis has an old version of, and for a Redis that lost writes. Every pod runs all of it;
 * each step is safe to run in several pods at once.
 */
import type { Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { Drainer } from "./drain.ts";
import { accountOperation } from "./gate.ts";
import type { Holds } from "./holds.ts";
import { Recurring } from "../lib/recurring.ts";
import { changedAccounts, pageAccounts, type KeyedAccount } from "./accounts.ts";
import { makePartitions } from "./ledger.ts";
import { ParkedKeeper } from "./parked.ts";
import { operation, shardOf, type Shard } from "./shard.ts";
import { reached } from "./steps.ts";

export interface Rhythm {
  readonly drainMs: number;
  readonly heartbeatMs: number;
  readonly sweepMs: number;
  /** A hold without a heartbeat for so long has lost its owner. */
  readonly staleMs: number;
  readonly accountsMs: number;
  /** Looked back so far, as a transaction becomes visible only some time after it said when it changed an account. */
  readonly lookBackMs: number;
}

/** A dead owner's hold ends after at most 5 + 45 + 5 s, well within the 90 s of rule 1.9. */
export const usualRhythm: Rhythm = {
  drainMs: 250,
  heartbeatMs: 5_000,
  sweepMs: 5_000,
  staleMs: 45_000,
  accountsMs: 5_000,
  lookBackMs: 30_000,
};
const PARTITIONS_MS = 6 * 3_600_000;
const OWED_MS = 500;
const PARKED_MS = 30_000;
const SWEPT_AT_ONCE = 200;
/** Script calls of one sweep of a shard; a pod of 10,000 streams leaves some 700 holds in each. */
const MOST_SWEEPS = 100;
const PAGE = 1_000;
const SCRIPT_MS = 2_000;
/** After so long without an answer from either store every account is told, changed or not. */
const LOOK_BACK_MOST_MS = 3_600_000;

export interface UpkeepOptions {
  readonly redis: Redis;
  readonly pool: DatabasePool;
  readonly holds: Holds;
  readonly log: Logger;
  readonly rhythm?: Partial<Rhythm>;
}

export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #rhythm: Rhythm;
  readonly #drainer: Drainer;
  readonly #parked: ParkedKeeper;
  readonly #loops: Recurring[];
  /** Versions that this process has told Redis, by organization. */
  readonly #told = new LRUCache<string, bigint>({ max: 200_000 });
  /** When Redis was last told of every change, in milliseconds of `performance.now()`. */
  #toldAt = performance.now();
  /** `run_id` of the server that answered last. */
  #server = "";
  readonly #onReady = () => void this.#look();

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#rhythm = { ...usualRhythm, ...options.rhythm };
    const { redis, pool, log, holds } = options;
    this.#drainer = new Drainer({ redis, pool, shards: holds.shards });
    this.#parked = new ParkedKeeper(pool, log);
    const { drainMs, heartbeatMs, sweepMs, accountsMs } = this.#rhythm;
    this.#loops = [
      new Recurring(log, "drain", drainMs, () => this.#drainer.drain()),
      new Recurring(log, "heartbeat", heartbeatMs, () => holds.heartbeat()),
      new Recurring(log, "owed", OWED_MS, () => holds.payOwed()),
      new Recurring(log, "sweep", sweepMs, () => this.sweep()),
      new Recurring(log, "accounts", accountsMs, () => this.#tellChanged()),
      new Recurring(log, "parked", PARKED_MS, () => this.#parked.look()),
      new Recurring(log, "partitions", PARTITIONS_MS, () => makePartitions(pool)),
    ];
  }

  start(): void {
    this.#options.redis.on("ready", this.#onReady);
    if (this.#options.redis.status === "ready") this.#onReady();
    for (const loop of this.#loops) loop.start();
  }

  /** Ends the loops; afterwards what was charged is moved once more, and rows without a home get a last chance. */
  async stop(timeoutMs = 10_000): Promise<void> {
    this.#options.redis.off("ready", this.#onReady);
    // A frozen Postgres would hold the drainer for ever.
    await Promise.race([Promise.all(this.#loops.map((loop) => loop.stop())), pause(timeoutMs)]);
    const deadline = performance.now() + timeoutMs;
    const { holds, log } = this.#options;
    while (holds.homeless > 0 && performance.now() < deadline) await pause(50);
    if (holds.homeless > 0) log.error({ rows: holds.homeless }, "charges are lost: neither store took them");
    await holds.payOwed();
    try {
      await this.#drainer.drain();
    } catch (error) {
      log.warn({ err: error }, "the last charges stay in Redis for the next data plane");
    }
  }

  /** Moves charged rows now; for tests and for the audit's sake. */
  drain(): Promise<number> {
    return this.#drainer.drain();
  }

  /** Ends the holds of dead owners, and notices a flushed Redis on shards where nothing else happens. */
  async sweep(): Promise<void> {
    await Promise.all(this.#options.holds.shards.map((shard) => this.#sweepShard(shard)));
    reached("sweep.done");
  }

  async #sweepShard(shard: Shard): Promise<void> {
    const sweep = operation("sweep", String(this.#rhythm.staleMs), String(SWEPT_AT_ONCE));
    for (
      let sweeps = 0, swept = SWEPT_AT_ONCE;
      swept === SWEPT_AT_ONCE && sweeps < MOST_SWEEPS;
      sweeps += 1
    ) {
      const [, count] = await shard.run(sweep, SCRIPT_MS);
      swept = Number(count);
    }
  }

  /** What changed while a store was away is told when it is back, however long that took. */
  async #tellChanged(): Promise<void> {
    const now = performance.now();
    const backMs = this.#rhythm.lookBackMs + now - this.#toldAt;
    if (backMs > LOOK_BACK_MOST_MS) await this.#tellAll();
    else await this.#tell(await changedAccounts(this.#options.pool, backMs / 1_000));
    this.#toldAt = now;
  }

  /** Tells Redis of every account; a replica that was promoted may have an old version of any. */
  async #tellAll(): Promise<void> {
    let last = "";
    for (let size = PAGE; size === PAGE;) {
      const page = await pageAccounts(this.#options.pool, last, PAGE);
      await this.#tell(page);
      last = page.at(-1)?.organizationId ?? "";
      size = page.length;
    }
  }

  async #tell(accounts: readonly KeyedAccount[]): Promise<void> {
    const { shards } = this.#options.holds;
    const news = accounts.filter(({ organizationId, version }) => this.#told.get(organizationId) !== version);
    await Promise.all(
      news.map(async (account) => {
        const shard = shards[shardOf(account.organizationId)];
        await shard?.run(accountOperation(account, account.keyEpoch.toString(), true), SCRIPT_MS);
        this.#told.set(account.organizationId, account.version);
      }),
    );
  }

  /**
   * A server with another `run_id` was restarted, or was a replica until now: writes that were acknowledged may be
   * missing though the epochs are there (design.md §5), so recent charges and running holds are made again.
   */
  async #look(): Promise<void> {
    try {
      const info = await this.#options.redis.info("server");
      const server = /run_id:(\w+)/.exec(info)?.[1] ?? "";
      if (server === this.#server) return;
      if (this.#server !== "") this.#options.holds.lost();
      this.#server = server;
      this.#told.clear();
      await this.#tellAll();
    } catch (error) {
      // The connection broke again; its next `ready` looks again.
      this.#options.log.warn({ err: error }, "could not look which Redis answers");
    }
  }
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
