/** Every row of both state tables, what each form refuses, expiry and retention on a clock of the test's own. */
import { gzipSync } from "node:zlib";
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { measureQueue } from "../../dataplane/batches/queue-depth.ts";
import { sweepBatches } from "../../dataplane/batches/retention.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import { startUpstream, withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { BatchPlane, bodyOf, line, type Json } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";
import { freshDatabase, freshRedis, type TestDatabase, type TestStore } from "./stores.ts";

const DAY = 24 * 3_600_000;
let database: TestDatabase;
let redis: TestStore;
let upstream: FakeUpstream;
let plane: BatchPlane;
/** Serves, but never works: what is made here stays as it is. */
let still: BatchPlane;
let skew = 0;
const clock = { now: () => Date.now() + skew };

beforeAll(async () => {
  upstream = await startUpstream();
  database = await freshDatabase();
  redis = await freshRedis();
  const stores = { redisUrl: redis.url, postgresUrl: database.url };
  const limits = { places: 2, placesOfOne: 2 };
  plane = await BatchPlane.open(stores, {
    upstreamUrl: upstream.url,
    clock,
    worker: { limits, rhythm: { pollMs: 100 } },
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
  await makeOrganization(plane.pool, "org_narrow", 0n);
});
afterAll(async () => {
  await plane.close();
  await redis[Symbol.asyncDispose]();
  await database.drop();
  await upstream.close();
});
beforeEach(() => {
  upstream.reset();
  skew = 0;
});

const poor = { authorization: `Bearer ${sampleKeys.narrow}` };
const slow = withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 400 });
const messages = (n: number) =>
  Array.from({ length: n }, (_, i) => ({ custom_id: `i${i}`, params: bodyOf.messages() }));
async function createMessages(n = 1): Promise<string> {
  const { body } = await plane.json("POST", "/v1/messages/batches", { requests: messages(n) });
  return `/v1/messages/batches/${String(body["id"])}`;
}
async function createFile(content: string | Buffer, more: object = {}): Promise<string> {
  const { body } = await plane.json("POST", "/v1/batches", {
    input_file_id: await plane.upload(content),
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    ...more,
  });
  return `/v1/batches/${String(body["id"])}`;
}
const chatLines = (n: number) => Array.from({ length: n }, (_, i) => line(`i${i}`, bodyOf.chat())).join("\n");
const begun = (n = 1) => upstream.arrived(n, 10_000);
const sumOf = (batch: Json) =>
  Object.values(batch["request_counts"] as Record<string, number>).reduce((a, b) => a + b, 0);
/** What is swept meanwhile makes it less. */
const stored = () =>
  plane.count(sql.fragment`from batches batch full join batch_items item on item.batch_id = batch.id`);

