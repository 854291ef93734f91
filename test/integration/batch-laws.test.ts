/**
 * Random interleavings of what workers do with a batch's items, one after another and at once, on a real database:
 * they claim, are taken for dead, come back, hear no answer, store late. Whatever the order was, the batch ends, and
 * each item has one line, one usage row and one count, of one run; every other run gave its hold back.
 */
import fc from "fast-check";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { reconcileBatches } from "../../dataplane/batches/reconcile-batches.ts";
import { cancelBatch } from "../../dataplane/batches/cancel.ts";
import type { ClaimedItem } from "../../dataplane/batches/worker/claim.ts";
import type { BatchContext } from "../../dataplane/batches/context.ts";
import { expireOverdue } from "../../dataplane/batches/expire.ts";
import { closeFinished, workOnOne } from "../../dataplane/batches/finish.ts";
import { Turns } from "../../dataplane/batches/turns.ts";
import { BatchBackOff } from "../../dataplane/batches/back-off.ts";
import { storeEnds, type Ended } from "../../dataplane/batches/worker/store-ends.ts";
import { takeFromDead, takeUnknown } from "../../dataplane/batches/worker/workers.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { runs } from "../fakes/runs.ts";
import { answer, claim, engineOf, insertBatch, organizationId } from "./batch-rows.ts";
import { makeOrganization } from "./money-world.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
  await makeOrganization(pool, organizationId, 1_000_000_000_000n);
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

const ITEMS = 6;
const WORKERS = 3;

interface Run {
  readonly item: ClaimedItem;
  readonly output: number;
}

/** A process that works on batches, as far as it remembers. */
class Worker {
  readonly context: BatchContext;
  readonly #id: string;
  runs: Run[] = [];
  /** Output tokens of what it was told that it charged, and of what it gave back. */
  readonly charged: number[] = [];
  readonly released: number[] = [];
  static #outputs = 0;

  constructor(name: string, id: string) {
    this.context = engineOf(pool, `${name}-${id}`);
    this.#id = id;
  }

