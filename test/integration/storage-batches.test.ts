/** Rule 7.8 for batches: their requests and results are what an organization keeps, too. */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { sweepBatches } from "../../dataplane/batches/retention.ts";
import { storageOf } from "../../dataplane/files/storage.ts";
import { text } from "../fakes/upstream/script.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, chatLines, messageRequests } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";

const KiB = 1024;
const storage = { maxBytes: 0, maxFiles: 100 };
const clock = { skew: 0, now: () => Date.now() + clock.skew };
let ground: Ground;
let plane: BatchPlane;

beforeAll(async () => {
  ground = await openGround();
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: ground.upstream.url,
    clock,
    storage,
    worker: { rhythm: { pollMs: 50 } },
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
});
afterAll(async () => {
  expect(await plane.broken()).toEqual([]);
  await plane.close();
  await ground.close();
});
beforeEach(() => {
  ground.upstream.reset();
  storage.maxBytes = 10 * 1024 * KiB;
  storage.maxFiles = 100;
});

const kept = async () => (await storageOf(plane.pool, "org_acme")).bytes;
const paramsBytes = (requests: readonly { params: object }[]) =>
  requests.reduce((sum, { params }) => sum + JSON.stringify(params).length, 0);
const swept = async () => {
  await sweepBatches(plane.context);
  await plane.files.sweep();
};

describe("message batches", () => {
  test("requests count until the end, results from then on, and both are given back with them", async () => {
    const before = await kept();
    ground.upstream.next(text("A".repeat(3_000)), text("B"));
    const path = await plane.createMessages(2);
    await plane.ended(path);
    const answer = await plane.server.fetch(`${path}/results`);
    expect((await kept()) - before).toBe(Buffer.byteLength(await answer.text()));
    await plane.json("DELETE", path);
    await swept();
    expect(await kept()).toBe(before);
  });

  test("one that does not fit is refused at the request that does not, and nothing of it stays", async () => {
    const before = await kept();
    const requests = messageRequests(3).map((request) => ({
      ...request,
      params: { ...request.params, system: "x".repeat(4 * 1024 * KiB) },
    }));
    storage.maxBytes = before + paramsBytes(requests) - 1;
    const refused = await plane.json("POST", "/v1/messages/batches", { requests });
    expect(refused).toMatchObject({ status: 400 });
    expect(refused.text).toContain(`${before} of ${storage.maxBytes} bytes`);
    expect(refused.body).toMatchObject({ error: { details: { error_code: "storage_limit_reached" } } });
    expect(await kept()).toBe(before);
    expect(await plane.count(sql.fragment`from batches where state = 'creating'`)).toBe(0);
    storage.maxBytes += 1;
    const taken = await plane.json("POST", "/v1/messages/batches", { requests });
    expect(taken.status).toBe(200);
    await plane.ended(`/v1/messages/batches/${String(taken.body["id"])}`);
  });

  test("results of a batch that was accepted are stored all the same, and block what comes after", async () => {
    ground.upstream.next(text("A".repeat(50_000)));
    const before = await kept();
    storage.maxBytes = before + 5_000;
    const path = await plane.createMessages(1);
    await plane.ended(path);
    expect(await kept()).toBeGreaterThan(storage.maxBytes);
    expect(await plane.lines(`${path}/results`)).toHaveLength(1);
    expect((await plane.json("POST", "/v1/messages/batches", { requests: messageRequests(1) })).status).toBe(
      400,
    );
    const form = new FormData();
    form.append("file", new File(["x"], "a.txt"));
    expect((await plane.server.fetch("/v1/files", { method: "POST", body: form })).status).toBe(400);
    // Reading and deleting go on, and give room.
    expect((await plane.json("DELETE", path)).status).toBe(200);
    await swept();
    expect(await kept()).toBe(before);
  });
});

