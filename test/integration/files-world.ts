/** The files paths of two data planes on one store, with a clock that a test can put forward. */
import { sql, type DatabasePool } from "slonik";
import { z } from "zod";
import { FileStore } from "../../dataplane/files/file-store.ts";
import { PostgresContents } from "../../dataplane/files/postgres-contents.ts";
import type { StorageLimits } from "../../dataplane/files/storage.ts";
import { AnswerTurns, readingWith } from "../../dataplane/http/answer-turns.ts";
import { fileRoutes } from "../../dataplane/http/routes/files.ts";
import type { Clock } from "../../dataplane/lib/clock.ts";
import { newId } from "../../dataplane/lib/ids.ts";
import { openPostgres } from "../../dataplane/store/postgres.ts";
import { sampleStorage } from "../fakes/sample-snapshot.ts";
import { startTestServer, type TestServer } from "../fakes/test-server.ts";
import { freshDatabase } from "./stores.ts";

/** The upload of one file. */
export function form(
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

export interface FilesWorld extends AsyncDisposable {
  readonly postgres: DatabasePool;
  readonly store: FileStore;
  readonly server: TestServer;
  /** A second data plane on the same stores. */
  readonly other: TestServer;
  /** `skew`: how many milliseconds it is ahead. */
  readonly clock: Clock & { skew: number };
  upload(
    data?: FormData,
    headers?: Record<string, string>,
  ): Promise<{ status: number; body: Record<string, unknown> & { id: string } }>;
  /** Uploads `form(...)`. @returns its id. */
  idOf(...args: Parameters<typeof form>): Promise<string>;
  /** How many files are being written. */
  writing(): Promise<number>;
  /** How many pieces are stored of a file. */
  chunks(id: string): Promise<number>;
}

export async function openFilesWorld(limits: StorageLimits = sampleStorage): Promise<FilesWorld> {
  const database = await freshDatabase();
  const postgres = await openPostgres(database.url, { onError: () => {} });
  const clock = { skew: 0, now: () => Date.now() + clock.skew };
  const make = () =>
    new FileStore({
      postgres,
      contents: new PostgresContents(postgres),
      clock,
      newId,
      limitsOf: () => limits,
    });
  const store = make();
  const server = await startTestServer([fileRoutes(store, new AnswerTurns(readingWith(10)))]);
  const other = await startTestServer([fileRoutes(make(), new AnswerTurns(readingWith(10)))]);
  const count = async (rows: ReturnType<typeof sql.fragment>) =>
    Number(await postgres.oneFirst(sql.type(z.object({ n: z.bigint() }))`select count(*) as n ${rows}`));
  const upload: FilesWorld["upload"] = async (data = form(), headers = {}) => {
    const answer = await server.fetch("/v1/files", { method: "POST", body: data, headers });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> & { id: string } };
  };
  return {
    postgres,
    store,
    server,
    other,
    clock,
    upload,
    idOf: async (...args) => (await upload(form(...args))).body.id,
    writing: () => count(sql.fragment`from files where state = 'writing'`),
    chunks: (id) => count(sql.fragment`from file_chunks where file_id = ${id}`),
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await other[Symbol.asyncDispose]();
      await postgres.end();
      await database.drop();
    },
  };
}
