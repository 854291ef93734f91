/** Nothing of a batch stays for ever with a worker that does not know of it, behind counters that are wrong, or unstorable. */
import { sql, type DatabasePool } from "slonik";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import {
  answer,
  claim,
  engineOf,
  insertBatch,
  openBatchRows,
  organizationId,
} from "../../../test/integration/batch-rows.ts";
import { DeadLetterRetry } from "../../billing/ledger/retry-dead-letters.ts";
import type { UsageRow } from "../../billing/ledger/usage-row.ts";
import { metrics } from "../../telemetry/metrics.ts";
import type { ClaimedItem } from "./claim.ts";
import { reconcileBatches } from "../reconcile-batches.ts";
import { discardBatch } from "../create/create-from-requests.ts";
import type { BatchContext } from "../context.ts";
import { closeFinished, workOnOne } from "../finish.ts";
import type { ItemEnd } from "./run.ts";
import { Turns } from "../turns.ts";
import { BatchBackOff } from "../back-off.ts";
import { sweepBatches } from "../retention.ts";
import { Settler } from "./settle.ts";
import { expireOverdue } from "../expire.ts";
import { beat, leave, takeFromDead, takeUnknown } from "./workers.ts";

let pool: DatabasePool;
let close: () => Promise<void>;
let context: BatchContext;
beforeAll(async () => {
  ({ pool, close } = await openBatchRows());
  context = engineOf(pool, "worker-one");
  await beat(context);
});
afterAll(() => close());

const stateOf = (id: string) =>
  pool.oneFirst(sql.type(z.object({ state: z.string() }))`select state from batches where id = ${id}`);
const change = (id: string, set: ReturnType<typeof sql.fragment>) =>
  pool.query(sql.unsafe`update batches set ${set} where id = ${id}`);

/** Runs up to `most` of its items to their end. */
async function runSome(id: string, most: number): Promise<void> {
  const settler = new Settler(
    context,
    () => {},
    () => {},
  );
  const items = await claim(context, id, most);
  await Promise.all(items.map((item) => settler.store(item, answer(item, 5))));
}

describe("counters that are wrong", () => {
  test("a batch does not end by them while something of it is left, and they are mended", async () => {
    const id = await insertBatch(pool, 5);
    await runSome(id, 3);
    await change(id, sql.fragment`succeeded = 5, output_tokens = 25`);
    await closeFinished(context);
    expect(await stateOf(id)).toBe("in_progress");
    await sweepBatches(context);
    expect(await reconcileBatches(pool)).toEqual([]);
    await runSome(id, 2);
    await closeFinished(context);
    expect(await stateOf(id)).toBe("finalizing");
    expect(await reconcileBatches(pool)).toEqual([]);
  });

  test.each([
    ["too many", sql.fragment`succeeded = 6`],
    ["too few", sql.fragment`succeeded = 4, output_tokens = 20`],
  ])("a batch that is over ends, though they say %s", async (_what, wrong) => {
    const id = await insertBatch(pool, 5);
    await runSome(id, 5);
    await change(id, wrong);
    await closeFinished(context);
    expect(await stateOf(id)).toBe("in_progress");
    await sweepBatches(context);
    await closeFinished(context);
    expect(await stateOf(id)).toBe("finalizing");
    expect(await reconcileBatches(pool)).toEqual([]);
  });

  test("a batch never ends with them, also where their sum is right", async () => {
    const id = await insertBatch(pool, 3);
    await runSome(id, 3);
    await change(id, sql.fragment`succeeded = 1, errored = 2`);
    await closeFinished(context);
    const backOff = new BatchBackOff();
    const work = async () => {
      await workOnOne(context, backOff, new Turns());
      return await stateOf(id);
    };
    await expect.poll(work, { timeout: 10_000 }).toBe("ended");
    expect(await reconcileBatches(pool)).toEqual([]);
  });
});

test("a batch that was taken for this worker by a statement whose answer never came is worked on", async () => {
  const id = await insertBatch(pool, 1);
  await runSome(id, 1);
  await closeFinished(context);
  await change(id, sql.fragment`worker = ${context.workerId}, claim = gen_random_uuid()`);
  const backOff = new BatchBackOff();
  while (await workOnOne(context, backOff, new Turns()));
  expect(await stateOf(id)).toBe("ended");
});

