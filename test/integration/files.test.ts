/** Files through the official SDKs and by hand: contents, lists, whose they are, how they expire. */
import Anthropic, { toFile as anthropicFile } from "@anthropic-ai/sdk";
import { buffer } from "node:stream/consumers";
import OpenAI, { toFile } from "openai";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { FileStore, type FileReader } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { S3Contents } from "../../dataplane/files/s3-contents.ts";
import { AnswerTurns, readingWith } from "../../dataplane/http/answer-turns.ts";
import { fileRoutes } from "../../dataplane/http/routes/files.ts";
import { inlineFiles } from "../../dataplane/inference/request/file-references.ts";
import { openBody } from "../../dataplane/inference/request/request-body.ts";
import { Cancellation } from "../../dataplane/lib/cancellation.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sampleKeys, sampleStorage } from "../fakes/sample-snapshot.ts";
import { startTestServer } from "../fakes/test-server.ts";
import { openFilesWorld, type FilesWorld } from "./files-world.ts";

const DAY = 24 * 3_600_000;
/** Whose key the world's uploads come with. */
const organization = "org_acme";
let world: FilesWorld;
beforeAll(async () => {
  world = await openFilesWorld();
});
afterAll(() => world[Symbol.asyncDispose]());

const foreign = { authorization: `Bearer ${sampleKeys.narrow}` };
const versioned = { "anthropic-version": "2023-06-01" };

describe("the official SDKs", () => {
  test("OpenAI: create, list, retrieve, content, delete", async () => {
    const client = new OpenAI({
      apiKey: sampleKeys.inference,
      baseURL: `${world.server.url}/v1`,
      maxRetries: 0,
    });
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
    const client = new Anthropic({ apiKey: sampleKeys.inference, baseURL: world.server.url, maxRetries: 0 });
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
    for await (const file of client.beta.files.list({ limit: 2, ids: null })) listed.push(file.id);
    expect(listed).toContain(made.id);
    expect(await (await client.beta.files.download(made.id)).text()).toBe("%PDF-1.4");
    expect(await client.beta.files.delete(made.id)).toMatchObject({ id: made.id, type: "file_deleted" });
  });
});

describe("content", () => {
  test("type, disposition, length, and no sniffing", async () => {
    const id = await world.idOf("<script>", "we'ird 日.html", {}, "text/html");
    const answer = await world.server.fetch(`/v1/files/${id}/content`, {
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
    const id = await world.idOf("0123456789");
    const answer = await world.server.fetch(`/v1/files/${id}/content`, { headers: { range } });
    expect({
      status: answer.status,
      body: await answer.text(),
      range: answer.headers.get("content-range"),
    }).toEqual({ status, body, range: contentRange });
  });
});

test.each(['"abc"', 'W/"abc"', "Wed, 21 Oct 2015 07:28:00 GMT", "*", ""])(
  "RFC 9110 13.1.5: If-Range (%j) matches nothing, as no validator is handed out: the whole file",
  async (validator) => {
    const id = await world.idOf("0123456789");
    for (const range of ["bytes=0-4", "bytes=10-"]) {
      const answer = await world.server.fetch(`/v1/files/${id}/content`, {
        headers: { range, "if-range": validator },
      });
      expect([answer.status, await answer.text()]).toEqual([200, "0123456789"]);
      for (const name of ["content-range", "etag", "last-modified"])
        expect(answer.headers.get(name)).toBeNull();
    }
  },
);

describe("a file that is deleted while it is read", () => {
  test("is gone, and no fault of ours", async () => {
    const id = await world.idOf("0123456789");
    const file = await world.store.get(organization, id);
    await world.store.delete(organization, id);
    await expect(buffer(world.store.read(file))).rejects.toMatchObject({ code: "not_found" });
  });

  test("is so for a request that names it, too", async () => {
    const id = await world.idOf("%PDF", "a.pdf", {}, "application/pdf");
    const files: FileReader = {
      find: (...asked) => world.store.find(...asked),
      read: (file) => {
        const deleted = world.store.delete(organization, id);
        return (async function* () {
          await deleted;
          yield* world.store.read(file);
        })();
      },
    };
    const source = { type: "file", file_id: id };
    const body = Buffer.from(
      JSON.stringify({
        model: "m",
        max_tokens: 9,
        messages: [{ role: "user", content: [{ type: "document", source }] }],
      }),
    );
    const opened = await openBody("messages", body, {
      pool: null,
      organizationId: organization,
      closed: new Cancellation(),
    });
    await expect(inlineFiles(opened, organization, files, () => undefined)).rejects.toMatchObject({
      code: "not_found",
    });
  });

  test("its download is 404 before its first byte, in the words of an error", async () => {
    const id = await world.idOf("<p>", "a.html", {}, "text/html");
    await world.postgres.query(sql.unsafe`delete from file_chunks where file_id = ${id}`);
    const read = vi.spyOn(world.store, "read").mockImplementation(async function* (file) {
      await world.store.delete(organization, id);
      yield* FileStore.prototype.read.call(world.store, file);
    });
    const answer = await world.server.fetch(`/v1/files/${id}/content`);
    read.mockRestore();
    expect([answer.status, answer.headers.get("content-disposition")]).toEqual([404, null]);
    expect(await answer.json()).toMatchObject({ error: { message: expect.stringContaining(id) as string } });
  });
});

test("contents in a storage that is away are 503, to be asked for again", async () => {
  const away = new FileStore({
    postgres: world.postgres,
    contents: new PostgresContents(world.postgres),
    others: [new S3Contents("http://KEY:SECRET@127.0.0.1:1/files")],
    clock: world.clock,
    newId,
    limitsOf: () => sampleStorage,
  });
  await using server = await startTestServer([fileRoutes(away, new AnswerTurns(readingWith(10)))]);
  const id = await world.idOf("0123456789");
  await world.postgres.query(sql.unsafe`update files set storage = 's3' where id = ${id}`);
  const answer = await server.fetch(`/v1/files/${id}/content`);
  await world.postgres.query(sql.unsafe`update files set storage = 'postgres' where id = ${id}`);
  expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "1"]);
  expect(await answer.json()).toMatchObject({ error: { code: "server_is_overloaded" } });
});