describe("message batch: processing_status", () => {
  test("(none) → in_progress by POST with a balance above 0; expires_at is created_at + 24 hours", async () => {
    const { status, body } = await plane.json("POST", "/v1/messages/batches", { requests: messages(1) });
    expect(status).toBe(200);
    expect(Date.parse(String(body["expires_at"])) - Date.parse(String(body["created_at"]))).toBe(DAY);
    expect(body).toMatchObject({
      processing_status: "in_progress",
      ended_at: null,
      cancel_initiated_at: null,
      archived_at: null,
    });
    expect(body["created_at"]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/);
    await plane.ended(`/v1/messages/batches/${String(body["id"])}`);
  });

  test("without a balance above 0: 402, nothing stored", async () => {
    const before = await stored();
    const { status, headers, body } = await plane.json(
      "POST",
      "/v1/messages/batches",
      { requests: messages(1) },
      poor,
    );
    expect({ status, retry: headers.get("x-should-retry"), body }).toMatchObject({
      status: 402,
      retry: "false",
      body: { error: { type: "billing_error" } },
    });
    expect(await stored()).toBeLessThanOrEqual(before);
  });

  test("in_progress → ended when all requests finished; rule 4.6: counts, ended_at and results_url in the same poll", async () => {
    upstream.model("upstream-messages", withFaults(text("fine"), { delayHeadersMs: 30 }));
    const path = await createMessages(6);
    await plane.ended(path, 30_000, (batch) => {
      const ended = batch["processing_status"] === "ended";
      expect(sumOf(batch)).toBe(6);
      expect((batch["request_counts"] as Json)["processing"]).toBe(ended ? 0 : 6);
      expect([batch["ended_at"] !== null, batch["results_url"] !== null]).toEqual([ended, ended]);
    });
  });

  test("cancel: in_progress until finished; requests not yet worked become canceled, running ones finish", async () => {
    upstream.model("upstream-messages", slow);
    const path = await createMessages(10);
    await begun(2);
    const early = await plane.json("GET", `${path}/results`);
    expect(early.status).toBe(400);
    expect((await plane.json("DELETE", path)).status).toBe(400);
    const cancelled = await plane.json("POST", `${path}/cancel`);
    expect(cancelled).toMatchObject({ status: 200, body: { processing_status: "in_progress" } });
    expect(cancelled.body["cancel_initiated_at"]).not.toBeNull();
    const repeated = await plane.json("POST", `${path}/cancel`);
    expect(repeated.body["cancel_initiated_at"]).toBe(cancelled.body["cancel_initiated_at"]);
    const ended = await plane.ended(path);
    const counts = ended["request_counts"] as Record<string, number>;
    expect(counts).toMatchObject({
      succeeded: upstream.requests.length,
      canceled: 10 - upstream.requests.length,
    });
    expect(upstream.requests.map(({ outcome }) => outcome)).not.toContain("aborted");
    const results = await plane.lines(`${path}/results`);
    expect(results.filter(({ result }) => (result as Json)["type"] === "canceled")).toHaveLength(
      counts["canceled"] ?? 0,
    );
    expect(results).toContainEqual({ custom_id: "i9", result: { type: "canceled" } });
    expect((await plane.json("POST", `${path}/cancel`)).status).toBe(400);
  });

  test("passing expires_at: ended, requests not processed by then become expired, running ones count", async () => {
    upstream.model("upstream-messages", slow);
    const path = await createMessages(10);
    await begun(2);
    skew = DAY;
    const ended = await plane.ended(path);
    const done = upstream.requests.length;
    expect(ended["request_counts"]).toMatchObject({ succeeded: done, expired: 10 - done, canceled: 0 });
    expect(await plane.lines(`${path}/results`)).toContainEqual({
      custom_id: "i9",
      result: { type: "expired" },
    });
  });

  test("results are kept 29 days, then archived", async () => {
    upstream.model("upstream-messages", text("fine"));
    const path = await createMessages(3);
    await plane.ended(path);
    skew = 29 * DAY - 60_000;
    expect(await plane.lines(`${path}/results`)).toHaveLength(3);
    skew = 29 * DAY + 60_000;
    expect((await plane.json("GET", `${path}/results`)).status).toBe(404);
    const before = (await plane.json("GET", path)).body;
    await sweepBatches(plane.engine);
    const { body } = await plane.json("GET", path);
    expect(body).toEqual(before);
    expect(body).toMatchObject({ processing_status: "ended", results_url: null });
    expect(body["archived_at"]).not.toBeNull();
    const id = path.split("/").at(-1) ?? "";
    expect(await plane.count(sql.fragment`from batch_items where batch_id = ${id}`)).toBe(0);
  });

  test("DELETE of an ended one answers the message batch, and it is gone with its results", async () => {
    upstream.model("upstream-messages", text("fine"));
    const path = await createMessages(1);
    await plane.ended(path);
    expect(await plane.json("DELETE", path)).toMatchObject({
      status: 200,
      body: { type: "message_batch", processing_status: "ended" },
    });
    for (const gone of [path, `${path}/results`]) expect((await plane.json("GET", gone)).status).toBe(404);
    const listed = await plane.json("GET", "/v1/messages/batches?limit=1000");
    expect(listed.text).not.toContain(path.split("/").at(-1));
    await sweepBatches(plane.engine);
    expect(
      await plane.count(sql.fragment`from batch_items where batch_id = ${path.split("/").at(-1) ?? ""}`),
    ).toBe(0);
  });
});

