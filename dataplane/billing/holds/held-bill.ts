/** One running request's credit, as its owner sees it; holds.ts works on its hold. */
import type { Attributes, Span } from "@opentelemetry/api";
import type { OrganizationEntry } from "../../config/schema.ts";
import type { Seated } from "../../lib/roster.ts";
import type { Charged } from "../../telemetry/request-summary.ts";
import { inSpan, startSpan } from "../../telemetry/trace.ts";
import { encodeRow } from "../ledger/charge-text.ts";
import type { Bill, FinalUsage, MeteredRequest, Observed } from "../meter.ts";
import type { Micros } from "../credits.ts";
import { costMicros } from "../prices/price.ts";
import { scopesText } from "../scopes.ts";
import { operation, type MeterOperation } from "./shard.ts";
import { isNothing } from "../token-usage.ts";
import { chargedBy, usageRow, type UsageRow } from "../ledger/usage-row.ts";

export type RateLimits = OrganizationEntry["rateLimits"];

/** What a bill asks of the meter that has its hold. */
export interface HoldOperations {
  advance(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<boolean>;
  spend(bill: HeldBill, spent: Micros, next: Micros, seen: UsageRow | null): Promise<Micros>;
  settle(bill: HeldBill, row: UsageRow): Promise<void>;
  release(bill: HeldBill): Promise<void>;
  /** Notes that a row which is charged without Redis is the bill's. */
  chargedElsewhere(bill: HeldBill, row: UsageRow): void;
}

/** The arguments that correct the organization's token bucket by what was really used. */
export type Correction = readonly [requestsLimit: string, tokensLimit: string, difference: string];

/** A request's scopes as the scripts take them, and the key epoch that its limits were looked up under. */
export type ScopeArguments = readonly [scopes: string, limitsEpoch: string];

/** A key as it is now. */
export type CurrentKey = Pick<MeteredRequest, "projectId" | "limits"> & { readonly keyEpoch: number };

/** What a bill has in addition to its request. */
export interface BillOptions {
  /** The request's span; null: nothing is traced. */
  readonly span: Span | null;
  /** The run of a batch item; null: a live request. */
  readonly item: ItemRun | null;
}

/** One run of a batch item: its worker charges the row together with the item's result. */
export interface ItemRun {
  /** Distinguishes the run from every other one of the item: each has a hold of its own. */
  readonly claim: string;
  /**
   * Takes the row instead of a charge. The hold stays until `Charges.ledgerCharged` gets that very row, or until `giveBack` is
   * called.
   */
  readonly onRow: (row: UsageRow, giveBack: () => Promise<void>) => void;
}

export class HeldBill implements Bill, Seated {
  seat = -1;
  /** The request, with the id of its hold. */
  request: MeteredRequest;
  readonly limits: RateLimits;
  /** "1" for a batch item: the sweeper gives its hold back instead of charging it, as it will run again. */
  readonly item: "0" | "1";
  /** Its key's and its project's limits (`scopesText`). */
  scopes: string;
  headers: Readonly<Record<string, string>> = {};
  keyEpoch: number | null;
  /** Amount that is held now. */
  amount: Micros = 0n;
  settled: FinalUsage | null = null;
  charged: Charged | null = null;
  readonly #holds: HoldOperations;
  /** The request, with the id of its row. */
  #charged: MeteredRequest;
  readonly #options: BillOptions;
  #iterations = 1;
  #seen: Observed | null = null;
  #said: Observed | null = null;
  #end: Promise<void> | null = null;
  #chargeScopes: ScopeArguments | null = null;

  constructor(holds: HoldOperations, request: MeteredRequest, limits: RateLimits, options: BillOptions) {
    const { item } = options;
    this.#holds = holds;
    this.#charged = request;
    this.request =
      item === null ? request : { ...request, id: `${request.id}.${item.claim}`, keyEpoch: null };
    this.limits = limits;
    this.item = request.endpoint === "batch" ? "1" : "0";
    this.keyEpoch = this.request.keyEpoch;
    this.#options = options;
    this.scopes = this.#scopesText();
  }

  /** Empty for most requests. */
  #scopesText({ limits }: Pick<CurrentKey, "limits"> = this.request): string {
    return limits.length === 0 ? "" : scopesText(limits, this.request.acceptedAt, this.item === "0");
  }

