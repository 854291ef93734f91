/** Rule 12.5: months are closed, and nothing that is answered from them changes by a micro-credit. */
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import pg from "pg";
import { sql } from "slonik";
import { beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { retryDeadLetter } from "../../dataplane/billing/ledger/charge.ts";
import { pageDeadLetters } from "../../dataplane/billing/ledger/dead-letters.ts";
import { chargeArray, encodeRow } from "../../dataplane/billing/ledger/charge-text.ts";
import { usageRow, type UsageRow } from "../../dataplane/billing/ledger/usage-row.ts";
import { completionsUsage } from "../../dataplane/reports/completions-usage.ts";
import { messagesUsage } from "../../dataplane/reports/messages-usage.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { withinOneDay } from "../fakes/one-day.ts";
import { isWhole } from "../fakes/runs.ts";
import { request, usage } from "./money-world.ts";
import { startPooler } from "./pooler.ts";
import { freshPostgres } from "./stores.ts";
import { DAY, monthsAgo, monthText, RetentionWorld, tableOf, traffic } from "./retention-world.ts";

// Months are counted from the present one.
beforeEach(() => withinOneDay(60_000));

/** Of a ledger: `npm test -- --all` closes them all. */
const MONTHS = isWhole ? 20 : 7;
/** Months that may be closed: 35 days are over since their end. */
const closable = (month: number) => month + 32 * DAY + 36 * DAY < Date.now();

/** A charge of an old request. */
const old = (month: number, cost: number, day = 3): UsageRow =>
  usageRow(request("org_one", { acceptedAt: monthsAgo(month) + day * DAY, keyId: "apikey_1" }), usage(cost));

/** Every second month has no partition: its rows are in the default one. */
async function openLedger(most: number) {
  const world = await RetentionWorld.open();
  for (let month = MONTHS; month > 0; month -= 1)
    if (month % 2 === 0) await world.makePartitions(monthsAgo(month));
  const [items = []] = fc.sample(traffic(MONTHS, most), 1);
  return { world, rows: await world.play(items) };
}

test.each([false, true])(
  `${MONTHS} months are closed one by one, and every report by the day, export, spend, balance and the audit stay (rows dropped: %s)`,
  async (dropRows) => {
    const { world, rows } = await openLedger(160);
    await using _ = world;
    const before = await world.answers(monthsAgo(MONTHS));
    expect(await world.audit()).toEqual({ broken: [], rows: BigInt(rows.length) });
    const steps = new Set<string>();
    for (let month = MONTHS, count = 0; month >= 0; month -= 1) {
      const start = monthsAgo(month);
      const retention = world.retention(monthsAgo(month - 1), { dropRows });
      for (;;) {
        const step = await retention.step();
        steps.add(step);
        // Between steps too, not only after the last.
        if ((count += 1) % 5 === 0 || step === "done")
          expect(await world.audit()).toEqual({ broken: [], rows: BigInt(rows.length) });
        if (step === "done") break;
        if (count % 10 === 0) expect(before).toMatchObject(await world.answers(start, start));
      }
      expect(before, monthText(start)).toMatchObject(await world.answers(start, start));
      const of = rows.filter(({ acceptedAt }) => monthText(acceptedAt) === monthText(start)).length;
      if (!closable(start)) continue;
      const kept = await world.rowsIn(tableOf(start));
      if (dropRows) expect(kept).toBe(null);
      else if (of > 0) expect(kept).toBe(BigInt(of));
      expect(await world.rowsIn(tableOf(start).replace("usage", "usage_hourly"))).toBe(null);
    }
    expect(await world.answers(monthsAgo(MONTHS))).toEqual(before);
    expect([...steps].toSorted()).toEqual(["checked", "closed", "done", "moved", "summed"]);
    const left = await world.pool.oneFirst(
      sql.type(z.object({ count: z.bigint() }))`
        select count(*) from usage where accepted_at < (select closed_until from usage_retention)
      `,
    );
    expect(left).toBe(0n);
  },
);

test("a month keeps no sums of batches whose rows have gone", async () => {
  await using world = await RetentionWorld.open();
  const ofBatch = (batchId: string): UsageRow =>
    usageRow(
      request("org_one", { acceptedAt: monthsAgo(3) + 3 * DAY, endpoint: "batch", batchId }),
      usage(100),
    );
  await world.charge(ofBatch("batch_gone"), ofBatch("batch_there"));
  await world.pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, outcome, created_at, expires_at, ended_at)
    values ('batch_there', 'org_one', 'p', 'k', 'openai', 'chat', 'ended', 'completed', now(), now(), now())
  `);
  expect(await world.retention(monthsAgo(2)).look()).toBe("done");
  const summed = sql.type(z.object({ batchId: z.string() }))`
    select batch_id as "batchId" from usage_closed_batches
  `;
  expect(await world.pool.anyFirst(summed)).toEqual(["batch_there"]);
});

test("nothing younger than 35 days is closed, whatever the caller's clock says", async () => {
  await using world = await RetentionWorld.open();
  for (let month = 3; month > 0; month -= 1) await world.charge(old(month, 5));
  expect(await world.retention(Date.now() + 400 * DAY).look()).toBe("done");
  const until = await world.closedUntil();
  expect(until).toBeGreaterThan(0);
  expect(until).toBeLessThanOrEqual(Date.now() - 35 * DAY);
  expect((await world.audit()).broken).toEqual([]);
});

test("reports by the hour reach back to the open months and refuse what lies before, by the parameter's name", async () => {
  await using world = await RetentionWorld.open();
  await world.charge(old(10, 5), old(2, 5));
  const ask = (report: typeof messagesUsage | typeof completionsUsage, from: number) => {
    const start = new Date(from).toISOString();
    return report(
      world.pool,
      "org_one",
      { starting_at: start, start_time: start, bucket_width: "1h", limit: "24" },
      Date.now(),
    );
  };
  await ask(messagesUsage, monthsAgo(10));
  expect(await world.retention(monthsAgo(9)).look()).toBe("done");
  const first = new Date(monthsAgo(9)).toISOString().slice(0, 10);
  await expect(ask(messagesUsage, monthsAgo(9) - 1)).rejects.toMatchObject({
    param: "starting_at",
    // The Messages family has no field for the name, so the message has it (rule 5.13).
    message: `starting_at must not be before ${first} with bucket_width=1h: older usage is kept by the day.`,
  });
  await expect(ask(completionsUsage, monthsAgo(10))).rejects.toMatchObject({ param: "start_time" });
  await ask(messagesUsage, monthsAgo(9));
});

test("a late charge of a closed month is charged once, told by the day at once, and joins its month at the next look", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(4));
  const stored = [old(4, 5), old(4, 7), old(3, 11)] as const;
  await world.charge(...stored);
  const retention = world.retention(monthsAgo(2));
  expect(await retention.look()).toBe("done");
  const before = await world.answers(monthsAgo(5));
  // They come again: from an old Redis, say.
  for (const row of stored) await world.charge(row);
  await world.charge(...stored, old(0, 0, 0));
  expect((await world.audit()).broken).toEqual([]);
  expect(await world.answers(monthsAgo(5))).toEqual({
    ...before,
    // The last one was new and cost nothing.
    ...Object.fromEntries(
      Object.entries(await world.answers(monthsAgo(0))).filter(([name]) =>
        name.includes(monthText(Date.now())),
      ),
    ),
  });
  const late = [old(4, 100), old(3, 1000)] as const;
  const balance = BigInt(String(before["org_one"]));
  for (const row of [...late, ...late]) await world.charge(row);
  const after = await world.answers(monthsAgo(5));
  expect(after["org_one"]).toBe(balance - 1100n);
  expect(after["org_one apikey_1 total"]).toBe(BigInt(String(before["org_one apikey_1 total"])) + 1100n);
  expect((await world.audit()).broken).toEqual([]);
  expect(await retention.look()).toBe("done");
  expect(await world.answers(monthsAgo(5))).toEqual(after);
  expect(await world.audit()).toEqual({ broken: [], rows: 6n });
  expect([await world.rowsIn(tableOf(monthsAgo(4))), await world.rowsIn(tableOf(monthsAgo(3)))]).toEqual([
    3n,
    2n,
  ]);
  for (const row of late) await world.charge(row);
  expect(await world.answers(monthsAgo(5))).toEqual(after);
});

test("where the rows are dropped, what may be a repeat is charged to nobody and named; a dead letter from before is charged", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(4));
  const [stored, poison] = [old(4, 5), old(4, 7)];
  await world.charge(stored);
  await world.pool.query(sql.unsafe`alter table usage add constraint no_poison check (cost_micros <> 7)`);
  await world.charge(poison);
  expect((await world.audit()).broken.join()).toMatch(/a charge of 0\.000007 to org_one is a dead letter/);
  expect(await world.retention(monthsAgo(3), { dropRows: true }).look()).toBe("done");
  await world.pool.query(sql.unsafe`alter table usage drop constraint no_poison`);
  const before = await world.answers(monthsAgo(4));
  const repeat = old(4, 5);
  await world.charge(stored, old(0, 3, 0));
  await world.charge(repeat, repeat);
  const [letters, after] = [await pageDeadLetters(world.pool, "", 10), await world.answers(monthsAgo(4))];
  expect(after["org_one"]).toBe(BigInt(String(before["org_one"])) - 3n);
  expect(letters.map(({ charged }) => Number(charged)).toSorted((a, b) => a - b)).toEqual([0, 0, 7]);
  expect((await world.audit()).broken.join("\n")).toMatch(
    /a charge of 0 to nobody is a dead letter since .*its month is closed and the rows are gone/,
  );
  // The one that was refused before its month was closed is in no closing.
  for (const letter of letters)
    expect(await retryDeadLetter(world.pool, letter)).toBe(letter.charged === 7n ? "org_one" : null);
  expect((await world.answers(monthsAgo(4)))["org_one"]).toBe(after["org_one"]);
  expect((await pageDeadLetters(world.pool, "", 10)).map(({ charged }) => charged)).toEqual([0n, 0n]);
  await world.pool.query(sql.unsafe`delete from dead_letters`);
  expect((await world.audit()).broken).toEqual([]);
});

test("a charge that comes while its month is summed is in the closing, once", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(4));
  await world.charge(...Array.from({ length: 30 }, (_, at) => old(4, 1 + at, at % 28)));
  const retention = world.retention(monthsAgo(3));
  const balance = BigInt(String((await world.answers(monthsAgo(4)))["org_one"]));
  const steps: string[] = [];
  const days = Math.round((monthsAgo(3) - monthsAgo(4)) / DAY);
  for (let late = 0; steps.at(-1) !== "done";) {
    steps.push(await retention.step());
    // Into what is summed already, and into what is not; again after it was begun anew, and before the last step.
    const checked = steps.slice(-days).filter((step) => step === "checked").length;
    if (steps.length === 3 || steps.length === 9 || (late === 2 && checked === days)) {
      late += 1;
      await world.charge(old(4, 1000, 0), old(4, 1000, 27));
      expect((await world.answers(monthsAgo(4)))["org_one"]).toBe(balance - BigInt(late) * 2000n);
    }
    expect((await world.audit()).broken).toEqual([]);
  }
  expect(steps.filter((step) => step === "checked").length).toBeGreaterThanOrEqual(2 * days);
  expect(await world.rowsIn(tableOf(monthsAgo(4)))).toBe(36n);
  expect(await world.audit()).toEqual({ broken: [], rows: 36n });
});

test("a charge that is under way when its month is to be closed holds that up, and is in the closing", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(10));
  await world.charge(...Array.from({ length: 9 }, (_, at) => old(10, 1 + at)));
  const retention = world.retention(monthsAgo(9));
  const days = Math.round((monthsAgo(9) - monthsAgo(10)) / DAY);
  for (let checked = 0; checked < days;) if ((await retention.step()) === "checked") checked += 1;
  const client = new pg.Client({ connectionString: world.url });
  await client.connect();
  const late = () =>
    client.query("select charge_usage($1::charge[])", [chargeArray([encodeRow(old(10, 100))])]);
  await client.query("begin");
  await late();
  expect(await retention.step()).toBe("waits");
  await client.query("commit");
  for (let checked = 0; checked < days;) if ((await retention.step()) === "checked") checked += 1;
  await client.query("begin");
  await late();
  const isWaiting = () =>
    world.pool.exists(sql.unsafe`select from pg_locks where not granted and relation = 'usage'::regclass`);
  // A step waits for a fifth of a second: one that was over before it was seen waiting is followed by another.
  let step = retention.step();
  for (let hasEnded = false; !(await isWaiting());) {
    if (hasEnded) {
      expect(await step).toBe("waits");
      step = retention.step();
    }
    hasEnded = await Promise.race([step.then(() => true), sleep(1, false)]);
  }
  await client.query("commit");
  await client.end();
  // It may have waited too long already.
  expect(["summed", "waits"]).toContain(await step);
  expect(await world.closedUntil()).toBe(0);
  expect(await retention.look()).toBe("done");
  expect(await world.audit()).toEqual({ broken: [], rows: 11n });
  expect(await world.rowsIn(tableOf(monthsAgo(10)))).toBe(11n);
});

test("a month whose sums are not those of its rows is not closed, and says so", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(10));
  await world.charge(old(10, 5));
  await world.pool.query(sql.unsafe`update usage_hourly set output_tokens = output_tokens + 1`);
  const day = new Date(monthsAgo(10) + 3 * DAY).toISOString().slice(0, 10);
  await expect(world.retention(monthsAgo(9)).look()).rejects.toMatchObject({
    message: `the sums of ${day} are not those of its rows: it is not closed; see \`main.ts reconcile\``,
  });
  expect((await world.audit()).broken).toHaveLength(1);
  await world.pool.query(sql.unsafe`update usage_hourly set output_tokens = output_tokens - 1`);
  expect(await world.retention(monthsAgo(9)).look()).toBe("done");
  expect((await world.audit()).broken).toEqual([]);
});

