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
  await world.pool.query(sql.unsafe`
    insert into files (id, organization_id, state, position, filename, mime_type, purpose, storage, created_at, touched_at)
    select 'file_' || made, ${world.a.id}, 'ready', made, 'file ' || made, 'text/plain', 'user_data', 'postgres', now(), now()
    from generate_series(1, 10000) made
  `);
  await world.pool.query(sql.unsafe`
    insert into batches (id, organization_id, project_id, key_id, form, dialect, state, outcome, model, metadata, created_at,
      expires_at, ended_at)
    select prefix || made, ${world.a.id}, 'proj', 'key', form, 'chat', 'ended', 'completed', 'model', '{"name":"value"}',
      now(), now() + interval '1 day', now()
    from generate_series(1, 10000) made, (values ('openai', 'batch_'), ('messages', 'msgbatch_')) forms (form, prefix)
  `);
});
afterAll(() => world?.close());

/** The longest turn while it is read, whatever is done with it. */
async function longestTurn(path: string): Promise<{ readonly longest: number; readonly text: string }> {
  const turns = new LoopTurns();
  const key = path.startsWith("/v1/organization") ? world.a.admin : world.a.inference;
  const answer = await world.planes[0]?.server.fetch(path, { headers: { authorization: `Bearer ${key}` } });
  const pieces: Uint8Array[] = [];
  for await (const piece of answer?.body ?? []) pieces.push(piece);
  return { longest: turns.stop(), text: Buffer.concat(pieces).toString() };
}

/** Reads a list, in its longest turn less than the rule's 20 ms. @returns its entries. */
async function readInShortTurns(path: string): Promise<unknown[]> {
  let text = "";
  const longest = await leastOf(20, async () => {
    const read = await longestTurn(path);
    text = read.text;
    return read.longest;
  });
  expect(longest, "milliseconds").toBeLessThan(20);
  return (JSON.parse(text) as { data: unknown[] }).data;
}

test.for([
  ["10,000 keys of a project", `${PROJECT}?limit=10000`, MOST_KEYS],
  ["1,000 keys of an organization", `${ORGANIZATION}?limit=1000`, 1_000],
  ["1,000 people", "/v1/organization/users?limit=1000", 1_000],
  ["9,990 projects", "/v1/organization/projects?limit=9990", 9_990],
] as const)("rule 7.3: a list of %s holds up nobody", { timeout: 60_000 }, async ([, path, length]) => {
  const data = await readInShortTurns(path);
  expect(data).toHaveLength(length);
  expect(data[0]).toMatchObject({ standing: [{ amount: "5", left: "5" }] });
});

test.for([
  ["files", "/v1/files?limit=10000"],
  ["batches", "/v1/batches?limit=10000"],
  ["message batches", "/v1/messages/batches?limit=10000"],
] as const)("rule 7.3: a list of 10,000 %s holds up nobody", { timeout: 60_000 }, async ([, path]) => {
  expect(await readInShortTurns(path)).toHaveLength(10_000);
});

test("projects that are archived, however many, hide none that is not", async () => {
  await world.pool.query(sql.unsafe`
    insert into projects (id, organization_id, name, archived_at)
    select 'proj_gone_' || made, ${world.b.id}, 'gone ' || made, now() from generate_series(1, 10000) made
  `);
  const { body } = await world.call(world.b.admin, "GET", "/v1/organization/projects");
  expect(body["data"]).toMatchObject([{ name: "default" }, { name: "second" }]);
});
