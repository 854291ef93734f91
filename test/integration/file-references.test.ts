import { sql, type DatabasePool } from "slonik";
import type { Dispatcher } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import { withFileReferences } from "../../dataplane/inference/request/file-references.ts";
import { createServe } from "../../dataplane/inference/serve.ts";
import type { Serve } from "../../dataplane/inference/call.ts";
import { ApiError } from "../../dataplane/lib/api-error.ts";
import { systemClock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { sealing } from "../../dataplane/lib/seal.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { Upstreams } from "../../dataplane/upstream/upstreams.ts";
import { newUpstreamDispatcher } from "../../dataplane/upstream/dispatcher.ts";
import { callOf, routeTo, snapshotOf, upstreamOf } from "../fakes/inference.ts";
import { noTools } from "../fakes/no-tools.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, type FakeUpstream } from "../fakes/upstream/server.ts";
import { sampleStorage } from "../fakes/sample-snapshot.ts";
import { freshDatabase, type TestDatabase } from "./stores.ts";

let database: TestDatabase;
let postgres: DatabasePool;
let files: FileStore;
let fake: FakeUpstream;
let dispatcher: Dispatcher;
let serve: Serve;
const ids: Record<string, string> = {};

async function store(
  organizationId: string,
  bytes: Buffer,
  filename: string,
  mimeType: string,
): Promise<string> {
  async function* source(): AsyncIterable<Buffer> {
    yield bytes;
  }
  const file = await files.create(organizationId, source(), () => ({
    filename,
    mimeType,
    purpose: "user_data",
    expiresAt: null,
  }));
  return file.id;
}

beforeAll(async () => {
  database = await freshDatabase();
  postgres = await openPostgres(database.url, { onError: () => {} });
  files = new FileStore({
    postgres,
    contents: new PostgresContents(postgres),
    clock: systemClock,
    newId,
    limitsOf: () => sampleStorage,
  });
  fake = await startUpstream();
  dispatcher = newUpstreamDispatcher();
  serve = withFileReferences(
    createServe(new Upstreams(dispatcher), sealing([{ id: "test", key: Buffer.alloc(32) }]), noTools),
    files,
  );
  ids["png"] = await store("org_a", Buffer.from("PNG!"), "p.png", "image/png");
  ids["pdf"] = await store("org_a", Buffer.from("%PDF"), "d.pdf", "application/pdf");
  ids["txt"] = await store("org_a", Buffer.from("grüße"), "t.txt", "text/plain");
  ids["json"] = await store("org_a", Buffer.from('{"a":1}'), "a.json", "application/json");
  ids["jpg"] = await store("org_a", Buffer.from("JPG!"), "p.jpg", "image/jpg");
  ids["foreign"] = await store("org_b", Buffer.from("PNG!"), "p.png", "image/png");
  ids["long"] = await store("org_a", Buffer.alloc(25 * 1024 * 1024, "long "), "l.txt", "text/plain");
  ids["lines"] = await store("org_a", Buffer.alloc(17 * 1024 * 1024, "\n"), "n.txt", "text/plain");
  ids["big"] = await store("org_a", Buffer.alloc(25 * 1024 * 1024), "b.png", "image/png");
});
beforeEach(() => fake.reset());
afterAll(async () => {
  await dispatcher.destroy();
  await fake.close();
  await postgres.end();
  await database.drop();
});

const png = Buffer.from("PNG!").toString("base64");
const jpg = Buffer.from("JPG!").toString("base64");
const pdf = Buffer.from("%PDF").toString("base64");
const block = (type: string, id: string) => ({ type, source: { type: "file", file_id: id } });
/** Names of the files above as their ids. */
const resolved = (part: object) =>
  JSON.parse(
    JSON.stringify(part).replace(/"file_id":"(\w+)"/, (_all, id: string) => `"file_id":"${ids[id] ?? id}"`),
  ) as object;
const bodies: Record<Dialect, (...parts: object[]) => object> = {
  messages: (...parts) => ({
    model: "public-model",
    max_tokens: 9,
    messages: [{ role: "user", content: parts }],
  }),
  chat: (...parts) => ({ model: "public-model", messages: [{ role: "user", content: parts }] }),
  responses: (...parts) => ({ model: "public-model", input: [{ role: "user", content: parts }] }),
};

async function ask(
  dialect: Dialect,
  upstream: Dialect,
  body: string | object,
  batchId: string | null = null,
) {
  fake.next(text("ok"));
  const call = callOf(dialect, snapshotOf([routeTo([upstreamOf(fake.url, upstream)])]), body);
  const error = await serve({ ...call, batchId }).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error !== null && !(error instanceof ApiError)) throw error;
  return {
    error,
    sent: JSON.stringify(fake.requests[0]?.json() ?? null),
    meter: call.meter,
    model: call.summary.askedModel,
  };
}

