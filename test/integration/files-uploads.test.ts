/** Rule 4.13: uploads, well-formed and not, and what is left of those that break off. */
import { connect } from "node:net";
import { brotliCompressSync, gzipSync, zstdCompressSync } from "node:zlib";
import { sql, type DatabasePool } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sampleKeys, sampleStorage } from "../fakes/sample-snapshot.ts";
import { form, openFilesWorld, type FilesWorld } from "./files-world.ts";

let world: FilesWorld;
beforeAll(async () => {
  world = await openFilesWorld();
});
afterAll(() => world[Symbol.asyncDispose]());

describe("uploads", () => {
  test("rule 4.13: fields may stand before or after the file", async () => {
    const after = new FormData();
    after.append("file", new File(["x"], "a.txt"));
    after.append("purpose", "vision");
    expect((await world.upload(after)).body).toMatchObject({ purpose: "vision", mime_type: "text/plain" });
    expect((await world.upload(form("x", "a.txt", { purpose: "evals" }))).body).toMatchObject({
      purpose: "evals",
    });
  });

  test("rule 4.13: an empty file is stored as 0 bytes", async () => {
    const { status, body } = await world.upload(form(""));
    expect({ status, bytes: body["bytes"] }).toEqual({ status: 200, bytes: 0 });
    const content = await world.server.fetch(`/v1/files/${body.id}/content`);
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
    [{ expires_after: '{"anchor":"created_at","seconds":3599}' }, "expires_after[seconds]"],
    [{ expires_after: '{"anchor":"created_at","seconds":[3600]}' }, "expires_after[seconds]"],
    [{ expires_after: '{"anchor":"created_at","seconds":null}' }, "expires_after[seconds]"],
    [{ expires_after: '{"anchor":"now","seconds":3600}' }, "expires_after[anchor]"],
    [{ expires_after: "{}" }, "expires_after[seconds]"],
    [{ expires_after: '{"expires":3600}' }, "expires_after[seconds]"],
    [{ expires_after: "3600" }, "expires_after"],
    [{ expires_after: "{" }, "expires_after"],
    [
      { expires_after: '{"anchor":"created_at","seconds":3600}', "expires_after[seconds]": "3600" },
      "expires_after",
    ],
    [{ expires_after: '{"seconds":3600}', expires_in_seconds: "3600" }, "expires_in_seconds"],
    [{ expires_in_seconds: "7776001" }, "expires_in_seconds"],
    [{ expires_in_seconds: "1e4" }, "expires_in_seconds"],
    [{ expires_in_seconds: "3600", "expires_after[seconds]": "3600" }, "expires_in_seconds"],
    [{ purpose: "x".repeat(70_000) }, "purpose"],
  ])("fields %j are refused naming %s, and nothing is stored", async (fields, param) => {
    const { status, body } = await world.upload(form("x", "a.txt", fields));
    expect({ status, body }).toMatchObject({ status: 400, body: { error: { param } } });
    expect(await world.writing()).toBe(0);
  });

  test("rule 4.18: expiry by purpose, or as asked", async () => {
    const expiryOf = async (fields: Record<string, string>) => {
      const { created_at: from, expires_at: to } = (await world.upload(form("x", "a", fields))).body;
      return to === null ? null : Number(to) - Number(from);
    };
    expect(await expiryOf({})).toBeNull();
    expect(await expiryOf({ purpose: "batch" })).toBe(30 * 86_400);
    expect(await expiryOf({ expires_in_seconds: "7776000" })).toBe(90 * 86_400);
    expect(await expiryOf({ "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600" })).toBe(
      3_600,
    );
    // One field of JSON, as clients write it that are generated from the OpenAPI document.
    expect(await expiryOf({ expires_after: '{"anchor":"created_at","seconds":3600}' })).toBe(3_600);
    expect(await expiryOf({ expires_after: "null", expires_in_seconds: "3600" })).toBe(3_600);
  });

  const B = "--b\r\n";
  const part = (headers: string, body: string) => `${headers}\r\n\r\n${body}\r\n`;
  const file = part('content-disposition: form-data; name="file"; filename="a.txt"', "hello");
  const field = (name: string, value: string) =>
    part(`content-disposition: form-data; name="${name}"`, value);
  const formType = { "content-type": "multipart/form-data; boundary=b" };
  const post = async (body: string | Buffer, headers: Record<string, string> = {}) => {
    const answer = await world.server.fetch("/v1/files", {
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
    expect(await (await world.server.fetch(`/v1/files/${String(body["id"])}/content`)).text()).toBe("hello");
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
    expect({ visible: await count(), writing: await world.writing() }).toEqual({
      visible: before,
      writing: 0,
    });
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
    const answer = await world.server.fetch("/v1/files", {
      method: "POST",
      body,
      headers: { "content-type": "multipart/form-data; boundary=b" },
    });
    const text = await answer.text();
    expect({ status: answer.status, text }).toMatchObject({ status: 400 });
    expect(JSON.parse(text)).toHaveProperty("error.message");
    expect({ visible: await count(), writing: await world.writing() }).toEqual({
      visible: before,
      writing: 0,
    });
  });
  const count = async () =>
    Number(
      await world.postgres.oneFirst(
        sql.type(z.object({ n: z.bigint() }))`select count(*) as n from files where state = 'ready'`,
      ),
    );

  test("other content types are 415, a form without a boundary 400 or 415", async () => {
    const json = await world.server.fetch("/v1/files", {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json" },
    });
    expect(json.status).toBe(415);
    const bare = await world.server.fetch("/v1/files", {
      method: "POST",
      body: "x",
      headers: { "content-type": "multipart/form-data" },
    });
    expect([400, 415]).toContain(bare.status);
  });

  test("a client that leaves in mid-upload leaves nothing behind", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const socket = connect(world.server.port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/files HTTP/1.1\r\nhost: x\r\nx-api-key: ${sampleKeys.inference}\r\ncontent-length: 9000000\r\n` +
          `content-type: multipart/form-data; boundary=b\r\n\r\n${B}content-disposition: form-data; name="file"; filename="a"\r\n\r\n`,
      );
      socket.write(Buffer.alloc(3_000_000), () => setTimeout(() => socket.destroy(), 100));
    });
    socket.on("close", () => resolve());
    await promise;
    await expect.poll(() => world.writing()).toBe(0);
  });

  test("what a killed process left half-way is invisible and swept", async () => {
    const before = await count();
    const stored = Promise.withResolvers<void>();
    async function* endless(): AsyncIterable<Buffer> {
      yield Buffer.alloc(2 * 1024 * 1024);
      stored.resolve();
      await new Promise(() => {});
    }
    void world.store.create("org_default_acme", endless(), () => expect.unreachable());
    await stored.promise;
    await world.store.sweep();
    expect(await world.writing()).toBe(1);
    world.clock.skew = 16 * 60_000;
    await world.store.sweep();
    world.clock.skew = 0;
    expect({ writing: await world.writing(), visible: await count() }).toEqual({
      writing: 0,
      visible: before,
    });
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
    const made = world.store
      .create("org_default_acme", sleepy(), () => description)
      .then(
        () => "stored",
        () => "failed",
      );
    await stored.promise;
    const place = new PostgresContents(world.postgres);
    const remove = async (id: string) => {
      woken.resolve();
      await made;
      await place.remove(id);
    };
    const contents = Object.assign(Object.create(place) as PostgresContents, { remove });
    const late = { now: () => Date.now() + 16 * 60_000 };
    await new FileStore({
      postgres: world.postgres,
      contents,
      clock: late,
      newId,
      limitsOf: () => sampleStorage,
    }).sweep();
    expect({ made: await made, visible: await count() }).toEqual({ made: "failed", visible: before });
  });

  test("an upload whose last answer from the database was lost shows no file without contents", async () => {
    const before = await count();
    const transaction: DatabasePool["transaction"] = async (handler) => {
      const result = await world.postgres.transaction(handler);
      // The one that shows the file.
      if (typeof result === "object" && result !== null && "filename" in result)
        throw new Error("connection lost");
      return result;
    };
    const lossy = new Proxy(world.postgres, {
      get: (pool, name, self) =>
        name === "transaction" ? transaction : (Reflect.get(pool, name, self) as unknown),
    });
    const contents = new PostgresContents(world.postgres);
    const unlucky = new FileStore({
      postgres: lossy,
      contents,
      clock: world.clock,
      newId,
      limitsOf: () => sampleStorage,
    });
    async function* source(): AsyncIterable<Buffer> {
      yield Buffer.alloc(10);
    }
    const description = { filename: "f", mimeType: "text/plain", purpose: "user_data", expiresAt: null };
    const made = unlucky.create("org_default_acme", source(), () => description);
    await expect(made).rejects.toThrow("connection lost");
    expect(await count()).toBe(before);
  });

  test("one file whose storage is away does not keep the sweep from the others", async () => {
    const first = await world.idOf("x", "a.txt", {});
    const second = await world.idOf("x", "b.txt", {});
    await world.postgres.query(sql.unsafe`
      update files set state = 'removed', position = null where id in (${first}, ${second})
    `);
    const place = new PostgresContents(world.postgres);
    const remove = (id: string) => (id === first ? Promise.reject(new Error("away")) : place.remove(id));
    const contents = Object.assign(Object.create(place) as PostgresContents, { remove });
    await expect(
      new FileStore({
        postgres: world.postgres,
        contents,
        clock: world.clock,
        newId,
        limitsOf: () => sampleStorage,
      }).sweep(),
    ).rejects.toThrow("away");
    expect({ first: await world.chunks(first), second: await world.chunks(second) }).toEqual({
      first: 1,
      second: 0,
    });
    await world.store.sweep();
    expect(await world.chunks(first)).toBe(0);
  });

  test("a place that answers nothing is given up for a while, and keeps no other waiting", async () => {
    const ids = [await world.idOf("x"), await world.idOf("x"), await world.idOf("x")] as const;
    const [near, ...far] = ids;
    await world.postgres.query(sql.unsafe`
      update files set state = 'removed', position = null where id = any(${sql.array([...ids], "text")})
    `);
    await world.postgres.query(sql.unsafe`
      update files set storage = 's3' where id = any(${sql.array(far, "text")})
    `);
    // The younger one is touched before the other.
    await world.postgres.query(sql.unsafe`
      update files set touched_at = touched_at - interval '1 minute' where id = ${far[1] ?? ""}
    `);
    let skew = 0;
    const timedOut = Promise.withResolvers<never>();
    const asked: string[] = [];
    const place = new PostgresContents(world.postgres);
    const s3: PostgresContents = Object.assign(Object.create(place) as PostgresContents, {
      storage: "s3",
      remove: (id: string) => {
        asked.push(id);
        return timedOut.promise;
      },
    });
    const store = new FileStore({
      postgres: world.postgres,
      contents: place,
      others: [s3],
      clock: { now: () => Date.now() + skew },
      newId,
      limitsOf: () => sampleStorage,
    });
    const swept = store.sweep();
    await expect.poll(async () => [await world.chunks(near), asked.length]).toEqual([0, 1]);
    skew = 60_000;
    timedOut.reject(new Error("away"));
    await expect(swept).rejects.toThrow("away");
    expect(asked).toEqual([far[1]]);
    // The next sweep begins with another, however that one fares.
    skew += 1;
    await expect(store.sweep()).rejects.toThrow("away");
    expect(asked.slice(0, 2)).toEqual(far.toReversed());
    await world.postgres.query(sql.unsafe`delete from files where storage = 's3'`);
  });

  test("40 MiB stream through with flat memory", async () => {
    const size = 40 * 1024 * 1024;
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    let most = 0;
    const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss)), 20);
    const { status, body } = await world.upload(
      form(new Uint8Array(size), "big.bin", {}, "application/octet-stream"),
    );
    clearInterval(watch);
    expect({ status, bytes: body["bytes"] }).toEqual({ status: 200, bytes: size });
    // The test's own copies of the form are in this figure too.
    expect(most - before).toBeLessThan(8 * size);
    expect(await world.chunks(body.id)).toBe(40);
    await world.server.fetch(`/v1/files/${body.id}`, { method: "DELETE" });
    expect(await world.chunks(body.id)).toBe(0);
  });
});
