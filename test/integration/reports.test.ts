/** The four reports over HTTP, fed by real requests (service.md "Admin API"; rules 5.9–5.19). */
import OpenAI from "openai";
import { sql } from "slonik";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { withinOneDay } from "../fakes/one-day.ts";
import { AdminWorld } from "./admin-world.ts";

let world: AdminWorld;
/** Of all requests and reports here. */
let today: string;
beforeAll(async () => {
  await withinOneDay(60_000);
  today = new Date().toISOString().slice(0, 10);
  world = await AdminWorld.open();
});
afterAll(async () => {
  await world?.close();
});

const MESSAGES = "/v1/organizations/usage_report/messages";
const COST_REPORT = "/v1/organizations/cost_report";
const COMPLETIONS = "/v1/organization/usage/completions";
const COSTS = "/v1/organization/costs";
const all = [MESSAGES, COST_REPORT, COMPLETIONS, COSTS];

interface Result extends Record<string, unknown> {
  readonly amount: string | { readonly value: number; readonly currency: string };
  readonly num_model_requests: number;
}
interface Report {
  readonly data: readonly {
    readonly starting_at: string;
    readonly start_time: number;
    readonly end_time: number;
    readonly results: readonly Result[];
  }[];
  readonly results: readonly Result[];
  readonly has_more: boolean;
  readonly next_page: number | null;
}
const report = async (path: string, query = "", key = world.a.admin) => {
  const answer = await world.call(key, "GET", `${path}?${query}`);
  expect([answer.status, answer.raw]).toEqual([200, expect.any(String)]);
  return answer.body as unknown as Report;
};

async function ask(dialect: "messages" | "chat" | "responses", stream: boolean, key = world.a.inference) {
  const messages = [{ role: "user", content: "Hello" }];
  const model = `m-${dialect}`;
  const [path, body] = {
    messages: ["/v1/messages", { model, max_tokens: 50, messages, stream }],
    chat: ["/v1/chat/completions", { model, messages, stream }],
    responses: ["/v1/responses", { model, input: "Hello", stream }],
  }[dialect] as [string, object];
  expect((await world.call(key, "POST", path, { body, raw: true })).status).toBe(200);
}