describe("rule 2.10: own files are inlined on every path, our ids never go upstream", () => {
  const cases: readonly (readonly [Dialect, object, string])[] = [
    ["messages", block("image", "png"), png],
    ["messages", block("document", "pdf"), pdf],
    ["messages", block("document", "txt"), "grüße"],
    ["messages", block("document", "json"), String.raw`{\"a\":1}`],
    ["messages", block("image", "jpg"), jpg],
    ["chat", { type: "file", file: { file_id: "pdf" } }, `data:application/pdf;base64,${pdf}`],
    [
      "chat",
      { type: "image_url", image_url: { file_id: "png", detail: "low" } },
      `"url":"data:image/png;base64,${png}`,
    ],
    ["responses", { type: "input_image", file_id: "png", detail: "low" }, `data:image/png;base64,${png}`],
    ["responses", { type: "input_image", file_id: "jpg" }, `data:image/jpeg;base64,${jpg}`],
    ["responses", { type: "input_file", file_id: "pdf" }, `data:application/pdf;base64,${pdf}`],
  ];
  const upstreams = ["messages", "chat", "responses"] as const;
  test.each(cases.flatMap((row) => upstreams.map((upstream) => [...row, upstream] as const)))(
    "%s client, %j (%s) over a %s upstream",
    async (dialect, part, expected, upstream) => {
      const { error, sent } = await ask(dialect, upstream, bodies[dialect](resolved(part)));
      expect(error).toBeNull();
      expect(sent).toContain(dialect === upstream ? expected : expected.split(",").at(-1));
      expect(sent).not.toContain("file_id");
      for (const id of Object.values(ids)) expect(sent).not.toContain(id);
    },
  );

  test.each([
    "file\\u005fid",
    "file\\u005Fid",
    "\\u0066ile_id",
    "f\\u0069\\u006Ce_i\\u0064",
    "\\u0066\\u0069\\u006c\\u0065\\u005f\\u0069\\u0064",
  ])("a key that is written with escapes (%s) names a file too", async (key) => {
    for (const [dialect, part, data] of cases) {
      fake.reset();
      const body = JSON.stringify(bodies[dialect](resolved(part))).replace('"file_id"', `"${key}"`);
      const { error, sent } = await ask(dialect, dialect, body);
      expect(error).toBeNull();
      expect(sent).toContain(data);
      expect(sent).not.toContain("file_id");
    }
  });

  test("150 different files in one request, and one of them 300 times", async () => {
    const many = await Promise.all(
      Array.from({ length: 150 }, (_, index) =>
        store("org_a", Buffer.from(`picture ${index}`), "p.png", "image/png"),
      ),
    );
    const first = Array.from({ length: 300 }, () => many[0] ?? "");
    const parts = [...many, ...first].map((id) => block("image", id));
    const { error } = await ask("messages", "messages", bodies.messages(...parts));
    expect(error).toBeNull();
    const sent = fake.requests[0]?.json() as { messages: { content: { source: { data: string } }[] }[] };
    const pictures = parts.map((_, index) =>
      Buffer.from(`picture ${index < 150 ? index : 0}`).toString("base64"),
    );
    expect(sent.messages[0]?.content.map(({ source }) => source.data)).toEqual(pictures);
  });

  test("a body that begins with a byte order mark", async () => {
    const { error, sent } = await ask(
      "messages",
      "messages",
      `\ufeff${JSON.stringify(bodies.messages(resolved(block("image", "png"))))}`,
    );
    expect(error).toBeNull();
    expect(sent).toContain(png);
  });

  test("every other byte of a relayed body stays as it was", async () => {
    const body = `{ "model":"public-model","max_tokens" : 9,  "big": 12345678901234567890, "messages":[{"role":"user","content":[ {"type":"image", "source": { "file_id" : "${ids["png"]}", "type":"file" } , "x":{"a":1.0}}]}]}`;
    await ask("messages", "messages", body);
    const sent = fake.requests[0]?.body.toString() ?? "";
    expect(sent).toContain(
      '"big": 12345678901234567890, "messages":[{"role":"user","content":[ {"type":"image", "source": {',
    );
    expect(sent).toContain(' , "x":{"a":1.0}}]}]}');
  });
});

