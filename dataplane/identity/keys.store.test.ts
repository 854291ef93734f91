import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { makeOrganization } from "../../test/integration/money-world.ts";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { newId } from "../lib/ids.ts";
import { openPostgres } from "../store/postgres.ts";
import { Keys, newInferenceKey, type KeyListQuery } from "./keys.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
});
afterAll(async () => {
  await pool?.end();
  await database?.drop();
});

const DELETED = 5_000;

test("keys that were made and deleted cost lists nothing, however many they are", async () => {
  await makeOrganization(pool, "org_a", 0n);
  await pool.query(
    sql.unsafe`insert into projects (id, organization_id, name) values ('proj_1', 'org_a', 'default')`,
  );
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, hint, source, status, deleted_at)
    select 'apikey_' || made, 'org_a', 'proj_1', 'inference', 'job', '', 'created', case made when 0 then 'active' else 'inactive' end,
      case made when 0 then null else now() end
    from generate_series(0, ${DELETED}) made
  `);
  await pool.query(sql.unsafe`analyze api_keys`);
  const keys = new Keys({
    pool,
    directory: { forget: () => {}, recheck: async () => null },
    holds: { refresh: async () => {} },
    reads: { changing: async () => {} },
    newId,
    newKey: newInferenceKey,
  });
  const all = {
    organizationId: "org_a",
    status: null,
    workspaceId: null,
    createdBy: null,
    limit: 20,
    cursor: null,
  };
  for (const projectId of [null, "proj_1"])
    for (const order of ["asc", "desc"] as const) {
      const query: KeyListQuery = { ...all, projectId, order };
      const [listed, rows] = await pool.transaction(async (transaction) => {
        const page = await keys.list(query, transaction);
        const read = await transaction.oneFirst(sql.type(z.object({ rows: z.bigint() }))`
          select coalesce(idx_tup_fetch, 0) + seq_tup_read as rows from pg_stat_xact_user_tables where relname = 'api_keys'
        `);
        return [page?.items.map(({ id }) => id), Number(read)];
      });
      expect(listed).toEqual(["apikey_0"]);
      expect([projectId, order, rows < 100]).toEqual([projectId, order, true]);
    }
});
