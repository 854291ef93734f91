/** Every row of both state tables, expiry and retention on a clock of the test's own. */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sweepBatches } from "../../dataplane/batches/retention.ts";
import { longestHoldMs } from "../fakes/large/watch-loop.ts";
import { text } from "../fakes/upstream/script.ts";
import { withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, openSmallPlane, poor, slow, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, chatLines, line, messageRequests, type Json } from "./batches-world.ts";

const DAY = 24 * 3_600_000;
let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
/** Serves, but never works: what is made here stays as it is. */
let still: BatchPlane;
let skew = 0;
const clock = { now: () => Date.now() + skew };

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await openSmallPlane(ground, clock);
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});
beforeEach(() => {
  upstream.reset();
  skew = 0;
});

/** Leaves a busy machine time to act while it runs. */
const slower = withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 2_000 });
const begun = (n = 1) => upstream.arrived(n, 10_000);
const sumOf = (batch: Json) =>
  Object.values(batch["request_counts"] as Record<string, number>).reduce((a, b) => a + b, 0);

describe("message batch: processing_status", () => {
  test("(none) → in_progress by POST with a balance above 0; expires_at is created_at + 24 hours", async () => {
    const { status, body } = await plane.json("POST", "/v1/messages/batches", {
      requests: messageRequests(1),
    });
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
    const before = await plane.stored();
    const { status, headers, body } = await plane.json(
      "POST",
      "/v1/messages/batches",
      { requests: messageRequests(1) },
      poor,
    );
    expect({ status, retry: headers.get("x-should-retry"), body }).toMatchObject({
      status: 402,
      retry: "false",
      body: { error: { type: "billing_error" } },
    });
    expect(await plane.stored()).toBeLessThanOrEqual(before);
  });

  test("in_progress → ended when all requests finished; rule 4.6: counts, ended_at and results_url in the same poll", async () => {
    upstream.model("upstream-messages", withFaults(text("fine"), { delayHeadersMs: 30 }));
    const path = await plane.createMessages(6);
    await plane.ended(path, 30_000, (batch) => {
      const ended = batch["processing_status"] === "ended";
      expect(sumOf(batch)).toBe(6);
      expect((batch["request_counts"] as Json)["processing"]).toBe(ended ? 0 : 6);
      expect([batch["ended_at"] !== null, batch["results_url"] !== null]).toEqual([ended, ended]);
    });
  });

  test("cancel: in_progress until finished; requests not yet worked become canceled, running ones finish", async () => {
    upstream.model("upstream-messages", slow);
    const path = await plane.createMessages(10);
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
    const path = await plane.createMessages(10);
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

  test("a cancel after expires_at is too late: 200, and what was not processed is expired", async () => {
    upstream.model("upstream-messages", slower);
    const path = await plane.createMessages(10);
    await begun(2);
    skew = DAY;
    const late = await plane.json("POST", `${path}/cancel`);
    expect(late).toMatchObject({
      status: 200,
      body: { processing_status: "in_progress", cancel_initiated_at: null },
    });
    const ended = await plane.ended(path);
    const done = upstream.requests.length;
    expect(ended).toMatchObject({
      cancel_initiated_at: null,
      request_counts: { succeeded: done, expired: 10 - done, canceled: 0 },
    });
  });

  test("results are kept 29 days, then archived", async () => {
    upstream.model("upstream-messages", text("fine"));
    const path = await plane.createMessages(3);
    await plane.ended(path);
    skew = 29 * DAY - 60_000;
    expect(await plane.lines(`${path}/results`)).toHaveLength(3);
    skew = 29 * DAY + 60_000;
    expect((await plane.json("GET", `${path}/results`)).status).toBe(404);
    const before = (await plane.json("GET", path)).body;
    await sweepBatches(plane.context);
    const { body } = await plane.json("GET", path);
    expect(body).toEqual(before);
    expect(body).toMatchObject({ processing_status: "ended", results_url: null });
    expect(body["archived_at"]).not.toBeNull();
    const id = path.split("/").at(-1) ?? "";
    expect(await plane.count(sql.fragment`from batch_items where batch_id = ${id}`)).toBe(0);
  });

  test.each(["messages", "openai"] as const)(
    "sixty days after its end one of the form %s is 404 and in no list, also where no sweep has come yet",
    async (form) => {
      upstream.model("upstream-messages", text("fine"));
      upstream.model("upstream-chat", text("fine"));
      const path = form === "messages" ? await plane.createMessages() : await plane.createFile(chatLines(1));
      const { id } = await plane.ended(path);
      const list = path.slice(0, path.lastIndexOf("/"));
      const seen = async () => {
        const [one, all] = await Promise.all([
          plane.json("GET", path),
          plane.json("GET", `${list}?limit=1000`),
        ]);
        return [one.status, all.text.includes(String(id))];
      };
      skew = 60 * DAY - 60_000;
      expect(await seen()).toEqual([200, true]);
      skew = 60 * DAY + 1_000;
      expect(await seen()).toEqual([404, false]);
      for (const [method, gone] of [
        ["POST", `${path}/cancel`],
        ["DELETE", path],
      ] as const)
        if (form === "messages" || method === "POST")
          expect([method, (await plane.json(method, gone)).status]).toEqual([method, 404]);
    },
  );

  test("results of which some are taken away while they are read break off, and do not look whole", async () => {
    upstream.model("upstream-messages", text("fine"));
    const path = await plane.createMessages(3);
    await plane.ended(path);
    expect(await plane.lines(`${path}/results`)).toHaveLength(3);
    const id = path.split("/").at(-1) ?? "";
    await plane.pool.query(sql.unsafe`delete from batch_items where batch_id = ${id} and number > 0`);
    const read = plane.server.fetch(`${path}/results`).then((answer) => answer.text());
    await expect(read).rejects.toThrow("terminated");
    await plane.json("DELETE", path);
  });

  test("DELETE of an ended one answers the message batch, and it is gone with its results", async () => {
    upstream.model("upstream-messages", text("fine"));
    const path = await plane.createMessages(1);
    await plane.ended(path);
    expect(await plane.json("DELETE", path)).toMatchObject({
      status: 200,
      body: { type: "message_batch", processing_status: "ended" },
    });
    for (const gone of [path, `${path}/results`]) expect((await plane.json("GET", gone)).status).toBe(404);
    const listed = await plane.json("GET", "/v1/messages/batches?limit=1000");
    expect(listed.text).not.toContain(path.split("/").at(-1));
    await sweepBatches(plane.context);
    expect(
      await plane.count(sql.fragment`from batch_items where batch_id = ${path.split("/").at(-1) ?? ""}`),
    ).toBe(0);
  });

  test("pages go on behind a batch that was deleted meanwhile, to its own organization alone", async () => {
    upstream.model("upstream-messages", text("fine"));
    const paths = [
      await plane.createMessages(1),
      await plane.createMessages(1),
      await plane.createMessages(1),
    ];
    for (const path of paths) await plane.ended(path);
    const [first, second, third] = paths.map((path) => path.split("/").at(-1));
    expect((await plane.json("DELETE", paths[1] ?? "")).status).toBe(200);
    await sweepBatches(plane.context);
    const page = async (query: string) => {
      const { body } = await plane.json("GET", `/v1/messages/batches?limit=1&${query}`);
      return (body["data"] as Json[]).map(({ id }) => id);
    };
    expect(await page(`after_id=${second}`)).toEqual([first]);
    expect(await page(`before_id=${second}`)).toEqual([third]);
    const foreign = await plane.json("GET", `/v1/messages/batches?after_id=${second}`, undefined, poor);
    expect(foreign.status).toBe(400);
  });

  test("of several concurrent DELETEs of an ended one a single one answers 200", async () => {
    upstream.model("upstream-messages", text("fine"));
    for (let round = 0; round < 3; round += 1) {
      const path = await plane.createMessages(1);
      await plane.ended(path);
      const answers = await Promise.all(Array.from({ length: 8 }, () => plane.json("DELETE", path)));
      const statuses = answers.map(({ status }) => status).sort((one, other) => one - other);
      expect(statuses).toEqual([200, 404, 404, 404, 404, 404, 404, 404]);
    }
  });
});

describe("batch, Chat/Responses form: status", () => {
  test("validating → in_progress → finalizing → completed; the files come with the final status", async () => {
    upstream.model(
      "upstream-chat",
      withFaults(text("fine", { input: 5, output: 5 }), { delayHeadersMs: 50 }),
    );
    const path = await plane.createFile(chatLines(6));
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
      await plane.createFile("", {
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
    const ended = await plane.ended(await plane.createFile(chatLines(3)));
    expect(ended).toMatchObject({
      status: "completed",
      output_file_id: null,
      request_counts: { total: 3, completed: 0, failed: 3 },
    });
    expect(await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`)).toHaveLength(3);
  });

  test("cancel: cancelling → cancelled; what never ran is batch_cancelled in the error file and in neither count", async () => {
    upstream.model("upstream-chat", slow);
    const path = await plane.createFile(chatLines(8));
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
    const path = await plane.createFile(chatLines(8));
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

  test("a cancel after the deadline is too late: still expired; one before it is not", async () => {
    upstream.model("upstream-chat", slower);
    for (const [before, after, error] of [
      ["in_progress", "expired", "batch_expired"],
      ["cancelling", "cancelled", "batch_cancelled"],
    ]) {
      const path = await plane.createFile(chatLines(8));
      await begun(upstream.requests.length + 2);
      if (before === "cancelling") await plane.json("POST", `${path}/cancel`);
      skew = DAY;
      expect(await plane.json("POST", `${path}/cancel`)).toMatchObject({
        status: 200,
        body: { status: before },
      });
      const ended = await plane.ended(path);
      expect(ended).toMatchObject({ status: after });
      const errors = await plane.lines(`/v1/files/${String(ended["error_file_id"])}/content`);
      expect(new Set(errors.map((line) => (line["error"] as Json)["code"]))).toEqual(new Set([error]));
      skew = 0;
    }
  });

  test("rule 4.10: any invalid line fails the whole batch: nothing runs, only bad lines are named", async () => {
    const content = `${line("a", bodyOf.chat())}\r\n\n{bad\n${line("a", bodyOf.chat())}\n${line("b", bodyOf.chat())}`;
    const ended = await plane.ended(await plane.createFile(content));
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
    await sweepBatches(plane.context);
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
    const ended = await plane.ended(await plane.createFile(content));
    expect(ended).toMatchObject({ status: "failed", errors: { data: [{ code }] } });
    expect(ended["failed_at"]).toEqual(expect.any(Number));
  });

  test.each([
    ["blank lines", "\n".repeat(8 * 1024 * 1024), "empty_file"],
    ["short lines behind a bad one", `x\n${chatLines(9_000)}`, "invalid_json_line"],
  ])("rule 7.3: an input of very many %s holds nobody up while it is read", async (_name, content, code) => {
    const input = await plane.upload(content);
    const read = async () => {
      const { body } = await plane.json("POST", "/v1/batches", {
        input_file_id: input,
        endpoint: "/v1/chat/completions",
        completion_window: "24h",
      });
      const ended = await plane.ended(`/v1/batches/${String(body["id"])}`, 60_000);
      expect(ended).toMatchObject({ status: "failed", errors: { data: [{ code }] } });
    };
    // A garbage collection may fall into any one of these tries.
    const held: number[] = [];
    for (let tries = 0; tries < 3; tries += 1) held.push(await longestHoldMs(read));
    expect(Math.min(...held)).toBeLessThan(40);
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
    const broken = await plane.createFile("", { input_file_id: input });
    expect(await plane.ended(await plane.createFile(chatLines(2)))).toMatchObject({ status: "completed" });
    expect((await plane.json("GET", broken)).body).toMatchObject({ status: "validating" });
    skew = DAY;
    // 400 where a worker was faster.
    expect([200, 400]).toContain((await plane.json("POST", `${broken}/cancel`)).status);
    const ended = await plane.ended(broken);
    expect(ended).toMatchObject({ status: "expired", request_counts: { total: 0 }, output_file_id: null });
    expect(ended["expired_at"]).toEqual(expect.any(Number));
  });

  test("rule 4.11: a cancel during validating is not overwritten by the validator", async () => {
    await plane.worker.stop(5_000);
    still = plane;
    const path = await plane.createFile(chatLines(3));
    expect((await still.json("POST", `${path}/cancel`)).body).toMatchObject({ status: "cancelling" });
    plane = await BatchPlane.open(ground.stores, {
      upstreamUrl: upstream.url,
      clock,
      worker: { limits: { places: 2, placesOfOne: 2 }, rhythm: { pollMs: 100 } },
    });
    await still.close();
    const ended = await plane.ended(path, 30_000, (batch) =>
      expect(["cancelling", "cancelled"]).toContain(batch["status"]),
    );
    expect(ended).toMatchObject({ status: "cancelled", output_file_id: null, in_progress_at: null });
    expect(upstream.requests).toHaveLength(0);
  });
});
