import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { FileStore } from "../files/file-store.ts";
import { PostgresContents } from "../files/postgres-contents.ts";
import { newId } from "../lib/ids.ts";
import { openPostgres } from "./postgres.ts";
import { poolInTurns } from "./pool-turns.ts";

let database: TestDatabase;
let pool: DatabasePool;
beforeAll(async () => {
  database = await freshDatabase();
  pool = await openPostgres(database.url, { onError: () => {} });
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});

const wait = (db: DatabasePool, ms: number) => db.query(sql.unsafe`select pg_sleep(${ms / 1000})`);

test("an organization's many statements leave connections to what is in no turn, and a turn to others", async () => {
  const a = poolInTurns(pool, "org_a");
  let ended = 0;
  // Two at a time.
  const many = Array.from({ length: 30 }, async () => {
    await wait(a, 200);
    ended += 1;
  });
  await wait(pool, 1);
  expect(ended).toBeLessThan(10);
  await wait(poolInTurns(pool, "org_b"), 1);
  expect(ended).toBeLessThan(15);
  await Promise.all(many);
});

test("who waited too long for a turn is told that the store is away, and asks for nothing any more", async () => {
  const held = Array.from({ length: 3 }, () => wait(poolInTurns(pool, "org_a"), 1_000));
  const impatient = poolInTurns(pool, "org_a", 50);
  const late = [wait(impatient, 1), impatient.transaction(async () => expect.unreachable())];
  for (const ended of await Promise.allSettled(late))
    expect(ended).toMatchObject({ status: "rejected", reason: { name: "StoreAway" } });
  await Promise.all(held);
  await wait(impatient, 1);
});

test("what fails gives its place back, and transactions are statements like others", async () => {
  const a = poolInTurns(pool, "org_a");
  const failing = Array.from({ length: 10 }, () => a.query(sql.unsafe`select 1/0`));
  expect((await Promise.allSettled(failing)).map(({ status }) => status)).toEqual(
    Array.from({ length: 10 }, () => "rejected"),
  );
  const one = z.object({ n: z.number() });
  const read = () => a.transaction((transaction) => transaction.oneFirst(sql.type(one)`select 1 as n`));
  expect(await Promise.all(Array.from({ length: 10 }, read))).toEqual(Array.from({ length: 10 }, () => 1));
});

test("no upload of an organization keeps another's look-up of a key waiting, nor another's upload", async () => {
  const clock = { now: () => Date.now() };
  const limitsOf = () => ({ maxBytes: 1e9, maxFiles: 1e6 });
  const store = new FileStore({
    postgres: pool,
    contents: new PostgresContents(pool),
    clock,
    newId,
    limitsOf,
  });
  async function* source() {
    yield Buffer.alloc(1_000);
  }
  const describe = () => ({ filename: "a", mimeType: "text/plain", purpose: "user_data", expiresAt: null });
  await store.create("org_a", source(), describe);
  // Uploads of one organization wait for each other's lock, each with a connection of its own.
  const ends = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const holder = pool.transaction(async (transaction) => {
    await transaction.query(sql.unsafe`select from storage where organization_id = 'org_a' for update`);
    locked.resolve();
    await ends.promise;
  });
  await locked.promise;
  const uploads = Array.from({ length: 40 }, () => store.create("org_a", source(), describe));
  await wait(pool, 300);
  const lookUp = Promise.all([wait(pool, 1), store.create("org_b", source(), describe)]).then(() => "there");
  const tooLate = new Promise((resolve) => setTimeout(resolve, 2_000)).then(() => "waits for uploads");
  const outcome = await Promise.race([lookUp, tooLate]);
  ends.resolve();
  await Promise.all([holder, lookUp, ...uploads]);
  expect(outcome).toBe("there");
});
