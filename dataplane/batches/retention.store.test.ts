/** Batches that are over go in the end, and however many cannot be cleared the others do not wait for them. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { engineOf, insertBatch, organizationId, openBatchRows } from "../../test/integration/batch-rows.ts";
import { BatchBackOff } from "./back-off.ts";
import type { BatchContext } from "./context.ts";
import { reconcileStorage } from "./reconcile-storage.ts";
import { sweepBatches } from "./retention.ts";

let pool: DatabasePool;
let close: () => Promise<void>;
let context: BatchContext;
beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
  context = engineOf(pool, "worker-one");
});
afterAll(() => close());
beforeEach(async () => {
  await pool.query(sql.unsafe`delete from batch_items`);
  await pool.query(sql.unsafe`delete from batches`);
  await pool.query(sql.unsafe`delete from storage`);
});

/** One that ended so many days ago. */
async function insertEnded(days: number): Promise<string> {
  const id = await insertBatch(pool, 1);
  await pool.query(sql.unsafe`
    update batches set state = 'ended', outcome = 'completed', form = 'openai', dialect = 'chat', metadata = '{}',
      stored_bytes = 2, ended_at = now() - ${days} * interval '1 day'
    where id = ${id}
  `);
  await pool.query(sql.unsafe`
    insert into storage values (${organizationId}, 2, 0, 1)
    on conflict (organization_id) do update set bytes = storage.bytes + 2, batches = storage.batches + 1
  `);
  return id;
}
const count = async (query: ReturnType<typeof sql.fragment>) =>
  (await pool.anyFirst(sql.unsafe`select 1 ${query}`)).length;

test("a batch goes sixty days after its end, also a deleted one, and gives back what it took", async () => {
  const [old, deleted, young] = [await insertEnded(61), await insertEnded(60), await insertEnded(59)];
  await pool.query(sql.unsafe`
    update batches set form = 'messages', dialect = 'messages', deleted_at = now() where id = ${deleted}
  `);
  const archived = await insertEnded(59);
  await pool.query(
    sql.unsafe`update batches set form = 'messages', dialect = 'messages' where id = ${archived}`,
  );
  const running = await insertBatch(pool, 1);
  await pool.query(sql.unsafe`update storage set batches = batches + 1`);
  await pool.query(sql.unsafe`
    insert into usage_closed_batches select id, '2026-01-01Z', 1, 0, 0, 0, 0 from batches
  `);
  await sweepBatches(context);
  for (const [id, left] of [
    [old, 0],
    [deleted, 0],
    [young, 1],
    [archived, 1],
    [running, 1],
  ] as const)
    for (const rows of [
      sql.fragment`from batches where id = ${id}`,
      sql.fragment`from usage_closed_batches where batch_id = ${id}`,
    ])
      expect([id, await count(rows)]).toEqual([id, left]);
  expect(await reconcileStorage(pool)).toEqual([]);
  expect(await count(sql.fragment`from storage where bytes = 4 and batches = 3`)).toBe(1);
});

test("one sweep clears more than a portion", async () => {
  for (let n = 0; n < 120; n += 1) await insertEnded(1);
  await sweepBatches(context);
  expect(await count(sql.fragment`from batches where not emptied`)).toBe(0);
});

test("the headers that its requests went with are not kept with a batch that is over", async () => {
  const id = await insertEnded(1);
  await pool.query(sql.unsafe`update batches set headers = '{"anthropic-beta":"a"}' where id = ${id}`);
  await sweepBatches(context);
  expect(await count(sql.fragment`from batches where headers = '{}'`)).toBe(1);
});

const refusals = [
  ["that Postgres does not let be changed", "raise exception 'refused'", 55],
  // What takes too long ends a sweep, as the store may be away.
  ["whose statements are cancelled", "raise exception 'too long' using errcode = '57014'", 5],
] as const;
for (const [what, refusal, stuck] of refusals) {
  test(`${stuck} batches ${what} do not keep the others`, async () => {
    await pool.query(sql.unsafe`
      create function refuse_stuck() returns trigger language plpgsql as ${sql.literalValue(`begin ${refusal}; end`)}
    `);
    await pool.query(sql.unsafe`
      create trigger refuse_stuck before delete on batch_items for each row when (old.model = 'stuck')
      execute function refuse_stuck()
    `);
    for (let n = 0; n < stuck; n += 1) await insertEnded(2);
    await pool.query(sql.unsafe`update batch_items set model = 'stuck'`);
    const other = await insertEnded(1);
    const backOff = new BatchBackOff();
    const sweep = async () => {
      await sweepBatches(context, backOff).catch(() => undefined);
      return await count(sql.fragment`from batches where id = ${other} and emptied`);
    };
    await expect.poll(sweep, { timeout: 20_000 }).toBe(1);
    await pool.query(sql.unsafe`drop trigger refuse_stuck on batch_items`);
    const left = async () => {
      await sweep();
      return await count(sql.fragment`from batches where not emptied`);
    };
    await expect.poll(left, { timeout: 20_000 }).toBe(0);
  });
}
afterEach(async () => {
  await pool.query(sql.unsafe`drop function if exists refuse_stuck() cascade`);
});
