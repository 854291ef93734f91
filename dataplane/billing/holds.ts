/**
 * The meter of live requests: holds and charges in Redis, one script call for whatever gathers (design.md §5).
 * The scripts are store/meter-*.lua; how rows come from there into the ledger: drain.ts; what keeps holds alive
 * and accounts fresh: upkeep.ts; every crash between two writes: docs/decisions/money.md.
 */
import type { Span } from "@opentelemetry/api";
import type { Redis } from "ioredis";
import type { Logger } from "pino";
import type { DatabasePool } from "slonik";
import { ApiError } from "../lib/api-error.ts";
import type { Clock } from "../lib/clock.ts";
import { inBackground } from "../lib/in-background.ts";
import { Roster } from "../lib/roster.ts";
import { countCharge, metrics } from "../telemetry/metrics.ts";
import { inSpan, startSpan } from "../telemetry/trace.ts";
import { readStanding, type Account } from "./accounts.ts";
import { encodeRow } from "./charge-text.ts";
import { MAX_MICROS } from "./credits.ts";
import { FreeBudget } from "./free-budget.ts";
import { Gate, accountOperation } from "./gate.ts";
import {
  HeldBill,
  holdAttributes,
  seenArguments,
  type BillOptions,
  type Correction,
  type HoldOperations,
  type ItemRun,
  type RateLimits,
} from "./held-bill.ts";
import { BEFORE_ALL, KeptByShard, type Position } from "./kept-charges.ts";
import { LedgerGuard } from "./ledger-guard.ts";
import { foreignText, type LedgerId } from "./ledger-identity.ts";
import { LedgerWriter } from "./ledger-writer.ts";
import type { Meter, MeteredRequest, Micros } from "./meter.ts";
import { Preflight } from "./preflight.ts";
import { ledgerBehind, meterUnavailable } from "./rate-limits.ts";
import { operation, RedisSilent, SHARDS, shardOf, type Operation, type Reply, type Shard } from "./shard.ts";
import { REDIS_MS, Shards } from "./shards.ts";
import { reached } from "./steps.ts";
import { allTokens, type UsageRow } from "./usage-row.ts";

/** The end of an answer is withheld at most this long while neither store takes its charge. */
const WITHHELD_MS = 10_000;
/** How often the ledger and Redis are read until both are at the same version of an account. */
const MOST_LOOKS = 5;
const IDLE_LOOK_MS = 20;
/** Heartbeats that one shard is told at once: a script call of some milliseconds. */
const BEATS_AT_ONCE = 128;

export interface HoldsOptions {
  readonly redis: Redis;
  readonly pool: DatabasePool;
  readonly clock: Clock;
  readonly log: Logger;
  /** That of `pool` (`readLedgerId`). */
  readonly ledger: LedgerId;
  /** A word that no other epoch of a shard has. */
  readonly newEpoch: () => string;
  /** The organization's limits by the snapshot of now. */
  readonly limits: (organizationId: string) => RateLimits | undefined;
  /** The present key epoch when the key is still valid, else null (`KeyDirectory.recheck`). */
  readonly recheckKey: (keyId: string) => Promise<number | null>;
  /** How long a request waits for credit that others hold; 2 s unless a test is in a hurry. */
  readonly waitMs?: number;
  /** How many operations may be owed to Redis; 20,000 unless a test has less patience. */
  readonly mostOwed?: number;
  /** How long and how much is kept of what was charged; as in kept-charges.ts unless a test has less patience. */
  readonly kept?: { readonly keptMs?: number; readonly most?: number };
}

/** An organization's credit, all but `available` exact sums of the ledger and of what is on its way there. */
export interface Credit {
  readonly granted: Micros;
  readonly used: Micros;
  readonly held: Micros;
  /** What a new request could hold; not below zero. */
  readonly available: Micros;
}

export class Holds implements Meter, HoldOperations {
  readonly #options: HoldsOptions;
  readonly #shards: Shards;
  readonly #gate: Gate;
  readonly #writer: LedgerWriter;
  /** What is judged before a request's body is read. */
  readonly preflight: Preflight;
  readonly #running = new Roster<HeldBill>();
  /** Whose charge a row is that does not go through Redis. A batch item's hold has another id than its row. */
  readonly #aroundRedis = new WeakMap<UsageRow, HeldBill>();
  readonly #charged: KeptByShard;

