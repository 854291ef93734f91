import { expect, test, vi } from "vitest";
import { FreeBudget } from "./free-budget.ts";
import type { RateLimits } from "./held-bill.ts";
import type { Reply } from "./shard.ts";
import type { Shards } from "./shards.ts";

test("who has used up the budget is refused without Redis, but not under another limit", async () => {
  let requestsPerMinute = 12_000;
  const run = vi.fn(async (): Promise<Reply> => ["limited", "requests", "8000"]);
  const shards = { of: () => ({ run }) } as unknown as Shards;
  const budget = new FreeBudget(shards, () => ({ requestsPerMinute }) as RateLimits);
  const take = () =>
    budget.take({ organizationId: "org_1", kind: "inference" } as never, {
      requests: 1,
      text: 0,
      takeText: false,
    });
  for (let n = 0; n < 2; n += 1) await expect(take()).rejects.toMatchObject({ code: "rate_limited" });
  expect(run).toHaveBeenCalledTimes(1);
  requestsPerMinute = 60_000;
  run.mockResolvedValue(["taken"]);
  await take();
  expect(run).toHaveBeenCalledTimes(2);
});

test("ten seconds' worth of requests are let through at once, and a thousand at least", () => {
  const rates: Record<string, number | null> = { org_none: null, org_few: 60, org_many: 60_000 };
  const limits = (id: string) => ({ requestsPerMinute: rates[id] }) as RateLimits;
  const budget = new FreeBudget({} as Shards, limits);
  expect(Object.keys(rates).map((id) => budget.atOnce(id))).toEqual([1_000, 1_000, 10_000]);
});
