/** Rule 7.8: what an organization keeps has a limit, exact at any moment, and given back with what is taken away. */
import { connect } from "node:net";
import { sql } from "slonik";
import { z } from "zod";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { reconcileStorage } from "../../dataplane/batches/reconcile-storage.ts";
import { storageOf } from "../../dataplane/files/storage.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { form, openFilesWorld, type FilesWorld } from "./files-world.ts";

const MiB = 1024 * 1024;
const organization = "org_acme";
const limits = { maxBytes: 10 * MiB, maxFiles: 5 };

let world: FilesWorld;
beforeEach(async () => {
  limits.maxBytes = 10 * MiB;
  limits.maxFiles = 5;
  world = await openFilesWorld(limits);
});
afterEach(async () => {
  // Whatever happened, what is counted is what is there.
  expect(await reconcileStorage(world.postgres)).toEqual([]);
  await world[Symbol.asyncDispose]();
});

const kept = () => storageOf(world.postgres, organization);
const bytes = (count: number) => new Uint8Array(count);
const chunks = () =>
  world.postgres.oneFirst(sql.type(z.object({ n: z.int() }))`select count(*)::int4 as n from file_chunks`);
const full = (used: number, files: number) => ({
  status: 400,
  body: {
    error: {
      code: "storage_limit_reached",
      message: expect.stringContaining(
        `storage has no room for this: ${used} of ${limits.maxBytes} bytes and ${files} of ${limits.maxFiles} files`,
      ) as string,
    },
  },
});
const eventually = async (check: () => Promise<boolean>) => {
  for (const deadline = Date.now() + 10_000; !(await check());) {
    if (Date.now() > deadline) throw new Error("it never came to that");
    await new Promise((done) => setTimeout(done, 20));
  }
};

test("the last byte fits, one more does not, and nothing of it stays", async () => {
  await world.idOf(bytes(6 * MiB));
  expect(await world.upload(form(bytes(4 * MiB + 1)))).toMatchObject(full(6 * MiB, 1));
  await eventually(async () => (await world.writing()) === 0);
  expect(await kept()).toEqual({ bytes: 6 * MiB, files: 1 });
  expect(await chunks()).toBe(6);
  expect((await world.upload(form(bytes(4 * MiB)))).status).toBe(200);
  expect(await kept()).toEqual({ bytes: 10 * MiB, files: 2 });
  expect(await world.upload(form(""))).toMatchObject({ status: 200 });
  expect(await world.upload(form("x"))).toMatchObject({ status: 400 });
});

test("the number of files counts too, and reading and deleting go on", async () => {
  const ids = [];
  for (let file = 0; file < 5; file += 1) ids.push(await world.idOf("x"));
  expect(await world.upload(form("x"))).toMatchObject(full(5, 5));
  expect((await world.server.fetch(`/v1/files/${ids[0]}/content`)).status).toBe(200);
  expect((await world.server.fetch(`/v1/files/${ids[0]}`, { method: "DELETE" })).status).toBe(200);
  expect(await kept()).toEqual({ bytes: 4, files: 4 });
  expect((await world.upload(form("x"))).status).toBe(200);
});

test("expiry gives room back, and other organizations have their own", async () => {
  await world.idOf(bytes(9 * MiB), "a", { expires_in_seconds: "3600" });
  expect((await world.upload(form(bytes(2 * MiB)))).status).toBe(400);
  const other = { authorization: `Bearer ${sampleKeys.narrow}` };
  expect((await world.upload(form(bytes(2 * MiB)), other)).status).toBe(200);
  world.clock.skew = 3_601_000;
  await world.store.sweep();
  expect(await kept()).toEqual({ bytes: 0, files: 0 });
  expect((await world.upload(form(bytes(2 * MiB)))).status).toBe(200);
  await world.store.sweep();
  expect(await storageOf(world.postgres, "org_narrow")).toEqual({ bytes: 2 * MiB, files: 1 });
});

/** Sends the beginning of an upload and nothing more. @returns the answer's first line and body. */
function begin(headers: string, body = ""): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect(world.server.port, "127.0.0.1", () =>
    socket.write(
      `POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${sampleKeys.inference}\r\n` +
        `content-type: multipart/form-data; boundary=b\r\n${headers}\r\n\r\n${body}`,
    ),
  );
  let answer = "";
  socket.on("data", (data: Buffer) => {
    answer += data.toString();
    if (!answer.includes("storage_limit_reached")) return;
    socket.destroy();
    resolve(answer);
  });
  socket.on("error", reject);
  socket.on("close", () => resolve(answer));
  return promise;
}

test("a length that cannot fit is refused before the body is read", async () => {
  expect(await begin(`content-length: ${100 * MiB}`)).toMatch(/^HTTP\/1.1 400 [\s\S]*storage_limit_reached/);
  expect(await kept()).toEqual({ bytes: 0, files: 0 });
});