describe("batches of a file", () => {
  test("a try to write their results that fails in the middle leaves nothing of them", async () => {
    ground.upstream.next(text("fine"), { error: { status: 400 } });
    const create = plane.files.create.bind(plane.files);
    let tries = 0;
    const creating = vi.spyOn(plane.files, "create").mockImplementation(async (...what) => {
      if (what[3]?.visibility === "hidden" && (tries += 1) === 2) throw new Error("the store is away");
      return await create(...what);
    });
    const path = await plane.createFile(chatLines(2));
    const ended = await plane.ended(path);
    creating.mockRestore();
    expect(ended).toMatchObject({ status: "completed", request_counts: { completed: 1, failed: 1 } });
    // Two that failed, or whose other one did, and two that are shown.
    expect(tries).toBe(4);
    expect(await plane.count(sql.fragment`from files where state in ('hidden', 'writing')`)).toBe(0);
    await swept();
  });

  test("the requests that are copied out of it count while they are there, and the results as files", async () => {
    const input = chatLines(2);
    const before = await kept();
    const path = await plane.createFile(input);
    const { output_file_id: id } = await plane.ended(path);
    await swept();
    const output = await plane.json("GET", `/v1/files/${String(id)}`);
    expect((await kept()) - before).toBe(input.length + Number(output.body["bytes"]));
  });

  test("results beyond the number of files block the next batch, though it brings no file", async () => {
    const file = await plane.upload(chatLines(1));
    const { files: now } = await storageOf(plane.pool, "org_acme");
    const wanted = { input_file_id: file, endpoint: "/v1/chat/completions", completion_window: "24h" };
    storage.maxFiles = now;
    const made = await plane.json("POST", "/v1/batches", wanted);
    expect(made.status).toBe(200);
    await plane.ended(`/v1/batches/${String(made.body["id"])}`);
    expect((await storageOf(plane.pool, "org_acme")).files).toBe(now + 1);
    expect(await plane.json("POST", "/v1/batches", wanted)).toMatchObject({
      status: 400,
      body: { error: { code: "storage_limit_reached" } },
    });
  });

  test("one file cannot be copied without end", async () => {
    const file = await plane.upload(chatLines(100));
    storage.maxBytes = (await kept()) + 2 * chatLines(100).length;
    const wanted = { input_file_id: file, endpoint: "/v1/chat/completions", completion_window: "24h" };
    // Nothing is copied yet when the next one comes.
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => plane.json("POST", "/v1/batches", wanted)),
    );
    const made = answers.filter(({ status }) => status === 200);
    expect(made).toHaveLength(2);
    for (const { status, body } of answers)
      if (status !== 200) expect(body).toMatchObject({ error: { code: "storage_limit_reached" } });
    storage.maxBytes *= 100;
    for (const { body } of made) await plane.ended(`/v1/batches/${String(body["id"])}`);
  });

  test("an input that is refused gives its room back", async () => {
    await swept();
    const before = await kept();
    const path = await plane.createFile("not json\n");
    await plane.ended(path);
    await swept();
    // What was wrong with it is shown, and counts, for as long as the batch is.
    const { errors } = await plane.ended(path);
    const told = JSON.stringify((errors as { data: unknown }).data);
    expect((await kept()) - before).toBe("not json\n".length + told.length);
  });

  test("what a client attaches to a batch counts as long as the batch is kept", async () => {
    const [metadata, input] = [{ note: "x".repeat(500) }, chatLines(1)];
    const before = await kept();
    const path = await plane.createFile(input, { metadata });
    expect((await kept()) - before).toBeGreaterThanOrEqual(input.length + JSON.stringify(metadata).length);
    const { output_file_id: id } = await plane.ended(path);
    await swept();
    const output = await plane.json("GET", `/v1/files/${String(id)}`);
    expect((await kept()) - before).toBe(
      input.length + JSON.stringify(metadata).length + Number(output.body["bytes"]),
    );
  });
});

