/** Whatever became of a claim meanwhile: one result line, one usage row and one count for each item, of one run. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  answer,
  claim,
  deaf,
  engineOf,
  insertBatch,
  openBatchRows,
} from "../../../test/integration/batch-rows.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { reconcileBatches } from "../reconcile-batches.ts";
import type { ClaimedItem } from "./claim.ts";
import type { BatchContext } from "../context.ts";
import { closeFinished } from "../finish.ts";
import type { ItemEnd } from "./run.ts";
import { Settler } from "./settle.ts";
import { takeFromDead, takeUnknown } from "./workers.ts";

let pool: DatabasePool;
let close: () => Promise<void>;
let one: BatchContext;
let other: BatchContext;
beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
  one = engineOf(pool, "worker-one");
  other = engineOf(pool, "worker-other");
});
afterAll(() => close());

/** A worker's settler, and what was told of what it stored. */
function settlerOf(context: BatchContext) {
  const rows: UsageRow[] = [];
  const settler = new Settler(
    context,
    (charged) => rows.push(...charged),
    () => {},
  );
  const store = (item: ClaimedItem, end: ItemEnd) => settler.store(item, end);
  return { rows, store };
}

/** A run's answer, and whether its hold was released because the run was not wanted. */
function run(item: ClaimedItem, output: number) {
  const seen = { released: false };
  const end = answer(item, output, async () => {
    seen.released = true;
  });
  return { item, end, seen };
}

const firstOf = async (context: BatchContext, id: string): Promise<ClaimedItem> => {
  const [item] = await claim(context, id, 1);
  if (item === undefined) throw new Error("nothing could be claimed");
  return item;
};

/** What a worker had is taken from it, as its heartbeats did not come. */
async function lose(context: BatchContext): Promise<void> {
  await pool.query(sql.unsafe`delete from batch_workers where id = ${context.workerId}`);
  await takeFromDead(other, 60_000);
}

const outcomeSchema = z.object({
  state: z.string(),
  line: z.string().nullable(),
  rows: z.bigint(),
  tokens: z.bigint().nullable(),
  succeeded: z.number(),
  counted: z.bigint(),
});
/** How a batch's only item stands in its row, in the ledger and in the batch's counters. */
async function outcome(id: string) {
  return await pool.one(sql.type(outcomeSchema)`
    select item.state, convert_from(item.line, 'utf8')::json #>> '{usage,output_tokens}' as line,
      (select count(*) from usage where batch_id = batch.id) as rows,
      (select sum(output_tokens)::int8 from usage where batch_id = batch.id) as tokens,
      batch.succeeded, batch.output_tokens as counted
    from batches batch join batch_items item on item.batch_id = batch.id where batch.id = ${id}
  `);
}
const ofRun = (output: number) => ({
  state: "succeeded",
  line: String(output),
  rows: 1n,
  tokens: BigInt(output),
  succeeded: 1,
  counted: BigInt(output),
});

afterEach(async () => {
  expect(await reconcileBatches(pool)).toEqual([]);
});