describe("what workers do with an organization", () => {
  test.each([
    ["suspended", sql.fragment`suspended = true`],
    ["deleted", sql.fragment`deleted_at = now()`],
  ])("rule 4.5: items of a %s one wait, and show as waiting", async (_how, gone) => {
    upstream.model("upstream-messages", text("fine"));
    await plane.pool.query(sql.unsafe`update organizations set ${gone} where id = 'org_acme'`);
    const path = await createMessages(3);
    await new Promise((done) => setTimeout(done, 300));
    expect(upstream.requests).toHaveLength(0);
    skew = 60_000;
    await measureQueue(plane.engine);
    expect(await gauge(metrics.batchItems)).toMatchObject({ waiting: 3, running: 0 });
    expect((await gauge(metrics.batchAge))["waiting"]).toBeGreaterThan(59);
    await plane.pool.query(
      sql.unsafe`update organizations set suspended = false, deleted_at = null where id = 'org_acme'`,
    );
    await plane.ended(path);
    await measureQueue(plane.engine);
    expect(await gauge(metrics.batchItems)).toMatchObject({ waiting: 0, running: 0 });
  });

  test("rule 4.5: a deleted key stops nothing", async () => {
    upstream.model("upstream-messages", slow);
    const path = await createMessages(6);
    await begun(2);
    // As deleting a key does: holds under the old epoch are refused from now on.
    await plane.pool.query(
      sql.unsafe`update organizations set key_epoch = key_epoch + 1 where id = 'org_acme'`,
    );
    await plane.plane.holds.refresh(["org_acme"]);
    expect(await plane.ended(path)).toMatchObject({ request_counts: { succeeded: 6 } });
  });

  test("rule 4.17: its own files are put into requests; others are an error of that request alone", async () => {
    upstream.model("upstream-messages", text("fine"));
    const params = (id: string) => ({
      ...bodyOf.messages(),
      messages: [
        { role: "user", content: [{ type: "document", source: { type: "file", file_id: id } }] as object[] },
      ],
    });
    const own = await plane.upload("what the file says", "in.txt", {}, "text/plain");
    const foreign = await plane.upload("what the file says", "in.txt", poor, "text/plain");
    const requests = Object.entries({ own, foreign, unknown: "file_unknown" }).map(([name, id]) => ({
      custom_id: name,
      params: params(id),
    }));
    const hosted = { role: "user", content: [{ type: "container_upload", file_id: own }] };
    requests.push({ custom_id: "hosted", params: { ...params(own), messages: [hosted] } });
    const path = `/v1/messages/batches/${String((await plane.json("POST", "/v1/messages/batches", { requests })).body["id"])}`;
    await plane.ended(path);
    const invalid = {
      result: { type: "errored", error: { error: { details: { error_code: "invalid_request" } } } },
    };
    expect(await plane.lines(`${path}/results`)).toMatchObject([
      { custom_id: "own", result: { type: "succeeded" } },
      { custom_id: "foreign", ...invalid },
      { custom_id: "unknown", ...invalid },
      {
        custom_id: "hosted",
        result: { type: "errored", error: { error: { details: { error_code: "unsupported_content" } } } },
      },
    ]);
    expect(upstream.requests).toHaveLength(1);
  });
});

/** The values of a metric by state. */
async function gauge(metric: (typeof metrics)["batchItems"]): Promise<Record<string, number>> {
  const { values } = await metric.get();
  return Object.fromEntries(values.map(({ labels, value }) => [String(labels.state), value]));
}

