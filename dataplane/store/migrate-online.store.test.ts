/** Rule 12.6: migrations of large tables that are interrupted, that run twice at once, that others are in the way of. */
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { waitFor } from "../../test/bench/wait-for.ts";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { migrate, type MigrateOptions, type Migration } from "./migrate.ts";

const migration = (version: number, sql: string): Migration => ({
  version,
  name: `000${version}_step`,
  sql,
  sha256: sql,
});
const ROWS = 3_000;
const tables = migration(
  1,
  `create table coins (id int primary key, side text, turned int not null default 0);
   insert into coins (id) select generate_series(1, ${ROWS});
   create table tosses (day int not null, id int not null, primary key (day, id)) partition by range (day);
   create table tosses_1 partition of tosses for values from (1) to (2);
   create table tosses_2 partition of tosses for values from (2) to (3);
   create table tosses_default partition of tosses default;
   insert into tosses select day, id from generate_series(1, 4) day, generate_series(1, 100) id;`,
);
const column = migration(2, "alter table coins add column edge text not null default 'plain'");
const index = migration(
  2,
  "-- migrate: concurrently\ncreate index concurrently coins_by_side on coins (side);",
);
const backfill = migration(
  2,
  `-- migrate: steps
   with few as (
     select id from coins where id > coalesce(($1::jsonb ->> 'id')::int, 0) order by id limit $2::int
   ), turned as (update coins set side = 'heads', turned = turned + 1 where id in (select id from few))
   select jsonb_build_object('id', max(id)) as next from few having count(*) > 0`,
);

let database: TestDatabase;
/** Somebody else on the same database. */
let other: pg.Client;
let lines: string[];
const run = (migrations: readonly Migration[], options: MigrateOptions = {}) =>
  migrate(database.url, {
    migrations,
    say: (line) => lines.push(line),
    patience: { tries: 1_000, pauseMs: () => 10 },
    ...options,
  });
const connect = async () => {
  const client = new pg.Client({ connectionString: database.url, application_name: "somebody" });
  client.on("error", () => {});
  await client.connect();
  return client;
};
const value = async (select: string, client = other) =>
  Object.values((await client.query<Record<string, unknown>>(`select ${select}`)).rows[0] ?? {})[0];
const isValid = (name: string) => value(`indisvalid from pg_index where indexrelid = to_regclass('${name}')`);
const said = (words: RegExp) =>
  waitFor(words.source, () => Promise.resolve(lines.some((line) => words.test(line))));
/** Until `release`, somebody reads under an old snapshot, for which an index that is made concurrently waits. */
async function holdSnapshot(): Promise<() => Promise<void>> {
  const reader = await connect();
  await reader.query("begin isolation level repeatable read; select from coins");
  return () => reader.end();
}
const begun = () =>
  waitFor("an index that is not valid", async () => (await isValid("coins_by_side")) === false);

beforeEach(async () => {
  database = await freshDatabase({ migrated: false });
  other = await connect();
  lines = [];
  await run([tables]);
});
afterEach(async () => {
  await other.end();
  await database.drop();
});

describe("a lock that somebody holds", () => {
  beforeEach(async () => {
    await other.query("begin; lock table coins in access share mode");
  });

  test("is given up after all tries, with who holds it, and nothing is done", async () => {
    const failure = run([tables, column], { patience: { tries: 4, pauseMs: () => 10 } });
    const pid = String(await value("pg_backend_pid()"));
    await expect(failure).rejects.toThrow(
      new RegExp(
        `0002_step failed: .*lock timeout; tried 4 times.*process ${pid} \\(somebody, idle in trans`,
      ),
    );
    await other.query("rollback");
    expect(await value("count(*) from schema_migrations")).toBe("1");
  });

  test("makes nobody else wait for a second, and is got when it is free", async () => {
    const applied = run([tables, column]);
    await said(/trying again/);
    const reader = await connect();
    // Behind the one that waits, until it gives up.
    await reader.query("set statement_timeout = '10s'");
    for (let n = 0; n < 5; n += 1) expect(await value("count(*) from coins", reader)).toBe(String(ROWS));
    await reader.end();
    await other.query("rollback");
    expect(await applied).toEqual(["0002_step"]);
    expect(await value("edge from coins where id = 1")).toBe("plain");
  });
});

