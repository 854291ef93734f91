/**
 * The meter of live requests: holds in Redis, one script call for whatever gathers (design.md §5); what becomes of them when
 * a request has ended: charges.ts. The scripts are store/meter-*.lua; how rows come from there into the ledger: drain.ts; what keeps holds alive
 * and accounts fresh: upkeep.ts; every crash between two writes: docs/decisions/money.md.
 */
import { setTimeout } from "node:timers/promises";
import type { RedisStore } from "../store/redis-servers.ts";
import type { Span } from "@opentelemetry/api";
import type { Clock } from "../lib/clock.ts";
import { Roster } from "../lib/roster.ts";
import { metrics } from "../telemetry/metrics.ts";
import { inSpan, startSpan } from "../telemetry/trace.ts";
import { readStanding } from "./accounts.ts";
import { Charges, type ChargesOptions } from "./charges.ts";
import { MAX_MICROS } from "./credits.ts";
import { FreeBudget } from "./free-budget.ts";
import { AccountLoader } from "./account-loader.ts";
import { Gate } from "./gate.ts";
import {
  HeldBill,
  holdAttributes,
  seenArguments,
  type BillOptions,
  type CurrentKey,
  type HoldOperations,
  type ItemRun,
  type RateLimits,
} from "./held-bill.ts";
import type { StreamPosition } from "./kept-charges.ts";
import { LedgerGuard } from "./ledger-guard.ts";
import { foreignText, type LedgerId } from "./ledger-identity.ts";
import type { Meter, MeteredRequest, Micros } from "./meter.ts";
import { Preflight } from "./preflight.ts";
import { ledgerBehind, meterUnavailable } from "./rate-limits.ts";
import { readScopeSpend, type ScopeOf } from "./scope-spend.ts";
import { beginsAnewAt, creditScopes, scopesText, type LimitedScope } from "./scopes.ts";
import { operation, shardOf, type MeterOperation, type Reply, type Shard } from "./shard.ts";
import { REDIS_MS, Shards } from "./shards.ts";
import { reachedMoneyStep } from "./steps.ts";
import type { UsageRow } from "./usage-row.ts";

/** How often the ledger and Redis are read until both are at the same version of an account. */
const MOST_LOOKS = 5;
const IDLE_LOOK_MS = 20;
/** A tool loop asks so often and so long for what the ledger will have said after its next drain: four a second. */
const UNSURE_LOOKS = 10;
const UNSURE_LOOK_MS = 100;
/** Heartbeats, or questions of one organization, that a shard gets at once: a script call of some milliseconds. */
const ASKED_AT_ONCE = 128;

export interface HoldsOptions extends ChargesOptions {
  readonly redis: RedisStore;
  readonly clock: Clock;
  /** That of `pool` (`readLedgerId`). */
  readonly ledger: LedgerId;
  /** Makes the random word of a shard's new epoch. */
  readonly newEpoch: () => string;
  /** The organization's limits by the snapshot of now. */
  readonly limits: (organizationId: string) => RateLimits | undefined;
  /** The key as it is now when it is still valid, else null (`KeyDirectory.recheck`). */
  readonly recheckKey: (keyId: string) => Promise<CurrentKey | null>;
  /** How long a request waits for credit that others hold; 2 s unless a test sets another time. */
  readonly waitMs?: number;
  /** Most operations in the backlog for Redis; 20,000 unless a test sets another number. */
  readonly mostOwed?: number;
}

/** An organization's credit, all but `available` exact sums of the ledger and of what is on its way there. */
export interface Credit {
  readonly granted: Micros;
  readonly used: Micros;
  readonly held: Micros;
  /** What a new request could hold; not below zero. */
  readonly available: Micros;
}

/** How a limit of credit stands. */
export interface Standing {
  readonly scope: LimitedScope;
  readonly spent: Micros;
  readonly held: Micros;
  /** Unix milliseconds; null: never. */
  readonly beginsAnewAt: number | null;
}

