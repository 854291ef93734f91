/**
 * Rule 12.3: a PgBouncer in transaction mode stands before Postgres, with fewer connections than the product has, and
 * nothing is different. `TEST_POOLER=true npm test -- PATTERN` puts one before the databases of other tests.
 */
import { join } from "node:path";
import fc from "fast-check";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { copySnapshot } from "../../dataplane/identity/copy-snapshot.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { reconcile } from "../../dataplane/reconcile.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { sampleOrganization } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { snapshotOfOrganizations } from "./directory-world.ts";
import { moments, wild } from "./money-actions.ts";
import { LAWS_LIMIT_MS, play, runsOf } from "./money-play.ts";
import { startPooler, type Pooler } from "./pooler.ts";
import {
  fetchServed,
  readKeys,
  startProduct,
  temporaryFolder,
  writeManifests,
  type Product,
} from "./product.ts";
import { freshDatabase, freshPostgres, freshRedis } from "./stores.ts";

/** Connections of the pooler to each database. */
const SIZE = 4;
const JSON_TYPE = { "content-type": "application/json" };
const numberSchema = z.object({ n: z.number() });
const textSchema = z.object({ text: z.string() });

describe("statements", () => {
  let pooler: Pooler;
  let pool: DatabasePool;
  let drop: () => Promise<void>;
  beforeAll(async () => {
    const database = await freshDatabase();
    pooler = await startPooler(database.url, SIZE);
    pool = await openPostgres(pooler.through(database.url), { statementTimeoutMs: 300, onError: () => {} });
    drop = async () => {
      await pool.end();
      await pooler[Symbol.asyncDispose]();
      await database.drop();
    };
  });
  afterAll(() => drop());

  const running = () =>
    pool.oneFirst(sql.type(numberSchema)`
      select count(*)::int4 as n from pg_stat_activity
      where datname = current_database() and state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid()
    `);

  test("that take too long are cancelled in the server, alone and in a transaction, and the next ones are not", async () => {
    const late = () => pool.query(sql.unsafe`select pg_sleep(60)`);
    const both = () =>
      pool.transaction(async (transaction) => {
        await transaction.query(sql.unsafe`select pg_sleep(60)`);
      });
    const ends = await Promise.allSettled([late(), late(), both()]);
    expect(ends.map((end) => end.status === "rejected" && String(end.reason))).toEqual(
      ends.map(() => expect.stringMatching(/cancelled due to a statement_timeout/)),
    );
    expect(await running()).toBe(0);
    const next = () => pool.oneFirst(sql.type(numberSchema)`select 1 as n`);
    expect(await Promise.all(Array.from({ length: 20 }, next))).toEqual(Array(20).fill(1));
  });

  test("leave nothing in a session: what bounds a transaction ends with it", async () => {
    const bound = sql.type(textSchema)`
      select current_setting('statement_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout') as text
    `;
    const inside = () => pool.transaction((transaction) => transaction.oneFirst(bound));
    expect(await Promise.all(Array.from({ length: 10 }, inside))).toEqual(Array(10).fill("300ms 30s"));
    const outside = Array.from({ length: 10 }, () => pool.oneFirst(bound));
    expect(await Promise.all(outside)).toEqual(Array(10).fill("0 0"));
    // The server holds other tests' databases too.
    const locks = sql.type(numberSchema)`
      select count(*)::int4 as n from pg_locks
      where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
    `;
    expect(await pool.oneFirst(locks)).toBe(0);
  });

  test("of more callers than there are connections are all answered", async () => {
    const call = (n: number) =>
      pool.transaction((transaction) => transaction.oneFirst(sql.type(numberSchema)`select ${n}::int4 as n`));
    const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => call(n)));
    expect(answers).toEqual(Array.from({ length: 100 }, (_, n) => n));
    expect(await pooler.servers()).toBeLessThanOrEqual(SIZE);
  });
});

test("two data planes copy one snapshot in turns, each organization once, and stop for a newer one", async () => {
  await using database = await freshDatabase();
  await using pooler = await startPooler(database.url, SIZE);
  const open = () => openPostgres(pooler.through(database.url), { onError: () => {} });
  const pools = await Promise.all([open(), open()]);
  const [one, other] = pools as [DatabasePool, DatabasePool];
  const ids = Array.from({ length: 900 }, (_, n) => `org_${String(n).padStart(3, "0")}`);
  const snapshotOf = (serial: number, names: readonly string[]) =>
    snapshotOfOrganizations(
      serial,
      names.map((id) => ({ ...sampleOrganization(id), apiKeys: [], adminKeys: [] })),
    );
  const copies = await Promise.all(pools.map((pool) => copySnapshot(pool, snapshotOf(1, ids), newId)));
  expect(copies.flatMap(({ changed }) => changed).sort()).toEqual(ids);
  const living = () =>
    one.anyFirst(
      sql.type(
        z.object({ id: z.string() }),
      )`select id from organizations where deleted_at is null order by id`,
    );
  expect(await living()).toEqual(ids);
  // The newer one wins, whichever comes first, and nothing of the older one is written after it.
  const few = ids.slice(0, 10);
  await Promise.all([
    copySnapshot(one, snapshotOf(2, [...ids, "org_late"]), newId),
    copySnapshot(other, snapshotOf(3, few), newId),
  ]);
  expect(await living()).toEqual(few);
  await Promise.all(pools.map((pool) => pool.end()));
});

