import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import type { DatabasePool } from "slonik";
import { expect, test } from "vitest";
import { LedgerWriter } from "./ledger-writer.ts";
import type { UsageRow } from "../ledger/usage-row.ts";

const rowOf = (id: string) => ({ id, organizationId: "org_a" }) as UsageRow;

/** A ledger whose only transaction ends when it is told to, and a Redis that takes what it is told to. */
function openWriter() {
  const told: string[] = [];
  const committed = Promise.withResolvers<[]>();
  const askedRedis = Promise.withResolvers<void>();
  const redis = new Map<string, Promise<boolean>>();
  const writer = new LedgerWriter({
    pool: { transaction: () => committed.promise } as unknown as DatabasePool,
    log: pino({ level: "silent" }),
    settleInRedis: ({ id }) => {
      askedRedis.resolve();
      return redis.get(id) ?? Promise.resolve(false);
    },
    onSettled: ({ id }) => told.push(`Redis took ${id}`),
    onStored: (rows) => told.push(...rows.map(({ id }) => `the ledger took ${id}`)),
  });
  return { writer, told, committed, redis, askedRedis };
}

test("a row that Redis takes while its transaction is slow is told of once", async () => {
  const { writer, told, committed, redis } = openWriter();
  redis.set("one", Promise.resolve(true));
  await writer.store(rowOf("one"));
  const other = writer.store(rowOf("other"));
  committed.resolve([]);
  await other;
  expect(told).toEqual(["Redis took one", "the ledger took other"]);
});

test("and so is a row that Redis says to have taken once it was committed", async () => {
  const { writer, told, committed, redis, askedRedis } = openWriter();
  const late = Promise.withResolvers<boolean>();
  redis.set("one", late.promise);
  const one = writer.store(rowOf("one"));
  await askedRedis.promise;
  committed.resolve([]);
  await one;
  late.resolve(true);
  await sleep(0);
  expect(told).toEqual(["the ledger took one"]);
});