  async claim(most: number, heard: boolean): Promise<void> {
    const items = await claim(this.context, this.#id, most);
    if (heard) this.runs.push(...items.map((item) => ({ item, output: (Worker.#outputs += 1) })));
  }

  /** Stores the ends of some of its runs in one portion; unheard: it is committed, and done again. */
  async store(which: number, how: "answers" | "faults", heard: boolean): Promise<void> {
    // Any subset, told by the bits of `which`; a claim may stand beside an older one of the same item.
    const some = this.runs.filter((_, index) => (which >> (index % 8)) % 2 === 1);
    this.runs = this.runs.filter((run) => !some.includes(run));
    if (some.length === 0) return;
    const ends = some.map(({ item, output }): Ended => ({
      item,
      end: how === "answers" ? answer(item, output) : { kind: "fault", waitMs: 0, own: 0, restMs: null },
    }));
    const storing = () => pool.transaction((transaction) => storeEnds(transaction, ends, Date.now()));
    if (!heard) await storing();
    const { mine, late } = await storing();
    this.charged.push(...mine.map(({ end }) => end.row?.tokens.output ?? 0));
    this.released.push(...late.map(({ end }) => end.row?.tokens.output ?? 0));
  }

  async takeUnknown(): Promise<void> {
    await takeUnknown(
      this.context,
      this.runs.map(({ item }) => item.claim),
    );
  }

  /** The others take it for dead. */
  async lose(): Promise<void> {
    await pool.query(sql.unsafe`delete from batch_workers where id = ${this.context.workerId}`);
    await takeFromDead(this.context, 60_000);
  }

  async tend(): Promise<void> {
    await expireOverdue(this.context);
    await closeFinished(this.context);
    await workOnOne(this.context, new BatchBackOff(), new Turns());
  }
}

type Action = (workers: readonly Worker[], id: string) => Promise<void>;
const of = fc.nat({ max: WORKERS - 1 });
const act = (worker: number, what: (worker: Worker) => Promise<void>, name: string): Action => {
  const action: Action = async (workers) => {
    const [found] = workers.slice(worker);
    if (found !== undefined) await what(found);
  };
  return Object.assign(action, { toString: () => `worker ${worker} ${name}` });
};
const usually = fc.integer({ min: 0, max: 3 }).map((value) => value > 0);
const claims = fc
  .tuple(of, fc.integer({ min: 1, max: ITEMS }), usually)
  .map(([worker, most, heard]) =>
    act(worker, (one) => one.claim(most, heard), `claims ${most}${heard ? "" : " unheard"}`),
  );
const stores = fc
  .tuple(of, fc.nat({ max: 255 }), fc.constantFrom("answers", "answers", "faults"), usually)
  .map(([worker, which, how, heard]) =>
    act(worker, (one) => one.store(which, how, heard), `stores ${which} ${how}${heard ? "" : " unheard"}`),
  );
const loses = of.map((worker) => act(worker, (one) => one.lose(), "is taken for dead"));
const looks = of.map((worker) => act(worker, (one) => one.takeUnknown(), "takes what it does not know"));
const restarts = of.map((worker) =>
  act(worker, async (one) => void one.runs.splice(0), "forgets all, under its id"),
);
const tends = of.map((worker) => act(worker, (one) => one.tend(), "tends"));
const ends = fc.constantFrom("cancel", "expire").map((how) => {
  const action: Action = async ([worker], id) => {
    if (worker === undefined) return;
    if (how === "expire")
      await pool.query(sql.unsafe`update batches set expires_at = clock_timestamp() where id = ${id}`);
    else
      await cancelBatch(worker.context, organizationId, "messages", id).catch((error: unknown) => {
        if (!(error instanceof ApiError)) throw error;
      });
  };
  return Object.assign(action, { toString: () => how });
});
const action = fc.oneof(
  { weight: 6, arbitrary: claims },
  { weight: 6, arbitrary: stores },
  { weight: 3, arbitrary: loses },
  { weight: 2, arbitrary: looks },
  { weight: 1, arbitrary: restarts },
  { weight: 2, arbitrary: tends },
);
const rare = fc.oneof({ weight: 30, arbitrary: action }, { weight: 1, arbitrary: ends });
const moments = fc.array(fc.array(rare, { minLength: 1, maxLength: 3 }), { minLength: 8, maxLength: 30 });

/** @returns once the batch has ended, however its workers were left. */
async function finish(workers: readonly Worker[], id: string): Promise<void> {
  for (let round = 0; round < 50; round += 1) {
    for (const worker of workers) {
      await worker.claim(ITEMS, true);
      await worker.takeUnknown();
      for (const half of [0x55, 0xff]) await worker.store(half, "answers", true);
      await worker.tend();
    }
    const ended = await pool.exists(sql.unsafe`select from batches where id = ${id} and state = 'ended'`);
    if (ended) return;
  }
  throw new Error("the batch never ends");
}

const linesSchema = z.object({ state: z.string(), line: z.number().nullable(), row: z.number().nullable() });

test("any interleaving: one line, one row and one count for each item, all of one run", async () => {
  await fc.assert(
    fc.asyncProperty(moments, async (them) => {
      const id = await insertBatch(pool, ITEMS);
      const workers = Array.from({ length: WORKERS }, (_, index) => new Worker(`worker${index}`, id));
      for (const actions of them) await Promise.all(actions.map((one) => one(workers, id)));
      await finish(workers, id);
      const items = await pool.any(sql.type(linesSchema)`
        select item.state, (convert_from(item.line, 'utf8')::json #>> '{usage,output_tokens}')::int4 as line,
          usage.output_tokens::int4 as row
        from batch_items item left join usage on usage.id = item.request_id where item.batch_id = ${id}
      `);
      expect(items).toHaveLength(ITEMS);
      const ran = items.filter(({ state }) => state === "succeeded");
      for (const { line, row } of items) expect(row).toBe(line);
      const told = workers.flatMap(({ charged }) => charged);
      expect(told).toHaveLength(ran.length);
      expect(new Set(told)).toEqual(new Set(ran.map(({ row }) => row)));
      const released = workers.flatMap(({ released: those }) => those);
      expect(released.filter((output) => told.includes(output))).toEqual([]);
      expect(await reconcileBatches(pool)).toEqual([]);
    }),
    { numRuns: Number(process.env["BATCH_RUNS"] ?? runs(40)) },
  );
}, 180_000);