describe("batch, Chat/Responses form: status", () => {
  test("validating → in_progress → finalizing → completed; the files come with the final status", async () => {
    upstream.model(
      "upstream-chat",
      withFaults(text("fine", { input: 5, output: 5 }), { delayHeadersMs: 50 }),
    );
    const path = await createFile(chatLines(6));
    const order = ["validating", "in_progress", "finalizing", "completed"];
    let place = 0;
    let most = 0;
    const ended = await plane.ended(path, 30_000, (batch) => {
      const now = order.indexOf(String(batch["status"]));
      expect(now).toBeGreaterThanOrEqual(place);
      place = now;
      const { total = 0, completed = 0, failed = 0 } = batch["request_counts"] as Record<string, number>;
      expect(completed + failed).toBeLessThanOrEqual(total);
      expect(completed).toBeGreaterThanOrEqual(most);
      most = completed;
      expect(batch["output_file_id"] !== null).toBe(batch["status"] === "completed");
    });
    for (const name of ["created_at", "in_progress_at", "finalizing_at", "completed_at"])
      expect(ended[name]).toEqual(expect.any(Number));
    expect(Number(ended["expires_at"]) - Number(ended["created_at"])).toBe(86_400);
    const file = (await plane.json("GET", `/v1/files/${String(ended["output_file_id"])}`)).body;
    expect(file).toMatchObject({ purpose: "batch_output", object: "file" });
    expect(Number(file["expires_at"]) - Number(file["created_at"])).toBe(29 * 86_400);
  });

  test("any purpose works as input; output_expires_after is the life of both files", async () => {
    upstream.model("upstream-chat", text("fine"));
    const form = new FormData();
    form.append("file", new File([`${line("a", bodyOf.chat())}\r\n${line("b", {})}`], "in.txt"));
    const uploaded = await plane.server.fetch("/v1/files", { method: "POST", body: form });
    const { id, purpose } = (await uploaded.json()) as { id: string; purpose: string };
    expect(purpose).toBe("user_data");
    const ended = await plane.ended(
      await createFile("", {
        input_file_id: id,
        output_expires_after: { anchor: "created_at", seconds: 7_200 },
      }),
    );
    for (const name of ["output_file_id", "error_file_id"]) {
      const file = (await plane.json("GET", `/v1/files/${String(ended[name])}`)).body;
      expect(Number(file["expires_at"]) - Number(file["created_at"])).toBe(7_200);
    }
  });

  test("dialects.md §H5: the version header changes nothing, not even the form of errors", async () => {
    const version = { "anthropic-version": "2023-06-01" };
    const listed = await plane.json("GET", "/v1/batches?limit=1", undefined, version);
    expect(listed.body["data"]).toMatchObject([{ object: "batch", created_at: expect.any(Number) }]);
    const refused = await plane.json("POST", "/v1/batches", {}, version);
    expect(refused.body).toMatchObject({
      error: { type: "invalid_request_error", param: "input_file_id" },
    });
    expect(refused.body["type"]).toBeUndefined();
  });

  test("rule 4.11: all requests failed is still completed, with an error file and no output file", async () => {
    upstream.model("upstream-chat", { error: { status: 400 } });
    const ended = await plane.ended(await createFile(chatLines(3)));
    expect(ended).toMatchObject({
      status: "completed",
      output_file_id: null,
      request_counts: { total: 3, completed: 0, failed: 3 },
    });
    expect(await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`)).toHaveLength(3);
  });

  test("cancel: cancelling → cancelled; what never ran is batch_cancelled in the error file and in neither count", async () => {
    upstream.model("upstream-chat", slow);
    const path = await createFile(chatLines(8));
    await begun(2);
    expect((await plane.json("POST", `${path}/cancel`)).body).toMatchObject({ status: "cancelling" });
    expect((await plane.json("POST", `${path}/cancel`)).status).toBe(200);
    const ended = await plane.ended(path);
    const ran = upstream.requests.length;
    expect(ended).toMatchObject({
      status: "cancelled",
      request_counts: { total: 8, completed: ran, failed: 0 },
    });
    expect(ended["cancelled_at"]).toEqual(expect.any(Number));
    expect(await plane.lines(`/v1/files/${String(ended["output_file_id"])}/content`)).toHaveLength(ran);
    const errors = await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`);
    expect(errors).toHaveLength(8 - ran);
    expect(errors[0]).toMatchObject({ response: null, error: { code: "batch_cancelled" } });
    expect((await plane.json("POST", `${path}/cancel`)).status).toBe(400);
  });

  test("deadline: expired, with partial output", async () => {
    upstream.model("upstream-chat", slow);
    const path = await createFile(chatLines(8));
    await begun(2);
    skew = DAY;
    const ended = await plane.ended(path);
    expect(ended).toMatchObject({
      status: "expired",
      request_counts: { total: 8, completed: upstream.requests.length },
    });
    const errors = await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`);
    expect(errors[0]).toMatchObject({ response: null, error: { code: "batch_expired" } });
  });

  test("rule 4.10: any invalid line fails the whole batch: nothing runs, only bad lines are named", async () => {
    const content = `${line("a", bodyOf.chat())}\r\n\n{bad\n${line("a", bodyOf.chat())}\n${line("b", bodyOf.chat())}`;
    const ended = await plane.ended(await createFile(content));
    expect(ended).toMatchObject({
      status: "failed",
      output_file_id: null,
      error_file_id: null,
      errors: {
        object: "list",
        data: [
          { code: "invalid_json_line", line: 3 },
          { code: "duplicate_custom_id", line: 4 },
        ],
      },
      request_counts: { total: 0 },
    });
    expect(upstream.requests).toHaveLength(0);
    const id = String(ended["id"]);
    await sweepBatches(plane.engine);
    expect(await plane.count(sql.fragment`from batch_items where batch_id = ${id}`)).toBe(0);
  });

  test.each([
    ["an empty file", "", "empty_file"],
    ["blank lines only", "\n \r\n\n", "empty_file"],
    [
      "10,001 requests",
      Array.from({ length: 10_001 }, (_, i) => line(`i${i}`, {})).join("\n"),
      "too_many_requests_in_batch",
    ],
  ])("%s fails with its code", async (_name, content, code) => {
    const ended = await plane.ended(await createFile(content));
    expect(ended).toMatchObject({ status: "failed", errors: { data: [{ code }] } });
    expect(ended["failed_at"]).toEqual(expect.any(Number));
  });

  test("an input over 256 MiB fails with input_file_too_large", async () => {
    const input = await plane.upload("x");
    await plane.pool.query(sql.unsafe`update files set size_bytes = 268435457 where id = ${input}`);
    const { body } = await plane.json("POST", "/v1/batches", {
      input_file_id: input,
      endpoint: "/v1/responses",
      completion_window: "24h",
    });
    const ended = await plane.ended(`/v1/batches/${String(body["id"])}`);
    expect(ended).toMatchObject({ status: "failed", errors: { data: [{ code: "input_file_too_large" }] } });
  });

  test("one whose input cannot be read holds up no other, and expires with its window", async () => {
    upstream.model("upstream-chat", text("fine"));
    const input = await plane.upload(chatLines(2));
    await plane.pool.query(sql.unsafe`delete from file_chunks where file_id = ${input}`);
    const broken = await createFile("", { input_file_id: input });
    expect(await plane.ended(await createFile(chatLines(2)))).toMatchObject({ status: "completed" });
    expect((await plane.json("GET", broken)).body).toMatchObject({ status: "validating" });
    skew = DAY;
    const ended = await plane.ended(broken);
    expect(ended).toMatchObject({ status: "expired", request_counts: { total: 0 }, output_file_id: null });
    expect(ended["expired_at"]).toEqual(expect.any(Number));
  });

  test("rule 4.11: a cancel during validating is not overwritten by the validator", async () => {
    await plane.worker.stop(5_000);
    still = plane;
    const path = await createFile(chatLines(3));
    expect((await still.json("POST", `${path}/cancel`)).body).toMatchObject({ status: "cancelling" });
    plane = await BatchPlane.open(
      { redisUrl: redis.url, postgresUrl: database.url },
      {
        upstreamUrl: upstream.url,
        clock,
        worker: { limits: { places: 2, placesOfOne: 2 }, rhythm: { pollMs: 100 } },
      },
    );
    await still.close();
    const ended = await plane.ended(path, 30_000, (batch) =>
      expect(["cancelling", "cancelled"]).toContain(batch["status"]),
    );
    expect(ended).toMatchObject({ status: "cancelled", output_file_id: null });
    expect(upstream.requests).toHaveLength(0);
  });
});

describe("what is refused at create", () => {
  test.each([
    [{}, "input_file_id"],
    [{ input_file_id: null }, "input_file_id"],
    [{ input_file_id: 1 }, "input_file_id"],
    [{ input_file_id: "file_unknown" }, "input_file_id"],
    [{ input_file_id: "x\0" }, "input_file_id"],
    [{ endpoint: "/v1/embeddings" }, "endpoint"],
    [{ endpoint: "/v1/messages" }, "endpoint"],
    [{ endpoint: null }, "endpoint"],
    [{ completion_window: "48h" }, "completion_window"],
    [{ completion_window: undefined }, "completion_window"],
    [{ metadata: "x" }, "metadata"],
    [{ metadata: { a: 1 } }, "metadata.a"],
    [{ metadata: { a: "x".repeat(513) } }, "metadata.a"],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, "v"])) }, "metadata"],
    [{ output_expires_after: { anchor: "now", seconds: 3600 } }, "output_expires_after.anchor"],
    [{ output_expires_after: { anchor: "created_at", seconds: 5 } }, "output_expires_after.seconds"],
  ])("%j: 400 naming %s", async (fields, param) => {
    const good = {
      input_file_id: await plane.upload("x"),
      endpoint: "/v1/responses",
      completion_window: "24h",
    };
    const wanted = Object.keys(fields).length === 0 ? {} : { ...good, ...fields };
    const { status, body } = await plane.json("POST", "/v1/batches", wanted);
    expect({ status, body }).toMatchObject({ status: 400, body: { error: { param } } });
  });

  test("rule 4.10: unknown, foreign and deleted input files read alike", async () => {
    const foreign = await plane.upload("x", "in.jsonl", poor);
    const deleted = await plane.upload("x");
    await plane.json("DELETE", `/v1/files/${deleted}`);
    const answers = await Promise.all(
      [foreign, deleted, "file_unknown"].map(async (id) => {
        const { status, text: said } = await plane.json("POST", "/v1/batches", {
          input_file_id: id,
          endpoint: "/v1/responses",
          completion_window: "24h",
        });
        return { status, said: said.replaceAll(id, "ID") };
      }),
    );
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(answers[0]?.status).toBe(400);
  });

  test.each([
    ["no requests", { requests: [] }, 400],
    ["10,001 requests", { requests: messages(10_001) }, 400],
    ["a bad id", { requests: [{ custom_id: "a\n", params: {} }] }, 400],
    ["an array", [], 400],
  ])("%s is refused, nothing stored", async (_name, body, status) => {
    const before = await stored();
    const answer = await plane.json("POST", "/v1/messages/batches", body);
    expect(answer).toMatchObject({
      status,
      body: { type: "error", error: { type: "invalid_request_error" } },
    });
    await expect.poll(stored).toBeLessThanOrEqual(before);
  });

  test("a gzipped body is read like any other", async () => {
    upstream.model("upstream-messages", text("fine"));
    const answer = await fetch(`${plane.server.url}/v1/messages/batches`, {
      method: "POST",
      body: gzipSync(JSON.stringify({ requests: messages(2) })),
      headers: {
        "x-api-key": sampleKeys.inference,
        "content-type": "application/json",
        "content-encoding": "gzip",
      },
    });
    const { id } = (await answer.json()) as { id: string };
    await plane.ended(`/v1/messages/batches/${id}`);
  });

  test("a body over 256 MiB is 413, answered and not cut off, nothing stored", async () => {
    const before = await stored();
    const declared = await plane.json("POST", "/v1/messages/batches", "{}", { "content-encoding": "gzip" });
    expect(declared.status).toBe(400);
    async function* endless() {
      yield Buffer.from('{"requests":[');
      const item = Buffer.from(
        `${JSON.stringify({ custom_id: "a", params: {} })},`.replace(
          '{"c',
          `{"pad":"${"x".repeat(1 << 20)}","c`,
        ),
      );
      for (let index = 0; ; index += 1)
        yield Buffer.from(item.toString("latin1").replace('"a"', `"a${index}"`), "latin1");
    }
    const source = endless();
    let sent = 0;
    const body = new ReadableStream({
      async pull(controller) {
        const next = await source.next();
        if (next.done === true || sent > 257 * 1024 * 1024) return controller.close();
        sent += next.value.length;
        controller.enqueue(next.value);
      },
    });
    const answer = await fetch(`${plane.server.url}/v1/messages/batches`, {
      method: "POST",
      body,
      headers: { "x-api-key": sampleKeys.inference, "content-type": "application/json" },
      duplex: "half",
    } as RequestInit);
    expect({ status: answer.status, body: await answer.json() }).toMatchObject({
      status: 413,
      body: { type: "error", error: { type: "request_too_large" } },
    });
    await expect.poll(stored).toBeLessThanOrEqual(before);
  });
});