test("a batch that began, though its maker did not hear of it, keeps its requests", async () => {
  const id = await insertBatch(pool, 3);
  await discardBatch(context, id);
  expect(await claim(context, id, 3)).toHaveLength(3);
  await change(id, sql.fragment`state = 'creating'`);
  await discardBatch(context, id);
  expect(await pool.exists(sql.unsafe`select from batches where id = ${id}`)).toBe(false);
});

test("a batch whose making failed while Postgres was away is taken away later, and none that is still made", async () => {
  const [left, made, elsewhere] = [
    await insertBatch(pool, 1),
    await insertBatch(pool, 1),
    await insertBatch(pool, 1),
  ];
  const old = sql.fragment`state = 'creating', created_at = now() - interval '1 hour'`;
  for (const id of [left, made]) await change(id, sql.fragment`${old}, worker = ${context.workerId}`);
  const other = engineOf(pool, "worker-other");
  await beat(other);
  await change(elsewhere, sql.fragment`${old}, worker = ${other.workerId}`);
  context.creating.add(made);
  await sweepBatches(context);
  const exists = (id: string) => pool.exists(sql.unsafe`select from batches where id = ${id}`);
  expect([await exists(left), await exists(made), await exists(elsewhere)]).toEqual([false, true, true]);
  context.creating.delete(made);
});

describe("one batch that Postgres does not let be changed", () => {
  /** Refuses that rows of the batch are changed. */
  async function refuse(id: string, done: "update" | "delete"): Promise<void> {
    await pool.query(sql.unsafe`
      create or replace function refuse() returns trigger language plpgsql as $$
      begin raise exception 'refused'; end $$
    `);
    await pool.query(sql.unsafe`
      create trigger refuse before ${done === "update" ? sql.fragment`update` : sql.fragment`delete`} on batch_items
      for each row when (old.batch_id = ${sql.literalValue(id)}) execute function refuse()
    `);
  }
  const two = async () => [await insertBatch(pool, 2), await insertBatch(pool, 2)] as const;
  afterEach(() => pool.query(sql.unsafe`drop trigger if exists refuse on batch_items`));
  const left = (id: string) =>
    pool.oneFirst(sql.type(z.object({ n: z.bigint().transform(Number) }))`
      select count(*) as n from batch_items where batch_id = ${id} and state = 'waiting'
    `);

  test("holds up the expiry of no other", async () => {
    const [refused, other] = await two();
    for (const id of [refused, other]) await change(id, sql.fragment`expires_at = now()`);
    await refuse(refused, "update");
    await expireOverdue(context);
    expect([await left(refused), await left(other)]).toEqual([2, 0]);
  });

  test("and the sweep of no other", async () => {
    const [refused, other] = await two();
    await refuse(refused, "delete");
    const ended = sql.fragment`state = 'ended', outcome = 'completed', ended_at = now(), deleted_at = now()`;
    for (const id of [refused, other]) await change(id, ended);
    await sweepBatches(context);
    expect([await left(refused), await left(other)]).toEqual([2, 0]);
  });

  test("nor the storing of what others brought, and its own is stored once that can be", async () => {
    const [refused, other] = await two();
    const settler = new Settler(
      context,
      () => {},
      () => {},
    );
    const [mine, others] = [await claim(context, refused, 2), await claim(context, other, 2)];
    await refuse(refused, "update");
    const storing = mine.map((item) => settler.store(item, answer(item, 5)));
    await Promise.all(others.map((item) => settler.store(item, answer(item, 5))));
    const succeeded = (id: string) =>
      pool.oneFirst(
        sql.type(z.object({ n: z.number() }))`select succeeded as n from batches where id = ${id}`,
      );
    expect([await succeeded(refused), await succeeded(other)]).toEqual([0, 2]);
    await pool.query(sql.unsafe`drop trigger refuse on batch_items`);
    await Promise.all(storing);
    expect([await succeeded(refused), await succeeded(other)]).toEqual([2, 2]);
  }, 20_000);

  test("nor the leases of a dead worker's others", async () => {
    const dead = engineOf(pool, "worker-dead");
    const [refused, other] = await two();
    for (const id of [refused, other]) await claim(dead, id, 2);
    await leave(dead);
    await refuse(refused, "update");
    expect(await takeFromDead(context, 30_000)).toBe(2);
    expect([await left(refused), await left(other)]).toEqual([0, 2]);
  });
});

