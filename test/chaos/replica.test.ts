/** Rule 12.3: two data planes read lists and reports from a replica that lags and is killed, and nobody misses a change of theirs. */
import { join } from "node:path";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { DataPlane } from "../fakes/data-plane.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream } from "../fakes/upstream/server.ts";
import {
  fetchServed,
  readKeys,
  startProduct,
  temporaryFolder,
  writeManifests,
  type Product,
} from "../integration/product.ts";
import { freshPostgres, freshRedis, freshReplica, type TestStore } from "../integration/stores.ts";

const undo = new AsyncDisposableStack();
let primary: DatabasePool;
let replica: TestStore;
let product: Product;
let other: DataPlane;
let keys: ReturnType<typeof readKeys>;

beforeAll(async () => {
  const folder = temporaryFolder();
  undo.defer(() => folder[Symbol.dispose]());
  const upstream = await startUpstream();
  undo.defer(() => upstream.close());
  upstream.model("upstream-chat", [text("Hello.")]);
  const postgres = undo.use(await freshPostgres());
  replica = undo.use(await freshReplica(postgres));
  const redis = undo.use(await freshRedis());
  primary = await openPostgres(postgres.url, { onError: () => {} });
  undo.defer(() => primary.end());
  const data = join(folder.path, "data");
  const manifests = join(folder.path, "manifests");
  writeManifests(manifests, upstream.url);
  const environment = { DATABASE_READ_URL: replica.url };
  product = await startProduct({
    manifests,
    data,
    environment: { ...environment, DATABASE_URL: postgres.url, REDIS_URL: redis.url },
  });
  undo.defer(async () => void (await product.stop()));
  keys = readKeys(data);
  other = await DataPlane.spawn({
    stores: { postgresUrl: postgres.url, redisUrl: redis.url },
    snapshot: join(data, "snapshot"),
    environment,
  });
  undo.defer(() => other.stop("SIGTERM"));
  await other.ready();
});
afterAll(() => undo.disposeAsync());

const call = async (base: string, path: string, key: string, body?: unknown): Promise<unknown> => {
  const answer = await fetchServed(`${base}${path}`, {
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
  });
  const said = await answer.text();
  expect(`${answer.status} ${answer.ok ? "" : said}`, path).toBe("200 ");
  return JSON.parse(said);
};
const listSchema = z.object({ data: z.array(z.object({ id: z.string() })) });
const list = async (base: string, path: string) =>
  listSchema.parse(await call(base, path, keys.admin)).data.map(({ id }) => id);
const requests = (base: string) => list(base, "/v1/organization/requests");
const apiKeys = (base: string) => list(base, "/v1/organizations/api_keys");
const ask = (base: string, key = keys.inference) =>
  call(base, "/v1/chat/completions", key, { model: "m-chat", messages: [{ role: "user", content: "Hi" }] });
const stored = () =>
  primary.oneFirst(
    sql.type(
      z.object({ n: z.number() }),
    )`select count(*)::int4 as n from request_records where dialect is not null`,
  );
const isRead = async (opsUrl: string) =>
  /^gapura_read_replica_up 1$/m.test(await (await fetch(`${opsUrl}/metrics`)).text());

test("lists lag with the replica, one's own change is read back on every data plane, and a killed replica costs nothing", async () => {
  const bases = [product.url, other.url];
  const opsUrls = [new URL(product.opsUrl).origin, `http://127.0.0.1:${other.opsPort}`];
  for (const opsUrl of opsUrls) await expect.poll(() => isRead(opsUrl), { timeout: 20_000 }).toBe(true);
  await ask(product.url);
  for (const base of bases)
    await expect.poll(async () => (await requests(base)).length, { timeout: 20_000 }).toBe(1);

  const direct = await openPostgres(replica.url, { maxConnections: 1, onError: () => {} });
  await direct.query(sql.unsafe`select pg_wal_replay_pause()`);
  await direct.end();
  await ask(other.url);
  await expect.poll(stored, { timeout: 20_000 }).toBe(2);
  for (const base of bases) expect(await requests(base)).toHaveLength(1);
  const before = await apiKeys(other.url);

  const made = z
    .object({ id: z.string(), key: z.string() })
    .parse(await call(product.url, "/v1/organizations/api_keys", keys.admin, { name: "fresh" }));
  for (const base of bases) {
    expect((await apiKeys(base)).sort()).toEqual([...before, made.id].sort());
    await ask(base, made.key);
    // Whoever changed something sees all as it is.
    expect((await requests(base)).length).toBeGreaterThan(1);
  }

  const path = "/v1/organization/costs?start_time=" + String(Math.floor(Date.now() / 1000) - 86_400);
  await replica.kill();
  for (const base of bases) await Promise.all([call(base, path, keys.admin), requests(base), apiKeys(base)]);
  for (const opsUrl of opsUrls) await expect.poll(() => isRead(opsUrl), { timeout: 20_000 }).toBe(false);
  await replica.start();
  for (const opsUrl of opsUrls) await expect.poll(() => isRead(opsUrl), { timeout: 20_000 }).toBe(true);
});
