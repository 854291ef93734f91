import fc from "fast-check";
import { expect, test } from "vitest";
import type { FinalUsage, MeteredRequest } from "./meter.ts";
import { shardOf } from "./shard.ts";
import { decodeRow, encodeRow, usageRow } from "./usage-row.ts";

const request: MeteredRequest = {
  id: "req_1",
  acceptedAt: 1_790_000_000_123,
  organizationId: "org",
  projectId: "proj_1",
  keyId: "apikey_1",
  keyEpoch: 1,
  model: "modèle \u{1F600}",
  contextTokens: 200_000,
  endpoint: "responses",
  batchId: null,
  prices: {
    source: { kind: "PriceTable", namespace: "n", name: "p", uid: "u", generation: 1 },
    input: "0.3",
    output: "1.1",
    cacheRead: "0.1",
    cacheWrite5m: "0.7",
    cacheWrite1h: "0.9",
    tools: { webSearch: "320", webFetch: "0", xSearchPost: "160", xSearchProfile: "320" },
  },
  inputTokens: 0,
};
/** Whatever an upstream may report. */
const reported = fc.oneof(fc.nat(1_000_000), fc.double(), fc.constant(-1), fc.constant(Number.MAX_VALUE));
const anyUsage: fc.Arbitrary<FinalUsage> = fc.record({
  tokens: fc.record({
    input: reported,
    cacheRead: reported,
    cacheWrite5m: reported,
    cacheWrite1h: reported,
    output: reported,
    reasoning: reported,
  }),
  tools: fc.record({
    webSearches: reported,
    webFetches: reported,
    xSearches: reported,
    xPosts: reported,
    xProfiles: reported,
  }),
  estimated: fc.boolean(),
  status: fc.constantFrom("ok" as const, "error" as const, "cancelled" as const),
  iterations: fc.nat(9),
  upstream: fc.option(fc.string()),
});

test("a row is the same after its way through the stream, whatever the upstream reported", () => {
  fc.assert(
    fc.property(anyUsage, fc.boolean(), (usage, provisional) => {
      const row = usageRow(request, usage, provisional);
      expect(decodeRow(encodeRow(row))).toEqual(row);
    }),
  );
});

test("what is no row is refused", () => {
  expect(() => decodeRow("{}")).toThrow(/./);
  expect(() => decodeRow("")).toThrow(/./);
});

test("an organization's shard never changes: pods of two releases must agree", () => {
  expect(["org_acme", "org_demo", "org_default_blue", "", "é"].map(shardOf)).toEqual([4, 5, 12, 5, 4]);
});