describe("how many batches an organization may have", () => {
  const create = (requests = messageRequests(1)) => plane.json("POST", "/v1/messages/batches", { requests });
  const createFile = async (file: string) =>
    plane.json("POST", "/v1/batches", {
      input_file_id: file,
      endpoint: "/v1/chat/completions",
      completion_window: "24h",
    });
  const change = async (batches: number) =>
    await plane.pool.query(sql.unsafe`
      update storage set batches = batches + ${batches}::int8 where organization_id = 'org_acme'
    `);

  test("no more than 2,000 that have not ended, in both forms together; one that is refused leaves nothing", async () => {
    const file = await plane.upload(chatLines(1));
    await plane.pool.query(sql.unsafe`
      insert into batches (id, organization_id, project_id, key_id, form, dialect, state, total, created_at, expires_at)
      select 'msgbatch_open' || n, 'org_acme', 'default', 'key_1', 'messages', 'messages', 'in_progress', 1, now(),
        now() + interval '1 day'
      from generate_series(1, 2000) as n
    `);
    await change(2_000);
    const before = await plane.stored();
    expect(await create()).toMatchObject({
      status: 429,
      body: {
        type: "error",
        error: {
          type: "rate_limit_error",
          message: expect.stringContaining("2000 batches that have not ended"),
        },
      },
    });
    const refused = await createFile(file);
    expect(refused).toMatchObject({
      status: 429,
      body: { error: { type: "requests", code: "rate_limit_exceeded" } },
    });
    expect(refused.headers.get("retry-after")).toBe("60");
    expect(await plane.stored()).toBe(before);
    await plane.pool.query(sql.unsafe`delete from batches where id = 'msgbatch_open1'`);
    await change(-1);
    // Of those that come at once one has the last place.
    const answers = await Promise.all([create(), createFile(file), create(), createFile(file)]);
    const statuses = answers.map(({ status }) => status).toSorted((one, other) => one - other);
    expect(statuses).toEqual([200, 429, 429, 429]);
    await plane.pool.query(sql.unsafe`delete from batches where id like 'msgbatch_open%'`);
    await change(-1_999);
    for (const { status, body } of answers)
      if (status === 200)
        await plane.ended(
          `/v1/${body["object"] === "batch" ? "" : "messages/"}batches/${String(body["id"])}`,
        );
  });

  test("no more than 100,000 are kept", async () => {
    const file = await plane.upload(chatLines(1));
    const made = await plane.count(sql.fragment`from batches where organization_id = 'org_acme'`);
    await change(100_000 - made);
    const before = await plane.stored();
    expect(await create()).toMatchObject({
      status: 400,
      body: { error: { details: { error_code: "storage_limit_reached" } } },
    });
    expect(await createFile(file)).toMatchObject({
      status: 400,
      body: {
        error: {
          code: "storage_limit_reached",
          message:
            "The organization has 100000 batches, as many as are kept: each goes 60 days after its end.",
        },
      },
    });
    expect(await plane.stored()).toBe(before);
    await change(made - 100_000);
  });

  test("one whose making is refused counts no more", async () => {
    const counted = () =>
      plane.count(sql.fragment`from storage, generate_series(1, batches) where organization_id = 'org_acme'`);
    const before = await counted();
    expect((await create([])).status).toBe(400);
    expect(await counted()).toBe(before);
  });
});

test("results of a message batch are given back when nobody can read them any more", async () => {
  const before = await kept();
  await plane.ended(await plane.createMessages(1));
  expect(await kept()).toBeGreaterThan(before);
  clock.skew = 30 * 24 * 3_600_000;
  await swept();
  await swept();
  // Input and output files of the tests above have expired with them. Their batches are still shown.
  const shown = await plane.count(
    sql.fragment`from batches, generate_series(1, octet_length(coalesce(metadata, '') || coalesce(errors, '')))`,
  );
  expect([await kept(), shown > 0]).toEqual([shown, true]);
  clock.skew = 0;
});