describe("real traffic", () => {
  beforeAll(async () => {
    for (const dialect of ["messages", "chat", "responses"] as const) {
      for (const stream of [false, true]) await ask(dialect, stream);
    }
    await ask("chat", false, world.b.inference);
  });
  const requests = async (query = "", key = world.a.admin) =>
    (await report(COMPLETIONS, query, key)).data
      .flatMap(({ results }) => results)
      .reduce((sum, result) => sum + result.num_model_requests, 0);

  test("rule 5.9, 1.9: all three dialects, streamed or not, count within two seconds under the public model", async () => {
    await expect.poll(() => requests(), { timeout: 2000 }).toBe(6);
    const { data } = await report(COMPLETIONS, `start_time=${today}&group_by=model`);
    expect(data.flatMap(({ results }) => results)).toMatchObject(
      ["m-chat", "m-messages", "m-responses"].map((model) => ({
        object: "organization.usage.completions.result",
        model,
        num_model_requests: 2,
        project_id: null,
        api_key_id: null,
        batch: null,
      })),
    );
  });

  test("each organization sees its own alone", async () => {
    await expect.poll(() => requests("", world.b.admin), { timeout: 2000 }).toBe(1);
    const [bucket] = (await report(COMPLETIONS, `start_time=${today}&group_by=api_key_id`, world.b.admin))
      .data;
    const foreign = String(bucket?.results[0]?.["api_key_id"]);
    expect(await requests(`api_key_ids=${foreign}`)).toBe(0);
    expect((await report(MESSAGES, `api_key_id=${foreign}&starting_at=${today}`)).data[0]?.results).toEqual(
      [],
    );
  });

  test("the cost report equals the credits used and the charges of the rows", async () => {
    const { results } = await report(COST_REPORT);
    const credits = (await world.call(world.a.admin, "GET", "/v1/organization/credits")).body;
    expect(results).toEqual([
      {
        currency: "IDR",
        amount: expect.any(String),
        credits: credits["used"],
        description: null,
        cost_type: null,
        model: null,
        token_type: null,
        service_tier: null,
        tag: null,
      },
    ]);
    const micros = await world.pool.oneFirst(sql.type(z.object({ micros: z.bigint() }))`
      select sum(cost_micros)::int8 as micros from usage where organization_id = 'org_a'
    `);
    expect(Number(results[0]?.amount) * 10_000).toBeCloseTo(Number(micros), 3);
    const answer = await world.call(world.a.admin, "GET", COSTS);
    expect(answer.raw).toContain(`"value":${String(results[0]?.amount)},"currency":"idr"`);
  });

  test("rule 5.13: each report takes each filter, under the names of both families; `default` is a project", async () => {
    const { body: key } = await world.call(world.a.inference, "GET", "/v1/key");
    const windows = (await report(MESSAGES, "group_by=context_window")).data.flatMap(
      ({ results }) => results,
    );
    const filters: Record<string, readonly [everything: string, nothing: string]> = {
      models: ["m-chat,m-messages,m-responses", "m"],
      api_key_ids: [String(key["id"]), "apikey_x"],
      project_ids: [`default,proj_x`, "proj_x"],
      service_tiers: ["standard", "priority"],
      context_window: [windows.map((window) => String(window["context_window"])).join(), "0-200k,1"],
      batch: ["false", "true"],
      model_ids: ["m-chat,m-messages,m-responses", "m"],
      api_key_id: [String(key["id"]), "apikey_x"],
      workspace_ids: [String(key["project_id"]), "proj_x"],
      user_ids: [`usr_x,${String(key["id"])}`, "usr_x"],
    };
    for (const path of all) {
      const { data: whole } = await report(path);
      for (const [name, [everything, nothing]] of Object.entries(filters)) {
        const found = [
          (await report(path, `${name}=${everything}`)).data,
          (await report(path, `${name}=${nothing}`)).data.flatMap(({ results }) => results),
        ];
        expect({ path, name, found }).toEqual({ path, name, found: [whole, []] });
      }
    }
  });

  test("rule 5.13: filters hold together, and one that usage is not kept by is refused, never left out", async () => {
    const { body: key } = await world.call(world.a.inference, "GET", "/v1/key");
    for (const path of all) {
      const { data } = await report(path, `api_key_ids=${String(key["id"])}&user_ids=usr_x`);
      expect(data.flatMap(({ results }) => results)).toEqual([]);
      for (const name of ["inference_geos[]", "speeds", "account_ids", "service_account_ids[]", "model"]) {
        const refused = await world.call(world.a.admin, "GET", `${path}?${name}=x`);
        expect([refused.status, refused.raw]).toEqual([400, expect.stringContaining(`${name} is no filter`)]);
      }
    }
  });

  test("the official SDK reads usage and costs", async () => {
    const client = new OpenAI({
      apiKey: "",
      adminAPIKey: world.a.admin,
      baseURL: `${world.plane.server.url}/v1`,
      maxRetries: 0,
    });
    const { usage } = client.admin.organization;
    const start = Date.parse(today) / 1000;
    const page = await usage.completions({
      start_time: start,
      group_by: ["model", "batch"],
      bucket_width: "1d",
    });
    expect(page).toMatchObject({ object: "page", has_more: false });
    expect(page.data).toHaveLength(1);
    expect(page.data[0]).toMatchObject({ object: "bucket", start_time: start, end_time: start + 86_400 });
    expect(page.data[0]?.results).toHaveLength(3);
    const spent = await usage.costs({ start_time: start, group_by: ["line_item"] });
    const lines = spent.data.flatMap(({ results }) => results);
    expect(lines.length).toBeGreaterThanOrEqual(6);
    for (const line of lines) {
      expect(line).toMatchObject({ object: "organization.costs.result", amount: { currency: "idr" } });
    }
  });
});

