/** Files through the real product: what a large upload costs in memory, and what a killed data plane leaves of one. */
import { readFileSync } from "node:fs";
import { request, type ClientRequest } from "node:http";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { finished, pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { createHash } from "node:crypto";
import OpenAI from "openai";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { isWhole } from "../fakes/runs.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { readKeys, startProduct, temporaryFolder, writeManifests, type Product } from "./product.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const MIB = 1024 * 1024;
const LARGEST = 512 * MIB;
/** As large as may be, and else large enough to show where a process keeps it. */
const LARGE = isWhole ? LARGEST : 128 * MIB;

const folder = temporaryFolder();
const data = join(folder.path, "data");
let upstream: FakeUpstream;
let database: TestDatabase;
let postgres: DatabasePool;
let product: Product;
let key: string;

beforeAll(async () => {
  upstream = await startUpstream();
  database = await freshDatabase();
  postgres = await openPostgres(database.url, { onError: () => {} });
  const manifests = join(folder.path, "manifests");
  writeManifests(manifests, upstream.url);
  product = await startProduct({ manifests, data, environment: { DATABASE_URL: database.url } });
  key = readKeys(data).inference;
});
afterAll(async () => {
  await product?.stop();
  await postgres?.end();
  await database?.drop();
  await upstream?.close();
  folder[Symbol.dispose]();
});

const dataPlane = (): number => {
  const { programs } = JSON.parse(readFileSync(join(data, "run.json"), "utf8")) as {
    programs: Record<string, number>;
  };
  return programs["dataplane/main.ts"] ?? 0;
};

/** Resident bytes of the data plane. */
const resident = () =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${dataPlane()}/status`, "utf8"))?.[1]) * 1024;

const HEAD =
  '--b\r\ncontent-disposition: form-data; name="file"; filename="large.bin"\r\n' +
  "content-type: application/octet-stream\r\n\r\n";

function startUpload(): ClientRequest {
  const sent = request(`${product.url}/v1/files`, {
    method: "POST",
    headers: { "x-api-key": key, "content-type": "multipart/form-data; boundary=b" },
  });
  sent.write(HEAD);
  return sent;
}

/** `size` bytes, no two MiB alike. */
function* bytes(size: number): Iterable<Buffer<ArrayBuffer>> {
  for (let at = 0; at < size; at += MIB) yield Buffer.alloc(Math.min(MIB, size - at), `${at};`);
}

async function upload(size: number) {
  const sent = startUpload();
  const answered = new Promise<{ status: number; body: { id: string; bytes: number } }>((resolve, reject) => {
    sent.once("error", reject);
    sent.once("response", (response) => {
      void buffer(response).then((whole) =>
        resolve({
          status: response.statusCode ?? 0,
          body: JSON.parse(whole.toString("utf8")) as { id: string; bytes: number },
        }),
      );
    });
  });
  function* form() {
    yield* bytes(size);
    yield "\r\n--b--\r\n";
  }
  await pipeline(Readable.from(form(), { objectMode: false }), sent);
  return answered;
}

const count = async (table: "files" | "file_chunks") =>
  Number(
    await postgres.oneFirst(
      sql.type(z.object({ count: z.bigint() }))`select count(*) from ${sql.identifier([table])}`,
    ),
  );

const get = (path: string) => fetch(`${product.url}/v1/files${path}`, { headers: { "x-api-key": key } });

test(`${LARGE / MIB} MiB go up and come back whole; the data plane's memory stays flat to within 32 MiB`, async () => {
  // What the process allocates once, for its first uploads of all, is no matter of the file's size: garbage as well, which grows
  // further before it is collected on a busy machine.
  await upload(LARGE / 2);
  const before = resident();
  let most = before;
  const watch = setInterval(() => (most = Math.max(most, resident())), 50);
  const { status, body } = await upload(LARGE);
  const afterUpload = most;
  const hash = createHash("sha256");
  for await (const piece of (await get(`/${body.id}/content`)).body ?? []) hash.update(piece);
  clearInterval(watch);
  const sent = createHash("sha256");
  for (const piece of bytes(LARGE)) sent.update(piece);
  expect({ status, bytes: body.bytes, hash: hash.digest("hex") }).toEqual({
    status: 200,
    bytes: LARGE,
    hash: sent.digest("hex"),
  });
  expect((afterUpload - before) / MIB).toBeLessThan(32);
  // Reading makes garbage faster (rows come from Postgres in hexadecimal), but as little depends on the size.
  expect((most - before) / MIB).toBeLessThan(128);
}, 180_000);

test("the OpenAI SDK uploads a large file", async () => {
  const client = new OpenAI({ baseURL: `${product.url}/v1`, apiKey: key, maxRetries: 0 });
  const file = new File([...bytes(96 * MIB)], "large.jsonl");
  const made = await client.files.create({ file, purpose: "user_data" });
  expect(made).toMatchObject({ bytes: 96 * MIB, filename: "large.jsonl" });
});

test("one byte more than 512 MiB is 413, and nothing of it stays", async () => {
  const before = { files: await count("files"), chunks: await count("file_chunks") };
  expect(await upload(LARGEST + 1)).toMatchObject({
    status: 413,
    body: { error: { code: "request_too_large" } },
  });
  expect({ files: await count("files"), chunks: await count("file_chunks") }).toEqual(before);
}, 120_000);

test("a data plane killed in mid-upload: nothing of the file shows, and nothing stays", async () => {
  const before = { files: await count("files"), chunks: await count("file_chunks") };
  const listed = await (await get("?limit=1000")).json();
  const sent = startUpload();
  const broken = finished(sent).catch((error: unknown) => error);
  for (const piece of bytes(8 * MIB)) sent.write(piece);
  await expect.poll(() => count("file_chunks"), { timeout: 10_000 }).toBeGreaterThan(before.chunks + 4);
  const killed = dataPlane();
  process.kill(killed, "SIGKILL");
  expect(await broken).toBeInstanceOf(Error);
  const isBack = () => get("?limit=1000").then(({ status }) => status, String);
  await expect.poll(isBack, { timeout: 30_000, interval: 200 }).toBe(200);
  expect(dataPlane()).not.toBe(killed);
  expect(await (await get("?limit=1000")).json()).toEqual(listed);
  // A quarter of an hour later, at the next sweep (a data plane sweeps as it starts).
  await postgres.query(sql.unsafe`
    update files set touched_at = touched_at - interval '16 minutes' where state = 'writing'
  `);
  process.kill(dataPlane(), "SIGKILL");
  const left = async () => ({ files: await count("files"), chunks: await count("file_chunks") });
  await expect.poll(left, { timeout: 30_000, interval: 200 }).toEqual(before);
}, 90_000);