test("HEAD of a file's content tells its length without reading it", async () => {
  const id = await world.idOf("0123456789");
  const read = vi.spyOn(world.store, "read");
  const answer = await world.server.fetch(`/v1/files/${id}/content`, { method: "HEAD" });
  expect({ status: answer.status, length: answer.headers.get("content-length") }).toEqual({
    status: 200,
    length: "10",
  });
  // Ranges are defined for GET alone (RFC 9110 §14.2).
  for (const range of ["bytes=2-5", "bytes=10-"]) {
    const part = { method: "HEAD", headers: { range } };
    const { status, headers } = await world.server.fetch(`/v1/files/${id}/content`, part);
    const told = [status, headers.get("content-length"), headers.get("content-range")];
    expect([range, ...told]).toEqual([range, 200, "10", null]);
  }
  expect(read).not.toHaveBeenCalled();
  read.mockRestore();
});

describe("lists", () => {
  test("both styles page through everything, newest first, in exact upload order", async () => {
    const ids: string[] = [];
    for (let index = 0; index < 7; index += 1)
      ids.push(await world.idOf("x", `l${index}.txt`, { purpose: "fine-tune" }));
    const newest = ids.toReversed();
    const page = async (query: string) =>
      (await (await world.other.fetch(`/v1/files?purpose=fine-tune&${query}`)).json()) as {
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
    expect(await idsOf(`ids[0]=${ids[0]}&ids[1]=${ids[2]}`)).toEqual([ids[2], ids[0]]);
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
    const answer = await world.server.fetch(`/v1/files?${query}`);
    expect({ status: answer.status, body: await answer.json() }).toMatchObject({
      status: 400,
      body: { error: { param } },
    });
  });

  test.each(["OpenAI", "Anthropic"])("%s' SDK deletes each file while it pages through them", async (sdk) => {
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1) ids.push(await world.idOf("x", "a.txt", { purpose: "vision" }));
    const client = { apiKey: sampleKeys.inference, maxRetries: 0 };
    const deleted: string[] = [];
    if (sdk === "OpenAI") {
      const { files } = new OpenAI({ ...client, baseURL: `${world.server.url}/v1` });
      for await (const { id } of files.list({ purpose: "vision", limit: 2 }))
        deleted.push((await files.delete(id)).id);
    } else {
      const { files } = new Anthropic({ ...client, baseURL: world.server.url }).beta;
      for await (const { id } of files.list({ limit: 2 }))
        if (ids.includes(id)) deleted.push((await files.delete(id)).id);
    }
    expect(deleted).toEqual(ids.toReversed());
  });

  test("a client may delete what it lists: pages go on behind a deleted file for an hour, to nobody else", async () => {
    const ids = [];
    for (let n = 0; n < 5; n += 1) ids.push(await world.idOf("x", "a.txt", { purpose: "evals" }));
    const [oldest, , middle, , newest] = ids;
    const page = async (query: string, headers = {}) => {
      const answer = await world.server.fetch(`/v1/files?purpose=evals&limit=2&${query}`, { headers });
      const { data } = (await answer.json()) as { data?: { id: string }[] };
      return data?.map(({ id }) => id) ?? answer.status;
    };
    const deleted = ids.slice(2, 4);
    for (const id of deleted) await world.server.fetch(`/v1/files/${id}`, { method: "DELETE" });
    const answers = async () => [
      await page(`after=${middle}`),
      await page(`after_id=${middle}`),
      await page(`page=${Buffer.from(String(middle)).toString("base64url")}`),
      await page(`before_id=${middle}`),
      await page(`after=${middle}&order=asc`),
    ];
    const found = [ids.slice(0, 2).toReversed(), ids.slice(0, 2).toReversed(), ids.slice(0, 2).toReversed()];
    expect(await answers()).toEqual([...found, [newest], [newest]]);
    await world.store.sweep();
    expect(await answers()).toEqual([...found, [newest], [newest]]);
    expect(await page(`after=${middle}`, foreign)).toBe(400);
    expect((await world.server.fetch(`/v1/files/${middle}`)).status).toBe(404);
    expect(await world.chunks(String(middle))).toBe(0);
    expect(await page(`after=${oldest}`)).toEqual([]);
    world.clock.skew = 3_600_000 + 60_000;
    await world.store.sweep();
    world.clock.skew = 0;
    expect(await page(`after=${middle}`)).toBe(400);
  });

  test("whoever deletes files as fast as they are made leaves no rows behind: one sweep forgets thousands", async () => {
    await world.postgres.query(sql.unsafe`
      insert into files
        (id, organization_id, state, position, filename, mime_type, purpose, storage, created_at, touched_at, emptied)
      select 'file_gone_' || n, 'org_gone', 'removed', n, 'a', 'text/plain', 'evals', 'postgres',
        now() - interval '2 hours', now() - interval '2 hours', true
      from generate_series(1, 1700) n
    `);
    await world.store.sweep();
    const { rows } = await world.postgres.query(
      sql.unsafe`select from files where organization_id = 'org_gone'`,
    );
    expect(rows).toEqual([]);
  });

  test("files that are asked for by their ids are one page, each id counted once", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 25; n += 1) ids.push(await world.idOf("x", "i.txt", { purpose: "vision" }));
    const client = new Anthropic({ apiKey: sampleKeys.inference, baseURL: world.server.url, maxRetries: 0 });
    const whole = await client.files.list({ ids });
    expect(whole.data.map(({ id }) => id)).toEqual(ids.toReversed());
    expect(whole.next_page).toBeNull();
    const repeated = await client.files.list({ ids: Array.from({ length: 5 }, () => ids).flat() });
    expect(repeated.data.map(({ id }) => id)).toEqual(ids.toReversed());
    const limited = await client.files.list({ ids, limit: 3 });
    expect(limited.data).toHaveLength(3);
    expect(limited.next_page).not.toBeNull();
  });

  test("a page deep in 100,000 files costs what the first one costs", async () => {
    await world.postgres.query(sql.unsafe`
      insert into files (id, organization_id, state, position, filename, mime_type, purpose, storage, created_at, touched_at)
      select 'file_bulk' || n, 'org_bulk', 'ready', nextval('files_position'), 'f', 'text/plain', 'user_data', 'postgres', now(), now()
      from generate_series(1, 100000) as n
    `);
    await world.postgres.query(sql.unsafe`analyze files`);
    const plan = await world.postgres.any(sql.unsafe`
      explain select id from files where organization_id = 'org_bulk' and state = 'ready'
        and position < (select position from files where id = 'file_bulk50000') order by position desc limit 21
    `);
    expect(JSON.stringify(plan)).toContain("Index Scan");
    expect(JSON.stringify(plan)).not.toContain("Seq Scan on files");
    const first = await world.store.list({
      organizationId: "org_bulk",
      purpose: null,
      ids: null,
      limit: 20,
      order: "desc",
      cursor: { side: "after", id: "file_bulk500" },
    });
    expect(first?.items[0]?.id).toBe("file_bulk499");
  });
});