test("two data planes, behind a PgBouncer in transaction mode, close each month once", async () => {
  const { world, rows } = await openLedger(150);
  await using _ = world;
  const before = await world.answers(monthsAgo(MONTHS));
  await using pooler = await startPooler(world.url);
  const pools = await Promise.all(
    [1, 2].map(() => openPostgres(pooler.through(world.url), { maxConnections: 2, onError: () => {} })),
  );
  const planes = pools.map((pool) => world.retention(Date.now(), { pool }));
  const last: string[] = [];
  // One finds the other at it, and looks again.
  await Promise.all(
    planes.map(async (plane) => {
      for (let step = ""; step !== "done";) last.push((step = await plane.look()));
    }),
  );
  expect(last.filter((step) => step === "done")).toHaveLength(2);
  expect(last).toContain("busy");
  expect(await world.answers(monthsAgo(MONTHS))).toEqual(before);
  expect(await world.audit()).toEqual({ broken: [], rows: BigInt(rows.length) });
  await Promise.all(pools.map((pool) => pool.end()));
});

/** Where Postgres is killed: in the middle of the statement that fills this table. */
const places = [
  ["while it sums", sql.fragment`insert on usage_closed`, sql.fragment`usage_closed`],
  ["after it detached", sql.fragment`insert on usage_closings`, sql.fragment`usage_closings`],
  ["at its last word", sql.fragment`update on usage_retention`, sql.fragment`usage_retention`],
] as const;

