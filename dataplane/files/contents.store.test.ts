import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabasePool } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { unhindered } from "../lib/piece-reader.ts";
import { openPostgres } from "../store/postgres.ts";
import { isStoreAway } from "../store/store-away.ts";
import { freshDatabase, type TestDatabase } from "../../test/integration/stores.ts";
import { HELD_BYTES, type FileContents } from "./contents.ts";
import { PostgresContents } from "./postgres-contents.ts";
import { S3Contents } from "./s3-contents.ts";

interface S3rver {
  run(): Promise<AddressInfo>;
  close(): Promise<void>;
}
const S3rverClass = createRequire(import.meta.url)("s3rver") as new (options: object) => S3rver;

let database: TestDatabase;
let postgres: DatabasePool;
let folder: string;
let s3: S3rver;
const places: Record<string, FileContents> = {};

beforeAll(async () => {
  database = await freshDatabase();
  postgres = await openPostgres(database.url, { onError: () => {} });
  folder = await mkdtemp(join(tmpdir(), "gapura-s3-"));
  s3 = new S3rverClass({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: folder,
    configureBuckets: [{ name: "files" }],
  });
  const { port } = await s3.run();
  places["postgres"] = new PostgresContents(postgres);
  places["s3"] = new S3Contents(`http://S3RVER:S3RVER@127.0.0.1:${port}/files?region=us-east-1`);
});
afterAll(async () => {
  await s3.close();
  await rm(folder, { recursive: true, force: true });
  await postgres.end();
  await database.drop();
});

/** Bytes that differ from place to place, so that a wrong offset shows. */
const bytes = (length: number) =>
  Buffer.from(Uint8Array.from({ length }, (_, index) => (index * 31 + (index >> 8) * 17) & 255));
async function* inChunks(whole: Buffer, size: number): AsyncIterable<Buffer> {
  for (let at = 0; at < whole.length; at += size) yield whole.subarray(at, at + size);
}
const written = (id: string) => ({ id, organizationId: "org_contents" });
async function collect(source: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks);
}

describe.each(["postgres", "s3"])("contents in %s", (name) => {
  const place = () => places[name] as FileContents;
  const nothing = async () => {};
  let made = 0;
  const newId = () => `file_${name}${(made += 1)}`;
  const MiB = 1024 * 1024;

  test.each([0, 1, MiB - 1, MiB, MiB + 1, 8 * MiB + 5])("%i bytes come back as they were", async (length) => {
    const id = newId();
    const whole = bytes(length);
    expect(await place().write(written(id), inChunks(whole, 300_000), nothing)).toBe(length);
    expect((await collect(place().read(id, 0, length))).equals(whole)).toBe(true);
  });

  test("any range comes back exactly", async () => {
    const id = newId();
    const whole = bytes(9 * MiB);
    await place().write(written(id), inChunks(whole, 65_536), nothing);
    for (const [start, end] of [
      [0, 1],
      [MiB - 1, MiB + 1],
      [5 * MiB, 9 * MiB],
      [9 * MiB - 1, 9 * MiB],
      [3, 3],
    ] as const) {
      expect((await collect(place().read(id, start, end))).equals(whole.subarray(start, end))).toBe(true);
    }
  });

  test("pieces are as small as their reader wants them", async () => {
    const id = newId();
    const whole = bytes(5 * MiB);
    await place().write(written(id), inChunks(whole, 65_536), nothing);
    const lengths: number[] = [];
    const pieces: Buffer[] = [];
    const most = 300_000;
    const reader = { ...unhindered, most: (wanted: number) => Math.min(wanted, most) };
    for await (const piece of place().read(id, 7, 5 * MiB, reader)) {
      lengths.push(piece.length);
      pieces.push(piece);
    }
    expect(Math.max(...lengths)).toBe(most);
    expect(Buffer.concat(pieces).equals(whole.subarray(7))).toBe(true);
  });

  test("a source that fails half-way passes its error on, and nothing stays after remove", async () => {
    const id = newId();
    async function* broken(): AsyncIterable<Buffer> {
      yield* inChunks(bytes(9 * MiB), MiB);
      throw new Error("the client left");
    }
    await expect(place().write(written(id), broken(), nothing)).rejects.toThrow("the client left");
    await place().remove(id);
    await place().remove(id);
    await expect(collect(place().read(id, 0, 1))).rejects.toThrow(/./);
  });
});

describe("an S3 storage", () => {
  const refusing = (status: number) =>
    createServer((request, response) => {
      request.resume();
      response.writeHead(status, { "content-type": "application/xml" }).end("<Error><Code>No</Code></Error>");
    });
  const cutting = () => createServer(({ socket }) => socket.destroy());
  /** What reading, writing and removing throw. */
  async function faultsOf(server: Server, isThere = true): Promise<unknown[]> {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const place = new S3Contents(`http://KEY:SECRET@127.0.0.1:${port}/files`);
    if (!isThere) server.close();
    const acts = [
      () => place.write(written("file_a"), inChunks(bytes(3), 3), async () => {}),
      () => place.write(written("file_a"), inChunks(Buffer.alloc(HELD_BYTES + 1), 65_536), async () => {}),
      () => collect(place.read("file_a", 0, 3)),
      () => place.remove("file_a"),
    ];
    const faults = await Promise.all(
      acts.map((act) =>
        act().then(
          () => null,
          (error: unknown) => error,
        ),
      ),
    );
    server.close();
    return faults;
  }

  test.each<[string, () => Server, isThere?: boolean]>([
    ["cannot be reached", createServer, false],
    ["cuts connections", cutting],
    ["fails", () => refusing(500)],
    ["has no room for requests", () => refusing(503)],
    ["asks to slow down", () => refusing(429)],
  ])("that %s is away, as any store", async (_, start, isThere) => {
    const faults = await faultsOf(start(), isThere);
    expect(faults.map(isStoreAway)).toEqual([true, true, true, true]);
  });

  test("that refuses what it is asked is not", async () => {
    const faults = await faultsOf(refusing(403));
    expect(faults.map(isStoreAway)).toEqual([false, false, false, false]);
  });

  test("says nothing of whoever sends", async () => {
    const place = places["s3"] as FileContents;
    async function* leaving(): AsyncIterable<Buffer> {
      yield bytes(3);
      throw new TypeError("terminated", { cause: new Error("gone") });
    }
    const fault: unknown = await place
      .write(written("file_b"), leaving(), async () => {})
      .catch((error: unknown) => error);
    expect(isStoreAway(fault)).toBe(false);
  });
});

test("a storage URL without a bucket or credentials is refused without repeating it", () => {
  expect(() => new S3Contents("https://secret:hidden@host/")).toThrow(
    expect.not.stringContaining("hidden") as Error,
  );
  expect(() => new S3Contents("https://host/bucket")).toThrow(/ACCESS_KEY/);
});
