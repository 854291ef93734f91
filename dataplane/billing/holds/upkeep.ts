/**
 * Background work of a data plane that keeps the money right. Every pod sends heartbeats for its holds and watches
 * Redis for losses; the sweeper, the drainer and the look for accounts that Redis has an old version of run in one pod for
 * each shard (shard-leaders.ts), though each step is safe to run in several at once.
 */
import {
  ServerRuns,
  lookForMasters,
  masterName,
  serverOf,
  type RedisStore,
} from "../../store/redis-servers.ts";
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { Drainer, LedgerAway } from "./drain.ts";
import { accountOperation } from "./account-loader.ts";
import type { Holds } from "./holds.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { HOUR_MS } from "../../lib/clock.ts";
import { Recurring } from "../../lib/recurring.ts";
import { ShardLeaders } from "./shard-leaders.ts";
import { changedAccounts, pageAccounts, type KeyedAccount } from "../ledger/accounts.ts";
import { makePartitions } from "../ledger/ledger.ts";
import { DeadLetterRetry } from "../ledger/retry-dead-letters.ts";
import { operation, SCRIPT_MS, shardOf, type Shard } from "./shard.ts";
import { reachedMoneyStep } from "../steps.ts";

export interface Rhythm {
  /** How often each shard is looked at: a flush is noticed so soon, and a dead leader replaced a second later. */
  readonly watchMs: number;
  /** How often to check which Postgres answers; a leader whose round meets another one checks at once. */
  readonly ledgerMs: number;
  readonly drainMs: number;
  readonly heartbeatMs: number;
  readonly sweepMs: number;
  /** A hold without a heartbeat for so long has lost its owner. */
  readonly staleMs: number;
  readonly accountsMs: number;
  /** How far back changed accounts are read: a transaction becomes visible later than the time that it stores. */
  readonly lookBackMs: number;
}

/** A dead owner's hold ends after at most 5 + 45 + 5 s, well within the 90 s of rule 1.9. */
export const usualRhythm: Rhythm = {
  watchMs: 250,
  ledgerMs: 2_000,
  drainMs: 250,
  heartbeatMs: 5_000,
  sweepMs: 5_000,
  staleMs: 45_000,
  accountsMs: 5_000,
  lookBackMs: 30_000,
};
const PARTITIONS_MS = 6 * HOUR_MS;
const OWED_MS = 500;
const DEAD_LETTERS_MS = 30_000;
const SWEPT_AT_ONCE = 200;
/** Script calls of one sweep of a shard; a pod of 10,000 streams leaves some 700 holds in each. */
const MOST_SWEEPS = 100;
const PAGE = 1_000;
/** A leader that waits so long for Postgres resigns: Postgres may answer others. */
const STUCK_MS = 1_500;
/** Longest last check of which Postgres answers, when all else is done. */
const LAST_LOOK_MS = 2_000;
/** A look at a shard takes a millisecond or two: after so long other masters are looked for. */
const IMPATIENT_MS = 250;
/** After so long without success every account is written to Redis, changed or not. */
const LOOK_BACK_MOST_MS = HOUR_MS;

export interface UpkeepOptions {
  readonly redis: RedisStore;
  readonly pool: DatabasePool;
  readonly holds: Holds;
  readonly log: Logger;
  /** A name that no other process has, without a space. */
  readonly pod: string;
  /** 0 … 1. */
  readonly random: () => number;
  readonly rhythm?: Partial<Rhythm>;
}