test("a Postgres that is killed in any step, and goes on with another data plane, closes all the same", async () => {
  await using store = await freshPostgres();
  await using world = await RetentionWorld.open(store.url);
  for (const month of [10, 8]) await world.makePartitions(monthsAgo(month));
  for (let month = 10; month > 6; month -= 1)
    await world.charge(old(month, 5), old(month, 7, 9), old(month, 11, 20));
  const before = await world.answers(monthsAgo(11));
  await world.pool.query(sql.unsafe`
    create function stand_still() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return null; end $$
  `);
  for (const [place, event, table] of places) {
    await world.pool.query(sql.unsafe`
      create trigger stops after ${event} for each statement execute function stand_still()
    `);
    const dies = world
      .retention(monthsAgo(6))
      .look()
      .then(
        () => "lived",
        () => "died",
      );
    await expect
      .poll(() => world.pool.exists(sql.unsafe`select from pg_stat_activity where wait_event = 'PgSleep'`), {
        timeout: 20_000,
        interval: 20,
      })
      .toBe(true);
    await store.kill();
    expect(await dies, place).toBe("died");
    await store.start();
    await expect
      .poll(
        () =>
          world.pool.query(sql.unsafe`drop trigger stops on ${table}`).then(
            () => true,
            () => false,
          ),
        { timeout: 20_000 },
      )
      .toBe(true);
    expect(await world.answers(monthsAgo(11)), place).toEqual(before);
    expect(await world.audit(), place).toEqual({ broken: [], rows: 12n });
    // A step forward, so that the next one is killed elsewhere.
    await world.retention(monthsAgo(6)).step();
  }
  expect(await world.retention(monthsAgo(6)).look()).toBe("done");
  expect(await world.closedUntil()).toBe(monthsAgo(6));
  expect(await world.answers(monthsAgo(11))).toEqual(before);
  expect(await world.audit()).toEqual({ broken: [], rows: 12n });
}, 120_000);

