/** A reader of an input that goes on after the batch has ended without it leaves nothing, and the batch goes in the end. */
import { Readable } from "node:stream";
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { engineOf, openBatchRows, organizationId } from "../../../test/integration/batch-rows.ts";
import { DAY_MS } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import type { BatchContext } from "../context.ts";
import { expireOverdue } from "../expire.ts";
import { workOnOne } from "../finish.ts";
import { sweepBatches } from "../retention.ts";
import { BatchBackOff } from "../back-off.ts";
import { Turns } from "../turns.ts";

/** More than are stored at once, so that some are stored before the reader stops and some after. */
const LINES = 2_500;
const good = (n: number) =>
  `{"custom_id":"i${n}","method":"POST","url":"/v1/chat/completions","body":{"model":"m"}}\n`;

let pool: DatabasePool;
let close: () => Promise<void>;
let skew = 0;
beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
});
afterAll(() => close());
beforeEach(() => {
  skew = 0;
});

/** A worker that reads these lines: half of them, and the rest once it is let. */
function readerOf(workerId: string, last: string, whenLet: Promise<void>, stopped = () => {}): BatchContext {
  const lines = Array.from({ length: LINES - 1 }, (_, n) => good(n));
  async function* read() {
    yield Buffer.from(lines.slice(0, LINES / 2).join(""));
    stopped();
    await whenLet;
    yield Buffer.from([...lines.slice(LINES / 2), last].join(""));
  }
  const file = { sizeBytes: 1_000 };
  const files = { get: () => Promise.resolve(file), read: () => Readable.from(read()) };
  return {
    ...engineOf(pool, workerId),
    clock: { now: () => Date.now() + skew },
    files: files as unknown as BatchContext["files"],
  };
}
const work = (context: BatchContext) => workOnOne(context, new BatchBackOff(), new Turns());

async function insertValidating(): Promise<string> {
  const id = newId("batch");
  await pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, input_file_id, created_at, expires_at)
    values (${id}, ${organizationId}, 'default', 'key_1', 'openai', 'chat', 'validating', 'file_1',
      clock_timestamp(), clock_timestamp() + interval '24 hours')
  `);
  await pool.query(sql.unsafe`
    insert into storage values (${organizationId}, 0, 0, 1)
    on conflict (organization_id) do update set batches = storage.batches + 1
  `);
  return id;
}

/** Starts a worker on a batch. Resolves once it has stored a part of the input and stopped; `goOn` lets it read the rest. */
async function stoppedReader(last: string) {
  const id = await insertValidating();
  const { promise: whenLet, resolve: letGoOn } = Promise.withResolvers<void>();
  const { promise: whenStopped, resolve: stopped } = Promise.withResolvers<void>();
  const told: string[] = [];
  const backOff = new BatchBackOff();
  const log = pino({ level: "warn" }, { write: (line) => void told.push(line) });
  const late = { ...readerOf("worker-late", last, whenLet, stopped), log };
  const working = workOnOne(late, backOff, new Turns());
  await whenStopped;
  await expect.poll(() => left("batch_items", "batch_id", id), { timeout: 10_000 }).toBeGreaterThan(0);
  const goOn = async () => {
    letGoOn();
    expect(await working).toBe(true);
    // Nothing failed: a batch that is another's by now, or over, is not tried again.
    expect({ told, rests: backOff.known }).toEqual({ told: [], rests: [] });
  };
  return { id, goOn };
}
const left = async (table: "batches" | "batch_items", column: "id" | "batch_id", id: string) =>
  (
    await pool.anyFirst(sql.unsafe`
      select 1 from ${sql.identifier([table])} where ${sql.identifier([column])} = ${id}
    `)
  ).length;

/** How many of its items stay when the reader is done, and whether the batch itself stays after its sixty days. */
async function whatStays(id: string) {
  const items = await left("batch_items", "batch_id", id);
  skew = 70 * DAY_MS;
  await sweepBatches(readerOf("worker-other", "", Promise.resolve()));
  return { items, batches: await left("batches", "id", id) };
}

test("where the batch's time was over meanwhile", async () => {
  const { id, goOn } = await stoppedReader(good(LINES));
  skew = DAY_MS + 1;
  const other = readerOf("worker-other", "", Promise.resolve());
  await expireOverdue(other);
  await sweepBatches(other);
  await goOn();
  expect(await whatStays(id)).toEqual({ items: 0, batches: 0 });
});

test("where it was taken for dead, and another reader has begun the batch", async () => {
  const { id, goOn } = await stoppedReader(good(LINES));
  expect(await work(readerOf("worker-other", good(LINES), Promise.resolve()))).toBe(true);
  await goOn();
  expect(await left("batch_items", "batch_id", id)).toBe(LINES);
});

test("where it was taken for dead, and another reader found the input bad", async () => {
  const { id, goOn } = await stoppedReader("no line\n");
  const other = readerOf("worker-other", "no line\n", Promise.resolve());
  expect(await work(other)).toBe(true);
  await sweepBatches(other);
  await goOn();
  expect(await whatStays(id)).toEqual({ items: 0, batches: 0 });
});
