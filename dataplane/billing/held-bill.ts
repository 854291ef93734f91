/** One running request's credit, as its owner sees it; what it does with a hold is the keeper's (holds.ts). */
import type { OrganizationEntry } from "../config/schema.ts";
import type { Seated } from "../lib/roster.ts";
import { encodeRow } from "./charge-text.ts";
import type { Bill, FinalUsage, MeteredRequest, Micros, Observed } from "./meter.ts";
import { costMicros } from "./price.ts";
import { operation, type Operation } from "./shard.ts";
import { isNothing } from "./token-usage.ts";
import { usageRow, type UsageRow } from "./usage-row.ts";

export type RateLimits = OrganizationEntry["rateLimits"];

/** What a bill asks of the meter that keeps its hold. */
export interface BillKeeper {
  advance(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<boolean>;
  spend(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<Micros>;
  settle(bill: HeldBill, row: UsageRow): Promise<void>;
  release(bill: HeldBill): Promise<void>;
}

/** The arguments that correct the organization's token bucket by what was really used. */
export type Correction = readonly [requestsLimit: string, tokensLimit: string, difference: string];

export class HeldBill implements Bill, Seated {
  seat = -1;
  readonly request: MeteredRequest;
  readonly limits: RateLimits;
  /** "1" for a batch item: the sweeper gives its hold back instead of charging it, as it will run again. */
  readonly item: "0" | "1";
  readonly tokensTaken: number;
  headers: Readonly<Record<string, string>> = {};
  keyEpoch: number | null;
  /** What is held now. */
  amount: Micros = 0n;
  readonly #keeper: BillKeeper;
  #iterations = 1;
  #seen: Observed | null = null;
  #said: Observed | null = null;
  #end: Promise<void> | null = null;

  constructor(keeper: BillKeeper, request: MeteredRequest, limits: RateLimits) {
    this.#keeper = keeper;
    this.request = request;
    this.limits = limits;
    this.item = request.endpoint === "batch" ? "1" : "0";
    this.keyEpoch = request.keyEpoch;
    this.tokensTaken = limits.tokensPerMinute === null ? 0 : Math.ceil(Math.max(0, request.inputTokens));
  }

  observe(observed: Observed): void {
    this.#seen = observed;
  }

  async advance(spent: Observed, nextEstimate: Micros): Promise<boolean> {
    this.#seen = spent;
    this.#said = spent;
    const cost = costMicros(this.request.prices, spent.tokens, spent.tools).total;
    const covered = await this.#keeper.advance(this, cost, nextEstimate, this.#provisional(spent));
    if (covered) this.#iterations += 1;
    return covered;
  }

  async spend(spent: Observed, nextEstimate: Micros): Promise<Micros> {
    // One that has ended must not come back.
    if (this.#end !== null) return 0n;
    this.#seen = spent;
    this.#said = spent;
    const cost = costMicros(this.request.prices, spent.tokens, spent.tools).total;
    return this.#keeper.spend(this, cost, nextEstimate, this.#provisional(spent));
  }

  settle(usage: FinalUsage): Promise<void> {
    this.#end ??= this.#keeper.settle(this, usageRow(this.request, usage));
    return this.#end;
  }

  release(): Promise<void> {
    this.#end ??= this.#keeper.release(this);
    return this.#end;
  }

  /** What was seen and Redis does not know yet; null: nothing new. */
  unsaid(): UsageRow | null {
    const seen = this.#seen;
    if (seen === null || seen === this.#said) return null;
    this.#said = seen;
    return this.#provisional(seen);
  }

  forgetSaid(): void {
    this.#said = null;
  }

  retake(): Operation {
    const { organizationId, id } = this.request;
    const seen = this.#seen === null ? null : this.#provisional(this.#seen);
    return operation("retake", organizationId, id, this.amount.toString(), this.item, ...seenArguments(seen));
  }

  correction(tokensUsed: number): Correction {
    const { requestsPerMinute, tokensPerMinute } = this.limits;
    const difference = tokensPerMinute === null ? 0 : tokensUsed - this.tokensTaken;
    return [String(requestsPerMinute ?? 0), String(tokensPerMinute ?? 0), String(difference)];
  }

  /** What the sweeper shall charge if this process dies; null when nothing was used yet. */
  #provisional(seen: Observed): UsageRow | null {
    if (isNothing(seen)) return null;
    const usage: FinalUsage = { ...seen, status: "error", iterations: this.#iterations, upstream: null };
    return usageRow(this.request, usage, true);
  }
}

/** The row and its cost as the scripts take them: an empty row is none. */
export function seenArguments(seen: UsageRow | null): readonly [row: string, cost: string] {
  return seen === null ? ["", "0"] : [encodeRow(seen), seen.cost.total.toString()];
}