test("a body of unknown length is refused at the byte that does not fit", async () => {
  const part = '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n';
  const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
  // The request has not ended when its answer comes.
  const answer = await begin("transfer-encoding: chunked", chunk(part) + chunk("x".repeat(11 * MiB)));
  expect(answer).toMatch(/^HTTP\/1.1 400 /);
  await eventually(async () => (await kept()).files === 0);
  expect(await kept()).toEqual({ bytes: 0, files: 0 });
  expect(await chunks()).toBe(0);
});

test("uploads under way reserve room: of thirty at once no more pass than fit, over two data planes", async () => {
  limits.maxFiles = 100;
  const answers = await Promise.all(
    Array.from({ length: 30 }, async (_, index) => {
      const server = index % 2 === 0 ? world.server : world.other;
      const answer = await server.fetch("/v1/files", { method: "POST", body: form(bytes(3 * MiB)) });
      const { error } = (await answer.json()) as { error?: { code: string } };
      return error?.code ?? answer.status;
    }),
  );
  expect(answers.filter((answer) => answer === 200)).toHaveLength(3);
  expect(answers.filter((answer) => answer === "storage_limit_reached")).toHaveLength(27);
  await eventually(async () => (await world.writing()) === 0);
  expect(await kept()).toEqual({ bytes: 9 * MiB, files: 3 });
});

test("a client that leaves gives back what was reserved for it", async () => {
  const part = '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n';
  const socket = connect(world.server.port, "127.0.0.1");
  socket.write(
    `POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${sampleKeys.inference}\r\n` +
      `content-type: multipart/form-data; boundary=b\r\ncontent-length: ${9 * MiB}\r\n\r\n${part}${"x".repeat(2 * MiB)}`,
  );
  await eventually(async () => (await kept()).bytes > 8 * MiB);
  expect((await world.upload(form(bytes(2 * MiB)))).status).toBe(400);
  socket.destroy();
  await eventually(async () => (await kept()).files === 0);
  expect((await world.upload(form(bytes(9 * MiB)))).status).toBe(200);
});

test("a writer that died gives it back with the sweep, once", async () => {
  await world.postgres.query(sql.unsafe`
    insert into files (id, organization_id, state, filename, mime_type, purpose, storage, created_at, touched_at, stored_bytes)
    values ('file_dead', ${organization}, 'writing', '', '', '', 'postgres', now(), now() - interval '1 hour', 7)
  `);
  await world.postgres.query(sql.unsafe`insert into storage values (${organization}, 7, 1)`);
  await Promise.all([world.store.sweep(), world.store.sweep()]);
  await world.store.sweep();
  expect(await kept()).toEqual({ bytes: 0, files: 0 });
});

test("whatever is done at once, the sums are exact", async () => {
  limits.maxBytes = 40_000;
  limits.maxFiles = 12;
  const ids: string[] = [];
  let state = 7;
  const next = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below;
  const step = async () => {
    const kind = next(4);
    if (kind < 2) {
      const { status, body } = await world.upload(
        form(bytes(next(9_000)), "a", kind === 0 ? { expires_in_seconds: "3600" } : {}),
      );
      if (status === 200) ids.push(body.id);
    } else if (kind === 2) {
      const id = ids.splice(next(ids.length + 1), 1)[0] ?? "file_none";
      await Promise.all(
        [world.server, world.other].map((server) => server.fetch(`/v1/files/${id}`, { method: "DELETE" })),
      );
    } else {
      world.clock.skew += 600_000;
      await Promise.all([world.store.sweep(), world.store.sweep()]);
    }
    const { bytes: used, files } = await kept();
    expect(used).toBeLessThanOrEqual(limits.maxBytes);
    expect(files).toBeLessThanOrEqual(limits.maxFiles);
  };
  for (let round = 0; round < 12; round += 1) await Promise.all(Array.from({ length: 8 }, step));
  expect(await reconcileStorage(world.postgres)).toEqual([]);
});

describe("reconcile", () => {
  test("says whose sum is not what is there", async () => {
    await world.idOf("hello");
    const shift = (by: number) =>
      world.postgres.query(sql.unsafe`update storage set bytes = bytes + ${by}, files = files - ${by}`);
    await shift(1);
    expect(await reconcileStorage(world.postgres)).toEqual([
      `${organization}: keeps 5 bytes in 1 files, its storage says 6 in 0`,
    ]);
    await shift(-1);
    await world.postgres.query(sql.unsafe`update files set size_bytes = 6`);
    expect(await reconcileStorage(world.postgres)).toHaveLength(1);
    await world.postgres.query(sql.unsafe`update files set size_bytes = 5`);
  });
});