describe("lists and look-ups", () => {
  test("both styles page through, newest first, each form for itself", async () => {
    upstream.model("upstream-messages", text("fine"));
    const paths: string[] = [];
    for (let index = 0; index < 4; index += 1) paths.push(await createMessages(1));
    const newest = paths.map((path) => path.split("/").at(-1) ?? "").toReversed();
    const list = async (query: string) => (await plane.json("GET", `/v1/messages/batches?${query}`)).body;
    const ids = async (query: string) =>
      ((await list(query))["data"] as { id: string }[]).map(({ id }) => id);
    expect(await ids("limit=4")).toEqual(newest);
    expect(await ids(`limit=2&after_id=${newest[0]}`)).toEqual(newest.slice(1, 3));
    expect(await ids(`limit=2&after=${newest[1]}`)).toEqual(newest.slice(2, 4));
    expect(await ids(`limit=2&before_id=${newest[3]}`)).toEqual(newest.slice(1, 3));
    expect(await list("limit=1")).toMatchObject({
      object: "list",
      has_more: true,
      first_id: newest[0],
      last_id: newest[0],
    });
    expect((await plane.json("GET", `/v1/batches?after=${newest[0]}`)).status).toBe(400);
    expect((await plane.json("GET", "/v1/messages/batches?after_id=x&before_id=y")).status).toBe(400);
    expect((await plane.json("GET", "/v1/batches?limit=0")).status).toBe(400);
    for (const path of paths) await plane.ended(path);
  });

  test.each(["/v1/messages/batches/", "/v1/batches/"])(
    "rule 4.16: %s foreign and unknown ids read alike",
    async (path) => {
      const own = path.includes("messages") ? await createMessages(1) : await createFile(chatLines(1));
      const id = own.slice(path.length);
      const ask = async (name: string) => {
        const { status, text: said } = await plane.json("GET", path + name, undefined, poor);
        return { status, said: said.replaceAll(name, "ID").replaceAll(/req_\w+/g, "REQ") };
      };
      expect(await ask(id)).toEqual(await ask("batch_unknown"));
      expect((await ask("%00")).status).toBe(404);
      await plane.ended(own);
    },
  );
});