test(
  "the laws of money hold over it",
  async () => {
    await using postgres = await freshPostgres();
    await using redis = await freshRedis();
    await using pooler = await startPooler(postgres.url, SIZE);
    const stores = {
      slow: true,
      redis,
      postgres: { ...postgres, url: pooler.through(postgres.url) },
    };
    await fc.assert(
      fc.asyncProperty(moments(wild, { minLength: 5, maxLength: 30 }), (them) => play(stores, them)),
      runsOf(5),
    );
  },
  LAWS_LIMIT_MS,
);

describe("the product", () => {
  const folder = temporaryFolder();
  const data = join(folder.path, "data");
  let upstream: FakeUpstream;
  let pooler: Pooler;
  let product: Product;
  let stores: { readonly databaseUrl: string; readonly redisUrl: string };
  let keys: ReturnType<typeof readKeys>;
  let close: () => Promise<void>;
  beforeAll(async () => {
    await using stack = new AsyncDisposableStack();
    stack.defer(() => folder[Symbol.dispose]());
    upstream = await startUpstream();
    stack.defer(() => upstream.close());
    const database = stack.use(await freshDatabase({ migrated: false }));
    pooler = stack.use(await startPooler(database.url, SIZE));
    const redis = stack.use(await freshRedis());
    stores = { databaseUrl: pooler.through(database.url), redisUrl: redis.url };
    const manifests = join(folder.path, "manifests");
    writeManifests(manifests, upstream.url);
    product = await startProduct({
      manifests,
      data,
      environment: {
        DATABASE_URL: stores.databaseUrl,
        MIGRATE_DATABASE_URL: database.url,
        REDIS_URL: stores.redisUrl,
        DATABASE_CONNECTIONS: "2",
      },
    });
    stack.defer(async () => void (await product.stop()));
    keys = readKeys(data);
    const held = stack.move();
    close = () => held.disposeAsync();
  });
  afterAll(() => close?.());

  const call = async (path: string, init: RequestInit = {}, key = keys.inference) => {
    const answer = await fetchServed(`${product.url}${path}`, {
      ...init,
      headers: { authorization: `Bearer ${key}`, ...(init.body instanceof FormData ? {} : JSON_TYPE) },
    });
    const said = await answer.text();
    expect(`${answer.status} ${answer.ok ? "" : said}`, path).toBe("200 ");
    return said;
  };
  const json = async <Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    body?: unknown,
    key = keys.inference,
  ) =>
    schema.parse(
      JSON.parse(
        await call(path, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }, key),
      ),
    );
  const chat = { model: "m-chat", messages: [{ role: "user", content: "Hi" }], max_tokens: 50 };

  test("charges requests, runs a batch, keeps a file, shows pages of the admin API, and its books are exact", async () => {
    upstream.model("upstream-chat", [text("Hello.")]);
    for (let round = 0; round < 5; round += 1)
      await Promise.all(Array.from({ length: 6 }, () => call(...post("/v1/chat/completions", chat))));

    const form = new FormData();
    const lines = Array.from({ length: 20 }, (_, n) =>
      JSON.stringify({ custom_id: `c${n}`, method: "POST", url: "/v1/chat/completions", body: chat }),
    ).join("\n");
    form.set("file", new Blob([lines]), "in.jsonl");
    form.set("purpose", "batch");
    const idSchema = z.object({ id: z.string() });
    const input = idSchema.parse(JSON.parse(await call("/v1/files", { method: "POST", body: form })));
    expect(await call(`/v1/files/${input.id}/content`)).toBe(lines);
    const batchSchema = z.object({
      id: z.string(),
      status: z.string(),
      output_file_id: z.string().nullish(),
    });
    const { id } = await json(batchSchema, "/v1/batches", {
      input_file_id: input.id,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
    await expect
      .poll(async () => (await json(batchSchema, `/v1/batches/${id}`)).status, { timeout: 30_000 })
      .toBe("completed");
    const { output_file_id: output } = await json(batchSchema, `/v1/batches/${id}`);
    expect((await call(`/v1/files/${output}/content`)).trim().split("\n")).toHaveLength(20);

    const { key: secret } = await json(
      z.object({ key: z.string() }),
      "/v1/organizations/api_keys",
      { name: "fresh" },
      keys.admin,
    );
    await call(...post("/v1/chat/completions", chat, secret));
    const list = z.object({ data: z.array(z.looseObject({})) });
    const pages = [
      "organizations/api_keys",
      "organization/projects",
      "organization/requests?limit=100",
      `organization/costs?start_time=${Math.floor(Date.now() / 1000) - 86_400}`,
    ];
    for (const page of pages)
      expect((await json(list, `/v1/${page}`, undefined, keys.admin)).data.length).toBeGreaterThan(0);

    const books = () => reconcile(stores.databaseUrl, stores.redisUrl);
    await expect
      .poll(async () => (await books()).lines.join("\n"), { timeout: 30_000 })
      .toMatch(/^exact: 1 account, 51 usage rows, 0 holds$/);
    expect(await pooler.servers()).toBeLessThanOrEqual(2 * SIZE);
  });
});

const post = (path: string, body: unknown, key?: string): [string, RequestInit, string?] => [
  path,
  { method: "POST", body: JSON.stringify(body) },
  ...(key === undefined ? ([] as const) : ([key] as const)),
];
