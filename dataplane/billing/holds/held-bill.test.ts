import { expect, test } from "vitest";
import { routeTo } from "../../../test/fakes/inference.ts";
import type { Limits } from "../../config/schema.ts";
import { HeldBill, seenArguments, type HoldOperations, type ItemRun } from "./held-bill.ts";
import type { FinalUsage, MeteredRequest } from "../meter.ts";
import { operation } from "./shard.ts";
import { noTokens, noTools } from "../token-usage.ts";
import type { UsageRow } from "../ledger/usage-row.ts";

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

function billOf(item: ItemRun | null = null, covered = true) {
  const done: string[] = [];
  const holds: HoldOperations = {
    advance: async () => covered,
    spend: async () => 1n,
    settle: async (_bill, row) => void done.push(`settled ${row.id} ${row.tokens.output}`),
    release: async (bill) => void done.push(`released ${bill.request.id}`),
    chargedElsewhere: (bill, row) => void done.push(`${row.id} is charged elsewhere for ${bill.request.id}`),
  };
  const limits = { requestsPerMinute: null, tokensPerMinute: null, concurrentRequests: null };
  return { bill: new HeldBill(holds, request, limits, { span: null, item }), holds, done };
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

test("what has ended does not come back to spend", async () => {
  const observed = { tokens: usage.tokens, tools: noTools, estimated: false };
  const { bill } = billOf();
  expect(await bill.spend(observed, 5n)).toBe(1n);
  await bill.release();
  expect(await bill.spend(observed, 5n)).toBe(0n);
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

test("what the sweeper would charge names the calls that were begun, and is told once", async () => {
  const observed = { tokens: usage.tokens, tools: noTools, estimated: false };
  const { bill } = billOf();
  expect(bill.unsaid()).toBeNull();
  bill.observe({ ...observed, tokens: noTokens });
  expect(bill.unsaid()).toBeNull();
  bill.observe(observed);
  expect(bill.unsaid()).toMatchObject({ iterations: 1, status: "error", provisional: true });
  expect(bill.unsaid()).toBeNull();
  bill.forgetSaid();
  expect(bill.unsaid()).not.toBeNull();
  await bill.advance(observed, 1n);
  // Redis was told with the question.
  expect(bill.unsaid()).toBeNull();
  bill.forgetSaid();
  expect(bill.unsaid()).toMatchObject({ iterations: 2 });
  const refused = billOf(null, false);
  await refused.bill.advance(observed, 1n);
  refused.bill.forgetSaid();
  expect(refused.bill.unsaid()).toMatchObject({ iterations: 1 });
});

const perMinute = (tokensPerMinute: number | null) => ({
  requestsPerMinute: 7,
  tokensPerMinute,
  concurrentRequests: null,
});
const ofKey = (limits: Limits) => [{ kind: "key" as const, id: "apikey_1", limits }];

test.each<[string, Partial<MeteredRequest>, number | null, tokens: number, correction: string[]]>([
  ["nothing counts tokens", {}, null, 0, ["7", "0", "0"]],
  ["the organization's do", { inputTokens: 9.2 }, 50, 10, ["7", "50", "2"]],
  ["less was used than was taken", { inputTokens: 20 }, 50, 20, ["7", "50", "-8"]],
  ["an estimate below nothing takes nothing", { inputTokens: -3 }, 50, 0, ["7", "50", "12"]],
  ["the key's do", { limits: ofKey({ tokensPerMinute: 9 }) }, null, 10, ["7", "0", "2"]],
  ["the key counts requests only", { limits: ofKey({ requestsPerMinute: 9 }) }, null, 0, ["7", "0", "0"]],
  [
    "a batch item's key has no limit of rate",
    { endpoint: "batch", limits: ofKey({ tokensPerMinute: 9 }) },
    null,
    0,
    ["7", "0", "0"],
  ],
])(
  "tokens are taken on admission, and corrected by what was used: %s",
  (_name, own, tokens, taken, correction) => {
    const { holds } = billOf();
    const bill = new HeldBill(holds, { ...request, ...own }, perMinute(tokens), { span: null, item: null });
    expect(bill.tokensTaken).toBe(taken);
    expect(bill.correction(12)).toEqual(correction);
  },
);

test("its scopes are those of the key as it was looked up last", () => {
  const { holds } = billOf();
  const limited = { ...request, limits: ofKey({ requestsPerMinute: 9 }) };
  const limits = perMinute(null);
  const bill = new HeldBill(holds, limited, limits, { span: null, item: null });
  expect(bill.item).toBe("0");
  expect(bill.scopeArguments).toEqual(["k apikey_1 - 0 0 9 0", "1"]);
  bill.renew({ keyEpoch: 4, projectId: "proj_2", limits: [] });
  expect(bill.scopeArguments).toEqual(["", "4"]);
  const batched = new HeldBill(holds, { ...limited, endpoint: "batch" }, limits, { span: null, item: null });
  expect(batched.item).toBe("1");
  expect(batched.scopeArguments).toEqual(["k apikey_1 - 0 0 0 0", "1"]);
});

test("a hold that Redis lost is taken again, with what was used so far", () => {
  const { bill } = billOf();
  bill.amount = 400n;
  expect(bill.retake()).toBe(operation("retake", "org_a", "req_1", "400", "0", "", "0", ""));
  expect(bill.correction(500)).toEqual(["0", "0", "0"]);
  bill.observe({ tokens: usage.tokens, tools: noTools, estimated: false });
  const [row, cost] = seenArguments(bill.unsaid());
  expect(cost).not.toBe("0");
  expect(bill.retake()).toBe(operation("retake", "org_a", "req_1", "400", "0", row, cost, ""));
});