describe("envelopes without any traffic", () => {
  test("rule 5.12: eight daily buckets by default, empty ones in place", async () => {
    for (const path of all) {
      const { data, has_more, next_page } = await report(path, "", world.b.admin);
      expect([data.length, has_more, next_page]).toEqual([8, false, null]);
      expect(data.slice(0, 7).every(({ results }) => results.length === 0)).toBe(true);
    }
    const [first] = (await report(MESSAGES)).data;
    expect(first?.starting_at).toMatch(/^\d{4}-\d\d-\d\dT00:00:00Z$/);
    const { data } = await report(COMPLETIONS, "start_time=1795219200&end_time=1795226400&bucket_width=1h");
    expect(data).toEqual([
      { object: "bucket", start_time: 1795219200, end_time: 1795222800, results: [] },
      { object: "bucket", start_time: 1795222800, end_time: 1795226400, results: [] },
    ]);
  });

  test("rule 5.16: without charges the total is one row of nothing", async () => {
    expect(await report(COST_REPORT, "starting_at=2020-01-01&ending_at=2020-01-02")).toEqual({
      results: [
        {
          currency: "IDR",
          amount: "0",
          credits: "0",
          description: null,
          cost_type: null,
          model: null,
          token_type: null,
          service_tier: null,
          tag: null,
        },
      ],
      data: [{ starting_at: "2020-01-01T00:00:00Z", ending_at: "2020-01-02T00:00:00Z", results: [] }],
      has_more: false,
      next_page: null,
    });
    expect(
      (await report(COST_REPORT, "starting_at=2020-01-01&ending_at=2020-01-02&group_by=description")).results,
    ).toEqual([]);
  });

  test("rule 5.13: next_page is a number that is fed back, a page past the end is empty", async () => {
    const first = await report(MESSAGES, "limit=5");
    expect([first.data.length, first.has_more, first.next_page]).toEqual([5, true, 2]);
    const second = await report(MESSAGES, "limit=5&page=2");
    expect([second.data.length, second.has_more, second.next_page]).toEqual([3, false, null]);
    const third = await report(MESSAGES, "limit=5&page=3");
    expect([third.data, third.has_more, third.next_page]).toEqual([[], false, null]);
    expect((await report(COMPLETIONS, "limit=10000&bucket_width=1h")).data.length).toBeGreaterThanOrEqual(
      168,
    );
  });
});

test.each([COST_REPORT, COSTS])("rule 5.19: %s is one page, and what is past it is empty", async (path) => {
  const asked = await report(path, "limit=1&page=1");
  expect([asked.data.length, asked.has_more, asked.next_page]).toEqual([8, false, null]);
  const past = await report(path, "page=2");
  expect([past.data, past.has_more, past.next_page]).toEqual([[], false, null]);
  expect(past.results).toEqual(asked.results);
});

