/**
 * Metrics by organization (rule 14.6). They are off unless the platform team asks for them, because a thousand
 * organizations make a thousand series in each pod.
 */
import { Gauge } from "prom-client";
import { registry } from "./metrics.ts";
import { CreditCounter } from "./tally.ts";

class OrganizationMetrics {
  readonly #nameOf: (organizationId: string) => string | undefined;
  readonly #balance = new Gauge({
    name: "gapura_organization_balance_credits",
    help: "Grants less what was charged, as the ledger has it: the same in every pod.",
    labelNames: ["organization"],
    registers: [registry],
  });
  readonly #spend = new CreditCounter({
    name: "gapura_organization_spend_credits_total",
    help: "Credits charged by this process.",
    labelNames: ["organization"],
    registers: [registry],
  });

  constructor(nameOf: (organizationId: string) => string | undefined) {
    this.#nameOf = nameOf;
  }

  spent(organizationId: string, micros: number): void {
    const organization = this.#nameOf(organizationId);
    if (organization !== undefined) this.#spend.series({ organization }).value += micros;
  }

  balances(balances: Iterable<readonly [organizationId: string, credits: number]>): void {
    // Removes the series of organizations that no longer exist.
    this.#balance.reset();
    for (const [organizationId, credits] of balances) {
      const organization = this.#nameOf(organizationId);
      if (organization === undefined) continue;
      this.#balance.set({ organization }, credits);
      // Creates the series at 0: to Prometheus, a counter that first appears as 1 has not increased.
      this.#spend.series({ organization });
    }
  }
}
let organizationMetrics: OrganizationMetrics | null = null;

/** Turns the metrics on. @param nameOf the label of an organization; undefined: it no longer exists. */
export const showOrganizations = (
  nameOf: (organizationId: string) => string | undefined,
): OrganizationMetrics => (organizationMetrics = new OrganizationMetrics(nameOf));

/** Counts a charge of an organization, if these metrics are on. @param micros micro-credits. */
export function countSpend(organizationId: string, micros: number): void {
  organizationMetrics?.spent(organizationId, micros);
}