describe("an index", () => {
  test("whose run was killed is dropped and made again", async () => {
    // It waits for all older snapshots before it is valid.
    const release = await holdSnapshot();
    const failure = run([tables, index]).catch(String);
    await begun();
    const first = await value("to_regclass('coins_by_side')::oid");
    await value(
      "pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like 'create index concurrently%'",
    );
    expect(await failure).toMatch(/0002_step failed.*terminat/);
    await release();
    expect(await isValid("coins_by_side")).toBe(false);
    expect(await run([tables, index])).toEqual(["0002_step"]);
    expect(await isValid("coins_by_side")).toBe(true);
    expect(await value("to_regclass('coins_by_side')::oid")).not.toBe(first);
  });

  test("that the server still builds for a run that is gone is waited for", async () => {
    const release = await holdSnapshot();
    const gone = await connect();
    const built = gone.query("create index concurrently coins_by_side on coins (side)");
    await begun();
    const first = await value("to_regclass('coins_by_side')::oid");
    const applied = run([tables, index]);
    await said(/0002_step/);
    await release();
    await built;
    expect(await applied).toEqual(["0002_step"]);
    expect(await value("to_regclass('coins_by_side')::oid")).toBe(first);
    await gone.end();
  });

  test("is made by one of two runs, and neither stands in the other's way", async () => {
    const release = await holdSnapshot();
    const applied = Promise.all([run([tables, index]), run([tables, index])]);
    await said(/another process migrates/);
    await begun();
    await release();
    expect((await applied).flat()).toEqual(["0002_step"]);
    expect(await isValid("coins_by_side")).toBe(true);
  });

  test("of a table with partitions is made for each, also for those of later", async () => {
    const sql = "-- migrate: concurrently\ncreate unique index concurrently tosses_by_id on tosses (id, day)";
    expect((await Promise.all([1, 2].map(() => run([tables, migration(2, sql)])))).flat()).toEqual([
      "0002_step",
    ]);
    await other.query("create table tosses_5 partition of tosses for values from (5) to (6)");
    expect(await isValid("tosses_by_id")).toBe(true);
    expect(
      await value(
        "array_agg(inhrelid::regclass::text order by inhrelid::regclass::text collate \"C\") from pg_inherits where inhparent = 'tosses_by_id'::regclass",
      ),
    ).toEqual([
      "tosses_1_tosses_by_id",
      "tosses_2_tosses_by_id",
      "tosses_5_id_day_idx",
      "tosses_default_tosses_by_id",
    ]);
  });
});

test("a check is validated in each partition, and a row that breaks it is told", async () => {
  const added = migration(2, "alter table tosses add constraint early check (day < 4) not valid");
  const valid = migration(3, "-- migrate: concurrently\nalter table tosses validate constraint early;");
  await expect(run([tables, added, valid])).rejects.toThrow(/0003_step failed: .*early.*violated/);
  await other.query("delete from tosses where day = 4");
  expect(await run([tables, added, valid])).toEqual(["0003_step"]);
  expect(await value("bool_and(convalidated) from pg_constraint where conname = 'early'")).toBe(true);
  expect(await value("count(*) from pg_constraint where conname = 'early'")).toBe("4");
});

describe("a backfill", () => {
  const turned = () => value("array_agg(distinct turned) from coins");

  test("that broke off goes on where it was, and takes each row once", async () => {
    await other.query("alter table coins add constraint stop check (id <> 2000 or side is null)");
    await expect(run([tables, backfill])).rejects.toThrow(/0002_step failed: .*stop/);
    expect(await value("count(*) from coins where turned = 1")).not.toBe("0");
    await other.query("alter table coins drop constraint stop");
    expect(await run([tables, backfill])).toEqual(["0002_step"]);
    expect(await turned()).toEqual([1]);
    expect(await value("count(*) from schema_migration_steps")).toBe("0");
  });

  test("of two runs at once takes each row once", async () => {
    expect((await Promise.all([run([tables, backfill]), run([tables, backfill])])).flat()).toEqual([
      "0002_step",
    ]);
    expect(await turned()).toEqual([1]);
  });

  test("waits for a row that somebody holds, without holding others meanwhile", async () => {
    await other.query("begin; update coins set side = 'tails' where id = 700");
    const applied = run([tables, backfill]);
    await said(/trying again/);
    await other.query("commit");
    expect(await applied).toEqual(["0002_step"]);
    expect(await turned()).toEqual([1]);
  });

  test("that does not move on is refused instead of running for ever", async () => {
    const still = migration(
      2,
      "-- migrate: steps\nselect jsonb_build_object('rows', $2::int * 0, 'last', $1::jsonb) - 'last' as next",
    );
    await expect(run([tables, still])).rejects.toThrow(/does not move on from/);
  });
});
