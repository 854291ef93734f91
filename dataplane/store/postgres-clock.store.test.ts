import { expect, test, vi } from "vitest";
import { sql, type CommonQueryMethods } from "slonik";
import { z } from "zod";
import { freshDatabase } from "../../test/integration/stores.ts";
import { openPostgres } from "./postgres.ts";
import { PostgresClock } from "./postgres-clock.ts";

test("tells Postgres' time, whatever the clock of this machine says and while Postgres is away", async () => {
  await using database = await freshDatabase({ migrated: false });
  const pool = await openPostgres(database.url, { onError: () => {} });
  let elapsed = 5_000;
  const clock = await PostgresClock.start(pool, () => elapsed);
  const there = async () =>
    await pool.oneFirst(sql.type(z.object({ now: z.number() }))`select clock_timestamp() as now`);
  expect(Math.abs((await there()) - clock.now())).toBeLessThan(2_000);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 25 * 3_600_000 });
  try {
    expect(Math.abs((await there()) - clock.now())).toBeLessThan(2_000);
    const before = clock.now();
    elapsed += 1_500;
    expect(clock.now()).toBe(before + 1_500);
    await clock.refresh();
    expect(Math.abs((await there()) - clock.now())).toBeLessThan(2_000);
  } finally {
    vi.useRealTimers();
  }
  await pool.end();
  await expect(clock.refresh()).rejects.toBeInstanceOf(Error);
  const before = clock.now();
  elapsed += 10;
  expect(clock.now()).toBe(before + 10);
});

test("an answer that takes long, as Postgres stands still meanwhile, puts it neither before nor behind", async () => {
  const begin = 1_800_000_000_000;
  let elapsed = 5_000;
  /** How long it takes to ask, and to answer. */
  let ways = [1, 1];
  const oneFirst = async () => {
    elapsed += ways[0] ?? 0;
    const time = begin + elapsed;
    elapsed += ways[1] ?? 0;
    return time;
  };
  const clock = await PostgresClock.start({ oneFirst } as unknown as CommonQueryMethods, () => elapsed);
  for (ways of [
    [14_000, 1],
    [1, 14_000],
    [1, 1],
  ]) {
    await clock.refresh();
    expect(Math.abs(clock.now() - (begin + elapsed))).toBeLessThanOrEqual(1);
  }
});
