import Anthropic, { toFile as anthropicFile } from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { connect } from "node:net";
import { brotliCompressSync, gzipSync, zstdCompressSync } from "node:zlib";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { fileRoutes } from "../../dataplane/http/routes/files.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

const DAY = 24 * 3_600_000;

let database: TestDatabase;
let postgres: DatabasePool;
let store: FileStore;
let server: TestServer;
/** A second data plane on the same stores. */
let other: TestServer;
let skew = 0;
const clock = { now: () => Date.now() + skew };

beforeAll(async () => {
  database = await freshDatabase();
  postgres = await openPostgres(database.url, { onError: () => {} });
  const make = () => new FileStore({ postgres, contents: new PostgresContents(postgres), clock, newId });
  store = make();
  server = await startTestServer([fileRoutes(store)]);
  other = await startTestServer([fileRoutes(make())]);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
  await postgres.end();
  await database.drop();
});

const foreign = { authorization: `Bearer ${sampleKeys.narrow}` };
const versioned = { "anthropic-version": "2023-06-01" };

function form(
  file: BlobPart = "hello",
  name = "a.txt",
  fields: Record<string, string> = {},
  type = "text/plain",
): FormData {
  const data = new FormData();
  for (const [key, value] of Object.entries(fields)) data.append(key, value);
  data.append("file", new File([file], name, { type }));
  return data;
}
async function upload(data = form(), headers: Record<string, string> = {}) {
  const answer = await server.fetch("/v1/files", { method: "POST", body: data, headers });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> & { id: string } };
}
const idOf = async (...args: Parameters<typeof form>) => (await upload(form(...args))).body.id;
const rows = async () =>
  Number(
    await postgres.oneFirst(
      sql.type(z.object({ n: z.bigint() }))`select count(*) as n from files where state = 'writing'`,
    ),
  );
const chunks = async (id: string) =>
  Number(
    await postgres.oneFirst(
      sql.type(z.object({ n: z.bigint() }))`select count(*) as n from file_chunks where file_id = ${id}`,
    ),
  );

