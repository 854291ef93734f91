/**
 * Does to three data planes on real stores what an interleaving says, and keeps in mind what may have become of each
 * request; money-run-judge.ts judges what stands in the books.
 */
import { expect } from "vitest";
import { applyGrant, bumpKeyEpoch } from "../../dataplane/billing/ledger/accounts.ts";
import { decodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { chargeRows } from "../../dataplane/billing/ledger/charge.ts";
import { readScopeSpend } from "../../dataplane/billing/holds/scope-spend.ts";
import { drainedOperation, readEntries, scopesOf } from "../../dataplane/billing/holds/drain.ts";
import { shardOf, shardTag, type MeterOperation } from "../../dataplane/billing/holds/shard.ts";
import { usageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { allServers } from "../../dataplane/store/redis-servers.ts";
import { redisReady } from "../../dataplane/store/redis.ts";
import type { Action } from "./money-actions.ts";
import { Plane, makeOrganization, observed, request, usage } from "./money-world.ts";
import {
  judgeBooks,
  judgeOverdraft,
  judgeRefusal,
  type Known,
  type Refused,
  type RunBooks,
} from "./money-run-judge.ts";
import { RunLimits } from "./money-run-limits.ts";
import { stepClock } from "./redis-clock.ts";
import { rewriteFile, type TestStore } from "./stores.ts";

export interface RunStores {
  /** Few connections for many: an answer of the ledger may come too late for a request, which is then told 503. */
  readonly slow?: boolean;
  readonly redis: Pick<TestStore, "url" | "kill" | "start" | "save" | "rollBack"> & {
    /** Resolves when each replica follows its master. */
    readonly settled?: () => Promise<void>;
  };
  readonly postgres: Pick<TestStore, "url" | "save" | "rollBack">;
}

/** Happens while nothing else does. */
const ALONE: ReadonlySet<Action["do"]> = new Set([
  "crash",
  "flush",
  "restart",
  "rewrite",
  "cut off",
  "reconnect",
  "copy",
  "roll Postgres back",
  "swap Redis",
  "clock",
]);

/** A plane that is cut off cannot do its part; another does, or it later. */
function isAway(error: unknown): void {
  const names = ["RedisSilent", "ApiError", "LedgerAway"];
  if (
    error instanceof Error &&
    (names.includes(error.name) || /Connection is closed|Command timed out/.test(error.message))
  )
    return;
  throw error;
}

/** A store that came back may break a connection of before once more, or be slow. */
async function untilDone(act: () => Promise<unknown>): Promise<void> {
  await expect.poll(() => act().then(() => null, String), { timeout: 20_000 }).toBeNull();
}

/** One run: three data planes on the same stores, two organizations of one shard. */
export class Run {
  readonly #stores: RunStores;
  readonly #id: string;
  #planes: Plane[] = [];
  readonly #known: Known[] = [];
  /** Those that an action is at. */
  readonly #busy = new Set<Known>();
  /** What drainers have still to tell Redis, each of a shard. */
  readonly #begun: { readonly index: number; readonly operation: MeterOperation }[] = [];
  readonly #granted = [400n, 400n];
  readonly #names: readonly string[];
  #grants = 0;
  readonly #cutOff = new Set<Plane>();
  /** Of this moment. */
  #refused: Refused[] = [];
  /** Whether the stores come back older in this run, and have. */
  readonly #isRolledBack: boolean;
  #wasRolledBack = false;
  readonly #limits: RunLimits;

  constructor(stores: RunStores, id: string, actions: readonly Action[]) {
    this.#stores = stores;
    this.#isRolledBack = actions.some(
      ({ do: what }) => what === "roll Postgres back" || what === "swap Redis",
    );
    this.#id = id;
    this.#limits = new RunLimits(id);
    const names = Array.from({ length: 500 }, (_, index) => `org_${id}_${index}`);
    const second = names.find((name, index) => index > 0 && shardOf(name) === shardOf(names[0] ?? ""));
    this.#names = [names[0] ?? "", second ?? ""];
  }

  async begin(): Promise<void> {
    this.#planes = await Promise.all([this.#open(), this.#open(), this.#open()]);
    // A replica that does not hear of the flush would bring back organizations of earlier runs when it becomes the master.
    await this.#stores.redis.settled?.();
    await this.#at(0).flush();
    for (const organization of [0, 1]) await makeOrganization(this.#pool, this.#name(organization), 400n);
    for (const { upkeep } of this.#planes) await upkeep.look();
    await this.#copy();
  }

  #open = () => {
    const { redis, postgres } = this.#stores;
    const stores = { redisUrl: redis.url, postgresUrl: postgres.url };
    return Plane.open(stores, {
      running: false,
      waitMs: 1,
      rhythm: { staleMs: -1 },
      recheckKey: async (keyId) => this.#limits.keyNow(keyId),
      limitsOf: async (keyId, projectId) => this.#limits.limitsOf(keyId, projectId),
    });
  };

  async #changeLimits(organization: number, variant: number): Promise<void> {
    // A ledger that comes back older knows nothing of it.
    if (this.#isRolledBack) return;
    const id = this.#name(organization);
    this.#limits.change(organization, variant);
    await this.#pool.transaction((transaction) => bumpKeyEpoch(transaction, id));
    await this.#at(0).holds.refresh([id]).catch(isAway);
  }
  #name = (organization: number) => this.#names[organization] ?? "";
  /** Of the shard that both organizations are in. */
  get #tag() {
    return shardTag(shardOf(this.#name(0)));
  }
  get #pool() {
    return this.#at(0).pool;
  }
  #at(index: number): Plane {
    const found = this.#planes[index];
    if (found === undefined) throw new Error("no such plane");
    return found;
  }

  /** What happens at once goes to Redis in one call, as far as one plane does it. A crash or a loss happens alone. */
  async takeAtOnce(actions: readonly Action[]): Promise<void> {
    const alone = (action: Action) => ALONE.has(action.do);
    const granted = [...this.#granted];
    this.#refused = [];
    const outcomes = await Promise.allSettled(
      actions.filter((action) => !alone(action)).map((action) => this.#take(action)),
    );
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
    // What a sweep met was perhaps what a heartbeat of the same moment had told.
    if (actions.some((action) => action.do === "sweep")) this.#mayBeSwept();
    // What a ledger that comes back older has lost counts as spent.
    if (!this.#isRolledBack)
      for (const refused of this.#refused) judgeRefusal({ ...this.#books, granted }, refused);
    for (const action of actions.filter(alone)) await this.#take(action);
  }

  #mayBeSwept(): void {
    for (const known of this.#known) {
      if (known.state === "running") for (const spent of known.seen) known.may.add(spent);
    }
  }

  async #take(action: Action): Promise<void> {
    switch (action.do) {
      case "open":
        return await this.#openBill(action.plane, action.organization, action.estimate);
      case "grant": {
        this.#grants += 1;
        const [organizationId, amount] = [this.#name(action.organization), BigInt(action.amount)];
        const name = `grant-${this.#grants}`;
        await this.#pool.transaction((transaction) =>
          applyGrant(transaction, { organizationId, name, amount, source: "command" }),
        );
        this.#granted[action.organization] = (this.#granted[action.organization] ?? 0n) + amount;
        // What a ledger loses of grants is not its charges' fault: none is lost here.
        if (this.#isRolledBack) await this.#stores.postgres.save();
        return await this.#at(0).holds.refresh([organizationId]).catch(isAway);
      }
      case "limits":
        return await this.#changeLimits(action.organization, action.variant);
      case "drain":
        return void (await this.#at(action.plane).upkeep.drain().catch(isAway));
      case "half drain":
        return await this.#beginDrain(this.#at(action.plane)).catch(isAway);
      case "finish drain":
        return await this.#finishDrain();
      case "sweep":
        this.#mayBeSwept();
        return await this.#at(action.plane).upkeep.sweep().catch(isAway);
      case "crash":
        return await this.#crash(action.plane);
      case "flush":
        return await this.#flush();
      case "restart":
        return await this.#restart();
      case "rewrite":
        // A server that was just promoted may take longer for it than a data plane waits for a command.
        await Promise.all(
          allServers(this.#connected().redis).map((one) => untilDone(() => rewriteFile(one))),
        );
        return;
      case "cut off":
        // The other stays, as somebody has to see what happens to the stores.
        if (this.#cutOff.size > 0) return;
        this.#cutOff.add(this.#at(action.plane));
        this.#at(action.plane).redis.disconnect();
        return await expect.poll(() => this.#at(action.plane).redis.status).toBe("end");
      case "reconnect":
        return await this.#reconnect(this.#at(action.plane));
      case "copy":
        return await this.#copy();
      case "roll Postgres back":
        return await this.#rollBack();
      case "swap Redis":
        return await this.#swap();
      case "clock":
        await Promise.all(
          allServers(this.#connected().redis).map((one) => stepClock(one, action.hours * 3_600_000)),
        );
        return;
      case "advance":
      case "spend":
      case "beat":
      case "settle":
      case "release":
        return await this.#takeBill(action);
    }
  }

  async #openBill(index: number, organization: number, estimate: number): Promise<void> {
    const keyId = this.#limits.keyId(organization, estimate % 2);
    const { keyEpoch, limits, projectId } = this.#limits.keyNow(keyId);
    // Half of them now, the others at the ends of windows.
    const { moments } = this.#limits;
    const acceptedAt = moments[Math.max(0, ((estimate >> 1) % 6) - 2)] ?? Date.now();
    const key = { keyId, projectId, keyEpoch, limits, limitsEpoch: keyEpoch };
    const asked = request(this.#name(organization), { ...key, acceptedAt });
    try {
      const opened = await this.#at(index).holds.open(asked, BigInt(estimate));
      this.#known.push({
        bill: opened,
        // As it was admitted: its key may have been looked up again.
        request: opened.request,
        plane: index,
        estimate,
        limit: estimate,
        spent: 0,
        seen: new Set(),
        state: "running",
        may: new Set(),
        isOwnerDead: false,
        isForgotten: false,
        isLost: false,
      });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const late = this.#stores.slow === true || this.#cutOff.has(this.#at(index));
      const away = late ? ["unavailable"] : [];
      const refusals = ["insufficient_credit", "rate_limited", "key_limit_reached", "project_limit_reached"];
      expect([...refusals, ...away]).toContain(error.code);
      this.#refused.push({ organization, keyId, acceptedAt, code: error.code ?? "", limits });
    }
  }

  async #takeBill(action: Extract<Action, { readonly bill: number }>): Promise<void> {
    const running = this.#known.filter((known) => known.state === "running" && !this.#busy.has(known));
    const known = running[action.bill % Math.max(1, running.length)];
    if (known === undefined) return;
    this.#busy.add(known);
    await this.#takeThisBill(known, action);
    this.#busy.delete(known);
  }

  async #takeThisBill(known: Known, action: Extract<Action, { readonly bill: number }>): Promise<void> {
    if (action.do === "release") {
      // What was seen is charged, so only a request without anything seen is ever released.
      if (known.spent > 0) return;
      await known.bill.release();
      known.state = "released";
      known.may.add(null);
      return;
    }
    const cost = known.spent + Math.floor(((known.limit - known.spent) * action.share) / 100);
    if (action.do === "beat") {
      known.bill.observe(observed(cost));
      await this.#at(known.plane).holds.heartbeat();
      known.spent = cost;
      known.seen.add(cost);
    } else if (action.do === "advance") {
      if (await known.bill.advance(observed(cost), BigInt(action.next))) known.limit = cost + action.next;
      else known.limit = cost;
      known.spent = cost;
      known.seen.add(cost);
    } else if (action.do === "spend") {
      const left = await known.bill.spend(observed(cost), BigInt(action.next));
      known.limit = left > 0n ? Math.max(known.limit, cost + action.next) : cost;
      known.spent = cost;
      known.seen.add(cost);
    } else {
      await this.#settle(known, cost, action.way);
    }
  }

  async #settle(known: Known, cost: number, way: "redis" | "ledger" | "both"): Promise<void> {
    const row = usageRow(known.request, usage(cost));
    const owner = this.#at(known.plane);
    if (way !== "redis") {
      // As when Redis is silent, or answers after all when the ledger has the row already.
      owner.holds.charges.elsewhere(known.bill, row);
      const accounts = await owner.pool.transaction((transaction) => chargeRows(transaction, [row]));
      if (way === "both") await known.bill.settle(usage(cost));
      owner.holds.charges.stored([row], accounts);
      await owner.holds.payOwed();
    } else {
      await known.bill.settle(usage(cost));
    }
    known.state = "settled";
    known.may = new Set([cost]);
  }

  async #beginDrain({ holds, redis: connection, pool }: Plane): Promise<void> {
    await Promise.all(
      holds.shards.map(async (shard, index) => {
        const entries = await readEntries(connection, shard);
        const rows = entries.flatMap(({ charges }) => charges.map(({ text }) => decodeRow(text)));
        const accounts = await pool.transaction((transaction) => chargeRows(transaction, rows));
        const spends = await readScopeSpend(pool, scopesOf(entries));
        if (entries.length > 0)
          this.#begun.push({ index, operation: drainedOperation(accounts, entries, spends) });
      }),
    );
  }

  async #finishDrain(): Promise<void> {
    const begun = this.#begun.splice(0);
    const { holds } = this.#connected();
    await Promise.all(
      begun.map(async ({ index, operation }) => await holds.shards[index]?.run(operation, 1_000)),
    );
  }

  async #crash(index: number): Promise<void> {
    // What it charged is in Redis; this test does not flush Redis in the same moment.
    await this.#reconnect(this.#at(index));
    await this.#at(index).upkeep.drain();
    for (const known of this.#known) {
      if (known.plane !== index || known.state !== "running") continue;
      known.state = "orphaned";
      for (const spent of [null, known.spent, ...known.seen]) known.may.add(spent);
    }
    for (const known of this.#settled())
      if (known.plane === index) {
        known.isOwnerDead = true;
        // Redis knows the sum, or the rows again when it comes back older: its own row may be gone.
        if (this.#isRolledBack) known.may.add(null);
      }
    await this.#at(index).vanish();
    this.#planes[index] = await this.#open();
  }

  #settled(): Known[] {
    return this.#known.filter(({ state }) => state === "settled");
  }

  async #flush(): Promise<void> {
    await this.#connected().flush();
    for (const known of this.#settled()) known.isForgotten = true;
    // Each plane notices with its next call, here a sweep, which meets what was held again.
    this.#mayBeSwept();
    for (const { upkeep } of this.#planes) await upkeep.sweep().catch(isAway);
  }

  /** A plane that reaches Redis. */
  #connected(): Plane {
    const plane = this.#planes.find((one) => !this.#cutOff.has(one));
    if (plane === undefined) throw new ApiError("unavailable", "every plane is cut off");
    return plane;
  }

  async #reconnect(plane: Plane): Promise<void> {
    if (!this.#cutOff.delete(plane)) return;
    await plane.redis.connect();
    await untilDone(() => plane.upkeep.watch());
    await plane.holds.payOwed();
  }

  async #reconnectAll(): Promise<void> {
    for (const plane of this.#planes) await this.#reconnect(plane);
  }

  async #copy(): Promise<void> {
    if (!this.#isRolledBack) return;
    await this.#stores.postgres.save();
    await this.#stores.redis.save();
  }

  /** As in a failover to a replica that had not heard of the rest. Each plane notices within two seconds. */
  async #rollBack(): Promise<void> {
    await this.#reconnectAll();
    this.#wasRolledBack = true;
    await this.#stores.postgres.rollBack();
    for (const { upkeep } of this.#planes) await untilDone(() => upkeep.look());
    for (const known of this.#settled()) known.isLost ||= known.isOwnerDead && known.isForgotten;
  }

  async #swap(): Promise<void> {
    await this.#reconnectAll();
    await this.#stores.redis.rollBack();
    for (const known of this.#settled()) known.isForgotten = true;
    await Promise.all(this.#planes.map((one) => redisReady(one.redis, 10_000)));
    this.#mayBeSwept();
    for (const { upkeep } of this.#planes) await untilDone(() => upkeep.watch());
    for (const { upkeep } of this.#planes) await untilDone(() => upkeep.sweep());
  }

  async #restart(): Promise<void> {
    const { redis } = this.#stores;
    await redis.kill();
    await redis.start();
    const connected = this.#planes.filter((one) => !this.#cutOff.has(one));
    await Promise.all(connected.map((one) => redisReady(one.redis, 5_000)));
    this.#mayBeSwept();
    for (const { upkeep } of connected) await untilDone(() => upkeep.sweep());
  }

  /** Everybody ends; the dead are swept; what was charged reaches the ledger. */
  async end(): Promise<void> {
    await this.#reconnectAll();
    for (const known of this.#known) {
      if (known.state === "running") await this.#settle(known, known.limit, "redis");
    }
    // Where Redis forgot the shard's clock after that had been put forward, a hold is of a later time than now for a while.
    const running = async () => {
      await this.#at(0).upkeep.sweep();
      return await this.#at(0).redis.zcard(`${this.#tag}:beats`);
    };
    await expect.poll(running, { timeout: 20_000 }).toBe(0);
    // A drain may find that another Postgres answers, and a look what is to be drained again.
    const waiting = async () => {
      for (const { holds, upkeep } of this.#planes) {
        await holds.payOwed();
        await upkeep.drain().catch(isAway);
        await upkeep.watch();
      }
      for (const { upkeep } of this.#planes) await upkeep.look();
      return await this.#at(0).redis.xlen(`${this.#tag}:usage`);
    };
    await expect.poll(waiting, { timeout: 20_000 }).toBe(0);
    // Each makes its part of what was lost again.
    for (const { upkeep } of this.#planes) await upkeep.look();
    await this.#at(0).holds.refresh([this.#name(0), this.#name(1)]);
  }

  /** What the judges look at, as it is now. */
  get #books(): RunBooks {
    return {
      id: this.#id,
      known: this.#known,
      names: this.#names,
      granted: this.#granted,
      limits: this.#limits,
      wasRolledBack: this.#wasRolledBack,
      plane: this.#at(0),
    };
  }

  async judge(): Promise<void> {
    await judgeBooks(this.#books);
  }

  judgeOverdraft(): void {
    judgeOverdraft(this.#books);
  }

  async close(): Promise<void> {
    for (const one of this.#planes) await one.vanish();
  }
}
