import { expect, test, vi } from "vitest";
import { sql } from "slonik";
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