describe("the official SDKs", () => {
  test("OpenAI: create, list, retrieve, content, delete", async () => {
    const client = new OpenAI({ apiKey: sampleKeys.inference, baseURL: `${server.url}/v1`, maxRetries: 0 });
    const made = await client.files.create({
      file: await toFile(Buffer.from('{"a":1}\n'), "in.jsonl"),
      purpose: "batch",
      expires_after: { anchor: "created_at", seconds: 3600 },
    });
    expect(made).toMatchObject({
      object: "file",
      filename: "in.jsonl",
      purpose: "batch",
      bytes: 8,
      status: "processed",
    });
    expect(made.expires_at).toBe(made.created_at + 3600);
    const listed: string[] = [];
    for await (const file of client.files.list({ purpose: "batch", limit: 1 })) listed.push(file.id);
    expect(listed).toContain(made.id);
    expect(await (await client.files.content(made.id)).text()).toBe('{"a":1}\n');
    expect(await client.files.retrieve(made.id)).toEqual(made);
    expect(await client.files.delete(made.id)).toMatchObject({ id: made.id, deleted: true, object: "file" });
    await expect(client.files.retrieve(made.id)).rejects.toMatchObject({ status: 404 });
  });

  test("Anthropic: upload, list, metadata, download, delete, ISO times", async () => {
    const client = new Anthropic({ apiKey: sampleKeys.inference, baseURL: server.url, maxRetries: 0 });
    const made = await client.beta.files.upload({
      file: await anthropicFile(Buffer.from("%PDF-1.4"), "a.pdf", { type: "application/pdf" }),
    });
    expect(made).toMatchObject({
      type: "file",
      mime_type: "application/pdf",
      size_bytes: 8,
      downloadable: true,
    });
    expect(made.created_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    const listed: string[] = [];
    for await (const file of client.beta.files.list({ limit: 2 })) listed.push(file.id);
    expect(listed).toContain(made.id);
    expect(await (await client.beta.files.download(made.id)).text()).toBe("%PDF-1.4");
    expect(await client.beta.files.delete(made.id)).toMatchObject({ id: made.id, type: "file_deleted" });
  });
});

describe("uploads", () => {
  test("rule 4.13: fields may stand before or after the file", async () => {
    const after = new FormData();
    after.append("file", new File(["x"], "a.txt"));
    after.append("purpose", "vision");
    expect((await upload(after)).body).toMatchObject({ purpose: "vision", mime_type: "text/plain" });
    expect((await upload(form("x", "a.txt", { purpose: "evals" }))).body).toMatchObject({ purpose: "evals" });
  });

  test("rule 4.13: an empty file is stored as 0 bytes", async () => {
    const { status, body } = await upload(form(""));
    expect({ status, bytes: body["bytes"] }).toEqual({ status: 200, bytes: 0 });
    const content = await server.fetch(`/v1/files/${body.id}/content`);
    expect(await content.text()).toBe("");
  });

  test.each<[Record<string, string>, string]>([
    [{ purpose: "batch_output" }, "purpose"],
    [{ purpose: "nonsense" }, "purpose"],
    [{ "expires_after[anchor]": "now", "expires_after[seconds]": "3600" }, "expires_after[anchor]"],
    [{ "expires_after[anchor]": "created_at" }, "expires_after[seconds]"],
    [{ "expires_after[anchor]": "created_at", "expires_after[seconds]": "3599" }, "expires_after[seconds]"],
    [
      { "expires_after[anchor]": "created_at", "expires_after[seconds]": "2592001" },
      "expires_after[seconds]",
    ],
    [{ expires_in_seconds: "7776001" }, "expires_in_seconds"],
    [{ expires_in_seconds: "1e4" }, "expires_in_seconds"],
    [{ expires_in_seconds: "3600", "expires_after[seconds]": "3600" }, "expires_in_seconds"],
    [{ purpose: "x".repeat(70_000) }, "purpose"],
  ])("fields %j are refused naming %s, and nothing is stored", async (fields, param) => {
    const { status, body } = await upload(form("x", "a.txt", fields));
    expect({ status, body }).toMatchObject({ status: 400, body: { error: { param } } });
    expect(await rows()).toBe(0);
  });

  test("rule 4.18: expiry by purpose, or as asked", async () => {
    const expiryOf = async (fields: Record<string, string>) => {
      const { created_at: from, expires_at: to } = (await upload(form("x", "a", fields))).body;
      return to === null ? null : Number(to) - Number(from);
    };
    expect(await expiryOf({})).toBeNull();
    expect(await expiryOf({ purpose: "batch" })).toBe(30 * 86_400);
    expect(await expiryOf({ expires_in_seconds: "7776000" })).toBe(90 * 86_400);
    expect(await expiryOf({ "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600" })).toBe(
      3_600,
    );
  });

  const B = "--b\r\n";
  const part = (headers: string, body: string) => `${headers}\r\n\r\n${body}\r\n`;
  const file = part('content-disposition: form-data; name="file"; filename="a.txt"', "hello");
  const field = (name: string, value: string) =>
    part(`content-disposition: form-data; name="${name}"`, value);
  const formType = { "content-type": "multipart/form-data; boundary=b" };
  const post = async (body: string | Buffer, headers: Record<string, string> = {}) => {
    const answer = await server.fetch("/v1/files", {
      method: "POST",
      body: body as BodyInit,
      headers: { ...formType, ...headers },
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };

  const pdfType = "\r\ncontent-type: application/pdf";
  const plainType = "\r\nContent-Type: text/plain; charset=utf-8";
  test.each([
    ["", pdfType, "unnamed.pdf", "application/pdf"],
    ["", plainType, "unnamed.txt", "text/plain"],
    ["", "\r\ncontent-type: application/json", "unnamed.json", "application/json"],
    ["", "\r\ncontent-type: application/octet-stream", "unnamed", "application/octet-stream"],
    ['; filename=""', pdfType, "unnamed.pdf", "application/pdf"],
    ['; filename="x.pdf"', "", "x.pdf", "application/pdf"],
    ['; filename="x.pdf"', "\r\ncontent-type:", "x.pdf", "application/pdf"],
    ['; filename="x.pdf"', plainType, "x.pdf", "text/plain"],
    ['; filename="x.unknown"', "", "x.unknown", "application/octet-stream"],
    ['; filename=""', "", "unnamed", "application/octet-stream"],
  ])("a file part with the name %j and the type %j is %s, %s", async (name, type, filename, mimeType) => {
    const only = part(`content-disposition: form-data; name="file"${name}${type}`, "%PDF");
    for (const form of [
      `${B}${only}${B}${field("purpose", "vision")}--b--\r\n`,
      `${B}${part('content-disposition: form-data; name="purpose"', "vision")}${B}${only}--b--\r\n`,
    ])
      expect(await post(form)).toMatchObject({
        status: 200,
        body: { filename, mime_type: mimeType, bytes: 4, purpose: "vision" },
      });
  });

  test("a second file lends its type to nobody", async () => {
    const second = part('content-disposition: form-data; name="other"\r\ncontent-type: application/pdf', "x");
    const plain = part('content-disposition: form-data; name="file"; filename="x"', "x");
    expect((await post(`${B}${plain}${B}${second}--b--\r\n`)).body).toMatchObject({
      mime_type: "application/octet-stream",
    });
  });

  const whole = `${B}${file}${B}${field("purpose", "vision")}--b--\r\n`;
  test.each([
    ["gzip", gzipSync(whole)],
    ["GZIP", gzipSync(whole)],
    ["zstd", zstdCompressSync(whole)],
    ["identity", Buffer.from(whole)],
  ])("a form with content encoding %s is read", async (encoding, bytes) => {
    const { status, body } = await post(bytes, { "content-encoding": encoding });
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { filename: "a.txt", bytes: 5, purpose: "vision" },
    });
    expect(await (await server.fetch(`/v1/files/${String(body["id"])}/content`)).text()).toBe("hello");
  });

  const mebibyte = gzipSync(Buffer.alloc(1024 * 1024));
  test.each([
    ["an unknown encoding", "snappy", whole, 415],
    ["brotli", "br", brotliCompressSync(whole), 415],
    ["two encodings", "gzip, br", whole, 415],
    ["not gzip at all", "gzip", whole, 400],
    ["damaged gzip", "gzip", gzipSync(whole).subarray(0, 60), 400],
    ["half a form in gzip", "gzip", gzipSync(whole.slice(0, 90)), 400],
    ["a bomb", "gzip", Buffer.concat(Array.from({ length: 521 }, () => mebibyte)), 413],
  ])("%s is refused, and nothing is stored", async (_name, encoding, bytes, status) => {
    const before = await count();
    const answer = await post(bytes, { "content-encoding": encoding });
    expect(answer).toMatchObject({
      status,
      body: { type: "error", error: { message: expect.any(String) as string } },
    });
    expect({ visible: await count(), writing: await rows() }).toEqual({ visible: before, writing: 0 });
  });

  const malformed: readonly (readonly [string, string])[] = [
    ["an empty body", ""],
    ["only the end", "--b--\r\n"],
    ["no end", `${B}${file}`],
    ["cut in the file", `${B}content-disposition: form-data; name="file"; filename="a"\r\n\r\nhel`],
    ["cut in the headers", `${B}content-disposition: form-da`],
    ["cut after the boundary", B],
    ["cut before the last dashes", `${B}${file}--b`],
    ["another boundary", `--c\r\n${file}--c--\r\n`],
    ["text before", `garbage${B}${file}`],
    ["no file", `${B}${field("purpose", "batch")}--b--\r\n`],
    ["two files", `${B}${file}${B}${file}--b--\r\n`],
    ["three files", `${B}${file}${B}${file}${B}${file}--b--\r\n`],
    [
      "a file of another name",
      `${B}${part('content-disposition: form-data; name="data"; filename="a"', "x")}--b--\r\n`,
    ],
    [
      "a second file of another name",
      `${B}${file}${B}${part('content-disposition: form-data; name="data"; filename="a"', "x")}--b--\r\n`,
    ],
    [
      "a file without a name of its field",
      `${B}${part('content-disposition: form-data; filename="a"', "x")}--b--\r\n`,
    ],
    ["the file as text", `${B}${field("file", "hello")}--b--\r\n`],
    ["no disposition", `${B}${part("content-type: text/plain", "x")}--b--\r\n`],
    ["an empty disposition", `${B}${part("content-disposition:", "x")}--b--\r\n`],
    [
      "another disposition",
      `${B}${part('content-disposition: attachment; name="file"; filename="a"', "x")}--b--\r\n`,
    ],
    ["no blank line", `${B}content-disposition: form-data; name="file"; filename="a"\r\n--b--\r\n`],
    ["JSON", '{"file":"x"}'],
    ["urlencoded", "file=x&purpose=batch"],
    ["a lone dash", "-"],
    ["dashes only", "--"],
    ["the boundary only", "--b"],
    ["NULs", "\0".repeat(100)],
    ["a huge header", `${B}x-header: ${"a".repeat(200_000)}\r\n\r\nx\r\n--b--\r\n`],
    ["a thousand headers", `${B}${"x: y\r\n".repeat(1_000)}\r\nx\r\n--b--\r\n`],
    [
      "a hundred fields",
      `${B}${Array.from({ length: 100 }, (_, index) => `${field(`f${index}`, "x")}${B}`).join("")}${file}--b--\r\n`,
    ],
    ["__proto__ as a field", `${B}${field("__proto__", "x")}--b--\r\n`],
    ["constructor as a field", `${B}${field("constructor", "x")}--b--\r\n`],
    ["bad field after the file", `${B}${file}${B}${field("purpose", "nonsense")}--b--\r\n`],
    [
      "cut after the file, in a field",
      `${B}${file}${B}content-disposition: form-data; name="purpose"\r\n\r\nbat`,
    ],
    ["cut right after the file", `${B}${file}${B}`],
    [
      "the boundary inside a line",
      `${B}content-disposition: form-data; name="file"; filename="a"\r\n\r\nx--b--\r\n`,
    ],
    ["LF only", `${B}${file}--b--\r\n`.replaceAll("\r\n", "\n")],
    ["CR only", `${B}${file}--b--\r\n`.replaceAll("\r\n", "\r")],
    ["an unclosed name", `${B}${part('content-disposition: form-data; name="file', "x")}--b--\r\n`],
    ["nothing but a blank line", "\r\n\r\n"],
    [
      "a file named by an empty field",
      `${B}${part('content-disposition: form-data; name=""; filename="a"', "x")}--b--\r\n`,
    ],
  ];
  test.each(malformed)("rule 4.13: %s is 400, nothing stored", async (_name, body) => {
    const before = await count();
    const answer = await server.fetch("/v1/files", {
      method: "POST",
      body,
      headers: { "content-type": "multipart/form-data; boundary=b" },
    });
    const text = await answer.text();
    expect({ status: answer.status, text }).toMatchObject({ status: 400 });
    expect(JSON.parse(text)).toHaveProperty("error.message");
    expect({ visible: await count(), writing: await rows() }).toEqual({ visible: before, writing: 0 });
  });
  const count = async () =>
    Number(
      await postgres.oneFirst(
        sql.type(z.object({ n: z.bigint() }))`select count(*) as n from files where state = 'ready'`,
      ),
    );

  test("other content types are 415, a form without a boundary 400 or 415", async () => {
    const json = await server.fetch("/v1/files", {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json" },
    });
    expect(json.status).toBe(415);
    const bare = await server.fetch("/v1/files", {
      method: "POST",
      body: "x",
      headers: { "content-type": "multipart/form-data" },
    });
    expect([400, 415]).toContain(bare.status);
  });

  test("a client that leaves in mid-upload leaves nothing behind", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const socket = connect(server.port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/files HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-length: 9000000\r\n` +
          `content-type: multipart/form-data; boundary=b\r\n\r\n${B}content-disposition: form-data; name="file"; filename="a"\r\n\r\n`,
      );
      socket.write(Buffer.alloc(3_000_000), () => setTimeout(() => socket.destroy(), 100));
    });
    socket.on("close", () => resolve());
    await promise;
    await expect.poll(rows, { timeout: 5_000 }).toBe(0);
  });

  test("what a killed process left half-way is invisible and swept", async () => {
    const before = await count();
    const stored = Promise.withResolvers<void>();
    async function* endless(): AsyncIterable<Buffer> {
      yield Buffer.alloc(2 * 1024 * 1024);
      stored.resolve();
      await new Promise(() => {});
    }
    void store.create("org_default_acme", endless(), () => expect.unreachable());
    await stored.promise;
    await store.sweep();
    expect(await rows()).toBe(1);
    skew = 16 * 60_000;
    await store.sweep();
    skew = 0;
    expect({ writing: await rows(), visible: await count() }).toEqual({ writing: 0, visible: before });
  });

  test("a writer that wakes up while it is swept shows no file without contents", async () => {
    const before = await count();
    const stored = Promise.withResolvers<void>();
    const woken = Promise.withResolvers<void>();
    async function* sleepy(): AsyncIterable<Buffer> {
      yield Buffer.alloc(2 * 1024 * 1024);
      stored.resolve();
      await woken.promise;
    }
    const description = { filename: "f", mimeType: "text/plain", purpose: "user_data", expiresAt: null };
    const made = store
      .create("org_default_acme", sleepy(), () => description)
      .then(
        () => "stored",
        () => "failed",
      );
    await stored.promise;
    const place = new PostgresContents(postgres);
    const remove = async (id: string) => {
      woken.resolve();
      await made;
      await place.remove(id);
    };
    const contents = Object.assign(Object.create(place) as PostgresContents, { remove });
    const late = { now: () => Date.now() + 16 * 60_000 };
    await new FileStore({ postgres, contents, clock: late, newId }).sweep();
    expect({ made: await made, visible: await count() }).toEqual({ made: "failed", visible: before });
  });

  test("an upload whose last answer from the database was lost shows no file without contents", async () => {
    const before = await count();
    const one: DatabasePool["one"] = async (query) => {
      await postgres.one(query);
      throw new Error("connection lost");
    };
    const lossy = new Proxy(postgres, {
      get: (pool, name, self) => (name === "one" ? one : (Reflect.get(pool, name, self) as unknown)),
    });
    const contents = new PostgresContents(postgres);
    const unlucky = new FileStore({ postgres: lossy, contents, clock, newId });
    async function* source(): AsyncIterable<Buffer> {
      yield Buffer.alloc(10);
    }
    const description = { filename: "f", mimeType: "text/plain", purpose: "user_data", expiresAt: null };
    const made = unlucky.create("org_default_acme", source(), () => description);
    await expect(made).rejects.toThrow("connection lost");
    expect(await count()).toBe(before);
  });

  test("one file whose storage is away does not keep the sweep from the others", async () => {
    const first = await idOf("x", "a.txt", {});
    const second = await idOf("x", "b.txt", {});
    await postgres.query(sql.unsafe`
      update files set state = 'removed', position = null where id in (${first}, ${second})
    `);
    const place = new PostgresContents(postgres);
    const remove = (id: string) => (id === first ? Promise.reject(new Error("away")) : place.remove(id));
    const contents = Object.assign(Object.create(place) as PostgresContents, { remove });
    await expect(new FileStore({ postgres, contents, clock, newId }).sweep()).rejects.toThrow("away");
    expect({ first: await chunks(first), second: await chunks(second) }).toEqual({ first: 1, second: 0 });
    await store.sweep();
    expect(await chunks(first)).toBe(0);
  });

  test("40 MiB stream through with flat memory", async () => {
    const size = 40 * 1024 * 1024;
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    let most = 0;
    const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 20);
    const { status, body } = await upload(
      form(new Uint8Array(size), "big.bin", {}, "application/octet-stream"),
    );
    clearInterval(watch);
    expect({ status, bytes: body["bytes"] }).toEqual({ status: 200, bytes: size });
    // The test's own copies of the form are in this figure too.
    expect(most - before).toBeLessThan(8 * size);
    expect(await chunks(body.id)).toBe(40);
    await server.fetch(`/v1/files/${body.id}`, { method: "DELETE" });
    expect(await chunks(body.id)).toBe(0);
  });
});

describe("content", () => {
  test("type, disposition, length, and no sniffing", async () => {
    const id = await idOf("<script>", "we'ird 日.html", {}, "text/html");
    const answer = await server.fetch(`/v1/files/${id}/content`, {
      headers: { accept: "application/binary" },
    });
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "text/html",
      "content-length": "8",
      "x-content-type-options": "nosniff",
      "accept-ranges": "bytes",
    });
    expect(answer.headers.get("content-disposition")).toMatch(
      /^attachment; filename="[ -~]+"; filename\*=UTF-8''we%27ird%20%E6%97%A5\.html$/,
    );
  });

  test.each([
    ["bytes=0-4", 206, "01234", "bytes 0-4/10"],
    ["bytes=7-", 206, "789", "bytes 7-9/10"],
    ["Bytes=7-", 206, "789", "bytes 7-9/10"],
    ["bytes=-3", 206, "789", "bytes 7-9/10"],
    ["bytes=5-100", 206, "56789", "bytes 5-9/10"],
    ["bytes=10-", 416, "", "bytes */10"],
    ["bytes=-0", 416, "", "bytes */10"],
    ["bytes=4-2", 200, "0123456789", null],
    ["bytes=0-1,3-4", 200, "0123456789", null],
    ["lines=0-1", 200, "0123456789", null],
  ])("Range %s", async (range, status, body, contentRange) => {
    const id = await idOf("0123456789");
    const answer = await server.fetch(`/v1/files/${id}/content`, { headers: { range } });
    expect({
      status: answer.status,
      body: await answer.text(),
      range: answer.headers.get("content-range"),
    }).toEqual({ status, body, range: contentRange });
  });
});

test("HEAD of a file's content tells its length without reading it", async () => {
  const id = await idOf("0123456789");
  const answer = await server.fetch(`/v1/files/${id}/content`, { method: "HEAD" });
  expect({ status: answer.status, length: answer.headers.get("content-length") }).toEqual({
    status: 200,
    length: "10",
  });
});

describe("lists", () => {
  test("both styles page through everything, newest first, in exact upload order", async () => {
    const ids: string[] = [];
    for (let index = 0; index < 7; index += 1)
      ids.push(await idOf("x", `l${index}.txt`, { purpose: "fine-tune" }));
    const newest = ids.toReversed();
    const page = async (query: string) =>
      (await (await other.fetch(`/v1/files?purpose=fine-tune&${query}`)).json()) as {
        data: { id: string }[];
        has_more: boolean;
        first_id: string | null;
        last_id: string | null;
        next_page: string | null;
      };
    const idsOf = async (query: string) => (await page(query)).data.map(({ id }) => id);
    expect(await idsOf("limit=10")).toEqual(newest);
    expect(await idsOf("order=asc")).toEqual(ids);
    expect(await idsOf(`limit=2&after=${newest[1]}`)).toEqual(newest.slice(2, 4));
    expect(await idsOf(`limit=2&after_id=${newest[1]}`)).toEqual(newest.slice(2, 4));
    expect(await idsOf(`limit=2&before_id=${newest[5]}`)).toEqual(newest.slice(3, 5));
    expect(await page(`limit=2&before_id=${newest[1]}`)).toMatchObject({
      has_more: false,
      first_id: newest[0],
    });
    expect(await idsOf(`ids=${ids[0]},${ids[2]}`)).toEqual([ids[2], ids[0]]);
    const walked: string[] = [];
    for (let next: string | null = ""; next !== null;) {
      const got = await page(`limit=3${next === "" ? "" : `&page=${next}`}`);
      walked.push(...got.data.map(({ id }) => id));
      next = got.next_page;
    }
    expect(walked).toEqual(newest);
    expect(await page("limit=1&order=asc&after=" + ids[6])).toEqual({
      object: "list",
      data: [],
      first_id: null,
      last_id: null,
      has_more: false,
      next_page: null,
    });
  });

  test.each([
    ["limit=0", "limit"],
    ["limit=abc", "limit"],
    ["limit=10001", "limit"],
    ["limit=1001&after_id=file_x", "limit"],
    ["order=up", "order"],
    ["after=file_x&before_id=file_y", "before_id"],
    ["after=file_unknown", "after"],
    ["after_id=%00", "after_id"],
    ["before_id=x'%20or%201=1", "before_id"],
    ["purpose=", "purpose"],
  ])("rule 4.15: %s is 400 naming %s", async (query, param) => {
    const answer = await server.fetch(`/v1/files?${query}`);
    expect({ status: answer.status, body: await answer.json() }).toMatchObject({
      status: 400,
      body: { error: { param } },
    });
  });

  test("a page deep in 100,000 files costs what the first one costs", async () => {
    await postgres.query(sql.unsafe`
      insert into files (id, organization_id, state, position, filename, mime_type, purpose, storage, created_at, touched_at)
      select 'file_bulk' || n, 'org_bulk', 'ready', nextval('files_position'), 'f', 'text/plain', 'user_data', 'postgres', now(), now()
      from generate_series(1, 100000) as n
    `);
    await postgres.query(sql.unsafe`analyze files`);
    const plan = await postgres.any(sql.unsafe`
      explain select id from files where organization_id = 'org_bulk' and state = 'ready'
        and position < (select position from files where id = 'file_bulk50000') order by position desc limit 21
    `);
    expect(JSON.stringify(plan)).toContain("Index Scan");
    expect(JSON.stringify(plan)).not.toContain("Seq Scan on files");
    const first = await store.list({
      organizationId: "org_bulk",
      purpose: null,
      ids: null,
      limit: 20,
      order: "desc",
      cursor: { side: "after", id: "file_bulk500" },
    });
    expect(first?.files[0]?.id).toBe("file_bulk499");
  });
});

describe("rule 4.16: organizations never see each other's files", () => {
  test.each([
    ["GET", ""],
    ["DELETE", ""],
    ["GET", "/content"],
  ])("%s /v1/files/{id}%s of another organization reads like an unknown one", async (method, suffix) => {
    const id = await idOf();
    const ask = async (name: string) => {
      const answer = await server.fetch(`/v1/files/${name}${suffix}`, { method, headers: foreign });
      return {
        status: answer.status,
        text: (await answer.text()).replaceAll(name, "ID").replaceAll(/req_\w+/g, "REQ"),
      };
    };
    expect(await ask(id)).toEqual(await ask("file_unknown"));
    expect((await ask(id)).status).toBe(404);
    expect((await server.fetch(`/v1/files/${id}`)).status).toBe(200);
  });

  test("lists hold only one's own, and another's id is an unknown cursor", async () => {
    const id = await idOf();
    const listed = (await (await server.fetch("/v1/files?limit=1000", { headers: foreign })).json()) as {
      data: { id: string }[];
    };
    expect(listed.data.map((file) => file.id)).not.toContain(id);
    expect((await server.fetch(`/v1/files?after=${id}`, { headers: foreign })).status).toBe(400);
  });

  test.each(["file_%00", "..%2f..", "file_'; drop table files", "x".repeat(900)])(
    "a malformed id %s is 404",
    async (id) => {
      expect((await server.fetch(`/v1/files/${encodeURI(id).replaceAll("%25", "%")}`)).status).toBe(404);
    },
  );
});

describe("expiry", () => {
  test("an expired file is 404 file_expired at once, leaves lists, and the sweep takes its contents", async () => {
    const id = await idOf("x", "a.txt", { expires_in_seconds: "3600" });
    skew = 2 * 3_600_000;
    const expired = async () => {
      const answer = await server.fetch(`/v1/files/${id}`, { headers: versioned });
      return { status: answer.status, body: await answer.json() };
    };
    expect(await expired()).toMatchObject({
      status: 404,
      body: { error: { type: "not_found_error", details: { error_code: "file_expired" } } },
    });
    expect(await (await server.fetch("/v1/files?limit=10000")).text()).not.toContain(id);
    await store.sweep();
    expect(await chunks(id)).toBe(0);
    expect(await expired()).toMatchObject({
      status: 404,
      body: { error: { details: { error_code: "file_expired" } } },
    });
    skew = 40 * DAY;
    await store.sweep();
    skew = 0;
    expect((await server.fetch(`/v1/files/${id}`)).status).toBe(404);
  });
});

test("the version header decides the style of bodies and times", async () => {
  const id = await idOf();
  const plain = (await (await server.fetch(`/v1/files/${id}`)).json()) as Record<string, unknown>;
  const messages = (await (
    await server.fetch(`/v1/files/${id}`, { headers: { "vendor-version": "2023-06-01" } })
  ).json()) as Record<string, unknown>;
  expect(typeof plain["created_at"]).toBe("number");
  expect(messages["created_at"]).toMatch(/Z$/);
  expect({ ...plain, created_at: 0 }).toEqual({ ...messages, created_at: 0 });
});
