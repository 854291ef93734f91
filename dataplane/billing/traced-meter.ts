/** A meter whose waits show in a trace: each hold, and the charge at the end (design.md §7). */
import type { Span } from "@opentelemetry/api";
import { inSpan, startSpan } from "../telemetry/trace.ts";
import type { Bill, FinalUsage, Meter, Micros, Observed } from "./meter.ts";

/** The meter itself when nothing is traced. */
export function tracedMeter(meter: Meter, parent: Span | null): Meter {
  if (parent === null) return meter;
  return {
    open: async (request, estimate) => {
      const span = startSpan("hold", parent, () => wanted("open", estimate));
      const bill = await inSpan(span, () => meter.open(request, estimate));
      return new TracedBill(bill, parent);
    },
  };
}

class TracedBill implements Bill {
  readonly #bill: Bill;
  readonly #parent: Span;

  constructor(bill: Bill, parent: Span) {
    this.#bill = bill;
    this.#parent = parent;
  }

  get headers(): Bill["headers"] {
    return this.#bill.headers;
  }

  observe(observed: Observed): void {
    this.#bill.observe(observed);
  }

  advance(spent: Observed, nextEstimate: Micros): Promise<boolean> {
    const span = startSpan("hold", this.#parent, () => wanted("advance", nextEstimate));
    return inSpan(
      span,
      () => this.#bill.advance(spent, nextEstimate),
      (covered) => ({ "gapura.hold.covered": covered }),
    );
  }

  spend(spent: Observed, nextEstimate: Micros): Promise<Micros> {
    return this.#bill.spend(spent, nextEstimate);
  }

  settle(usage: FinalUsage): Promise<void> {
    return inSpan(startSpan("settle", this.#parent), () => this.#bill.settle(usage));
  }

  release(): Promise<void> {
    return this.#bill.release();
  }
}

const wanted = (operation: "open" | "advance", estimate: Micros) => ({
  "gapura.hold.operation": operation,
  "gapura.hold.estimate_micros": Number(estimate),
});