const anewOf = ({ limits }: LimitedScope, now: number): number | null =>
  limits.credits === undefined ? null : beginsAnewAt(limits.credits.per, now);

export class Holds implements Meter, HoldOperations {
  readonly #options: HoldsOptions;
  readonly #shards: Shards;
  readonly #loader: AccountLoader;
  readonly #gate: Gate;
  /** What is judged before a request's body is read. */
  readonly preflight: Preflight;
  readonly #running = new Roster<HeldBill>();
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
    this.#running.add(bill);
    holding.value = this.#running.size;
    reachedMoneyStep("open.held");
    return bill;
  }

  /**
   * A meter for one run of a batch item: the same holds, but `settle` only hands the row to `onRow`. Whoever runs the batch
   * stores the result, `chargeRows` and its own state in one transaction and then hands that very row to
   * `charges.ledgerCharged`. An item that dies before that leaves nothing but a hold, which the sweeper gives back.
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
      if (word === "load" || BigInt(known) < version) await this.#loader.load(organizationId);
    }
  }

  /**
   * What is left of the credit limits of keys, each given with the scopes that hold for it (rule 9.5). Without Redis the
   * ledger alone says it: a key that was just made must be shown. Few ask at once, as holds wait behind them.
   */
  async standings(
    organizationId: string,
    keys: readonly (readonly LimitedScope[])[],
  ): Promise<readonly (readonly Standing[])[]> {
    const now = this.#options.clock.now();
    const texts = keys.map((scopes) => scopesText(scopes, now, false));
    const replies = await this.#askStandings(organizationId, texts);
    // What Redis does not know of no request has asked for.
    const unknown = new Map<string, ScopeOf>();
    for (const [index, text] of texts.entries())
      for (const [place, scope] of creditScopes(text).entries())
        if ((replies[index]?.[1 + 2 * place] ?? "") === "")
          unknown.set(scope.name, { organizationId, scope });
    const spends = await readScopeSpend(this.#options.pool, [...unknown.values()]);
    const spent = new Map(spends.map((spend) => [spend.name, spend.spent]));
    return keys.map((scopes, index) => {
      const names = creditScopes(texts[index] ?? "");
      return scopes
        .filter(({ limits }) => limits.credits !== undefined)
        .map((scope, place) => {
          const [told = "", held = "0"] = (replies[index] ?? []).slice(1 + 2 * place);
          const micros = told === "" ? (spent.get(names[place]?.name ?? "") ?? 0n) : BigInt(told);
          return { scope, spent: micros, held: BigInt(held), beginsAnewAt: anewOf(scope, now) };
        });
    });
  }

  async #askStandings(organizationId: string, texts: readonly string[]): Promise<readonly Reply[]> {
    const replies: Reply[] = [];
    const ask = async (text: string): Promise<Reply> =>
      text === "" ? [] : await this.#shards.run(organizationId, operation("standing", organizationId, text));
    try {
      for (let at = 0; at < texts.length; at += ASKED_AT_ONCE)
        replies.push(...(await Promise.all(texts.slice(at, at + ASKED_AT_ONCE).map(ask))));
    } catch (error) {
      this.#options.log.warn({ err: error, organizationId }, "what limits have left is told without Redis");
    }
    return replies;
  }

  /** Requests of this process that hold credit. */
  get running(): number {
    return this.#running.size;
  }

  /** Resolves when no request of this process holds credit any more, or after that time. */
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

  /** Redis was seen with this epoch, and the ledger has all entries of the shard's stream up to `drained`. */
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

  /** The ledger's rows of an organization were changed past Redis, which must not go on with what scopes had spent. Never fails. */
  readScopesAgain(organizationId: string): Promise<void> {
    return this.#shards.hand(organizationId, operation("reread", organizationId));
  }

  /** Hands over what Redis did not take before. Never fails. */
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
    return this.charges.settle(bill, row);
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

  /** A few at a time: behind all of ten thousand, a new request's hold would wait for too long. */
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
      // The next heartbeat says it again.
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
