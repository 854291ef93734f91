/**
 * The meter of live requests: holds and charges in Redis, one script call for whatever gathers (design.md §5).
 * The scripts are store/meter-*.lua; how rows come from there into the ledger: drain.ts; what keeps holds alive
 * and accounts fresh: upkeep.ts; every crash between two writes: docs/decisions/money.md.
 */
import type { Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import type { OrganizationEntry } from "../config/schema.ts";
import { ApiError } from "../lib/api-error.ts";
import type { Clock } from "../lib/clock.ts";
import { metrics } from "../telemetry/metrics.ts";
import { Admission } from "./admission.ts";
import { MAX_MICROS } from "./credits.ts";
import { LedgerWriter } from "./ledger-writer.ts";
import { readAccounts, readGranted, type Account } from "./ledger.ts";
import type { Bill, FinalUsage, Meter, MeteredRequest, Micros, Observed } from "./meter.ts";
import { costMicros } from "./price.ts";
import {
  creditEmpty,
  creditReserved,
  limitReached,
  meterUnavailable,
  rateLimitHeaders,
  tooManyAtOnce,
  type LimitState,
} from "./rate-limits.ts";
import { RedisSilent, SHARDS, Shard, shardOf, type Operation, type Reply } from "./shard.ts";
import { reached } from "./steps.ts";
import { allTokens, encodeRow, usageRow, type UsageRow } from "./usage-row.ts";

/** Redis has this long for one operation; then a charge goes straight to the ledger. */
const REDIS_MS = 1_000;
/** The end of an answer is withheld at most this long while neither store takes its charge. */
const WITHHELD_MS = 10_000;
/** Charges of the last minute are made again when Redis loses them. */
const KEPT_MS = 60_000;
const KEPT_ROWS_PER_SHARD = 10_000;
/** Operations that nobody waits for, kept until Redis takes them. */
const MOST_OWED = 20_000;
/** An account found empty is asked for in the ledger at most so often. */
const RECHECK_MS = 1_000;

type RateLimits = OrganizationEntry["rateLimits"];
const noLimits: RateLimits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };

export interface HoldsOptions {
  readonly redis: Redis;
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** A word that no other epoch of a shard has. */
  readonly newEpoch: () => string;
  /** The organization's limits by the snapshot of now. */
  readonly limits: (organizationId: string) => RateLimits | undefined;
  /** The present key epoch when the key is still valid, else null (`KeyDirectory.recheck`). */
  readonly recheckKey: (keyId: string) => Promise<number | null>;
  /** How long a request waits for credit that others hold; 2 s unless a test is in a hurry. */
  readonly waitMs?: number;
}

/** An organization's credit, all but `available` exact sums of the ledger and of what is on its way there. */
export interface Credit {
  readonly granted: Micros;
  readonly used: Micros;
  readonly held: Micros;
  /** What a new request could hold; not below zero. */
  readonly available: Micros;
}

export class Holds implements Meter {
  readonly #options: HoldsOptions;
  readonly #shards: readonly Shard[];
  readonly #admission: Admission;
  readonly #writer: LedgerWriter;
  /** Running requests by id. */
  readonly #running = new Map<string, HeldBill>();
  /** Charges of the last minute, oldest first, for each shard. */
  readonly #charged: { readonly at: number; readonly operation: Operation }[][];
  #owed: { readonly shard: Shard; readonly operation: Operation }[] = [];
  /** When an account was last read because it seemed empty. */
  readonly #rechecked = new LRUCache<string, true>({ max: 10_000, ttl: RECHECK_MS });
  readonly #loading = new Map<string, Promise<void>>();

