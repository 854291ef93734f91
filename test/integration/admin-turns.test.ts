/** Reports and lists are made in turns: whoever asks for many at once takes the stores from nobody (rule 7.7). */
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminWorld } from "./admin-world.ts";

let world: AdminWorld;
let holder: pg.Client;
beforeAll(async () => {
  world = await AdminWorld.open();
  holder = new pg.Client({ connectionString: world.databaseUrl });
  await holder.connect();
});
afterAll(async () => {
  await holder?.end();
  await world?.close();
});

const ASKED = 40;
/** One is made, and thirty wait; of exports so many are sent at a time. */
const TAKEN = { reports: 31, lists: 31, exports: 4 };

/** What others get while one organization's answers wait for a table. */
async function expectServed(): Promise<void> {
  const began = performance.now();
  const others = await Promise.all([
    world.call(world.b.inference, "GET", "/v1/key"),
    world.call(world.b.admin, "GET", "/v1/organizations/api_keys"),
    world.call(world.b.admin, "POST", "/v1/organizations/api_keys", { body: { name: "new" } }),
  ]);
  expect(others.map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(performance.now() - began).toBeLessThan(4_000);
}

test.each([
  ["reports", "/v1/organization/usage/completions", "usage_hourly"],
  ["lists", "/v1/organization/requests", "request_records"],
  ["exports", "/v1/organization/costs/export?format=focus-csv&month=2026-03", "usage_hourly"],
] as const)(
  "%s of one organization that take long keep no other from Postgres",
  async (what, path, table) => {
    await holder.query(`begin; lock table ${table} in access exclusive mode`);
    const asked = Array.from({ length: ASKED }, () => world.call(world.a.admin, "GET", path, { raw: true }));
    const refused = await Promise.all(await firstOf(ASKED - TAKEN[what], asked));
    await expectServed();
    for (const { status, headers } of refused)
      expect([status, headers.get("retry-after")]).toEqual([429, "1"]);
    await holder.query("rollback");
    const answers = await Promise.all(asked);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(TAKEN[what]);
  },
);

test.each([
  ["/v1/files", "files"],
  ["/v1/batches", "batches"],
  ["/v1/messages/batches", "batches"],
] as const)("nor do lists for programs, of which none is refused: %s", async (path, table) => {
  await holder.query(`begin; lock table ${table} in access exclusive mode`);
  const asked = Array.from({ length: ASKED }, () => world.call(world.a.inference, "GET", path));
  try {
    await expectServed();
  } finally {
    await holder.query("rollback");
  }
  const answers = await Promise.all(asked);
  expect(answers.map(({ status }) => status)).toEqual(asked.map(() => 200));
});

test("nor do changes of one organization that wait for another's lock", async () => {
  await holder.query("begin");
  await holder.query("select 1 from organizations where id = $1 for update", [world.a.id]);
  const change = (index: number) =>
    world.call(world.a.admin, "POST", "/v1/organizations/api_keys", { body: { name: `key ${index}` } });
  const asked = Array.from({ length: ASKED }, (_, index) => change(index));
  try {
    await expectServed();
  } finally {
    await holder.query("rollback");
  }
  const answers = await Promise.all(asked);
  expect(answers.map(({ status }) => status)).toEqual(asked.map(() => 200));
});

test("a change that waits too long for others is given up, and not made later", async () => {
  await holder.query("begin");
  await holder.query("select 1 from organizations where id = $1 for update", [world.a.id]);
  const change = (index: number) =>
    world.call(world.a.admin, "POST", "/v1/organizations/api_keys", { body: { name: `late ${index}` } });
  const asked = Array.from({ length: 8 }, (_, index) => change(index));
  const givenUp = await Promise.all(await firstOf(7, asked));
  await holder.query("rollback");
  for (const { status, headers } of givenUp) expect([status, headers.get("retry-after")]).toEqual([503, "1"]);
  const answers = await Promise.all(asked);
  const { rows } = await holder.query("select name from api_keys where name like 'late %'");
  expect(rows).toHaveLength(answers.filter(({ status }) => status === 200).length);
});

describe("with the fewest connections", () => {
  let few: AdminWorld;
  beforeAll(async () => {
    few = await AdminWorld.open(2);
  });
  afterAll(() => few?.close());

  test("reports, lists and exports together leave one to live requests", async () => {
    const client = new pg.Client({ connectionString: few.databaseUrl });
    await client.connect();
    await client.query("begin; lock table usage_hourly, files in access exclusive mode");
    const read = [
      few.call(few.a.admin, "GET", "/v1/organization/usage/completions"),
      few.call(few.a.admin, "GET", "/v1/organization/costs/export?format=focus-csv&month=2026-03", {
        raw: true,
      }),
      few.call(few.a.inference, "GET", "/v1/files"),
    ];
    const waiting = async () => {
      const { rows } = await client.query(
        "select count(*)::int4 as n from pg_locks where not granted and database = (select oid from pg_database where datname = current_database())",
      );
      return rows[0].n;
    };
    try {
      await expect.poll(waiting).toBeGreaterThan(0);
      const began = performance.now();
      const live = await few.call(few.b.inference, "GET", "/v1/key");
      expect([live.status, await waiting()]).toEqual([200, 1]);
      expect(performance.now() - began).toBeLessThan(2_000);
    } finally {
      await client.query("rollback");
      await client.end();
    }
    const answers = await Promise.all(read);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });
});

/** The first so many of these that are settled. */
async function firstOf<Value>(count: number, all: readonly Promise<Value>[]): Promise<Promise<Value>[]> {
  const settled: Promise<Value>[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const one of all)
    void one.finally(() => {
      settled.push(one);
      if (settled.length === count) resolve();
    });
  await promise;
  return settled;
}
