/**
 * The meter: holds in Redis, of live requests and of items of batches, one script call for all operations that gather (design.md
 * §5). charges.ts charges requests that have ended; drain.ts moves rows from Redis into the ledger; upkeep.ts keeps holds alive
 * and accounts fresh. The scripts are store/meter-*.lua; every crash between two writes: docs/decisions/money.md.
 */
import { setTimeout } from "node:timers/promises";
import type { RedisStore } from "../../store/redis-servers.ts";
import type { Span } from "@opentelemetry/api";
import { Roster } from "../../lib/roster.ts";
import { metrics } from "../../telemetry/metrics.ts";
import { inSpan, startSpan } from "../../telemetry/trace.ts";
import { Charges, type ChargesOptions } from "./charges.ts";
import { MAX_MICROS, type Micros } from "../credits.ts";
import { FreeBudget } from "./free-budget.ts";
import { AccountLoader, MOST_LOOKS } from "./account-loader.ts";
import { Gate, type AdmitOptions } from "./gate.ts";
import {
  HeldBill,
  holdAttributes,
  seenArguments,
  type BillOptions,
  type HoldOperations,
  type ItemRun,
} from "./held-bill.ts";
import type { StreamPosition } from "./stream-position.ts";
import { CurrentLimits, type CurrentLimitsOptions } from "./current-limits.ts";
import { LedgerGuard } from "./ledger-guard.ts";
import { foreignText, type LedgerId } from "../ledger/ledger-identity.ts";
import type { Meter, MeteredRequest } from "../meter.ts";
import { Preflight } from "./preflight.ts";
import { ledgerBehind, meterUnavailable } from "./rate-limits.ts";
import { operation, shardOf, type MeterOperation, type Reply, type Shard } from "./shard.ts";
import { ASKED_AT_ONCE, REDIS_MS, Shards, UNSURE_LOOK_MS, UNSURE_LOOKS } from "./shards.ts";
import { Standings } from "./standings.ts";
import { reachedMoneyStep } from "../steps.ts";
import type { UsageRow } from "../ledger/usage-row.ts";

const IDLE_LOOK_MS = 20;

export interface HoldsOptions extends AdmitOptions, ChargesOptions, CurrentLimitsOptions {
  readonly redis: RedisStore;
  /** The ledger in `pool` (`readLedgerId`). */
  readonly ledger: LedgerId;
  /** Makes the random word of a shard's new epoch. */
  readonly newEpoch: () => string;
  /** Most operations in the backlog for Redis; 20,000 unless a test sets another number. */
  readonly mostOwed?: number;
}

export class Holds implements Meter, HoldOperations {
  readonly #options: HoldsOptions;
  readonly #shards: Shards;
  readonly #loader: AccountLoader;
  readonly #gate: Gate;
  /** Checks before a request's body is read. */
  readonly preflight: Preflight;
  /** What organizations and limits have left. */
  readonly standing: Standings;
  readonly #running = new Roster<HeldBill>();
  readonly #currentLimits: CurrentLimits;
  readonly charges: Charges;

