/** How many keys and changes of them an organization may have, and who made them (rules 5.5, 5.8). */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { printAuditLog } from "../../dataplane/identity/audit-log-command.ts";
import { limitChanges, MOST_CHANGED_BYTES, MOST_CHANGES } from "../../dataplane/identity/audit-log.ts";
import { MOST_KEYS } from "../../dataplane/identity/keys.ts";
import { AdminWorld } from "./admin-world.ts";
import { keyCalls, ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const { admin, make } = keyCalls(() => world);

test("an organization with ten thousand keys makes no more until it deletes one", async () => {
  const { pool } = world;
  await pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, hint, source)
    select 'apikey_full_' || n, project.organization_id, project.id, 'inference', 'full', 'sk-svc-...', 'created'
    from projects project, generate_series(1, ${MOST_KEYS}) n
    where project.organization_id = ${world.b.id} and project.is_default
  `);
  const full = await world.call(world.b.admin, "POST", ORGANIZATION, { body: { name: "one more" } });
  expect([full.status, JSON.stringify(full.body)]).toEqual([
    400,
    expect.stringContaining("at most 10000 API keys"),
  ]);
  await pool.query(sql.unsafe`delete from api_keys where name = 'full' and id <> 'apikey_full_1'`);
  const made = await world.call(world.b.admin, "POST", PROJECT, { body: { name: "one more" } });
  expect(made.status).toBe(200);
  await pool.query(
    sql.unsafe`delete from api_keys where id in ('apikey_full_1', ${String(made.body["id"])})`,
  );
});

test("beyond the changes of a day only what ends a key is done, and another organization waits for none of it", async () => {
  const { pool, b } = world;
  const call = (method: string, path: string, body?: Record<string, unknown>) =>
    world.call(b.admin, method, path, body === undefined ? {} : { body });
  const made = await call("POST", ORGANIZATION, { name: "busy" });
  const id = String(made.body["id"]);
  const busy = `${ORGANIZATION}/${id}`;
  const write = (count: number, who: string, hoursAgo: number, limits: string) =>
    pool.query(sql.unsafe`
      insert into audit_log (organization_id, at, actor_key_id, action, key_id, changes, address, request_id,
        lines_so_far, bytes_so_far)
      select ${b.id}, now() - make_interval(hours => ${hoursAgo}::int), ${who}, 'key.updated', ${who}, line.changes, '', '',
        newest.lines_so_far + n, newest.bytes_so_far + n * octet_length(line.changes::text)
      from generate_series(1, ${count}::int) n, (select jsonb_build_object('limits', ${limits}::text) as changes) line, (
        select lines_so_far, bytes_so_far from audit_log where organization_id = ${b.id} order by position desc limit 1
      ) newest
      order by n
    `);
  await write(MOST_CHANGES, "busy", 23, "");
  const rowsRead = await pool.transaction(async (transaction) => {
    await expect(limitChanges(transaction, b.id)).rejects.toThrow(/at most/);
    return await transaction.oneFirst(sql.type(z.object({ rows: z.bigint().transform(Number) }))`
      select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relname = 'audit_log'
    `);
  });
  expect(rowsRead, "looked at, however many there are").toBeLessThan(10);
  const limits = { requests_per_minute: 60 };
  for (const [path, body] of [
    [ORGANIZATION, { name: "one more" }],
    [busy, { name: "another" }],
    [busy, { name: "another", status: "inactive" }],
    ["/v1/organization/projects/default", { limits }],
  ] as const) {
    const refused = await call("POST", path, body);
    expect([refused.status, JSON.stringify(refused.body)], path).toEqual([
      429,
      expect.stringContaining(`at most ${MOST_CHANGES} times in 24 hours`),
    ]);
  }
  expect((await call("POST", busy, { name: "busy" })).status, "no change").toBe(200);
  const { id: other } = await make("meanwhile");
  expect((await admin("DELETE", `${PROJECT}/${other}`)).status).toBe(200);
  expect((await call("POST", busy, { status: "inactive" })).status).toBe(200);
  expect((await call("POST", busy, { status: "active" })).status).toBe(429);
  expect((await call("DELETE", `${PROJECT}/${id}`)).status).toBe(200);
  await pool.query(sql.unsafe`update audit_log set at = at - interval '2 hours' where actor_key_id = 'busy'`);
  await write(MOST_CHANGED_BYTES / 65_536, "long", 0, "x".repeat(65_536));
  expect((await call("POST", ORGANIZATION, { name: "long ones" })).status).toBe(429);
  await pool.query(sql.unsafe`delete from audit_log where actor_key_id = 'long'`);
  const again = await call("POST", ORGANIZATION, { name: "the day after" });
  expect(again.status).toBe(200);
  expect((await call("DELETE", `${PROJECT}/${String(again.body["id"])}`)).status).toBe(200);
});

test("the audit log says who changed which key, when and from where", async () => {
  const { id, key } = await make("audited");
  await world.call(world.a.admin, "POST", `${ORGANIZATION}/${id}`, {
    body: { name: "watched", status: "inactive" },
    headers: { "x-forwarded-for": "203.0.113.9" },
  });
  await admin("POST", `${ORGANIZATION}/${id}`, {});
  await admin("POST", `${ORGANIZATION}/${id}`, { status: "nonsense" });
  await world.call(world.b.admin, "DELETE", `${PROJECT}/${id}`);
  await admin("DELETE", `${PROJECT}/${id}`);
  const lines = await printAuditLog(world.pool, {
    organizationId: "org_a",
    keyId: id,
    since: Date.now() - 60_000,
    limit: 10,
  });
  const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(entries).toMatchObject([
    {
      action: "key.deleted",
      changes: { name: { from: "watched", to: null }, status: { from: "inactive", to: null } },
    },
    {
      action: "key.updated",
      forwardedFor: "203.0.113.9",
      changes: { name: { from: "audited", to: "watched" }, status: { from: "active", to: "inactive" } },
    },
    { action: "key.created", changes: { name: { from: null, to: "audited" } } },
  ]);
  for (const entry of entries) {
    expect(entry).toMatchObject({
      organizationId: "org_a",
      keyId: id,
      address: "127.0.0.1",
      requestId: expect.stringMatching(/^req_/),
      actorKeyId: expect.stringMatching(/^apikey_/),
    });
    expect(Math.abs(Date.now() - Date.parse(String(entry["at"])))).toBeLessThan(60_000);
  }
  expect(lines.join("")).not.toContain(key);
  expect(
    await printAuditLog(world.pool, { organizationId: "org_b", keyId: id, since: null, limit: 10 }),
  ).toEqual([]);
  const misspelt = { organizationId: "org_nobody", keyId: null, since: null, limit: 10 };
  await expect(printAuditLog(world.pool, misspelt)).rejects.toThrow("there is no organization org_nobody");
});