describe("an item that ran twice in one worker", () => {
  let id = "";
  let late: ReturnType<typeof run>;
  let wanted: ReturnType<typeof run>;
  beforeEach(async () => {
    id = await insertBatch(pool, 1);
    late = run(await firstOf(one, id), 111);
    await lose(one);
    wanted = run(await firstOf(one, id), 222);
  });

  test.each(["late first", "late last"])("both in one portion, %s", async (order) => {
    const { store, rows } = settlerOf(one);
    const runs = order === "late first" ? [late, wanted] : [wanted, late];
    await Promise.all(runs.map(({ item, end }) => store(item, end)));
    expect(await outcome(id)).toEqual(ofRun(222));
    expect(rows).toEqual([wanted.end.row]);
    expect([late.seen.released, wanted.seen.released]).toEqual([true, false]);
  });

  test("the late one stored before the other has ended", async () => {
    const { store } = settlerOf(one);
    await store(late.item, late.end);
    expect(await outcome(id)).toMatchObject({ state: "running", rows: 0n, succeeded: 0 });
    await store(wanted.item, wanted.end);
    expect(await outcome(id)).toEqual(ofRun(222));
    expect(late.seen.released).toBe(true);
  });

  test("the late one would run again: that counts for nothing", async () => {
    const { store } = settlerOf(one);
    await Promise.all([
      store(late.item, { kind: "fault", waitMs: 60_000, own: 1, restMs: null }),
      store(wanted.item, wanted.end),
    ]);
    expect(await outcome(id)).toEqual(ofRun(222));
    expect(
      await pool.oneFirst(sql.type(z.object({ faults: z.number() }))`
      select faults from batch_items where batch_id = ${id}
    `),
    ).toBe(0);
  });

  test("faults are counted, and those that speak against the item by what they weigh", async () => {
    const schema = z.object({ faults: z.number(), ownFaults: z.number() });
    const { store } = settlerOf(other);
    await store(wanted.item, { kind: "fault", waitMs: 0, own: 4, restMs: null });
    await store(await firstOf(other, id), { kind: "fault", waitMs: 0, own: 0, restMs: null });
    expect(
      await pool.one(sql.type(schema)`
      select faults, own_faults as "ownFaults" from batch_items where batch_id = ${id}
    `),
    ).toEqual({ faults: 2, ownFaults: 4 });
    expect(await firstOf(other, id)).toMatchObject({ faults: 2, ownFaults: 4 });
  });

  test("the late one is stored while the item waits again", async () => {
    await lose(one);
    const { store } = settlerOf(one);
    await Promise.all([late, wanted].map(({ item, end }) => store(item, end)));
    expect(await outcome(id)).toMatchObject({ state: "waiting", rows: 0n, succeeded: 0 });
    expect([late.seen.released, wanted.seen.released]).toEqual([true, true]);
    const third = run(await firstOf(other, id), 333);
    await settlerOf(other).store(third.item, third.end);
    expect(await outcome(id)).toEqual(ofRun(333));
  });
});

test("two workers each have an item that the other had before, and both finish at once", async () => {
  const id = await insertBatch(pool, 1);
  const late = run(await firstOf(one, id), 111);
  await lose(one);
  const wanted = run(await firstOf(other, id), 222);
  const settlers = [settlerOf(one), settlerOf(other)] as const;
  await Promise.all([settlers[0].store(late.item, late.end), settlers[1].store(wanted.item, wanted.end)]);
  expect(await outcome(id)).toEqual(ofRun(222));
  expect([settlers[0].rows.length, settlers[1].rows.length]).toEqual([0, 1]);
});

test.each([
  ["cancelled", sql.fragment`cancel_initiated_at = clock_timestamp()`, "canceled"],
  ["overdue", sql.fragment`expires_at = clock_timestamp()`, "expired"],
] as const)("its batch was %s when it was taken: it never ran", async (_what, change, state) => {
  const id = await insertBatch(pool, 1);
  const late = run(await firstOf(one, id), 111);
  await pool.query(sql.unsafe`update batches set ${change} where id = ${id}`);
  await lose(one);
  await settlerOf(one).store(late.item, late.end);
  expect(await outcome(id)).toMatchObject({ state, rows: 0n, succeeded: 0 });
  expect(late.seen.released).toBe(true);
  await closeFinished(one);
  expect(
    await pool.oneFirst(sql.type(z.object({ state: z.string() }))`
    select state from batches where id = ${id}
  `),
  ).toBe("finalizing");
});

describe("an answer of Postgres that never came", () => {
  test("to a settle: what was stored counts, and is told of", async () => {
    const id = await insertBatch(pool, 1);
    const wanted = run(await firstOf(one, id), 222);
    const { store, rows } = settlerOf(deaf(one));
    await store(wanted.item, wanted.end);
    expect(await outcome(id)).toEqual(ofRun(222));
    expect(rows).toEqual([wanted.end.row]);
    expect(wanted.seen.released).toBe(false);
  });

  test("to a claim: the items do not belong for ever to a worker that does not know of them", async () => {
    const id = await insertBatch(pool, 3);
    const known = await firstOf(one, id);
    const unknown = await firstOf(one, id);
    expect(await takeUnknown(one, [known.claim])).toBe(1);
    const third = run(unknown, 111);
    await settlerOf(one).store(third.item, third.end);
    expect(third.seen.released).toBe(true);
    expect((await claim(other, id, 3)).map(({ number }) => number)).toEqual([1, 2]);
  });
});