/** A trigger's function that refuses whatever comes. */
const refuseWith = (name: string, sqlState: string) =>
  pool.query(sql.unsafe`
    create or replace function ${sql.identifier([name])}() returns trigger language plpgsql as $$
    begin raise exception 'refused' using errcode = ${sql.literalValue(sqlState)}; end $$
  `);

describe.each([
  ["its data", "P0001"],
  ["another reason", "42501"],
])("the end of an item that Postgres refuses for %s", (_reason, sqlState) => {
  /** Refuses every line but that of an error. */
  beforeEach(async () => {
    await refuseWith("refuse_result", sqlState);
    await pool.query(sql.unsafe`
      create trigger refuse_result before update on batch_items
      for each row when (old.number = 1 and old.state = 'running' and new.state <> 'errored')
      execute function refuse_result()
    `);
  });
  afterEach(() => pool.query(sql.unsafe`drop trigger refuse_result on batch_items`));
  const itemSchema = z.object({
    state: z.string(),
    code: z.string().nullable(),
    status: z.string().nullable(),
    tokens: z.bigint().transform(Number).nullable(),
  });

  test.each([
    ["an answer", (item: ClaimedItem): ItemEnd => answer(item, 7), { status: "error", tokens: 7 }],
    [
      "another try",
      (): ItemEnd => ({ kind: "again", waitMs: 0, because: "model" }),
      { status: null, tokens: null },
    ],
  ])("%s: becomes an error, what it cost is charged, and the batch ends", async (_what, endOf, charged) => {
    const id = await insertBatch(pool, 2);
    const charges: UsageRow[] = [];
    const settler = new Settler(
      context,
      (rows) => charges.push(...rows),
      () => {},
    );
    const [first, second] = await claim(context, id, 2);
    if (first === undefined || second === undefined) throw new Error("too little was claimed");
    const ends = [answer(first, 5), endOf(second)] as const;
    const handed = ends.map((end) => (end.kind === "over" ? end.row : null));
    await Promise.all([settler.store(first, ends[0]), settler.store(second, ends[1])]);
    expect(
      await pool.one(sql.type(itemSchema)`
        select item.state, convert_from(item.line, 'utf8')::json #>> '{result,error,error,code}' as code,
          usage.status, usage.output_tokens as tokens
        from batch_items item left join usage on usage.id = item.request_id
        where item.batch_id = ${id} and item.number = 1
      `),
    ).toEqual({ state: "errored", code: "upstream_error", ...charged });
    expect(charges.map(({ id: row }) => row)).toContain(first.requestId);
    // The meter knows the hold by its run's own row.
    for (const row of charges) expect(handed).toContain(row);
    expect(charges).toHaveLength(charged.tokens === null ? 1 : 2);
    await closeFinished(context);
    expect(await stateOf(id)).toBe("finalizing");
    expect((await reconcileBatches(pool)).filter((finding) => finding.includes(id))).toEqual([]);
  });
});