describe("refused before anything is held or sent", () => {
  test.each<[string, Dialect, object, string, string]>([
    [
      "an unknown id",
      "messages",
      block("image", "file_unknown"),
      "not_found",
      "messages.0.content.0.source.file_id",
    ],
    [
      "a foreign id",
      "messages",
      block("image", "foreign"),
      "not_found",
      "messages.0.content.0.source.file_id",
    ],
    [
      "a PDF as an image",
      "messages",
      block("image", "pdf"),
      "unsupported_content",
      "messages.0.content.0.source.file_id",
    ],
    [
      "a picture as a document",
      "messages",
      block("document", "png"),
      "unsupported_content",
      "messages.0.content.0.source.file_id",
    ],
    [
      "an unknown id",
      "responses",
      { type: "input_image", file_id: "file_x" },
      "not_found",
      "input[0].content[0].file_id",
    ],
    [
      "a PDF as an image",
      "chat",
      { type: "image_url", image_url: { file_id: "pdf" } },
      "unsupported_content",
      "messages[0].content[0].image_url.file_id",
    ],
    [
      "sound, which is sent as it is",
      "chat",
      { type: "input_audio", input_audio: { file_id: "png" } },
      "unsupported_content",
      "messages[0].content[0].input_audio.file_id",
    ],
    [
      "an unknown id",
      "chat",
      { type: "file", file: { file_id: "file_x" } },
      "not_found",
      "messages[0].content[0].file.file_id",
    ],
  ])("%s (%s)", async (_name, dialect, part, code, param) => {
    const { error, sent, meter } = await ask(dialect, dialect, bodies[dialect](resolved(part)));
    expect(error).toMatchObject({ code, param });
    expect({ sent, opened: meter.opened }).toEqual({ sent: "null", opened: [] });
  });

  test.each(["png", "pdf", "txt", "file_unknown"])(
    "a container_upload is refused as such whatever it names (%s), live and in a batch",
    async (name) => {
      const body = bodies.messages(resolved({ type: "container_upload", file_id: name }));
      for (const batchId of [null, "msgbatch_1"]) {
        const { error, sent, meter } = await ask("messages", "messages", body, batchId);
        expect(error).toMatchObject({
          code: "unsupported_content",
          message: 'messages.0.content.0: "container_upload" is not supported here',
        });
        expect({ sent, opened: meter.opened }).toEqual({ sent: "null", opened: [] });
      }
    },
  );

  test.each(["document", "image", "text", "of_tomorrow"])(
    "a PDF beside the type of a block (%s), and not in its source, is not put there",
    async (type) => {
      const { error, sent } = await ask(
        "messages",
        "messages",
        bodies.messages(resolved({ type, file_id: "pdf" })),
      );
      expect(error).toMatchObject({ code: "unsupported_content", param: "messages.0.content.0.file_id" });
      expect(sent).toBe("null");
    },
  );

  test("an object that names a file and holds more than 8 KiB beside it is not parsed, but refused", async () => {
    const padded = {
      ...block("image", "png"),
      source: { type: "file", file_id: "png", x: "a".repeat(9_000) },
    };
    const { error, meter } = await ask("messages", "messages", bodies.messages(resolved(padded)));
    expect(error).toMatchObject({ code: "invalid_value", param: "file_id" });
    expect(meter.opened).toEqual([]);
  });

  test("an object that names a file within one that does is refused", async () => {
    const inner = { content: [resolved(block("image", "png"))] };
    for (const source of [
      { type: "file", file_id: ids["txt"], ...inner },
      { ...inner, type: "file", file_id: ids["txt"] },
    ]) {
      const { error } = await ask("messages", "messages", bodies.messages({ type: "document", source }));
      expect(error).toMatchObject({ code: "invalid_value", param: "file_id" });
    }
  });

  test("more than 2,000 different files are one 400 that says so, and not unknown", async () => {
    const parts = Array.from({ length: 2_001 }, (_, index) => block("image", `file_${index}`));
    const { error, sent, model } = await ask("messages", "messages", bodies.messages(...parts));
    expect(model).toBe("public-model");
    expect(error).toMatchObject({
      code: "invalid_value",
      message: "messages.0.content.2000.source.file_id: a request can name at most 2000 files",
    });
    expect(sent).toBe("null");
  });

  test("rule 1.17: more than 32 MiB after the files are in is 413", async () => {
    const { error } = await ask("messages", "messages", bodies.messages(resolved(block("image", "big"))));
    expect(error).toMatchObject({ code: "too_large", param: "messages.0.content.0.source.file_id" });
    // A text is no base64, so it adds what it is.
    const long = resolved(block("document", "long"));
    const { error: none, sent } = await ask("messages", "messages", bodies.messages(long));
    expect(none).toBeNull();
    expect(sent.length).toBeGreaterThan(25 * 1024 * 1024);
    const twice = await ask("messages", "messages", bodies.messages(long, long));
    expect(twice.error).toMatchObject({ code: "too_large", param: "messages.0.content.1.source.file_id" });
    // As it is escaped: each of its line ends takes two bytes.
    const lines = resolved(block("document", "lines"));
    const short = resolved(block("document", "json"));
    const escaped = await ask("messages", "messages", bodies.messages(short, lines));
    expect(escaped.error).toMatchObject({ code: "too_large", param: "messages.0.content.1.source.file_id" });
  });

  test.each([
    ["deleted", "not_found", "no file with the id"],
    ["expired", "file_expired", "has expired"],
  ])("a file that is %s while it is asked for is 404 naming the field", async (how, code, words) => {
    const id = await store("org_a", Buffer.from("PNG!"), "p.png", "image/png");
    const end = async () => {
      if (how === "deleted") await files.delete("org_a", id);
      else {
        await postgres.query(
          sql.unsafe`update files set expires_at = now() - interval '1 hour' where id = ${id}`,
        );
        await files.sweep();
      }
    };
    const find: FileStore["find"] = async (...asked) => {
      const found = await files.find(...asked);
      await end();
      return found;
    };
    const body = bodies.messages({ type: "text", text: "a" }, block("image", id));
    const asking = async (reader: Pick<FileStore, "find" | "read">) => {
      const call = callOf("messages", snapshotOf([routeTo([upstreamOf(fake.url, "messages")])]), body);
      return await withFileReferences(serve, reader)(call).catch((error: unknown) => error);
    };
    const field = "messages.0.content.1.source.file_id";
    const told = { code, param: field, message: expect.stringMatching(new RegExp(`^${field}: .*${words}`)) };
    // Between the look and the reading, and before both.
    expect(await asking({ find, read: (file, ...rest) => files.read(file, ...rest) })).toMatchObject(told);
    expect(await asking(files)).toMatchObject(told);
    expect(fake.requests).toEqual([]);
  });
});
