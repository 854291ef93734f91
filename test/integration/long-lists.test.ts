/** The longest lists of the admin API: nobody else's request waits for one of them (rule 7.3), and nothing asked for is hidden. */
import { sql } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MOST_KEYS } from "../../dataplane/identity/keys.ts";
import { leastOf, LoopTurns } from "../fakes/loop-turns.ts";
import { AdminWorld } from "./admin-world.ts";
import { ORGANIZATION, PROJECT } from "./key-calls.ts";

let world: AdminWorld;
beforeAll(async () => {
  world = await AdminWorld.open();
  const limits = { credits: { amountMicros: "5000000", per: "month" }, models: ["m-*", "other"] };
  await world.pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, limits)
    select 'apikey_' || made, ${world.a.id}, (select id from projects where organization_id = ${world.a.id} and is_default),
      'inference', 'key ' || made, 'sha ' || made, 'sk-svc-...', 'created', ${sql.jsonb(limits)}
    from generate_series(1, ${MOST_KEYS}::int) made
  `);
  await world.pool.query(sql.unsafe`
    insert into api_keys (id, organization_id, project_id, kind, name, sha256, hint, source, limits)
    select 'usr_' || made, ${world.a.id}, (select id from projects where organization_id = ${world.a.id} and is_default),
      'inference', 'person ' || made, 'person sha ' || made, '', 'identity', ${sql.jsonb(limits)}
    from generate_series(1, 1000) made
  `);
  await world.pool.query(sql.unsafe`
    insert into projects (id, organization_id, name, limits)
    select 'proj_long_' || made, ${world.a.id}, 'project ' || made, ${sql.jsonb(limits)}
    from generate_series(1, 9990) made
  `);
});
afterAll(() => world?.close());

/** The longest turn while it is read, whatever is done with it. */
async function longestTurn(path: string): Promise<{ readonly longest: number; readonly text: string }> {
  const turns = new LoopTurns();
  const answer = await world.planes[0]?.server.fetch(path, {
    headers: { authorization: `Bearer ${world.a.admin}` },
  });
  const pieces: Uint8Array[] = [];
  for await (const piece of answer?.body ?? []) pieces.push(piece);
  return { longest: turns.stop(), text: Buffer.concat(pieces).toString() };
}

test.for([
  ["10,000 keys of a project", `${PROJECT}?limit=10000`, MOST_KEYS],
  ["1,000 keys of an organization", `${ORGANIZATION}?limit=1000`, 1_000],
  ["1,000 people", "/v1/organization/users?limit=1000", 1_000],
  ["9,990 projects", "/v1/organization/projects?limit=9990", 9_990],
] as const)("rule 7.3: a list of %s holds up nobody", { timeout: 60_000 }, async ([, path, length]) => {
  let text = "";
  const longest = await leastOf(20, async () => {
    const read = await longestTurn(path);
    text = read.text;
    return read.longest;
  });
  const { data } = JSON.parse(text) as { data: { standing: { left: string }[] }[] };
  expect(data).toHaveLength(length);
  expect(data[0]?.standing).toMatchObject([{ amount: "5", left: "5" }]);
  expect(longest, "milliseconds").toBeLessThan(20);
});

test("projects that are archived, however many, hide none that is not", async () => {
  await world.pool.query(sql.unsafe`
    insert into projects (id, organization_id, name, archived_at)
    select 'proj_gone_' || made, ${world.b.id}, 'gone ' || made, now() from generate_series(1, 10000) made
  `);
  const { body } = await world.call(world.b.admin, "GET", "/v1/organization/projects");
  expect(body["data"]).toMatchObject([{ name: "default" }, { name: "second" }]);
});