describe("the end of an item", () => {
  const first = async (id: string): Promise<ClaimedItem> => {
    const [item] = await claim(context, id, 1);
    if (item === undefined) throw new Error("nothing was claimed");
    return item;
  };
  const ofItem = z.object({
    state: z.string(),
    tokens: z.string().nullable(),
    rows: z.bigint().transform(Number),
    letters: z.bigint().transform(Number),
  });
  const seen = (id: string) =>
    pool.one(sql.type(ofItem)`
      select state, convert_from(line, 'utf8')::json #>> '{usage,output_tokens}' as tokens,
        (select count(*) from usage where id = item.request_id) as rows,
        (select count(*) from dead_letters where id = item.request_id) as letters
      from batch_items item where batch_id = ${id}
    `);
  const balance = () =>
    pool.oneFirst(sql.type(z.object({ micros: z.bigint() }))`
      select balance_micros as micros from accounts where organization_id = ${organizationId}
    `);

  test("whose usage row Postgres refuses, not for its data: the answer is kept, and its charge a dead letter", async () => {
    const id = await insertBatch(pool, 1);
    const item = await first(id);
    const end = answer(item, 7);
    const told: UsageRow[] = [];
    const settler = new Settler(
      context,
      (rows) => told.push(...rows),
      () => {},
    );
    await refuseWith("refuse_usage", "42501");
    await pool.query(sql.unsafe`
      create trigger refuse_usage before insert on usage for each row execute function refuse_usage()
    `);
    const before = await balance();
    try {
      await settler.store(item, end);
      expect(await seen(id)).toEqual({ state: "succeeded", tokens: "7", rows: 0, letters: 1 });
      expect(before - (await balance())).toBe(end.row?.cost.total);
      expect(told).toEqual([end.row]);
      const letters = new DeadLetterRetry(pool, context.log, () => Promise.resolve());
      await letters.look();
      await pool.query(sql.unsafe`drop trigger refuse_usage on usage`);
      await letters.look();
    } finally {
      await pool.query(sql.unsafe`drop trigger if exists refuse_usage on usage`);
    }
    expect(await seen(id)).toEqual({ state: "succeeded", tokens: "7", rows: 1, letters: 0 });
    expect(before - (await balance())).toBe(end.row?.cost.total);
  }, 20_000);

  test("that Postgres takes again a moment after it refused it for the last time: it is stored as it is", async () => {
    const id = await insertBatch(pool, 1);
    const item = await first(id);
    await refuseWith("refuse_line", "42501");
    await pool.query(sql.unsafe`
      create trigger refuse_line before update on batch_items
      for each row when (new.line is not null) execute function refuse_line()
    `);
    let refusals = 0;
    const transaction: DatabasePool["transaction"] = async (work, retries) => {
      try {
        return await pool.transaction(work, retries);
      } catch (error) {
        refusals += 1;
        // From the next one on it may be stored in another form.
        if (refusals === 4) await pool.query(sql.unsafe`drop trigger refuse_line on batch_items`);
        throw error;
      }
    };
    const settler = new Settler(
      { ...context, pool: Object.assign(Object.create(pool), { transaction }) as DatabasePool },
      () => {},
      () => {},
    );
    try {
      await settler.store(item, answer(item, 7));
    } finally {
      await pool.query(sql.unsafe`drop trigger if exists refuse_line on batch_items`);
    }
    expect(await seen(id)).toEqual({ state: "succeeded", tokens: "7", rows: 1, letters: 0 });
  }, 20_000);

  test("that Postgres takes in no form: comes again until its batch is over, then it has expired, charged for nothing", async () => {
    const id = await insertBatch(pool, 1);
    const item = await first(id);
    let now = Date.now();
    const later = { ...context, clock: { now: () => now } };
    const settler = new Settler(
      later,
      () => {},
      () => {},
    );
    let released = 0;
    await refuseWith("refuse_line", "42501");
    await pool.query(sql.unsafe`
      create trigger refuse_line before update on batch_items
      for each row when (new.line is not null) execute function refuse_line()
    `);
    const [refusedBefore, before] = [await valueOf(metrics.batchResultsRefused), await balance()];
    try {
      const storing = settler.store(
        item,
        answer(item, 7, async () => {
          released += 1;
        }),
      );
      await expect
        .poll(() => valueOf(metrics.batchResultsRefused), { timeout: 10_000 })
        .toBe(refusedBefore + 1);
      expect([(await seen(id)).state, released]).toEqual(["running", 0]);
      now = item.expiresAt + 1;
      await storing;
      expect([await valueOf(metrics.batchResultsRefused), released]).toEqual([refusedBefore, 1]);
      await takeUnknown(later, []);
      expect(await seen(id)).toEqual({ state: "expired", tokens: null, rows: 0, letters: 0 });
    } finally {
      await pool.query(sql.unsafe`drop trigger refuse_line on batch_items`);
    }
    expect(await balance()).toBe(before);
    await closeFinished(later);
    expect(await stateOf(id)).toBe("finalizing");
    expect((await reconcileBatches(pool)).filter((finding) => finding.includes(id))).toEqual([]);
  }, 20_000);
});

const valueOf = async (gauge: typeof metrics.batchResultsRefused): Promise<number> =>
  (await gauge.get()).values[0]?.value ?? 0;