describe("rule 4.16: organizations never see each other's files", () => {
  test.each([
    ["GET", ""],
    ["DELETE", ""],
    ["GET", "/content"],
  ])("%s /v1/files/{id}%s of another organization reads like an unknown one", async (method, suffix) => {
    const id = await world.idOf();
    const ask = async (name: string) => {
      const answer = await world.server.fetch(`/v1/files/${name}${suffix}`, { method, headers: foreign });
      return {
        status: answer.status,
        text: (await answer.text()).replaceAll(name, "ID").replaceAll(/req_\w+/g, "REQ"),
      };
    };
    expect(await ask(id)).toEqual(await ask("file_unknown"));
    expect((await ask(id)).status).toBe(404);
    expect((await world.server.fetch(`/v1/files/${id}`)).status).toBe(200);
  });

  test("lists hold only one's own, and another's id is an unknown cursor", async () => {
    const id = await world.idOf();
    const listed = (await (
      await world.server.fetch("/v1/files?limit=1000", { headers: foreign })
    ).json()) as {
      data: { id: string }[];
    };
    expect(listed.data.map((file) => file.id)).not.toContain(id);
    expect((await world.server.fetch(`/v1/files?after=${id}`, { headers: foreign })).status).toBe(400);
  });

  test.each(["file_%00", "..%2f..", "file_'; drop table files", "x".repeat(900)])(
    "a malformed id %s is 404",
    async (id) => {
      expect((await world.server.fetch(`/v1/files/${encodeURI(id).replaceAll("%25", "%")}`)).status).toBe(
        404,
      );
    },
  );
});

