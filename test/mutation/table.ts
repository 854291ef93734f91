/** Files whose mistakes cost most, and the tests that have to find them: money, codecs, the guard of the network. */
export const suites: Readonly<Record<string, readonly string[]>> = {
  "dataplane/billing/price.ts": ["dataplane/billing/price.test.ts", "test/prices.law.test.ts"],
  "dataplane/billing/scaled-prices.ts": ["dataplane/billing/price.test.ts", "test/prices.law.test.ts"],
  "dataplane/billing/charge-text.ts": ["dataplane/billing/charge-text.test.ts"],
  "dataplane/billing/kept-charges.ts": ["dataplane/billing/kept-charges.test.ts"],
  "dataplane/billing/scopes.ts": ["dataplane/billing/scopes.test.ts"],
  "dataplane/billing/credits.ts": ["dataplane/billing/credits.test.ts"],
  "dataplane/billing/held-bill.ts": ["dataplane/billing/held-bill.test.ts"],
  "dataplane/dialects/usage.ts": [
    "dataplane/dialects/usage.test.ts",
    "dataplane/inference/implausible-usage.test.ts",
    "dataplane/inference/usage.law.test.ts",
  ],
  "dataplane/dialects/tiers.ts": ["dataplane/dialects/tiers.test.ts"],
  "dataplane/dialects/stop-sequences.ts": ["dataplane/dialects/stop-sequences.law.test.ts"],
  "dataplane/lib/byte-budget.ts": ["dataplane/lib/byte-budget.test.ts"],
  "dataplane/lib/token-bucket.ts": ["dataplane/lib/token-bucket.test.ts"],
  "dataplane/lib/sse.ts": ["dataplane/lib/sse.test.ts"],
  "dataplane/lib/json-splice.ts": ["dataplane/lib/json-splice.test.ts"],
  "dataplane/tools/url-guard/address.ts": [
    "dataplane/tools/url-guard/address.test.ts",
    "dataplane/tools/url-guard/guard.test.ts",
  ],
  "dataplane/tools/url-guard/judge-url.ts": ["dataplane/tools/url-guard/guard.test.ts"],
  "dataplane/upstream/health.ts": ["dataplane/upstream/health.test.ts"],
  "dataplane/upstream/pick.ts": ["dataplane/upstream/pick.test.ts"],
  "operator/plan/decimal.ts": ["operator/plan/decimal.test.ts"],
};
