/** How a month's charges are read for the FOCUS export: all of them, once, in few statements (rule 14.5). */
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { monthPages, type DayGroup } from "../../dataplane/reports/focus/pages.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const DAYS = 30;
const GROUPS = 900;
const november = { from: Date.parse("2026-11-01T00:00:00Z"), to: Date.parse("2026-12-01T00:00:00Z") };

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
  // Of one day, in two of its hours: each charge is a group of its own.
  await pool.query(sql.unsafe`
    insert into usage_hourly
    select 'org_a', '2026-11-06T00:00:00Z'::timestamptz + charge % 2 * interval '1 hour', 'proj_1', 'apikey_' || charge % 50, 'm', 1000,
      'standard', charge % 3 = 0, 1, charge, 0, 0, 0, charge, 0, 0, 0, 0, 0, 0, charge, 0, 0, 0, charge, 0, 0, 0, 2 * charge,
      'job=' || charge / 2
    from generate_series(1, ${2 * GROUPS}) charge
  `);
});
afterAll(async () => {
  await pool?.end();
  await database?.drop();
});

/** Its pages, and how many statements they took. */
async function read(groups?: number): Promise<{ pages: (readonly DayGroup[])[]; statements: number }> {
  const pages: (readonly DayGroup[])[] = [];
  let statements = 0;
  const inTurn = <Page>(one: () => Promise<Page>) => {
    statements += 1;
    return one();
  };
  const how = groups === undefined ? { inTurn } : { inTurn, groups };
  for await (const page of monthPages(pool, "org_a", november, how)) pages.push(page);
  return { pages, statements };
}

test("a statement for each day, as long as a day has not very many groups", async () => {
  const { pages, statements } = await read();
  expect(statements).toBe(DAYS);
  // What is written at once stays small.
  expect(Math.max(...pages.map(({ length }) => length))).toBeLessThanOrEqual(250);
  const sum = pages.flat().reduce((all, group) => all + (group.input_micros ?? 0n), 0n);
  expect(sum).toBe(BigInt(GROUPS * (2 * GROUPS + 1)));
});

test("a day with more groups than one statement reads has each of them once", async () => {
  const whole = await read();
  const parts = await read(300);
  expect(parts.statements).toBeGreaterThan(DAYS + 5);
  expect(parts.pages.flat()).toEqual(whole.pages.flat());
});