  constructor(options: HoldsOptions) {
    this.#options = options;
    const { redis, ledger, newEpoch, pool, log, mostOwed } = options;
    this.#shards = new Shards({
      redis,
      ledger,
      newEpoch,
      ...(mostOwed === undefined ? {} : { mostOwed }),
      onLost: (shard) => this.#lostOperations(shard),
      onRestored: (shard, newest) => this.#charged.of(shard).chargedAgain(newest),
      onTaken: (organizationId) => this.#gate.freed(organizationId),
    });
    this.#gate = new Gate(options, this.#shards, () => this.guard.look());
    this.preflight = new Preflight(this.#gate, new FreeBudget(this.#shards, options.limits));
    this.#charged = new KeptByShard(SHARDS, options.kept);
    const onOther = () => this.#charged.doubt();
    const takeDoubtful = () => this.#charged.takeDoubtful();
    const atFirst = "refuse";
    const { all: shards } = this.#shards;
    this.guard = new LedgerGuard({ redis, pool, log, ledger, shards, takeDoubtful, onOther, atFirst });
    this.#writer = new LedgerWriter({
      pool,
      log,
      settleInRedis: (row) => this.#settleOnce(row),
      onStored: (rows, accounts) => {
        for (const row of rows) this.#keep(row, settleOperation(row, NO_CORRECTION), BEFORE_ALL);
        this.ledgerCharged(rows, accounts);
      },
    });
  }

  open(request: MeteredRequest, estimate: Micros, span: Span | null = null): Promise<HeldBill> {
    return this.#open(request, estimate, { span, item: null });
  }

  #open(request: MeteredRequest, estimate: Micros, options: BillOptions): Promise<HeldBill> {
    const { span } = options;
    if (span === null) return this.#take(request, estimate, options);
    const hold = startSpan("hold", span, () => holdAttributes("open", estimate));
    return inSpan(hold, () => this.#take(request, estimate, options));
  }

  async #take(request: MeteredRequest, estimate: Micros, options: BillOptions): Promise<HeldBill> {
    if (this.#writer.full || this.guard.fault !== null) throw meterUnavailable();
    if (this.#charged.full) throw ledgerBehind();
    const bill = new HeldBill(this, request, this.#gate.limitsOf(request), options);
    const wanted = estimate > MAX_MICROS ? MAX_MICROS : estimate;
    reached("open.sent");
    await this.#gate.admit(bill, wanted);
    this.#running.add(bill);
    holding.value = this.#running.size;
    reached("open.held");
    return bill;
  }

  /**
   * A meter for one run of a batch item: the same holds, but `settle` only hands the row to `onRow`. Whoever runs the batch
   * stores the result, `chargeRows` and its own state in one transaction and then hands that very row to
   * `ledgerCharged`. An item that dies before that leaves nothing but a hold, which the sweeper gives back.
   */
  forItem(claim: string, onRow: ItemRun["onRow"]): Meter {
    const item: ItemRun = { claim, onRow };
    return { open: (request, estimate, span = null) => this.#open(request, estimate, { span, item }) };
  }

  chargedElsewhere(bill: HeldBill, row: UsageRow): void {
    this.#aroundRedis.set(row, bill);
  }

  /** The ledger charged these rows by itself: gives their holds back under the new balances. Never fails. */
  ledgerCharged(rows: readonly UsageRow[], accounts: readonly Account[]): void {
    const operations = new Map<string, Operation[]>();
    for (const account of accounts) {
      operations.set(account.organizationId, [accountOperation(account, "", false)]);
    }
    for (const row of rows) {
      const bill = this.#aroundRedis.get(row);
      const correction = bill?.correction(allTokens(row.tokens)) ?? NO_CORRECTION;
      if (bill !== undefined) this.#ended(bill);
      operations
        .get(row.organizationId)
        ?.push(operation("release", row.organizationId, bill?.request.id ?? row.id, ...correction, "1"));
      // Rows that went around Redis are counted here, those through it where they are settled.
      count(row);
    }
    for (const [organizationId, those] of operations) {
      const told = this.#shards.hand(organizationId, ...those).then(() => reached("ledger.told"));
      inBackground(told, this.#options.log, "telling Redis what the ledger charged");
    }
  }

  /** Reads these accounts and key epochs from the ledger again, and resolves when Redis has them. */
  async refresh(organizationIds: readonly string[]): Promise<void> {
    await this.#gate.refresh(organizationIds);
  }

  /** What `GET /v1/organization/credits` shows (rule 5.18). @throws ApiError 503. */
  async credit(organizationId: string): Promise<Credit> {
    for (let look = 1; ; look += 1) {
      const { granted, balance, version } = await readStanding(this.#options.pool, organizationId);
      const reply = await this.#shards.run(organizationId, operation("balance", organizationId));
      const [word, undrained = "0", held = "0", known = "0"] = reply;
      // Only with both at the same version is it sure that no charge is missing, or counted in both.
      if (known === version.toString() || look === MOST_LOOKS) {
        const left = balance - BigInt(undrained);
        const available = left - BigInt(held);
        return {
          granted,
          used: granted - left,
          held: BigInt(held),
          available: available > 0n ? available : 0n,
        };
      }
      if (word === "load" || BigInt(known) < version) await this.#gate.load(organizationId);
    }
  }

  /** Requests of this process that hold credit. */
  get running(): number {
    return this.#running.size;
  }

  /** Resolves when no request of this process holds credit any more, or after that time. */
  async idle(timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (this.#running.size > 0 && performance.now() < deadline)
      await new Promise((done) => setTimeout(done, IDLE_LOOK_MS));
  }

  /** Charges that neither store has taken yet. */
  get homeless(): number {
    return this.#writer.size;
  }

  get ledger(): LedgerId {
    return this.#options.ledger;
  }

  /** Compares Redis with the ledger (ledger-guard.ts). */
  readonly guard: LedgerGuard;

  /** Why nothing can be held or charged. */
  get fault(): string | null {
    const foreign = this.#shards.all.find((shard) => shard.foreign !== null)?.foreign ?? null;
    return foreign === null ? this.guard.fault : foreignText(foreign, this.#options.ledger);
  }

  /** Bytes of charges that Redis has, and the ledger not yet. */
  get waitingBytes(): number {
    return this.#charged.waitingBytes;
  }

  /** Redis was seen with this epoch, and the ledger has all entries of the shard's stream up to `drained`. */
  sawShard(index: number, epoch: string | null, drained: Position | null): void {
    const kept = this.#charged.of(index);
    if (this.#shards.all[index]?.sawEpoch(epoch) === true && drained !== null) kept.drainedTo(drained);
    metrics.keptBytes.set(this.#charged.waitingBytes);
  }

  get shards(): readonly Shard[] {
    return this.#shards.all;
  }

  /** Redis may have lost writes, though its epochs are there: another server answers, or it was restarted. */
  lost(): void {
    for (const shard of this.#shards.all) shard.lost();
  }

  /** Tells Redis that the running requests live, and what they have seen. Never fails. */
  async heartbeat(): Promise<void> {
    if (this.#running.size === 0) return;
    const ofShard = Map.groupBy(this.#running, ({ request }) => shardOf(request.organizationId));
    await Promise.all(Array.from(ofShard.values(), (bills) => this.#beatInTurns(bills)));
    reached("heartbeat.done");
  }

  /** Hands over what Redis did not take before. Never fails. */
  async payOwed(): Promise<void> {
    await this.#shards.payOwed();
  }

  // What a HeldBill asks of its meter.

  async advance(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<boolean> {
    const reply = await this.#goOn("advance", bill, spent, next, seen);
    if (reply === null) return false;
    const covered = reply[0] === "held";
    bill.amount = covered ? spent + next : spent;
    reached("advance.held");
    return covered;
  }

  async spend(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<Micros> {
    const [word, amount = "0", left = "0"] = (await this.#goOn("spend", bill, spent, next, seen)) ?? [];
    if (word !== "noted") return 0n;
    bill.amount = BigInt(amount);
    reached("spend.noted");
    return BigInt(left);
  }

  /** What Redis says to a request that has spent so much and wants so much more; null when it is silent. */
  async #goOn(
    how: "advance" | "spend",
    bill: HeldBill,
    spent: Micros,
    next: Micros,
    seen: UsageRow | null,
  ): Promise<Reply | null> {
    const { organizationId, id } = bill.request;
    const wanted = spent + next;
    const more = operation(
      how,
      organizationId,
      id,
      spent.toString(),
      (wanted > MAX_MICROS ? MAX_MICROS : wanted).toString(),
      bill.item,
      ...seenArguments(seen),
    );
    try {
      const reply = await this.#shards.run(organizationId, more);
      if (reply[0] !== "load") return reply;
      await this.#gate.load(organizationId);
      return await this.#shards.run(organizationId, more);
    } catch (error) {
      // Without Redis nobody knows what the credit covers: the loop ends with what it has.
      this.#options.log.warn({ err: error, requestId: id }, "a tool loop's next step could not be held");
      return null;
    }
  }

  async settle(bill: HeldBill, row: UsageRow): Promise<void> {
    const charge = settleOperation(row, bill.correction(allTokens(row.tokens)));
    reached("settle.sent");
    const deadline = performance.now() + REDIS_MS;
    for (let left = REDIS_MS; left > 0; left = deadline - performance.now()) {
      if (await this.#chargeInRedis(bill, row, charge, left)) return reached("settle.charged");
      // A broken connection fails at once; it is tried again until the time is up.
      await new Promise((done) => setTimeout(done, 50));
    }
    await this.#chargeInLedger(bill, row);
    reached("settle.charged");
  }

  async release(bill: HeldBill): Promise<void> {
    const { organizationId, id } = bill.request;
    this.#ended(bill);
    await this.#shards.hand(
      organizationId,
      operation("release", organizationId, id, ...bill.correction(0), "0"),
    );
  }

  // Charging.

  /** @returns whether Redis took it. Not async, as there is one for each request. */
  #chargeInRedis(
    bill: HeldBill | undefined,
    row: UsageRow,
    charge: Operation,
    timeoutMs: number,
  ): Promise<boolean> {
    return this.#shards
      .of(row.organizationId)
      .run(charge, timeoutMs)
      .then(
        () => this.#chargedInRedis(bill, row, charge),
        (error: unknown) => {
          if (!(error instanceof RedisSilent))
            this.#options.log.error({ err: error }, "the meter script failed");
          return false;
        },
      );
  }

  #chargedInRedis(bill: HeldBill | undefined, row: UsageRow, charge: Operation): true {
    this.#keep(row, charge, this.#shards.of(row.organizationId).newest);
    if (bill !== undefined) this.#ended(bill);
    count(row);
    return true;
  }

  #keep({ organizationId }: UsageRow, charge: Operation, position: Position): void {
    this.#charged.of(shardOf(organizationId)).add(charge, performance.now(), position);
  }

  /** One try for a row that Redis did not take in time. */
  #settleOnce(row: UsageRow): Promise<boolean> {
    const bill = this.#aroundRedis.get(row);
    const correction = bill?.correction(allTokens(row.tokens)) ?? NO_CORRECTION;
    return this.#chargeInRedis(bill, row, settleOperation(row, correction), REDIS_MS);
  }

  async #chargeInLedger(bill: HeldBill, row: UsageRow): Promise<void> {
    this.#options.log.warn(
      { requestId: bill.request.id },
      "Redis did not take a charge: writing it to the ledger",
    );
    this.chargedElsewhere(bill, row);
    reached("ledger.waiting");
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

  #lostOperations(shard: number): Operation[] {
    const charges = this.#charged.of(shard).all(performance.now());
    const holds = [...this.#running]
      .filter(({ request }) => shardOf(request.organizationId) === shard)
      .map((bill) => bill.retake());
    return [...charges, ...holds];
  }

  // Keeping holds.

  /** A few at a time: behind all of ten thousand, a new request's hold would wait for too long. */
  async #beatInTurns(bills: readonly HeldBill[]): Promise<void> {
    for (let at = 0; at < bills.length; at += BEATS_AT_ONCE) {
      const heard = await Promise.all(bills.slice(at, at + BEATS_AT_ONCE).map((bill) => this.#beat(bill)));
      // A silent Redis would keep each turn waiting; the others have their turn with the next beat.
      if (heard.includes(false)) return;
    }
  }

  /** @returns whether Redis answered. */
  async #beat(bill: HeldBill): Promise<boolean> {
    const { organizationId, id } = bill.request;
    if (!this.#running.has(bill)) return true;
    const seen = bill.unsaid();
    try {
      const beat = operation("heartbeat", id, ...seenArguments(seen));
      const reply = await this.#shards.of(organizationId).run(beat, REDIS_MS);
      if (reply[0] === "gone" && this.#running.has(bill))
        await this.#shards.run(organizationId, bill.retake());
      return true;
    } catch {
      // Said again with the next beat.
      bill.forgetSaid();
      return false;
    }
  }

  #ended(bill: HeldBill): void {
    if (this.#running.delete(bill)) holding.value = this.#running.size;
    this.#gate.freed(bill.request.organizationId);
  }
}

/** Of a request whose limits are not known here. */
const NO_CORRECTION: Correction = ["0", "0", "0"];

const holding = metrics.holds.series({});

const settleOperation = (row: UsageRow, correction: Correction): Operation =>
  operation("settle", row.organizationId, row.id, row.cost.total.toString(), encodeRow(row), ...correction);

function count({ model, tokens, cost }: UsageRow): void {
  countCharge(model, Number(cost.total) / 1e6, {
    input: tokens.input,
    cache_read: tokens.cacheRead,
    cache_write: tokens.cacheWrite5m + tokens.cacheWrite1h,
    output: tokens.output,
  });
}
