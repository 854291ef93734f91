import type { Attributes } from "@opentelemetry/api";
import type { Bill, FinalUsage, Micros } from "../billing/meter.ts";

/** A bill that is settled or released once, whoever comes first. */
export class EndedOnce implements Bill {
  readonly #bill: Bill;
  #ended = false;
  #usage: FinalUsage | null = null;

  constructor(bill: Bill) {
    this.#bill = bill;
  }

  get headers(): Bill["headers"] {
    return this.#bill.headers;
  }

  observe(...args: Parameters<Bill["observe"]>): void {
    this.#bill.observe(...args);
  }

  advance(...args: Parameters<Bill["advance"]>): Promise<boolean> {
    return this.#bill.advance(...args);
  }

  spend(...args: Parameters<Bill["spend"]>): Promise<Micros> {
    return this.#bill.spend(...args);
  }

  settle(usage: FinalUsage): Promise<void> {
    this.#ended = true;
    this.#usage = usage;
    return this.#bill.settle(usage);
  }

  /** What was charged, for a span. */
  get usageAttributes(): Attributes {
    if (this.#usage === null) return {};
    const { input, cacheRead, cacheWrite5m, cacheWrite1h, output } = this.#usage.tokens;
    return {
      "gen_ai.usage.input_tokens": input + cacheRead + cacheWrite5m + cacheWrite1h,
      "gen_ai.usage.output_tokens": output,
    };
  }

  async release(): Promise<void> {
    if (this.#ended) return;
    this.#ended = true;
    await this.#bill.release();
  }
}
