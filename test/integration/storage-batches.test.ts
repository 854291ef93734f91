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
    expect((await kept()) - before).toBe("not json\n".length);
  });
});

test("results of a message batch are given back when nobody can read them any more", async () => {
  const before = await kept();
  await plane.ended(await plane.createMessages(1));
  expect(await kept()).toBeGreaterThan(before);
  clock.skew = 30 * 24 * 3_600_000;
  await swept();
  await swept();
  // Input and output files of the tests above have expired with them.
  expect(await kept()).toBe(0);
  clock.skew = 0;
});
