/** What goes after RETENTION_AUDIT: lines of the audit log, and deleted keys that nothing names. */
import { pino } from "pino";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { makeOrganization } from "../../test/integration/money-world.ts";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { openPostgres } from "../store/postgres.ts";
import { KeyRetention } from "./key-retention.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
  await makeOrganization(pool, "org_a", 0n);
  await pool.query(
    sql.unsafe`insert into projects (id, organization_id, name) values ('p', 'org_a', 'default')`,
  );
});
afterAll(async () => {
  await pool?.end();
  await database?.drop();
});

const DAY_MS = 86_400_000;
const forget = () =>
  new KeyRetention({ pool, log: pino({ level: "silent" }), retentionMs: 40 * DAY_MS, atOnce: 3 }).forget();
const names = (query: ReturnType<typeof sql.fragment>) =>
  pool.anyFirst(sql.type(z.object({ name: z.string() }))`${query}`);

test("lines of the audit log leave by their age, however many, and the younger ones stay", async () => {
  await pool.query(sql.unsafe`
    insert into audit_log (organization_id, at, actor_key_id, action, key_id, changes, address, request_id, lines_so_far, bytes_so_far)
    select 'org_a', now() - make_interval(days => 51 - n), 'k', 'key.updated', 'line_' || n, '{}', '', '', n, n * 2
    from generate_series(1, 14) n
  `);
  const left = () => names(sql.fragment`select key_id as name from audit_log order by position`);
  await forget();
  expect(await left()).toEqual(["line_12", "line_13", "line_14"]);
  await forget();
  expect(await left()).toHaveLength(3);
});

test("deleted keys leave by their age, but for those that usage names; no other key does", async () => {
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, hint, source, status, deleted_at)
    select kind || '_' || n, 'org_a', 'p', 'inference', kind || '_' || n, '',
      case kind when 'declared' then 'declared' else 'created' end, 'inactive',
      case kind when 'kept' then null when 'young' then now() - interval '39 days' else now() - interval '41 days' end
    from generate_series(1, 4) n,
      unnest(array['unused', 'used', 'young', 'kept', 'declared']) kind
  `);
  // A request may have cost nothing.
  await pool.query(sql.unsafe`
    insert into usage_daily (organization_id, scope_id, day, micros)
    select 'org_a', 'used_' || n, 1, 0 from generate_series(1, 4) n
    union all select 'org_other', 'unused_1', 1, 5
  `);
  const left = () => names(sql.fragment`select name from api_keys order by name`);
  const stay = ["declared", "kept", "used", "young"].flatMap((kind) =>
    [1, 2, 3, 4].map((n) => `${kind}_${n}`),
  );
  await Promise.all([forget(), forget()]);
  await forget();
  expect(await left()).toEqual(stay);
  const looked = await names(sql.fragment`select name from api_keys where has_usage order by name`);
  expect(looked, "are not looked at again").toEqual(["used_1", "used_2", "used_3", "used_4"]);
});
