/** What a worker's look for something to run costs the database: every pod looks once a second, and at each item's end. */
import { sql, type CommonQueryMethods, type DatabasePool } from "slonik";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import {
  engineOf,
  insertBatch,
  organizationId,
  openBatchRows,
} from "../../../test/integration/batch-rows.ts";
import { newId } from "../../lib/ids.ts";
import { batchesInLine, claimItems, type Blocked, type Claim } from "./claim.ts";
import { ItemWriter } from "../create/items.ts";
import { beat } from "./workers.ts";

const ITEMS = 5_000;
const NOTHING: Blocked = { models: [], asked: [], batches: [], suspects: false };

let pool: DatabasePool;
let close: () => Promise<void>;
let id: string;
beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
  await beat(engineOf(pool, "worker_1"));
});
afterAll(() => close());
beforeEach(async () => {
  await pool.query(sql.unsafe`delete from batch_items`);
  await pool.query(sql.unsafe`delete from batches`);
  id = await insertBatch(pool, ITEMS);
  // Of a usual size: where rows are tiny, to read all of them is cheaper than any index.
  await pool.query(sql.unsafe`update batch_items set body = convert_to(repeat('a', 800), 'UTF8')`);
});

/** As the server does by itself, now and then. */
const vacuum = () => pool.query(sql.unsafe`vacuum analyze batch_items`);

/** What is found, and how many rows of items are fetched for that. */
async function countRows<T>(find: (db: CommonQueryMethods) => Promise<readonly T[]>) {
  return await pool.transaction(async (transaction) => {
    const rowsRead = () =>
      transaction.oneFirst(sql.type(z.object({ rows: z.bigint() }))`
        select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relname = 'batch_items'
      `);
    const before = await rowsRead();
    const found = await find(transaction);
    return { found, rows: Number((await rowsRead()) - before) };
  });
}

/** How often items were looked up through an index, in this transaction. */
const probes = async (transaction: CommonQueryMethods) =>
  Number(
    await transaction.oneFirst(sql.type(z.object({ n: z.bigint() }))`
      select idx_scan as n from pg_stat_xact_user_tables where relname = 'batch_items'
    `),
  );

/** A look for batches. */
const look = (blocked: Blocked) =>
  countRows(async (db) => (await batchesInLine(db, Date.now(), blocked)).map((batch) => batch.id));

/** Claims items of the batch. @returns their numbers. */
async function take(db: CommonQueryMethods, count: number, more: Partial<Blocked & Claim> = {}) {
  const blocked = { ...NOTHING, ...more };
  const rooms = { modelRooms: new Map<string, number>(), askedRooms: [], ...more };
  const claim = { shares: new Map([[id, count]]), blocked, ...rooms };
  return (await claimItems(db, "worker_1", Date.now(), claim)).map(({ number }) => number);
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
  expect(await look({ ...NOTHING, models: ["m"] })).toMatchObject({ found: [] });
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number = ${ITEMS - 1}`);
  const { found, rows } = await look({ ...NOTHING, models: ["m"] });
  expect(found).toEqual([id]);
  expect(rows).toBeLessThan(100);
});

test("nor any item of a batch all of whose models are blocked; one with another model is looked into", async () => {
  await pool.query(sql.unsafe`update batches set models = array['m']`);
  await vacuum();
  const silent = { ...NOTHING, asked: [{ organizationId, model: "m" }] };
  const elsewhere = { ...NOTHING, asked: [{ organizationId: "org_elsewhere", model: "m" }] };
  const probesOf = (blocked: Blocked) =>
    pool.transaction(async (transaction) => {
      const before = await probes(transaction);
      const inLine = await batchesInLine(transaction, Date.now(), blocked);
      return { found: inLine.map((batch) => batch.id), probes: (await probes(transaction)) - before };
    });
  for (const blocked of [silent, { ...NOTHING, models: ["m"] }])
    expect(await probesOf(blocked)).toEqual({ found: [], probes: 0 });
  expect((await probesOf(elsewhere)).found).toEqual([id]);
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number = ${ITEMS - 1}`);
  await pool.query(sql.unsafe`update batches set models = array['m', 'other']`);
  expect((await probesOf(silent)).found).toEqual([id]);
});

