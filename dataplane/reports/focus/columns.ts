/**
 * The columns of the FOCUS 1.2 export (rule 14.5): all mandatory ones of the specification, and those of the others for which
 * there is data. Pure. A row is one kind of charge of one group of a day.
 */
import { isPersonId } from "../../billing/scopes.ts";
import type { Micros } from "../../billing/credits.ts";
import { DAY_MS } from "../../lib/clock.ts";
import { describeCharge, lines } from "../charges.ts";
import type { DayGroup } from "./pages.ts";

/** The values that all rows of a month share; times are Unix milliseconds. */
export interface FocusMonth {
  readonly organizationId: string;
  readonly from: number;
  readonly to: number;
}

/** One kind of charge of one group. */
interface FocusCharge {
  readonly month: FocusMonth;
  readonly group: DayGroup;
  readonly line: (typeof lines)[number];
  readonly micros: Micros;
  readonly quantity: bigint;
}

/** Returns the charges of some groups, without those that have neither quantity nor cost. */
export function chargesOf(month: FocusMonth, groups: readonly DayGroup[]): readonly FocusCharge[] {
  return groups.flatMap((group) =>
    lines.flatMap((line) => {
      const micros = group[line.micros] ?? 0n;
      const quantity = line.amounts.reduce((sum, column) => sum + (group[column] ?? 0n), 0n);
      return micros === 0n && quantity === 0n ? [] : [{ month, group, line, micros, quantity }];
    }),
  );
}

/** A column: its values are text, Unix milliseconds, micro-credits (shown in rupiah or credits), whole numbers, or tags. */
export type FocusColumn = { readonly name: string } & (
  | { readonly kind: "text"; readonly of: (charge: FocusCharge) => string | null }
  | { readonly kind: "time"; readonly of: (charge: FocusCharge) => number }
  | { readonly kind: "rupiah" | "credits" | "count"; readonly of: (charge: FocusCharge) => bigint }
  /** As lib/tags.ts writes them; shown as JSON. */
  | { readonly kind: "tags"; readonly of: (charge: FocusCharge) => string }
);

const text = (name: string, of: (charge: FocusCharge) => string | null): FocusColumn => ({
  name,
  kind: "text",
  of,
});
const same = (name: string, value: string | null): FocusColumn => text(name, () => value);
const time = (name: string, of: (charge: FocusCharge) => number): FocusColumn => ({ name, kind: "time", of });
/** Makes one of the four costs of FOCUS, which are all equal: there are no discounts and no prepaid terms. */
const cost = (name: string): FocusColumn => ({ name, kind: "rupiah", of: ({ micros }) => micros });
const quantity = (name: string): FocusColumn => ({ name, kind: "count", of: (charge) => charge.quantity });

const PROVIDER = "Gapura";
const units = {
  tokens: "Tokens",
  web_search: "Searches",
  web_fetch: "Fetches",
  x_search: "Searches",
} as const;
const described = ({ group, line }: FocusCharge): string =>
  describeCharge(group.model, group.serviceTier, line.words);
const unit = ({ line }: FocusCharge): string => units[line.costType];

/** The columns in the order of their names, as FOCUS recommends; our own, whose names begin with `x_`, come last. */
export const columns: readonly FocusColumn[] = [
  cost("BilledCost"),
  text("BillingAccountId", ({ month }) => month.organizationId),
  text("BillingAccountName", ({ month, group }) => group.organizationName ?? month.organizationId),
  same("BillingAccountType", "Organization"),
  same("BillingCurrency", "IDR"),
  time("BillingPeriodEnd", ({ month }) => month.to),
  time("BillingPeriodStart", ({ month }) => month.from),
  same("ChargeCategory", "Usage"),
  // Null: the charge corrects no earlier bill.
  same("ChargeClass", null),
  text("ChargeDescription", described),
  same("ChargeFrequency", "Usage-Based"),
  time("ChargePeriodEnd", ({ group }) => group.day + DAY_MS),
  time("ChargePeriodStart", ({ group }) => group.day),
  quantity("ConsumedQuantity"),
  text("ConsumedUnit", unit),
  cost("ContractedCost"),
  cost("EffectiveCost"),
  same("InvoiceIssuerName", PROVIDER),
  cost("ListCost"),
  same("PricingCategory", "Standard"),
  same("PricingCurrency", "Credits"),
  { name: "PricingCurrencyEffectiveCost", kind: "credits", of: ({ micros }) => micros },
  quantity("PricingQuantity"),
  text("PricingUnit", unit),
  same("ProviderName", PROVIDER),
  same("PublisherName", PROVIDER),
  text("ResourceId", ({ group }) => group.keyId),
  // Not every token holds a name.
  text("ResourceName", ({ group }) => group.keyName || null),
  text("ResourceType", ({ group }) => (isPersonId(group.keyId) ? "Person" : "API key")),
  same("ServiceCategory", "AI and Machine Learning"),
  text("ServiceName", ({ line }) => (line.costType === "tokens" ? "Model inference" : "Server tools")),
  same("ServiceSubcategory", "Generative AI"),
  text("SkuId", described),
  text("SkuMeter", ({ line }) => line.words),
  text("SubAccountId", ({ group }) => group.projectId),
  text("SubAccountName", ({ group }) => group.projectName),
  same("SubAccountType", "Project"),
  { name: "Tags", kind: "tags", of: ({ group }) => group.tags },
  text("x_Batch", ({ group }) => String(group.batch)),
  { name: "x_ContextTokens", kind: "count", of: ({ group }) => group.contextTokens },
  text("x_Model", ({ group }) => group.model),
  text("x_ServiceTier", ({ group }) => group.serviceTier),
];