test("charges and reports go on beside it, none waits for a second, and whoever reads long is let finish", async () => {
  await using world = await RetentionWorld.open();
  for (let month = 12; month > 2; month -= 1) {
    await world.makePartitions(monthsAgo(month));
    await world.charge(...Array.from({ length: 200 }, (_, at) => old(month, 1 + at, at % 28)));
  }
  let longest = 0;
  let charged = 0;
  const ended = new AbortController();
  const timed = async (work: () => Promise<unknown>) => {
    const began = performance.now();
    await work();
    longest = Math.max(longest, performance.now() - began);
  };
  const report = () =>
    messagesUsage(world.pool, "org_one", { starting_at: monthText(monthsAgo(1)) + "-01" }, Date.now());
  const busy = Array.from({ length: 4 }, async (_, at) => {
    while (!ended.signal.aborted) {
      const row = usageRow(request("org_two", { keyId: `apikey_${at}` }), usage(1));
      await timed(at === 3 ? report : () => world.charge(row));
      if (at !== 3) charged += 1;
    }
  });
  const retention = world.retention(monthsAgo(2), { summed: 50 });
  const audit = new pg.Client({ connectionString: world.url });
  await audit.connect();
  // As `reconcile` begins.
  await audit.query("begin isolation level repeatable read, read only");
  await audit.query("lock table usage, usage_hourly in access share mode");
  const rows = async () => (await audit.query("select count(*) from usage")).rows;
  const found = await rows();
  for (let waits = 0; waits < 3;) {
    if ((await retention.step()) !== "waits") continue;
    waits += 1;
    // As `look` does: those who waited come first.
    await world.charge(old(1, 0, 0));
  }
  expect(await rows()).toEqual(found);
  await audit.query("commit");
  await audit.end();
  expect(await world.closedUntil()).toBe(0);
  expect(await retention.look()).toBe("done");
  ended.abort();
  await Promise.all(busy);
  expect(await world.closedUntil()).toBe(monthsAgo(2));
  expect(charged).toBeGreaterThan(20);
  expect(longest).toBeLessThan(1_000);
  expect(await world.audit()).toEqual({ broken: [], rows: 2_003n + BigInt(charged) });
});

test("an audit that begins while a month is being closed counts it once", async () => {
  await using world = await RetentionWorld.open();
  await world.makePartitions(monthsAgo(10));
  await world.charge(...Array.from({ length: 30 }, (_, at) => old(10, 1 + at, at % 28)));
  await world.pool.query(sql.unsafe`
    create function wait_a_moment() returns trigger language plpgsql as $$ begin perform pg_sleep(0.7); return null; end $$;
    create trigger waits after insert on usage_closings for each statement execute function wait_a_moment()
  `);
  const closing = world.retention(monthsAgo(9)).look();
  await expect
    .poll(() => world.pool.exists(sql.unsafe`select from pg_stat_activity where wait_event = 'PgSleep'`), {
      interval: 5,
      timeout: 20_000,
    })
    .toBe(true);
  expect(await world.audit()).toEqual({ broken: [], rows: 30n });
  expect(await closing).toBe("done");
  expect(await world.rowsIn("usage_default")).toBe(0n);
});
