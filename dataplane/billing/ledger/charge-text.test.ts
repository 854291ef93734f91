import fc from "fast-check";
import { expect, test } from "vitest";
import type { FinalUsage, MeteredRequest } from "../meter.ts";
import { chargeArray, decodeRow, encodeRow } from "./charge-text.ts";
import { usageRow } from "./usage-row.ts";

const request: MeteredRequest = {
  id: "req_1",
  acceptedAt: 1_790_000_000_123,
  organizationId: "org",
  projectId: "proj_1",
  keyId: "apikey_1",
  keyEpoch: 1,
  limits: [],
  limitsEpoch: 1,
  model: "modèle \u{1F600}",
  contextTokens: 200_000,
  endpoint: "responses",
  batchId: null,
  tags: `quote=a"b\\(c,team=m l`,
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
  implausible: fc.boolean(),
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

const usage: FinalUsage = {
  tokens: { input: 12, cacheRead: 1, cacheWrite5m: 2, cacheWrite1h: 3, output: 34, reasoning: 5 },
  tools: { webSearches: 1, webFetches: 2, xSearches: 3, xPosts: 4, xProfiles: 5 },
  estimated: true,
  status: "ok",
  iterations: 2,
  upstream: null,
};

test("a row is a value of Postgres' type `charge`", () => {
  const row = usageRow(
    { ...request, model: 'a "b" \\c,', batchId: "batch_1" },
    { ...usage, implausible: true },
  );
  const text =
    '(1,1790000000123,req_1,org,proj_1,apikey_1,"a ""b"" \\\\c,",200000,standard,responses,batch_1,ok,2,,t,f,' +
    '12,1,2,3,34,5,1,2,3,4,5,3,0,1,2,37,320000,0,2240002,t,"quote=a""b\\\\(c,team=m l")';
  expect(encodeRow(row)).toBe(text);
  expect(chargeArray([text, "x"])).toBe(`{"${text.replace(/["\\]/g, (letter) => `\\${letter}`)}","x"}`);
});

test("a request without tags has a null in their place, as the ledger has", () => {
  const row = usageRow({ ...request, tags: "" }, usage);
  expect(encodeRow(row)).toMatch(/,f,\)$/);
  expect(decodeRow(encodeRow(row))).toEqual(row);
});

test("no word breaks out of the packed operation that a row travels in", () => {
  const text = encodeRow(usageRow({ ...request, keyId: "a\0b\x1ec\x1fd\n" }, usage));
  expect(text).not.toMatch(/\p{Cc}/u);
  expect(decodeRow(text).keyId).toBe("a\ufffdb\ufffdc\ufffdd\ufffd");
});

const good = encodeRow(usageRow(request, usage));
test.each([
  "",
  "{}",
  "()",
  good.slice(1),
  `${good},${good}`,
  good.replace("(1,", "(2,"),
  good.replace(",org,", ",,"),
  good.replace(",org,", ',"or"g,'),
  good.replace(",12,", ",-12,"),
  good.replace(",12,", ",1e2,"),
  good.replace(",12,", ",12,12,"),
])("what is no row is refused: %s", (text) => {
  expect(() => decodeRow(text)).toThrow(/./);
});