describe("expiry", () => {
  test("an expired file is 404 file_expired at once, leaves lists, and the sweep takes its contents", async () => {
    const before = await world.idOf("x", "before.txt");
    const id = await world.idOf("x", "a.txt", { expires_in_seconds: "3600" });
    world.clock.skew = 2 * 3_600_000;
    const expired = async () => {
      const answer = await world.server.fetch(`/v1/files/${id}`, { headers: versioned });
      return { status: answer.status, body: await answer.json() };
    };
    expect(await expired()).toMatchObject({
      status: 404,
      body: { error: { type: "not_found_error", details: { error_code: "file_expired" } } },
    });
    expect(await (await world.server.fetch("/v1/files?limit=10000")).text()).not.toContain(id);
    // Whoever listed it while it lived goes on behind it.
    const after = async () => {
      const page = (await (await world.server.fetch(`/v1/files?after=${id}&limit=1`)).json()) as {
        data: { id: string }[];
      };
      return page.data.map((file) => file.id);
    };
    expect(await after()).toEqual([before]);
    await world.store.sweep();
    expect(await after()).toEqual([before]);
    expect(await world.chunks(id)).toBe(0);
    expect(await expired()).toMatchObject({
      status: 404,
      body: { error: { details: { error_code: "file_expired" } } },
    });
    world.clock.skew = 40 * DAY;
    await world.store.sweep();
    world.clock.skew = 0;
    expect((await world.server.fetch(`/v1/files/${id}`)).status).toBe(404);
    expect((await world.server.fetch(`/v1/files?after=${id}`)).status).toBe(400);
  });

  test("rule 7.8: thousands that expire before another's file do not keep its room for another hour", async () => {
    await world.postgres.query(sql.unsafe`
      insert into files
        (id, organization_id, state, position, filename, mime_type, purpose, storage, created_at, touched_at, expires_at, stored_bytes)
      select 'file_over_' || n, case when n = 1700 then 'org_one' else 'org_flood' end, 'ready', nextval('files_position'), 'a',
        'text/plain', 'evals', 'postgres', now() - interval '2 hours', now(), now() - interval '1 hour' + n * interval '1 second', 10
      from generate_series(1, 1700) n
    `);
    await world.postgres.query(sql.unsafe`
      insert into storage (organization_id, bytes, files) values ('org_one', 10, 1), ('org_flood', 16990, 1699)
    `);
    await world.store.sweep();
    const { rows } = await world.postgres.query(
      sql.unsafe`select bytes, files from storage where organization_id in ('org_one', 'org_flood')`,
    );
    expect(rows).toEqual([1, 2].map(() => ({ bytes: 0n, files: 0n })));
  });
});

test("the version header decides the style of bodies and times", async () => {
  const id = await world.idOf();
  const plain = (await (await world.server.fetch(`/v1/files/${id}`)).json()) as Record<string, unknown>;
  const messages = (await (
    await world.server.fetch(`/v1/files/${id}`, { headers: { "vendor-version": "2023-06-01" } })
  ).json()) as Record<string, unknown>;
  expect(typeof plain["created_at"]).toBe("number");
  expect(messages["created_at"]).toMatch(/Z$/);
  expect({ ...plain, created_at: 0 }).toEqual({ ...messages, created_at: 0 });
});