describe("rule 5.13: a bad parameter is a 400 in the style of the family, and names itself", () => {
  const cases: [string, string, string][] = [
    ...[MESSAGES, COST_REPORT].flatMap((path): [string, string, string][] => [
      [path, "starting_at=soon", "starting_at"],
      [path, "starting_at=2026-02-30", "starting_at"],
      [path, "starting_at=2026-01-02&ending_at=2026-01-01", "ending_at"],
      [path, "starting_at=2026-01-02&ending_at=2026-01-02", "ending_at"],
      [path, "starting_at=2126-01-02", "starting_at"],
      [path, "starting_at=%00", "starting_at"],
      [path, "starting_at=", "starting_at"],
      [path, "models=", "models"],
      [path, "bucket_width=1m", "bucket_width"],
    ]),
    ...[COMPLETIONS, COSTS].flatMap((path): [string, string, string][] => [
      [path, "start_time=soon", "start_time"],
      [path, "start_time=1.5", "start_time"],
      [path, "start_time=-1", "start_time"],
      [path, "start_time=2026-01-02&end_time=2026-01-01", "end_time"],
      [path, "bucket_width=1w", "bucket_width"],
    ]),
    [MESSAGES, "group_by=batch", "group_by"],
    [MESSAGES, "group_by[]=inference_geo", "group_by"],
    [MESSAGES, "limit=1001", "limit"],
    [MESSAGES, "limit=0", "limit"],
    [MESSAGES, "page=0", "page"],
    [MESSAGES, "page=two", "page"],
    [COMPLETIONS, "group_by=user_id", "group_by"],
    [COMPLETIONS, "group_by=model,nonsense", "group_by"],
    [COMPLETIONS, "limit=10001", "limit"],
    [COMPLETIONS, "page=-1", "page"],
    [COMPLETIONS, "batch=maybe", "batch"],
    ...[COST_REPORT, COSTS].flatMap((path): [string, string, string][] => [
      [path, "page=0", "page"],
      [path, "page=two", "page"],
      [path, "limit=0", "limit"],
      [path, "limit=many", "limit"],
    ]),
    [COST_REPORT, "group_by=workspace_id", "group_by"],
    [COST_REPORT, "bucket_width=1h", "bucket_width"],
    [COST_REPORT, "starting_at=2024-01-01&ending_at=2025-01-02", "starting_at"],
    [COST_REPORT, "ending_at=2126-01-02", "ending_at must"],
    [COSTS, "group_by=project_id", "group_by"],
    [COSTS, "bucket_width=1h", "bucket_width"],
    [COSTS, "start_time=2024-01-01&end_time=2025-01-02", "start_time"],
    [COSTS, "end_time=2126-01-02", "end_time"],
  ];
  test.each(cases)("%s?%s", async (path, query, param) => {
    const answer = await world.call(world.a.admin, "GET", `${path}?${query}`);
    expect(answer.status).toBe(400);
    expect(answer.headers.get("x-should-retry")).toBe("false");
    if (path.startsWith("/v1/organizations/")) {
      expect(answer.body).toMatchObject({ type: "error", error: { type: "invalid_request_error" } });
      expect(answer.raw).toContain(param);
    } else {
      expect(answer.body).toMatchObject({ error: { type: "invalid_request_error", param } });
    }
  });

  test("a leap year's whole range of 366 days is served", async () => {
    expect((await report(COSTS, "start_time=2024-01-01&end_time=2025-01-01")).data).toHaveLength(366);
  });

  test("366 days are served whatever the hour they begin at, and shown in whole days", async () => {
    const hours = "start_time=2024-01-01T12:00:00Z&end_time=2025-01-01T11:59:59Z";
    expect((await report(COSTS, hours)).data).toHaveLength(367);
    const abroad = "start_time=2024-01-01T00:00:00%2B07:00&end_time=2025-01-01T00:00:00%2B07:00";
    expect((await report(COSTS, abroad)).data).toHaveLength(367);
    const ago = Math.floor(Date.now() / 1000) - 366 * 86_400;
    expect((await report(COSTS, `start_time=${ago}`)).data).toHaveLength(367);
  });

  const hostile = ["%00", "'", "%27%29%3B--", "%FF", "%ED%A0%80", "%5C", "${1}", "🦊", "x".repeat(5000)];
  test.each(hostile)("a hostile filter %s finds nothing and breaks nothing", async (value) => {
    for (const path of all) {
      for (const name of [
        "models",
        "models[]",
        "api_key_id",
        "project_ids",
        "service_tiers",
        "context_window",
      ]) {
        const { data } = await report(path, `${name}=${value}`);
        expect(data.flatMap(({ results }) => results)).toEqual([]);
      }
    }
  });
});

test("rule 5.8: reports need an admin key", async () => {
  for (const path of all) {
    const wrong = await world.call(world.a.inference, "GET", path);
    expect(wrong.status).toBe(401);
    expect(wrong.raw).toContain("an admin key");
    expect((await world.call(world.a.admin, "POST", path, { body: {} })).status).toBe(405);
  }
});
