import { expect, test } from "vitest";
import { routeTo } from "../../test/fakes/inference.ts";
import { HeldBill, type HoldOperations, type ItemRun } from "./held-bill.ts";
import type { FinalUsage, MeteredRequest } from "./meter.ts";
import { noTokens, noTools } from "./token-usage.ts";
import type { UsageRow } from "./usage-row.ts";

const request: MeteredRequest = {
  id: "req_1",
  acceptedAt: 1_795_000_000_000,
  organizationId: "org_a",
  projectId: "proj_1",
  keyId: "apikey_1",
  keyEpoch: 3,
  limits: [],
  limitsEpoch: 1,
  model: "m",
  contextTokens: 1000,
  endpoint: "messages",
  batchId: null,
  tags: "",
  prices: routeTo([]).prices,
  inputTokens: 10,
};
const usage: FinalUsage = {
  tokens: { ...noTokens, input: 10, output: 5 },
  tools: noTools,
  estimated: false,
  status: "ok",
  iterations: 1,
  upstream: "primary",
};

function billOf(item: ItemRun | null = null) {
  const done: string[] = [];
  const holds: HoldOperations = {
    advance: async () => true,
    spend: async () => 1n,
    settle: async (_bill, row) => void done.push(`settled ${row.id} ${row.tokens.output}`),
    release: async (bill) => void done.push(`released ${bill.request.id}`),
    chargedElsewhere: (bill, row) => void done.push(`${row.id} is charged elsewhere for ${bill.request.id}`),
  };
  const limits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };
  return { bill: new HeldBill(holds, request, limits, { span: null, item }), done };
}

test("whatever ends a bill first ends it, and what comes later changes nothing", async () => {
  const settled = billOf();
  await settled.bill.settle(usage);
  await settled.bill.release();
  await settled.bill.settle({ ...usage, tokens: { ...usage.tokens, output: 9 } });
  expect(settled.done).toEqual(["settled req_1 5"]);
  expect(settled.bill.settled).toEqual(usage);
  const released = billOf();
  await released.bill.release();
  await released.bill.settle(usage);
  await released.bill.release();
  expect(released.done).toEqual(["released req_1"]);
  expect(released.bill.settled).toBeNull();
});

test("who settles again hears how the first settling ended", async () => {
  const { bill, done } = billOf();
  const first = bill.settle(usage);
  expect(bill.settle(usage)).toBe(first);
  await first;
  expect(done).toHaveLength(1);
});

test("an item's row is handed over under the request's id, and its hold goes back when it is not charged", async () => {
  const rows: (readonly [UsageRow, () => Promise<void>])[] = [];
  const { bill, done } = billOf({ claim: "c1", onRow: (row, giveBack) => rows.push([row, giveBack]) });
  await bill.settle(usage);
  await bill.release();
  expect(done).toEqual(["req_1 is charged elsewhere for req_1.c1"]);
  expect(rows.map(([row]) => row.id)).toEqual(["req_1"]);
  await rows[0]?.[1]();
  expect(done.at(-1)).toBe("released req_1.c1");
});
