/** What a worker's look for something to run costs the database: every pod looks once a second, and at each item's end. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { insertBatch, organizationId } from "../../test/integration/batch-rows.ts";
import { makeOrganization } from "../../test/integration/money-world.ts";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { openPostgres } from "../store/postgres.ts";
import { batchesInLine, type Blocked } from "./claim.ts";

const ITEMS = 5_000;
const NOTHING: Blocked = { models: [], batches: [] };

let database: TestDatabase;
let pool: DatabasePool;
let id: string;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
  await makeOrganization(pool, organizationId, 1_000_000_000n);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(async () => {
  await pool.query(sql.unsafe`delete from batch_items`);
  await pool.query(sql.unsafe`delete from batches`);
  id = await insertBatch(pool, ITEMS);
  // Of a usual size: where rows are tiny, to read all of them is cheaper than any index.
  await pool.query(sql.unsafe`update batch_items set body = convert_to(repeat('a', 800), 'UTF8')`);
});

/** As the server does by itself, now and then. */
const vacuum = () => pool.query(sql.unsafe`vacuum analyze batch_items`);

/** The batches that a look finds, and how many rows of items it fetches for that. */
async function look(blocked: Blocked): Promise<{ readonly found: readonly string[]; readonly rows: number }> {
  return await pool.transaction(async (transaction) => {
    const rowsRead = () =>
      transaction.oneFirst(sql.type(z.object({ rows: z.bigint() }))`
        select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relname = 'batch_items'
      `);
    const before = await rowsRead();
    const batches = await batchesInLine(transaction, Date.now(), blocked);
    return { found: batches.map((batch) => batch.id), rows: Number((await rowsRead()) - before) };
  });
}

test("thousands of items that wait for their next try are not read one by one", async () => {
  await pool.query(sql.unsafe`update batch_items set not_before = clock_timestamp() + interval '1 minute'`);
  await vacuum();
  const { found, rows } = await look(NOTHING);
  expect(found).toEqual([]);
  expect(rows).toBeLessThan(100);
});

test("nor thousands of a model that refuses more, and what is behind them is found", async () => {
  await vacuum();
  expect(await look({ models: ["m"], batches: [] })).toMatchObject({ found: [] });
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number = ${ITEMS - 1}`);
  const { found, rows } = await look({ models: ["m"], batches: [] });
  expect(found).toEqual([id]);
  expect(rows).toBeLessThan(100);
});

test("nor those that are over, before the first that waits", async () => {
  await vacuum();
  await pool.query(sql.unsafe`update batch_items set state = 'succeeded' where number < ${ITEMS / 2}`);
  const { found, rows } = await look(NOTHING);
  expect(found).toEqual([id]);
  expect(rows).toBeLessThan(100);
});