test("a batch knows the models of its items while they are few and each names one", async () => {
  const modelsOf = async (...models: readonly (string | undefined)[]) => {
    const batch = await insertBatch(pool, 0);
    const begun = { id: batch, state: "in_progress", claim: null } as const;
    const writer = new ItemWriter(pool, begun, newId, Date.now());
    for (const [number, model] of models.entries())
      await writer.add({ customId: JSON.stringify(`item-${number}`), body: Buffer.from("{}"), model });
    await writer.flush();
    await pool.query(sql.unsafe`update batches set models = ${writer.models} where id = ${batch}`);
    return await pool.oneFirst(sql.type(z.object({ models: z.array(z.string()).nullable() }))`
      select models from batches where id = ${batch}
    `);
  };
  expect(await modelsOf("a", "b", "a")).toEqual(["a", "b"]);
  expect(await modelsOf("a", undefined, "b")).toBe(null);
  expect(await modelsOf("a", "no\u0000model")).toBe(null);
  expect(await modelsOf(...Array.from({ length: 17 }, (_, n) => `m-${n}`))).toBe(null);
});

test("nor those that are over, before the first that waits", async () => {
  await vacuum();
  await pool.query(sql.unsafe`update batch_items set state = 'succeeded' where number < ${ITEMS / 2}`);
  const { found, rows } = await look(NOTHING);
  expect(found).toEqual([id]);
  expect(rows).toBeLessThan(100);
});

test("of an organization's thousands of batches no more are looked into than stand in line", async () => {
  await pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, total, created_at, expires_at,
      in_progress_at)
    select 'msgbatch_' || n, ${organizationId}, 'default', 'key_1', 'messages', 'messages', 'in_progress', 1, now(),
      now() + interval '1 day', now()
    from generate_series(1, 2000) as n
  `);
  await pool.query(sql.unsafe`
    insert into batch_items (batch_id, number, custom_id, request_id, accepted_at, model, body)
    select 'msgbatch_' || n, 0, '"a"', 'req_' || n, now(), 'm', '{}'::bytea from generate_series(1, 2000) as n
  `);
  await vacuum();
  await pool.query(sql.unsafe`vacuum analyze batches`);
  const { found, probed } = await pool.transaction(async (transaction) => {
    const before = await probes(transaction);
    const inLine = await batchesInLine(transaction, Date.now(), NOTHING);
    return { found: inLine.map((batch) => batch.id), probed: (await probes(transaction)) - before };
  });
  expect(found).toEqual([id, ...Array.from({ length: 7 }, (_, n) => `msgbatch_${n + 1}`)]);
  expect(probed).toBeLessThan(20);
});

test("a claim reads no row of those before and between the ones that it takes", async () => {
  // Every thousandth may begin.
  await pool.query(sql.unsafe`
    update batch_items set not_before = clock_timestamp() + interval '1 minute' where number % 1000 <> 999
  `);
  await vacuum();
  const { found, rows } = await countRows((db) => take(db, 3));
  expect(found).toEqual([999, 1_999, 2_999]);
  expect(rows).toBeLessThan(100);
});

test("nor of a model that refuses more", async () => {
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number % 1000 = 999`);
  await vacuum();
  const { found, rows } = await countRows((db) => take(db, 3, { models: ["m"] }));
  expect(found).toEqual([999, 1_999, 2_999]);
  expect(rows).toBeLessThan(100);
});

test("nor of a model that answers its organization no more; another organization's are taken", async () => {
  const asked = [{ organizationId, model: "m" }];
  await vacuum();
  expect(await look({ ...NOTHING, asked })).toMatchObject({ found: [] });
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number % 1000 = 999`);
  await vacuum();
  expect(await look({ ...NOTHING, asked })).toMatchObject({ found: [id] });
  const { found, rows } = await countRows((db) => take(db, 3, { asked }));
  expect(found).toEqual([999, 1_999, 2_999]);
  expect(rows).toBeLessThan(100);
  expect(await take(pool, 2, { asked: [{ organizationId: "org_else", model: "m" }] })).toEqual([0, 1]);
});

test("of a model that may be back one item finds out, beside as many others as there is room for", async () => {
  await pool.query(sql.unsafe`update batch_items set model = 'other' where number >= 3`);
  const askedRooms = [
    { organizationId, model: "m", room: 1 },
    { organizationId: "org_else", model: "other", room: 1 },
  ];
  expect(await take(pool, 6, { askedRooms })).toEqual([0, 3, 4, 5]);
});

test("a claim locks no more than it takes, and waits for nobody", async () => {
  await vacuum();
  const taken = Promise.withResolvers<void>();
  const other = taken.promise.then(() => take(pool, 3));
  await pool.transaction(async (transaction) => {
    expect(await take(transaction, 3)).toEqual([0, 1, 2]);
    taken.resolve();
    expect(await other).toEqual([3, 4, 5]);
  });
  expect(await take(pool, 1)).toEqual([6]);
});
