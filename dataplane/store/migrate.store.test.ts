import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freshDatabase, singlePostgres, type TestDatabase } from "../../test/integration/stores.ts";
import { migrate, readMigrations, requireMigrated, type Migration } from "./migrate.ts";

const step = (version: number, sql: string): Migration => ({
  version,
  name: `000${version}_step`,
  sql,
  sha256: sql,
});
const one = step(1, "create table coins (id int); insert into coins values (1);");
const two = step(2, "insert into coins values (2);");
const broken = step(2, "insert into coins values (3); select nonsense();");

let database: TestDatabase;
beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
});
afterAll(() => database.drop());

async function coins(): Promise<number[]> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  try {
    const { rows } = await client.query<{ id: number }>("select id from coins order by id");
    return rows.map(({ id }) => id);
  } finally {
    await client.end();
  }
}

test("programs that start together migrate once, and a second start on old data works", async () => {
  const results = await Promise.all([1, 2, 3, 4].map(() => migrate(database.url, { migrations: [one] })));
  expect(results.flat()).toEqual(["0001_step"]);
  expect(await migrate(database.url, { migrations: [one] })).toEqual([]);
  expect(await coins()).toEqual([1]);
});

test("a migration that fails leaves nothing behind and can be mended", async () => {
  await expect(migrate(database.url, { migrations: [one, broken] })).rejects.toThrow(/0002_step failed/);
  expect(await coins()).toEqual([1]);
  expect(await migrate(database.url, { migrations: [one, two] })).toEqual(["0002_step"]);
  expect(await coins()).toEqual([1, 2]);
});

test("a newer schema than the program knows is refused", async () => {
  await expect(migrate(database.url, { migrations: [one] })).rejects.toThrow(/newer release/);
});

test("who does not migrate wants all that its release has, and takes more", () => {
  const own = [one, two];
  expect(() => requireMigrated(["0001_step", "0002_step", "0003_step"], own)).not.toThrow();
  expect(() => requireMigrated([], own)).toThrow("0001_step, 0002_step never ran");
  expect(() => requireMigrated(["0001_step", "0002_other"], own)).toThrow(
    "0002_step never ran: this database has not the schema of this release; run `migrate` first",
  );
});

test("a Postgres that starts together with who migrates it is waited for, in a line that says so", async () => {
  await using store = await singlePostgres();
  await store.kill();
  const said: string[] = [];
  const migrating = migrate(store.url, { migrations: readMigrations(), say: (line) => said.push(line) });
  await expect.poll(() => said).toEqual([expect.stringMatching(/^waiting for Postgres: .*ECONNREFUSED/)]);
  await store.start();
  expect(await migrating).toEqual([]);
});
