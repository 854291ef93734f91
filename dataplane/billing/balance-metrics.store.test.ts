import { sql } from "slonik";
import { expect, test } from "vitest";
import { sampleOrganization } from "../../test/fakes/sample-snapshot.ts";
import { DirectoryWorld } from "../../test/integration/directory-world.ts";
import { readBalances } from "./balance-metrics.ts";

test("ids that were made up and deleted take no organization's place", async () => {
  await using world = await DirectoryWorld.open();
  const { pool } = world;
  await world.copy([
    sampleOrganization("org_acme", { grants: [{ name: "first", amountMicros: "5000000" }], apiKeys: [] }),
  ]);
  await pool.query(sql.unsafe`
    insert into organizations (id, display_name, declaration, namespace, deleted_at)
    select 'org_aaa_' || n, '', '', 'evil', now() from generate_series(1, 20000) n
  `);
  await pool.query(sql.unsafe`
    insert into accounts (organization_id) select id from organizations on conflict do nothing
  `);
  expect(await readBalances(pool)).toEqual([["org_acme", 5]]);
});
