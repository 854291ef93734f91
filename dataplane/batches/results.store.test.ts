/** Results in pieces that fit into memory, however long one line of them is. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { insertBatch, openBatchRows } from "../../test/integration/batch-rows.ts";
import type { PieceReader, ReadInTurn } from "../lib/piece-reader.ts";
import { resultLines } from "./results.ts";

const MiB = 1024 * 1024;
let pool: DatabasePool;
let close: () => Promise<void>;
let id: string;
/** Bytes of the lines, in their order; null: it never ran. */
const sizes = [100, 9 * MiB + 7, null, 2 * MiB, 2 * MiB + 1, 300, 3 * MiB];

beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
  id = await insertBatch(pool, sizes.length);
  for (const [number, size] of sizes.entries())
    await pool.query(sql.unsafe`
      update batch_items set state = ${size === null ? "expired" : "succeeded"},
        line = ${size === null ? null : sql.binary(lineOf(number, size))}
      where batch_id = ${id} and number = ${number}
    `);
});
afterAll(() => close());

const lineOf = (number: number, size: number) => Buffer.from(`${String(number).repeat(size - 1)}\n`);
const results = (reader?: PieceReader) =>
  resultLines(pool, { id, form: "messages", total: sizes.length, succeeded: 0 }, "all", reader);
const neverRan = Buffer.from('{"custom_id":"i2","result":{"type":"expired"}}\n');
const whole = () =>
  Buffer.concat(sizes.map((size, number) => (size === null ? neverRan : lineOf(number, size))));

test("a line that is longer than what is read at once comes in slices, whole and in its place", async () => {
  const pieces: Buffer[] = [];
  for await (const piece of results()) pieces.push(piece);
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(2 * MiB + 1_000);
  expect(Buffer.concat(pieces).equals(whole())).toBe(true);
});

test("pieces are as small as their reader wants them, each read in its turn", async () => {
  const most = 640 * 1024;
  let turns = 0;
  const pieces: Buffer[] = [];
  const inTurn: ReadInTurn = (read) => {
    turns += 1;
    return read();
  };
  for await (const piece of results({ most: (wanted) => Math.min(wanted, most), inTurn })) pieces.push(piece);
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(most + 1_000);
  expect(turns).toBeGreaterThan(pieces.length);
  expect(Buffer.concat(pieces).equals(whole())).toBe(true);
});

test("one that is taken away in its middle breaks off", async () => {
  const read = results();
  await read.next();
  await read.next();
  await pool.query(sql.unsafe`delete from batch_items where batch_id = ${id} and number = 1`);
  await expect(read.next()).rejects.toThrow("taken away");
});

test("those of items that never ran are not read all at once, however long their custom_ids are", async () => {
  const count = 100;
  const cancelled = await insertBatch(pool, count);
  await pool.query(sql.unsafe`
    update batch_items set state = 'canceled', custom_id = ${JSON.stringify("\u2028".repeat(21_000))} where batch_id = ${cancelled}
  `);
  const pieces: Buffer[] = [];
  for await (const piece of resultLines(
    pool,
    { id: cancelled, form: "openai", total: count, succeeded: 0 },
    "errors",
  ))
    pieces.push(piece);
  expect(Buffer.concat(pieces).toString().split("\n")).toHaveLength(count + 1);
  // Escaped each has twice as many bytes as in its row.
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(4 * MiB + 100_000);
});
