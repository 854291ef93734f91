/** Partitions of months to come are made while somebody reads for long, and nobody waits behind (rule 12.6). */
import pg from "pg";
import { sql } from "slonik";
import { expect, test } from "vitest";
import { z } from "zod";
import { makeOrganization, request, usage } from "../../../test/integration/money-world.ts";
import { freshDatabase } from "../../../test/integration/stores.ts";
import { openPostgres } from "../../store/postgres.ts";
import { chargeRows } from "./charge.ts";
import { makePartitions } from "./ledger.ts";
import { usageRow } from "./usage-row.ts";

test("a reader that stays puts them off, and charges go on", async () => {
  await using database = await freshDatabase();
  const pool = await openPostgres(database.url, { onError: () => {} });
  const now = new Date();
  const ahead = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 2)).toISOString().slice(0, 7);
  const [rows, hours] = ["usage", "usage_hourly"].map((parent) => `${parent}_${ahead.replace("-", "_")}`);
  const made = () =>
    pool.anyFirst(sql.type(z.object({ name: z.string() }))`
      select inhrelid::regclass::text as name from pg_inherits
      where inhparent in ('usage'::regclass, 'usage_hourly'::regclass) and inhrelid::regclass::text like ${`%${ahead.replace("-", "_")}`}
      order by 1
    `);
  expect(await made()).toEqual([rows, hours]);
  for (const name of [rows, hours]) await pool.query(sql.unsafe`drop table ${sql.identifier([name ?? ""])}`);
  await makeOrganization(pool, "org_a", 1_000n);
  const reader = new pg.Client({ connectionString: database.url });
  await reader.connect();
  await reader.query("begin; lock table usage, usage_hourly in access share mode");
  await makePartitions(pool);
  expect(await made()).toEqual([]);
  await pool.transaction((charging) => chargeRows(charging, [usageRow(request("org_a"), usage(3))]));
  await reader.end();
  await makePartitions(pool);
  expect(await made()).toEqual([rows, hours]);
  const settings = await pool.oneFirst(
    sql.type(z.object({ options: z.string() }))`
      select array_to_string(reloptions, ',') as options from pg_class where relname = ${hours ?? ""}
    `,
  );
  expect(settings).toBe("fillfactor=70");
  await pool.end();
});
