/** What the batch paths take and show: what each form refuses at create, lists, look-ups. */
import { gzipSync } from "node:zlib";
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { sampleKeys } from "../fakes/sample-snapshot.ts";
import { text } from "../fakes/upstream/script.ts";
import type { FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, openSmallPlane, poor, type Ground } from "./batches-ground.ts";
import { chatLines, messageRequests, type BatchPlane } from "./batches-world.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  plane = await openSmallPlane(ground);
});
afterAll(async () => {
  await plane.close();
  await ground.close();
});
beforeEach(() => upstream.reset());

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
    [{ metadata: { a: "😀".repeat(513) } }, "metadata.a"],
    [{ metadata: { ["😀".repeat(65)]: "x" } }, `metadata.${"😀".repeat(32)}`],
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

  const created = { anchor: "created_at" };
  test.each([
    [{ input_file_id: 1 }, "input_file_id", "invalid_type"],
    [{ endpoint: null }, "endpoint", "missing_required_parameter"],
    [{ endpoint: "/v1/embeddings" }, "endpoint", "invalid_value"],
    [{ metadata: [] }, "metadata", "invalid_type"],
    [{ metadata: { a: 1 } }, "metadata.a", "invalid_type"],
    [{ metadata: { a: null } }, "metadata.a", "invalid_type"],
    [{ metadata: { a: "x".repeat(513) } }, "metadata.a", "invalid_value"],
    [{ output_expires_after: "1h" }, "output_expires_after", "invalid_type"],
    [{ output_expires_after: [] }, "output_expires_after", "invalid_type"],
    [{ output_expires_after: {} }, "output_expires_after.anchor", "missing_required_parameter"],
    [{ output_expires_after: { anchor: 1 } }, "output_expires_after.anchor", "invalid_type"],
    [{ output_expires_after: { anchor: "now" } }, "output_expires_after.anchor", "invalid_value"],
    [{ output_expires_after: created }, "output_expires_after.seconds", "missing_required_parameter"],
    [
      { output_expires_after: { ...created, seconds: "3600" } },
      "output_expires_after.seconds",
      "invalid_type",
    ],
    [
      { output_expires_after: { ...created, seconds: 3600.5 } },
      "output_expires_after.seconds",
      "invalid_type",
    ],
    [
      { output_expires_after: { ...created, seconds: 3599 } },
      "output_expires_after.seconds",
      "invalid_value",
    ],
    [
      { output_expires_after: { ...created, seconds: 2592001 } },
      "output_expires_after.seconds",
      "invalid_value",
    ],
  ])("%j: %s with the code %s", async (fields, param, code) => {
    const wanted = {
      input_file_id: "file_x",
      endpoint: "/v1/responses",
      completion_window: "24h",
      ...fields,
    };
    const { status, body } = await plane.json("POST", "/v1/batches", wanted);
    expect({ status, body }).toMatchObject({ status: 400, body: { error: { param, code } } });
  });

  test("metadata of the greatest length is taken, in characters and not in halves of them", async () => {
    const metadata = { ["😀".repeat(64)]: "😀".repeat(512), ["k".repeat(64)]: "v".repeat(512) };
    const { status, body } = await plane.json("POST", "/v1/batches", {
      input_file_id: await plane.upload("x"),
      endpoint: "/v1/responses",
      completion_window: "24h",
      metadata,
    });
    expect({ status, body }).toMatchObject({ status: 200, body: { metadata } });
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
    ["10,001 requests", { requests: messageRequests(10_001) }, 400],
    ["a bad id", { requests: [{ custom_id: "a\n", params: {} }] }, 400],
    ["an array", [], 400],
  ])("%s is refused, nothing stored", async (_name, body, status) => {
    const before = await plane.stored();
    const answer = await plane.json("POST", "/v1/messages/batches", body);
    expect(answer).toMatchObject({
      status,
      body: { type: "error", error: { type: "invalid_request_error" } },
    });
    await expect.poll(() => plane.stored()).toBeLessThanOrEqual(before);
  });

  test("a gzipped body is read like any other", async () => {
    upstream.model("upstream-messages", text("fine"));
    const answer = await fetch(`${plane.server.url}/v1/messages/batches`, {
      method: "POST",
      body: gzipSync(JSON.stringify({ requests: messageRequests(2) })),
      headers: {
        "x-api-key": sampleKeys.inference,
        "content-type": "application/json",
        "content-encoding": "gzip",
      },
    });
    const { id } = (await answer.json()) as { id: string };
    expect(await plane.ended(`/v1/messages/batches/${id}`)).toMatchObject({
      processing_status: "ended",
      request_counts: { succeeded: 2, errored: 0 },
    });
  });

  test("a body over 256 MiB is 413, answered and not cut off, nothing stored", async () => {
    const before = await plane.stored();
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
    await expect.poll(() => plane.stored()).toBeLessThanOrEqual(before);
  });
});

describe("lists and look-ups", () => {
  test("both styles page through, newest first, each form for itself", async () => {
    upstream.model("upstream-messages", text("fine"));
    const paths: string[] = [];
    for (let index = 0; index < 4; index += 1) paths.push(await plane.createMessages(1));
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

  test("a page ends early where what clients attached, or what is wrong with their inputs, is large", async () => {
    const [count, each] = [40, 300 * 1024];
    await plane.pool.query(sql.unsafe`
      insert into batches (id, organization_id, project_id, key_id, form, dialect, state, outcome, errors, created_at,
        expires_at, ended_at)
      select 'batch_large' || batch, 'org_narrow', '', '', 'openai', 'chat', 'ended', 'failed',
        '[{"message":"' || repeat('x', ${each}) || '"}]', now(), now(), now()
      from generate_series(1, ${count}) as batch
    `);
    const all = Array.from({ length: count }, (_, index) => `batch_large${index + 1}`);
    for (const [order, expected] of [
      ["asc", all],
      ["desc", all.toReversed()],
    ] as const) {
      const seen: string[] = [];
      for (let more = true; more;) {
        const after = seen.length === 0 ? "" : `&after=${seen.at(-1)}`;
        const page = await plane.json(
          "GET",
          `/v1/batches?limit=10000&order=${order}${after}`,
          undefined,
          poor,
        );
        expect(page.text.length).toBeLessThan(9 * 1024 * 1024);
        seen.push(...(page.body["data"] as { id: string }[]).map(({ id }) => id));
        more = page.body["has_more"] === true;
      }
      expect(seen).toEqual(expected);
    }
    const before = await plane.json("GET", "/v1/batches?limit=1000&before_id=batch_large1", undefined, poor);
    const shown = (before.body["data"] as { id: string }[]).map(({ id }) => id);
    expect(shown.at(-1)).toBe("batch_large2");
    expect(before.body["has_more"]).toBe(true);
  });

  test.each(["/v1/messages/batches/", "/v1/batches/"])(
    "rule 4.16: %s foreign and unknown ids read alike",
    async (path) => {
      const own = path.includes("messages")
        ? await plane.createMessages(1)
        : await plane.createFile(chatLines(1));
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
