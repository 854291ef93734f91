/** An item that ends each process that runs it is given up; what only ran beside it is not. */
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
import type { ClaimedItem } from "./claim.ts";
import type { BatchContext } from "../context.ts";
import { closeFinished } from "../finish.ts";
import type { ItemEnd } from "./run.ts";
import { reconcileBatches } from "../reconcile-batches.ts";
import { Settler } from "./settle.ts";
import { handBack, takeFromDead } from "./workers.ts";

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
afterEach(async () => {
  expect(await reconcileBatches(pool)).toEqual([]);
});

/** It is silent for too long, and others take what it had. */
async function die(context: BatchContext): Promise<void> {
  await pool.query(sql.unsafe`delete from batch_workers where id = ${context.workerId}`);
  await takeFromDead(other, 60_000);
}
async function store(
  context: BatchContext,
  items: readonly ClaimedItem[],
  endOf: (item: ClaimedItem) => ItemEnd = (item) => answer(item, 1),
): Promise<void> {
  const settler = new Settler(
    context,
    () => {},
    () => {},
  );
  await Promise.all(items.map((item) => settler.store(item, endOf(item))));
}
const fault = (): ItemEnd => ({ kind: "fault", waitMs: 0, own: 1, restMs: null });
const lostTimes = (times: ReturnType<typeof sql.fragment>) =>
  sql.fragment`array(select gen_random_uuid() from generate_series(1, ${times}))`;
const itemSchema = z.object({
  number: z.number(),
  state: z.string(),
  losses: z.number(),
  line: z.string().nullable(),
});
const itemsOf = (id: string) =>
  pool.any(sql.type(itemSchema)`
    select number, state, losses, convert_from(line, 'utf8') as line from batch_items where batch_id = ${id} order by number
  `);

test.each(["messages", "openai"] as const)("a batch with one such item ends (%s)", async (form) => {
  const id = await insertBatch(pool, 6);
  await pool.query(sql.unsafe`update batches set form = ${form} where id = ${id}`);
  let deaths = 0;
  for (let round = 0; round < 20; round += 1) {
    const items = await claim(one, id, 6);
    if (items.length === 0) break;
    if (items.some(({ number }) => number === 2)) {
      deaths += 1;
      await die(one);
    } else await store(one, items);
  }
  expect(deaths).toBe(5);
  const items = await itemsOf(id);
  expect(items.map(({ state }) => state)).toEqual([
    "succeeded",
    "succeeded",
    "errored",
    "succeeded",
    "succeeded",
    "succeeded",
  ]);
  const message = "The service failed each time it ran this request.";
  expect(JSON.parse(items[2]?.line ?? "")).toMatchObject(
    form === "messages"
      ? {
          custom_id: "i2",
          result: {
            type: "errored",
            error: { error: { type: "api_error", message, code: "upstream_error" } },
          },
        }
      : { custom_id: "i2", error: { code: "upstream_error", message } },
  );
  await closeFinished(one);
  expect(
    await pool.oneFirst(
      sql.type(z.object({ state: z.string() }))`select state from batches where id = ${id}`,
    ),
  ).toBe("finalizing");
  await pool.query(sql.unsafe`update batches set form = 'messages' where id = ${id}`);
});

test("of those that are suspected one runs in a worker at a time, beside all others", async () => {
  const id = await insertBatch(pool, 6);
  await pool.query(
    sql.unsafe`update batch_items set lost_claims = ${lostTimes(sql.fragment`2`)} where batch_id = ${id} and number < 4`,
  );
  const first = await claim(one, id, 6);
  expect(first.filter(({ losses }) => losses >= 2)).toHaveLength(1);
  const second = await claim(one, id, 6, true);
  expect([...first, ...second].filter(({ losses }) => losses < 2).map(({ number }) => number)).toEqual([
    4, 5,
  ]);
  expect(second.filter(({ losses }) => losses >= 2)).toEqual([]);
  // Another one may end its own process.
  expect(await claim(other, id, 6)).toHaveLength(1);
  await handBack(one);
  await handBack(other);
});

test("the least lost of them first, whichever stands first", async () => {
  const id = await insertBatch(pool, 3);
  await pool.query(
    sql.unsafe`update batch_items set lost_claims = ${lostTimes(sql.fragment`4 - number`)} where batch_id = ${id}`,
  );
  expect((await claim(one, id, 3)).map(({ number }) => number)).toEqual([2]);
  await handBack(one);
});

test("what a worker hands back as it ends was not lost", async () => {
  const id = await insertBatch(pool, 2);
  for (let round = 0; round < 5; round += 1) {
    expect(await claim(one, id, 2)).toHaveLength(2);
    await handBack(one);
  }
  expect(await itemsOf(id)).toMatchObject([
    { state: "waiting", losses: 0 },
    { state: "waiting", losses: 0 },
  ]);
});

test("nor what a worker had that was cut off, and not dead: its run ends, if late", async () => {
  const id = await insertBatch(pool, 1);
  for (let round = 0; round < 6; round += 1) {
    const items = await claim(one, id, 1);
    expect(items).toHaveLength(1);
    await die(one);
    if (round % 2 === 0) await store(one, items);
    else await store(one, items, fault);
    expect(await itemsOf(id)).toMatchObject([{ state: "waiting", losses: 0 }]);
  }
});

describe("no more losses are taken back than were counted", () => {
  let id = "";
  beforeEach(async () => {
    id = await insertBatch(pool, 1);
  });
  // Those that are left stand in line before the next test's.
  afterEach(async () => store(other, await claim(other, id, 1)));
  const lossesOf = async () => (await itemsOf(id)).map(({ losses }) => losses);
  /** Its item is lost so often. */
  async function lose(times: number): Promise<void> {
    for (let time = 0; time < times; time += 1) {
      expect(await claim(one, id, 1)).toHaveLength(1);
      await die(one);
    }
  }
  const runs = [
    ["an answer", (item: ClaimedItem) => answer(item, 1)],
    ["a fault", fault],
  ] as const;

  test.each(runs)("where a worker handed back what it still ran: %s", async (_what, endOf) => {
    await lose(3);
    const items = await claim(one, id, 1);
    await handBack(one);
    await store(one, items, endOf);
    expect(await lossesOf()).toEqual([3]);
  });

  test.each(runs)("where Postgres' answer never came to a late run: %s", async (_what, endOf) => {
    await lose(2);
    const items = await claim(one, id, 1);
    await die(one);
    await store(deaf(one), items, endOf);
    expect(await lossesOf()).toEqual([2]);
  });

  test("nor to one that waits again", async () => {
    await lose(2);
    await store(deaf(one), await claim(one, id, 1), fault);
    expect(await lossesOf()).toEqual([2]);
  });

  test("nor fewer, where two late runs of one item end together", async () => {
    await lose(1);
    const late: ClaimedItem[] = [];
    for (let time = 0; time < 2; time += 1) {
      late.push(...(await claim(one, id, 1)));
      await die(one);
    }
    expect(await lossesOf()).toEqual([3]);
    await store(one, late);
    expect(await lossesOf()).toEqual([1]);
  });
});