export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #rhythm: Rhythm;
  readonly #drainer: Drainer;
  readonly #leaders: ShardLeaders;
  readonly #deadLetters: DeadLetterRetry;
  readonly #loops: Recurring[];
  readonly #guardLoop: Recurring;
  /** Account versions that this process has written to Redis, by organization. */
  readonly #told = new LRUCache<string, bigint>({ max: 200_000 });
  /** When this pod last wrote every change to Redis, in milliseconds of `performance.now()`. */
  #toldAt = Number.NEGATIVE_INFINITY;
  readonly #runs = new ServerRuns();
  /** `run_id` of the server that answered last, by shard; empty: unknown. */
  readonly #servers: string[];
  #looked = false;
  /** Whether this pod wrote changed accounts to Redis until it was stopped. */
  #leadTelling = false;

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#rhythm = { ...usualRhythm, ...options.rhythm };
    const { redis, pool, log, holds, pod, random } = options;
    this.#drainer = new Drainer({
      redis,
      pool,
      ledger: holds.ledger,
      shards: holds.shards,
      word: () => holds.guard.word,
      onOther: () => this.#lookSoon(),
    });
    this.#servers = holds.shards.map(() => "");
    this.#leaders = new ShardLeaders({ pod, random, shards: holds.shards });
    const { ledgerMs } = this.#rhythm;
    this.#guardLoop = new Recurring(log, "ledger", ledgerMs, () => this.look());
    this.#deadLetters = new DeadLetterRetry(pool, log, (id) => holds.readScopesAgain(id));
    const { watchMs, drainMs, heartbeatMs, sweepMs } = this.#rhythm;
    const leads = (shard: number) => this.#leaders.has(shard);
    this.#loops = [
      this.#guardLoop,
      new Recurring(log, "watch", watchMs, () => this.watch()),
      new Recurring(log, "drain", drainMs, () => this.#drainMine()),
      new Recurring(log, "heartbeat", heartbeatMs, () => holds.heartbeat()),
      new Recurring(log, "owed", OWED_MS, () => holds.payOwed()),
      new Recurring(log, "sweep", sweepMs, () => this.sweep(leads)),
      new Recurring(log, "accounts", watchMs, () => this.#tellChanged()),
      new Recurring(log, "dead letters", DEAD_LETTERS_MS, () => this.#deadLetters.look()),
      new Recurring(log, "partitions", PARTITIONS_MS, () => makePartitions(pool)),
    ];
  }

  start(): void {
    for (const loop of this.#loops) loop.start();
  }

  /**
   * Ends the loops. Then rows that neither store has get a last chance, and what this process charged is drained, and made
   * again when a store lost it, until the ledger has all of it.
   */
  async stop(timeoutMs = 10_000): Promise<void> {
    this.#leadTelling = this.#leaders.has(0);
    // A Postgres that hangs would block the drainer for ever.
    await Promise.race([Promise.all(this.#loops.map((loop) => loop.stop())), pause(timeoutMs)]);
    const deadline = performance.now() + timeoutMs;
    const { holds, log } = this.#options;
    while (holds.unstored > 0 && performance.now() < deadline) await pause(50);
    if (holds.unstored > 0) log.error({ rows: holds.unstored }, "charges are lost: neither store took them");
    await holds.payOwed();
    const lookedBy = Math.min(deadline, performance.now() + LAST_LOOK_MS);
    for (let failure: unknown = null; ;) {
      try {
        // Its call to each shard notices a flush, and restores what was lost before it returns.
        await this.#leaders.resign(performance.now());
        await this.#drainer.drain();
        await this.watch();
      } catch (error) {
        failure = error;
      }
      if (holds.waitingBytes === 0 && ((await this.#lookLast()) || performance.now() >= lookedBy)) break;
      if (performance.now() >= deadline) {
        log.warn({ err: failure }, "the last charges stay in Redis for the next data plane");
        break;
      }
      await pause(50);
    }
  }

  /**
   * Call it at the very end, when this process changes no account any more: nobody else may write the changes since the last
   * look to Redis, as this may be the last data plane. @throws when a store is away.
   */
  async tellLast(): Promise<void> {
    if (this.#leadTelling) await this.#tellChangedSince(performance.now());
  }

  /**
   * Checks a last time which Postgres answers: it may have failed over a moment ago. Only drained charges are made again for
   * what the new one lost (`KeptCharges.takeDoubtful`), so this comes after the last drain.
   * @returns whether the ledger has all that this process charged.
   */
  async #lookLast(): Promise<boolean> {
    const looked = this.look().then(
      () => !this.#options.holds.charges.kept.doubtful,
      () => false,
    );
    return Promise.race([looked, pause(LAST_LOOK_MS).then(() => false)]);
  }

  /** Why this process must not be given requests, as far as its money is concerned. */
  get fault(): string | null {
    return this.#looked ? this.#options.holds.fault : "Redis has not been looked at yet";
  }

  /**
   * Looks at every shard, with one short read each: its epoch, what the ledger has of it, and its leader. A shard whose master
   * is away does not keep the others waiting. @throws for the first of those, at the end.
   */
  async watch(): Promise<void> {
    const { redis, holds } = this.#options;
    const runs = [...this.#servers];
    // A master that is cut off answers nothing: another may have its place long before the commands to it fail.
    const impatience = setInterval(() => lookForMasters(redis), IMPATIENT_MS);
    const looks = await Promise.allSettled(holds.shards.map(({ tag }, index) => this.#lookAt(tag, index)));
    clearInterval(impatience);
    const failed = looks.find((look) => look.status === "rejected");
    if (failed !== undefined) lookForMasters(redis);
    const others = new Set(this.#servers.flatMap((run, index) => (run === runs[index] ? [] : [index])));
    if (others.size > 0) this.#tellAgain(others);
    if (looks.every((look) => look.status === "rejected")) throw failed?.reason;
    this.#looked = true;
    const now = performance.now();
    if (this.#drainer.waitsFor(now) > STUCK_MS) await this.#leaders.resign(now);
    else await this.#leaders.claim(now);
    if (failed !== undefined) throw failed.reason;
  }

  /**
   * A server with another `run_id` was restarted, was a replica until now, or was given the shard's slot: writes that were
   * acknowledged may be missing though the epoch is there (design.md §5), so recent charges and running holds are made again.
   */
  async #lookAt(tag: string, index: number): Promise<void> {
    const { redis, holds } = this.#options;
    const keys = ["epoch", "drained", "leader", "waiting"].map((name) => `${tag}:${name}`);
    const [first = ""] = keys;
    const server = serverOf(redis, first);
    if (server === null) throw new Error(`the Redis master ${masterName(redis, first)} is away`);
    const run = await this.#runs.of(server);
    const before = this.#servers[index];
    this.#servers[index] = run;
    if (before !== "" && run !== before) holds.shards[index]?.lost();
    // Read from this very server: the stream of another one has other entries.
    const [epoch = null, drained = null, leader = null, waiting] = await server.mget(keys);
    holds.sawShard(index, epoch, this.#runs.knows(server) ? drained : null);
    this.#leaders.saw(index, leader, performance.now());
    metrics.usageLag.set({ shard: String(index) }, Number(waiting ?? 0));
  }

  /** Writes these shards' accounts again: other servers have them now, perhaps in old versions. */
  #tellAgain(shards: ReadonlySet<number>): void {
    for (const id of this.#told.keys()) if (shards.has(shardOf(id))) this.#told.delete(id);
    this.#toldAt = Number.NEGATIVE_INFINITY;
  }

  /** Checks which Postgres answers, and what that one has lost. @throws when a store is away. */
  async look(): Promise<void> {
    const { guard } = this.#options.holds;
    const before = guard.word;
    await guard.look();
    // Balances may differ although their versions are equal.
    if (guard.word !== before) {
      this.#told.clear();
      this.#toldAt = Number.NEGATIVE_INFINITY;
    }
  }

  #lookSoon(): void {
    this.look().catch((error: unknown) => {
      this.#options.log.warn({ err: error }, "could not compare Redis with the ledger");
    });
  }

  async #drainMine(): Promise<void> {
    try {
      await this.#drainer.drain((shard) => this.#leaders.has(shard));
    } catch (error) {
      // Postgres may answer others.
      if (error instanceof LedgerAway) await this.#leaders.resign(performance.now());
      throw error;
    }
  }

  /** Moves charged rows now; for tests and for reconcile's sake. */
  drain(): Promise<number> {
    return this.#drainer.drain();
  }

  /** Ends the holds of dead owners. */
  async sweep(isMine: (shard: number) => boolean = () => true): Promise<void> {
    const mine = this.#options.holds.shards.filter((_, index) => isMine(index));
    if (mine.length === 0) return;
    await Promise.all(mine.map((shard) => this.#sweepShard(shard)));
    reachedMoneyStep("sweep.done");
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

  /**
   * Writes changed accounts to Redis, in one pod for all shards; and later, however long that took, what changed while a store
   * was away or no pod did it.
   */
  async #tellChanged(): Promise<void> {
    const now = performance.now();
    if (!this.#leaders.has(0) || now < this.#toldAt + this.#rhythm.accountsMs) return;
    await this.#tellChangedSince(now);
  }

  async #tellChangedSince(now: number): Promise<void> {
    const backMs = this.#rhythm.lookBackMs + now - this.#toldAt;
    if (backMs > LOOK_BACK_MOST_MS) await this.#tellAll();
    else await this.#tell(await changedAccounts(this.#options.pool, backMs / 1_000));
    this.#toldAt = now;
  }

  /** Writes every account to Redis; a replica that was promoted may have an old version of any. */
  async #tellAll(): Promise<void> {
    let last = "";
    let failure: unknown = null;
    for (let size = PAGE; size === PAGE;) {
      const page = await pageAccounts(this.#options.pool, last, PAGE);
      // Other shards' masters may answer.
      await this.#tell(page).catch((error: unknown) => (failure ??= error));
      last = page.at(-1)?.organizationId ?? "";
      size = page.length;
    }
    if (failure !== null) throw failure;
  }

  async #tell(accounts: readonly KeyedAccount[]): Promise<void> {
    const { shards } = this.#options.holds;
    const news = accounts.filter(({ organizationId, version }) => this.#told.get(organizationId) !== version);
    await Promise.all(
      news.map(async (account) => {
        const shard = shards[shardOf(account.organizationId)];
        const known = accountOperation(account, account.keyEpoch.toString(), true);
        const [word] = (await shard?.run(known, SCRIPT_MS)) ?? [];
        if (word === "other") throw new Error("another Postgres answers than the one that Redis knows");
        this.#told.set(account.organizationId, account.version);
      }),
    );
  }
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