  /** Takes over the key as looked up again before admission: it may have other limits, and belong to another project. */
  renew({ keyEpoch, projectId, limits }: CurrentKey): void {
    const now = { projectId, limits, limitsEpoch: keyEpoch };
    this.keyEpoch = keyEpoch;
    this.request = { ...this.request, ...now };
    this.#charged = { ...this.#charged, ...now };
    this.scopes = this.#scopesText();
  }

  /** Charges the request to the key's present limits. The hold stays as it is. */
  chargeUnder(key: Pick<CurrentKey, "limits" | "keyEpoch">): void {
    this.#chargeScopes = [this.#scopesText(key), String(key.keyEpoch)];
  }

  /** Tokens taken from the buckets when it is admitted. */
  get tokensTaken(): number {
    return this.#countsTokens ? Math.ceil(Math.max(0, this.request.inputTokens)) : 0;
  }

  get #countsTokens(): boolean {
    const { tokensPerMinute } = this.limits;
    if (tokensPerMinute !== null) return true;
    if (this.scopes === "" || this.item === "1") return false;
    return this.request.limits.some(({ limits }) => limits.tokensPerMinute !== undefined);
  }

  observe(observed: Observed): void {
    this.#seen = observed;
  }

  advance(spent: Observed, nextEstimate: Micros): Promise<boolean> {
    const span = startSpan("hold", this.#options.span, () => holdAttributes("advance", nextEstimate));
    const covers = (covered: boolean) => ({ "gapura.hold.covered": covered });
    return inSpan(span, () => this.#advance(spent, nextEstimate), covers);
  }

  async #advance(spent: Observed, nextEstimate: Micros): Promise<boolean> {
    const covered = await this.#holds.advance(
      this,
      this.#note(spent),
      nextEstimate,
      this.#provisional(spent),
    );
    if (covered) this.#iterations += 1;
    return covered;
  }

  async spend(spent: Observed, nextEstimate: Micros): Promise<Micros> {
    // A hold that has ended must not come back.
    if (this.#end !== null) return 0n;
    return this.#holds.spend(this, this.#note(spent), nextEstimate, this.#provisional(spent));
  }

  /** Marks it as reported to Redis. @returns what was spent. */
  #note(spent: Observed): Micros {
    this.#seen = spent;
    this.#said = spent;
    return costMicros(this.request.prices, spent.tokens, spent.tools, spent.calls).total;
  }

  settle(usage: FinalUsage): Promise<void> {
    if (this.#end !== null) return this.#end;
    this.settled = usage;
    const row = usageRow(this.#charged, usage);
    this.charged = chargedBy(row);
    const { span, item } = this.#options;
    if (item !== null) this.#end = this.#hand(item, row);
    else if (span === null) this.#end = this.#holds.settle(this, row);
    else this.#end = inSpan(startSpan("settle", span), () => this.#holds.settle(this, row));
    return this.#end;
  }

  async #hand({ onRow }: ItemRun, row: UsageRow): Promise<void> {
    this.#holds.chargedElsewhere(this, row);
    onRow(row, () => this.#holds.release(this));
  }

  async release(): Promise<void> {
    if (this.#end !== null) return;
    this.#end = this.#holds.release(this);
    await this.#end;
  }

  /** Usage that was seen and Redis does not know yet; null: nothing new. */
  unsaid(): UsageRow | null {
    const seen = this.#seen;
    if (seen === null || seen === this.#said) return null;
    this.#said = seen;
    return this.#provisional(seen);
  }

  forgetSaid(): void {
    this.#said = null;
  }

  retake(): MeterOperation {
    const { organizationId, id } = this.request;
    const seen = this.#seen === null ? null : this.#provisional(this.#seen);
    const amount = this.amount.toString();
    return operation("retake", organizationId, id, amount, this.item, ...seenArguments(seen), this.scopes);
  }

  get scopeArguments(): ScopeArguments {
    return [this.scopes, String(this.request.limitsEpoch)];
  }

  /** As `scopeArguments`, for the charge. */
  get chargeScopes(): ScopeArguments {
    return this.#chargeScopes ?? this.scopeArguments;
  }

  correction(tokensUsed: number): Correction {
    const { requestsPerMinute, tokensPerMinute } = this.limits;
    const difference = this.#countsTokens ? tokensUsed - this.tokensTaken : 0;
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

export const holdAttributes = (what: "open" | "advance", estimate: Micros): Attributes => ({
  "gapura.hold.operation": what,
  "gapura.hold.estimate_micros": Number(estimate),
});