  constructor(options: HoldsOptions) {
    this.#options = options;
    const { redis, ledger, newEpoch, pool, log, mostOwed } = options;
    this.#shards = new Shards({
      redis,
      ledger,
      newEpoch,
      ...(mostOwed === undefined ? {} : { mostOwed }),
      onLost: (shard) => this.#lostOperations(shard),
      onRestored: (shard, newest) => this.charges.kept.of(shard).chargedAgain(newest),
      onTaken: (organizationId) => this.#gate.freedAny(organizationId),
    });
    this.#loader = new AccountLoader(pool, this.#shards, () => this.guard.look());
    this.#gate = new Gate(options, this.#shards, this.#loader);
    this.#currentLimits = new CurrentLimits(options);
    this.standing = new Standings(options, this.#shards, this.#loader);
    this.preflight = new Preflight(this.#gate, new FreeBudget(this.#shards, options.limits));
    this.charges = new Charges(options, this.#shards, (bill) => this.#ended(bill));
    const { kept } = this.charges;
    const onOther = () => kept.doubt();
    const takeDoubtful = () => kept.takeDoubtful();
    const atFirst = "refuse";
    const { all: shards } = this.#shards;
    this.guard = new LedgerGuard({ redis, pool, log, ledger, shards, takeDoubtful, onOther, atFirst });
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
    if (this.charges.full || this.guard.fault !== null) throw meterUnavailable();
    if (this.charges.kept.full) throw ledgerBehind();
    const bill = new HeldBill(this, request, this.#gate.limitsOf(request), options);
    const wanted = estimate > MAX_MICROS ? MAX_MICROS : estimate;
    reachedMoneyStep("open.sent");
    await this.#gate.admit(bill, wanted);
    this.#currentLimits.saw(bill);
    this.#running.add(bill);
    holding.value = this.#running.size;
    reachedMoneyStep("open.held");
    return bill;
  }

  /**
   * A meter for one run of a batch item: the same holds, but `settle` only passes the row to `onRow`. The worker stores the
   * result, `chargeRows` and its own state in one transaction and then passes that very row to `charges.ledgerCharged`. An item
   * that dies before that leaves nothing but a hold, which the sweeper gives back.
   */
  forItem(claim: string, onRow: ItemRun["onRow"]): Meter {
    const item: ItemRun = { claim, onRow };
    return { open: (request, estimate, span = null) => this.#open(request, estimate, { span, item }) };
  }

  chargedElsewhere(bill: HeldBill, row: UsageRow): void {
    this.charges.elsewhere(bill, row);
  }

  /** Reads these accounts and key epochs from the ledger again, and resolves when Redis has them. */
  async refresh(organizationIds: readonly string[]): Promise<void> {
    await this.#loader.refresh(organizationIds);
  }

  /** Requests of this process that hold credit. */
  get running(): number {
    return this.#running.size;
  }

  /** Resolves when no request of this process holds credit any more, or after `timeoutMs`. */
  async idle(timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (this.#running.size > 0 && performance.now() < deadline) await setTimeout(IDLE_LOOK_MS);
  }

  /** Charges that neither store has taken yet. */
  get unstored(): number {
    return this.charges.unstored;
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
    return this.charges.kept.waitingBytes;
  }

  /** Notes that Redis was seen with this epoch, and that the ledger has all entries of the shard's stream up to `drained`. */
  sawShard(index: number, epoch: string | null, drained: StreamPosition | null): void {
    const kept = this.charges.kept.of(index);
    if (this.#shards.all[index]?.sawEpoch(epoch) === true && drained !== null) kept.drainedTo(drained);
    metrics.keptBytes.set(this.charges.kept.waitingBytes);
  }

  get shards(): readonly Shard[] {
    return this.#shards.all;
  }

  /** Sends heartbeats of the running requests, with the usage observed so far. Never fails. */
  async heartbeat(): Promise<void> {
    if (this.#running.size === 0) return;
    const ofShard = Map.groupBy(this.#running, ({ request }) => shardOf(request.organizationId));
    await Promise.all(Array.from(ofShard.values(), (bills) => this.#beatInTurns(bills)));
    reachedMoneyStep("heartbeat.done");
  }

  /**
   * Makes Redis read what an organization's scopes have spent again: its rows in the ledger changed without Redis. Never fails.
   */
  readScopesAgain(organizationId: string): Promise<void> {
    return this.#shards.hand(organizationId, operation("reread", organizationId));
  }

  /** Sends again what Redis did not take before. Never fails. */
  async payOwed(): Promise<void> {
    await this.#shards.retryPending();
  }

  // What a HeldBill asks of its meter.

  async advance(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<boolean> {
    let reply = await this.#goOn("advance", bill, spent, next, seen);
    for (let look = 1; look < UNSURE_LOOKS && reply?.[0] === "unsure"; look += 1) {
      await setTimeout(UNSURE_LOOK_MS);
      reply = await this.#goOn("advance", bill, spent, next, seen);
    }
    if (reply === null) return false;
    const covered = reply[0] === "held";
    bill.amount = covered ? spent + next : spent;
    reachedMoneyStep("advance.held");
    return covered;
  }

  async spend(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<Micros> {
    const [word, amount = "0", left = "0"] = (await this.#goOn("spend", bill, spent, next, seen)) ?? [];
    if (word !== "noted") return 0n;
    bill.amount = BigInt(amount);
    reachedMoneyStep("spend.noted");
    return BigInt(left);
  }

  /** Redis' reply to a request that has spent `spent` and wants `next` more; null when it is silent. */
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
      bill.scopes,
    );
    try {
      for (let look = 1; ; look += 1) {
        const reply = await this.#shards.run(organizationId, more);
        if (look < MOST_LOOKS && reply[0] === "load") await this.#loader.load(organizationId);
        else if (look < MOST_LOOKS && reply[0] === "scopes")
          await this.#loader.loadScopes(organizationId, bill.scopeArguments);
        else return reply;
      }
    } catch (error) {
      // Without Redis it is unknown whether credit covers another iteration: the loop ends here.
      this.#options.log.warn({ err: error, request_id: id }, "a tool loop's next step could not be held");
      return null;
    }
  }

  settle(bill: HeldBill, row: UsageRow): Promise<void> {
    const renewing = this.#currentLimits.renew(bill);
    if (renewing === undefined) return this.charges.settle(bill, row);
    return renewing.then(() => this.charges.settle(bill, row));
  }

  async release(bill: HeldBill): Promise<void> {
    const { organizationId, id } = bill.request;
    this.#ended(bill);
    await this.#shards.hand(
      organizationId,
      operation("release", organizationId, id, ...bill.correction(0), "0", ...bill.scopeArguments),
    );
  }

  #lostOperations(shard: number): MeterOperation[] {
    const charges = this.charges.kept.of(shard).all(performance.now());
    const holds = [...this.#running]
      .filter(({ request }) => shardOf(request.organizationId) === shard)
      .map((bill) => bill.retake());
    return [...charges, ...holds];
  }

  // Keeping holds.

  /** Sends heartbeats a few at a time: behind ten thousand of them a new request's hold would wait too long. */
  async #beatInTurns(bills: readonly HeldBill[]): Promise<void> {
    for (let at = 0; at < bills.length; at += ASKED_AT_ONCE) {
      const heard = await Promise.all(bills.slice(at, at + ASKED_AT_ONCE).map((bill) => this.#beat(bill)));
      // With a silent Redis each portion would wait for its time-out; the rest follows with the next heartbeat.
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
      // The next heartbeat reports it again.
      bill.forgetSaid();
      return false;
    }
  }

  #ended(bill: HeldBill): void {
    if (this.#running.delete(bill)) holding.value = this.#running.size;
    this.#gate.freed(bill);
  }
}

const holding = metrics.holds.series({});