  constructor(options: HoldsOptions) {
    this.#options = options;
    this.#admission = new Admission(options.waitMs);
    const onLost = (shard: number) => this.#lostOperations(shard);
    this.#shards = Array.from(
      { length: SHARDS },
      (_, index) => new Shard({ redis: options.redis, index, newEpoch: options.newEpoch, onLost }),
    );
    this.#charged = this.#shards.map(() => []);
    this.#writer = new LedgerWriter({
      pool: options.pool,
      log: options.log,
      settleInRedis: (row) => this.#settleOnce(row),
      onStored: (rows, accounts) => this.ledgerCharged(rows, accounts),
    });
  }

  async open(request: MeteredRequest, estimate: Micros): Promise<Bill> {
    if (this.#writer.full) throw meterUnavailable();
    const bill = new HeldBill(this, request, this.#limitsOf(request));
    const wanted = estimate > MAX_MICROS ? MAX_MICROS : estimate;
    reached("open.sent");
    const reply = await this.#admission.admit(request.organizationId, () => this.#tryHold(bill, wanted));
    this.#admitted(bill, reply);
    this.#running.set(request.id, bill);
    metrics.holds.set(this.#running.size);
    reached("open.held");
    return bill;
  }

  /**
   * A meter for one batch item: the same holds, but `settle` only hands the row to `onRow`. Whoever runs the batch
   * stores the result, `chargeRows` and its own state in one transaction and then calls `ledgerCharged`. An item
   * that dies before that leaves nothing but a hold, which the sweeper gives back.
   */
  forItem(onRow: (row: UsageRow) => void): Meter {
    return {
      open: async (request, estimate) => {
        const bill = await this.open({ ...request, keyEpoch: null }, estimate);
        const settle = async (usage: FinalUsage) => onRow(usageRow(request, usage));
        return {
          headers: bill.headers,
          observe: (observed) => bill.observe(observed),
          advance: (spent, next) => bill.advance(spent, next),
          release: () => bill.release(),
          settle,
        };
      },
    };
  }

  /** The ledger charged these rows by itself: gives their holds back under the new balances. Never fails. */
  ledgerCharged(rows: readonly UsageRow[], accounts: readonly Account[]): void {
    for (const account of accounts) {
      this.#owe(account.organizationId, accountOperation(account, "", false));
    }
    for (const row of rows) {
      const bill = this.#running.get(row.id);
      const correction = bill?.correction(allTokens(row.tokens)) ?? ["0", "0", "0"];
      this.#ended(row.id, row.organizationId);
      this.#owe(row.organizationId, ["release", row.organizationId, row.id, ...correction, "1"]);
      // Rows that went around Redis are counted here, those through it where they are settled.
      countCharge(row);
    }
  }

  /** Reads these accounts and key epochs from the ledger again, and resolves when Redis has them. */
  async refresh(organizationIds: readonly string[]): Promise<void> {
    const accounts = await readAccounts(this.#options.pool, organizationIds);
    await Promise.all(
      accounts.map((account) =>
        this.#shard(account.organizationId).run(
          accountOperation(account, account.keyEpoch.toString(), false),
          REDIS_MS,
        ),
      ),
    );
  }

  /** What `GET /v1/organization/credits` shows (rule 5.18). @throws ApiError 503. */
  async credit(organizationId: string): Promise<Credit> {
    const granted = await readGranted(this.#options.pool, organizationId);
    let reply = await this.#run(organizationId, ["balance", organizationId]);
    if (reply[0] === "load") {
      await this.#load(organizationId);
      reply = await this.#run(organizationId, ["balance", organizationId]);
    }
    const [, undrained = "0", held = "0", base = "0"] = reply;
    const balance = BigInt(base) - BigInt(undrained);
    const available = balance - BigInt(held);
    return {
      granted,
      used: granted - balance,
      held: BigInt(held),
      available: available > 0n ? available : 0n,
    };
  }

  /** Requests of this process that hold credit. */
  get running(): number {
    return this.#running.size;
  }

  /** Charges that neither store has taken yet. */
  get homeless(): number {
    return this.#writer.size;
  }

  get shards(): readonly Shard[] {
    return this.#shards;
  }

  /** Redis may have lost writes, though its epochs are there: another server answers, or it was restarted. */
  lost(): void {
    for (const shard of this.#shards) shard.lost();
  }

  /** Tells Redis that the running requests live, and what they have seen. Never fails. */
  async heartbeat(): Promise<void> {
    await Promise.all([...this.#running.values()].map((bill) => this.#beat(bill)));
  }

  /** Hands over what Redis did not take before. Never fails. */
  async payOwed(): Promise<void> {
    const owed = this.#owed;
    this.#owed = [];
    await Promise.all(
      owed.map(async (debt) => {
        try {
          await debt.shard.run(debt.operation, REDIS_MS);
        } catch {
          if (this.#owed.length < MOST_OWED) this.#owed.push(debt);
        }
      }),
    );
  }

  // What a HeldBill asks of its meter.

  async advance(bill: HeldBill, spent: Micros, next: Micros, row: UsageRow): Promise<boolean> {
    const { organizationId, id } = bill.request;
    const wanted = spent + next;
    const operation: Operation = [
      "advance",
      organizationId,
      id,
      spent.toString(),
      (wanted > MAX_MICROS ? MAX_MICROS : wanted).toString(),
      bill.item,
      encodeRow(row),
      row.cost.total.toString(),
    ];
    try {
      let reply = await this.#run(organizationId, operation);
      if (reply[0] === "load") {
        await this.#load(organizationId);
        reply = await this.#run(organizationId, operation);
      }
      const covered = reply[0] === "held";
      bill.amount = covered ? wanted : spent;
      reached("advance.held");
      return covered;
    } catch (error) {
      // Without Redis nobody knows what the credit covers: the loop ends with what it has.
      this.#options.log.warn({ err: error, requestId: id }, "an iteration could not be held");
      return false;
    }
  }

  async settle(bill: HeldBill, row: UsageRow): Promise<void> {
    const operation = settleOperation(row, bill.correction(allTokens(row.tokens)));
    reached("settle.sent");
    if (!(await this.#chargeInRedis(row, operation))) await this.#chargeInLedger(bill, row);
    reached("settle.charged");
  }

  async release(bill: HeldBill): Promise<void> {
    const { organizationId, id } = bill.request;
    this.#ended(id, organizationId);
    await this.#settleDebt(organizationId, ["release", organizationId, id, ...bill.correction(0), "0"]);
  }

  // Charging.

  async #chargeInRedis(row: UsageRow, operation: Operation): Promise<boolean> {
    const deadline = performance.now() + REDIS_MS;
    for (let left = REDIS_MS; left > 0; left = deadline - performance.now()) {
      try {
        await this.#shard(row.organizationId).run(operation, left);
        this.#chargedInRedis(row, operation);
        return true;
      } catch (error) {
        if (!(error instanceof RedisSilent))
          this.#options.log.error({ err: error }, "the meter script failed");
        // A broken connection fails at once; it is tried again until the time is up.
        await new Promise((done) => setTimeout(done, 50));
      }
    }
    return false;
  }

  #chargedInRedis(row: UsageRow, operation: Operation): void {
    this.#keep(shardOf(row.organizationId), operation);
    this.#ended(row.id, row.organizationId);
    countCharge(row);
  }

  /** One try for a row that Redis did not take in time. */
  async #settleOnce(row: UsageRow): Promise<boolean> {
    const correction = this.#running.get(row.id)?.correction(allTokens(row.tokens)) ?? ["0", "0", "0"];
    const operation = settleOperation(row, correction);
    try {
      await this.#shard(row.organizationId).run(operation, REDIS_MS);
    } catch {
      return false;
    }
    this.#chargedInRedis(row, operation);
    return true;
  }

  async #chargeInLedger(bill: HeldBill, row: UsageRow): Promise<void> {
    this.#options.log.warn(
      { requestId: bill.request.id },
      "Redis did not take a charge: writing it to the ledger",
    );
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<"late">((resolve) => {
      timer = setTimeout(() => resolve("late"), WITHHELD_MS - REDIS_MS);
    });
    const outcome = await Promise.race([this.#writer.store(row), late]);
    clearTimeout(timer);
    if (outcome === "late") {
      // Not to be retried: the charge is kept, and made as soon as a store is back.
      throw new ApiError("unavailable", "The end of this answer could not be recorded.", { retry: false });
    }
  }

  /** Remembers a charge for a minute, to make it again when Redis loses it. */
  #keep(shard: number, operation: Operation): void {
    const kept = this.#charged[shard] ?? [];
    const now = performance.now();
    kept.push({ at: now, operation });
    // Cut in larger steps, so that a charge does not move the whole list.
    const old = kept.findIndex(({ at }) => at > now - KEPT_MS);
    if (old > 500) kept.splice(0, old);
    else if (kept.length > KEPT_ROWS_PER_SHARD) kept.splice(0, 1_000);
  }

  #lostOperations(shard: number): Operation[] {
    const since = performance.now() - KEPT_MS;
    const charges = (this.#charged[shard] ?? [])
      .filter(({ at }) => at > since)
      .map(({ operation }) => operation);
    const holds = [...this.#running.values()]
      .filter(({ request }) => shardOf(request.organizationId) === shard)
      .map((bill) => bill.retake());
    return [...charges, ...holds];
  }

  // Admission.

  async #tryHold(bill: HeldBill, estimate: Micros): Promise<Reply> {
    const { organizationId, id, keyId } = bill.request;
    for (let attempt = 0; attempt < 6; attempt += 1) {
      const reply = await this.#hold(bill, estimate);
      switch (reply[0]) {
        case "load":
          await this.#load(organizationId);
          break;
        case "key": {
          const keyEpoch = await this.#recheckKey(keyId);
          if (keyEpoch === null) throw new ApiError("authentication", "invalid x-api-key");
          bill.keyEpoch = keyEpoch;
          break;
        }
        case "empty":
          // A grant may have come that Redis has not heard of: 402 is said only on the ledger's word.
          if (this.#rechecked.has(organizationId)) return reply;
          this.#rechecked.set(organizationId, true);
          await this.#load(organizationId);
          break;
        default:
          return reply;
      }
    }
    this.#options.log.error({ requestId: id, organizationId }, "the hold of a request does not come to rest");
    throw meterUnavailable();
  }

  async #hold(bill: HeldBill, estimate: Micros): Promise<Reply> {
    const { organizationId, id } = bill.request;
    const { concurrentRequests, requestsPerMinute, tokensPerMinute } = bill.limits;
    try {
      return await this.#shard(organizationId).run(
        [
          "hold",
          organizationId,
          id,
          estimate.toString(),
          bill.keyEpoch === null ? "" : String(bill.keyEpoch),
          bill.item,
          String(concurrentRequests ?? 0),
          String(requestsPerMinute ?? 0),
          String(tokensPerMinute ?? 0),
          String(bill.tokensTaken),
        ],
        REDIS_MS,
      );
    } catch (error) {
      // It may have been made all the same.
      this.#owe(organizationId, ["release", organizationId, id, ...bill.correction(0), "0"]);
      throw meterUnavailable(error);
    }
  }

  /** @throws ApiError unless the request may run. */
  #admitted(bill: HeldBill, reply: Reply): void {
    const { request, limits } = bill;
    switch (reply[0]) {
      case "held":
        bill.amount = BigInt(reply[1] ?? "0");
        bill.headers = this.#headers(bill, reply.slice(2));
        return;
      case "empty":
        throw creditEmpty();
      case "busy":
        throw creditReserved();
      case "concurrent":
        throw tooManyAtOnce(limits.concurrentRequests ?? 0);
      case "limited": {
        const kind = reply[1] === "tokens" ? "tokens" : "requests";
        const limit = (kind === "tokens" ? limits.tokensPerMinute : limits.requestsPerMinute) ?? 0;
        throw limitReached(kind, limit, Number(reply[2]), this.#headers(bill, reply.slice(3)));
      }
      case "full":
        throw meterUnavailable();
      default:
        // `done`: ids are random, so only a bug of ours charges one twice.
        throw new ApiError("internal", "This request was answered already.", {
          cause: new Error(`hold of ${request.id}: ${reply[0]}`),
        });
    }
  }

  #headers(bill: HeldBill, [requestsLeft, requestsMs, tokensLeft, tokensMs]: Reply): Record<string, string> {
    const { requestsPerMinute, tokensPerMinute } = bill.limits;
    const states: LimitState[] = [];
    if (requestsPerMinute !== null) {
      const remaining = Number(requestsLeft);
      states.push({ kind: "requests", limit: requestsPerMinute, remaining, fullInMs: Number(requestsMs) });
    }
    if (tokensPerMinute !== null) {
      const remaining = Number(tokensLeft);
      states.push({ kind: "tokens", limit: tokensPerMinute, remaining, fullInMs: Number(tokensMs) });
    }
    return rateLimitHeaders(bill.request.endpoint, states, this.#options.clock.now());
  }

  /** Batch items are paced by their workers, not by limits made for people who wait. */
  #limitsOf(request: MeteredRequest): RateLimits {
    if (request.endpoint === "batch") return noLimits;
    return this.#options.limits(request.organizationId) ?? noLimits;
  }

  async #recheckKey(keyId: string): Promise<number | null> {
    try {
      return await this.#options.recheckKey(keyId);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  /** Brings the ledger's account to Redis, once for all who ask at the same time. @throws ApiError 503. */
  #load(organizationId: string): Promise<void> {
    const under = this.#loading.get(organizationId);
    if (under !== undefined) return under;
    const loading = this.refresh([organizationId])
      .catch((error: unknown) => {
        throw meterUnavailable(error);
      })
      .finally(() => this.#loading.delete(organizationId));
    this.#loading.set(organizationId, loading);
    return loading;
  }

  // Keeping holds.

  async #beat(bill: HeldBill): Promise<void> {
    const { organizationId, id } = bill.request;
    const seen = bill.unsaid();
    try {
      const row = seen === null ? "" : encodeRow(seen);
      const cost = seen === null ? "0" : seen.cost.total.toString();
      const reply = await this.#shard(organizationId).run(["heartbeat", id, row, cost], REDIS_MS);
      if (reply[0] === "gone" && this.#running.has(id)) await this.#run(organizationId, bill.retake());
    } catch {
      // Said again with the next beat.
      bill.forgetSaid();
    }
  }

  #ended(id: string, organizationId: string): void {
    if (this.#running.delete(id)) metrics.holds.set(this.#running.size);
    this.#admission.freed(organizationId);
  }

  async #settleDebt(organizationId: string, operation: Operation): Promise<void> {
    try {
      await this.#shard(organizationId).run(operation, REDIS_MS);
    } catch {
      this.#owe(organizationId, operation);
    }
    this.#admission.freed(organizationId);
  }

  /** For operations that nobody waits for: sent now, and again (`payOwed`) until Redis takes them. */
  #owe(organizationId: string, operation: Operation): void {
    const shard = this.#shard(organizationId);
    shard.run(operation, REDIS_MS).then(
      () => this.#admission.freed(organizationId),
      () => {
        if (this.#owed.length < MOST_OWED) this.#owed.push({ shard, operation });
      },
    );
  }

  async #run(organizationId: string, operation: Operation): Promise<Reply> {
    try {
      return await this.#shard(organizationId).run(operation, REDIS_MS);
    } catch (error) {
      throw meterUnavailable(error);
    }
  }

  #shard(organizationId: string): Shard {
    const shard = this.#shards[shardOf(organizationId)];
    if (shard === undefined) throw new RangeError("no such shard");
    return shard;
  }
}

/** The arguments that correct the organization's token bucket by what was really used. */
type Correction = readonly [requestsLimit: string, tokensLimit: string, difference: string];

class HeldBill implements Bill {
  readonly request: MeteredRequest;
  readonly limits: RateLimits;
  /** "1" for a batch item: the sweeper gives its hold back instead of charging it, as it will run again. */
  readonly item: "0" | "1";
  readonly tokensTaken: number;
  headers: Readonly<Record<string, string>> = {};
  keyEpoch: number | null;
  /** What is held now. */
  amount: Micros = 0n;
  readonly #holds: Holds;
  #iterations = 1;
  #seen: Observed | null = null;
  #said: Observed | null = null;
  #end: Promise<void> | null = null;

  constructor(holds: Holds, request: MeteredRequest, limits: RateLimits) {
    this.#holds = holds;
    this.request = request;
    this.limits = limits;
    this.item = request.endpoint === "batch" ? "1" : "0";
    this.keyEpoch = request.keyEpoch;
    this.tokensTaken = limits.tokensPerMinute === null ? 0 : Math.ceil(Math.max(0, request.inputTokens));
  }

  observe(observed: Observed): void {
    this.#seen = observed;
  }

  advance(spent: Observed, nextEstimate: Micros): Promise<boolean> {
    this.#iterations += 1;
    this.#seen = spent;
    this.#said = spent;
    const cost = costMicros(this.request.prices, spent.tokens, spent.tools).total;
    return this.#holds.advance(this, cost, nextEstimate, this.#provisional(spent));
  }

  settle(usage: FinalUsage): Promise<void> {
    this.#end ??= this.#holds.settle(this, usageRow(this.request, usage));
    return this.#end;
  }

  release(): Promise<void> {
    this.#end ??= this.#holds.release(this);
    return this.#end;
  }

  /** What was seen and Redis does not know yet; null: nothing new. */
  unsaid(): UsageRow | null {
    const seen = this.#seen;
    if (seen === null || seen === this.#said) return null;
    this.#said = seen;
    return isNothing(seen) ? null : this.#provisional(seen);
  }

  forgetSaid(): void {
    this.#said = null;
  }

  retake(): Operation {
    const { organizationId, id } = this.request;
    const row = this.#seen === null || isNothing(this.#seen) ? null : this.#provisional(this.#seen);
    return [
      "retake",
      organizationId,
      id,
      this.amount.toString(),
      this.item,
      row === null ? "" : encodeRow(row),
      row === null ? "0" : row.cost.total.toString(),
    ];
  }

  correction(tokensUsed: number): Correction {
    const { requestsPerMinute, tokensPerMinute } = this.limits;
    const difference = tokensPerMinute === null ? 0 : tokensUsed - this.tokensTaken;
    return [String(requestsPerMinute ?? 0), String(tokensPerMinute ?? 0), String(difference)];
  }

  #provisional(seen: Observed): UsageRow {
    const usage: FinalUsage = { ...seen, status: "error", iterations: this.#iterations, upstream: null };
    return usageRow(this.request, usage, true);
  }
}

function isNothing({ tokens, tools }: Observed): boolean {
  const counters = [...Object.values(tokens), ...Object.values(tools)] as number[];
  return counters.every((counter) => !(counter > 0));
}

const settleOperation = (row: UsageRow, correction: Correction): Operation => [
  "settle",
  row.organizationId,
  row.id,
  row.cost.total.toString(),
  encodeRow(row),
  ...correction,
];

export const accountOperation = (account: Account, keyEpoch: string, onlyKnown: boolean): Operation => [
  "account",
  account.organizationId,
  account.balance.toString(),
  account.version.toString(),
  keyEpoch,
  onlyKnown ? "1" : "0",
];

/** Rule 1.15. */
function countCharge({ model, tokens, cost }: UsageRow): void {
  metrics.credits.inc({ model }, Number(cost.total) / 1e6);
  metrics.tokens.inc({ model, kind: "input" }, tokens.input);
  metrics.tokens.inc({ model, kind: "cache_read" }, tokens.cacheRead);
  metrics.tokens.inc({ model, kind: "cache_write" }, tokens.cacheWrite5m + tokens.cacheWrite1h);
  metrics.tokens.inc({ model, kind: "output" }, tokens.output);
}
