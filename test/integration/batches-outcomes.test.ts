/** Every row of "Per-request outcome in a batch", and rules 4.1–4.4 and 4.8, in each form. */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Dialect } from "../../dataplane/dialects/dialect.ts";
import { dialectPath } from "../../dataplane/dialects/dialect.ts";
import type { RequestRecord } from "../../dataplane/telemetry/request-record.ts";
import type { RunTool } from "../../dataplane/tools/toolbox.ts";
import { text, toolCall, type Step } from "../fakes/upstream/script.ts";
import { withFaults, type FakeUpstream } from "../fakes/upstream/server.ts";
import { openGround, type Ground } from "./batches-ground.ts";
import { BatchPlane, bodyOf, line, routesTo, type Json } from "./batches-world.ts";
import { makeOrganization } from "./money-world.ts";
import { freshDatabase, freshRedis } from "./stores.ts";

let ground: Ground;
let upstream: FakeUpstream;
let plane: BatchPlane;
/** What was recorded of each run. */
let told: RequestRecord[] = [];

const runTool: RunTool = async () => ({
  kind: "hits",
  hits: [{ url: "https://gates.example/", title: "Gates", text: "Gates are faster.", age: null }],
  posts: 0,
  profiles: 0,
});

beforeAll(async () => {
  ground = await openGround();
  ({ upstream } = ground);
  const plain = routesTo(upstream.url);
  const tiered = plain.map((route) => ({
    ...route,
    model: route.model.replace("m-", "t-"),
    prices: { ...route.prices, serviceTiers: [{ name: "priority", multiplier: "2" }] },
  }));
  const routes = [...plain, ...tiered];
  plane = await BatchPlane.open(ground.stores, {
    upstreamUrl: upstream.url,
    routes,
    runTool,
    waitMs: 50,
    records: { add: (record) => void told.push(record) },
  });
  await makeOrganization(plane.pool, "org_acme", 10_000_000_000n);
});
afterAll(async () => {
  expect(await plane.broken()).toEqual([]);
  await plane.close();
  await ground.close();
});
beforeEach(() => {
  upstream.reset();
  told = [];
});

/** What became of one item: its outcome, the error's code, and the row that it was charged by. */
interface Seen {
  readonly outcome: "succeeded" | "errored";
  readonly code: string | null;
  readonly error: Json | null;
  readonly body: Json | null;
  readonly line: Json;
}

/** Runs items in the form that their dialect belongs to. */
async function run(
  dialect: Dialect,
  bodies: Record<string, object>,
): Promise<{ id: string; seen: Record<string, Seen> }> {
  const seen: Record<string, Seen> = {};
  if (dialect === "messages") {
    const requests = Object.entries(bodies).map(([custom_id, params]) => ({ custom_id, params }));
    const { body } = await plane.json("POST", "/v1/messages/batches", { requests });
    const id = String(body["id"]);
    await plane.ended(`/v1/messages/batches/${id}`);
    for (const found of await plane.lines(`/v1/messages/batches/${id}/results`)) {
      const result = found["result"] as {
        type: "succeeded" | "errored";
        message?: Json;
        error?: { error: Json };
      };
      const details = result.error?.error["details"] as Json | undefined;
      expect(result.error?.error["code"]).toBe(details?.["error_code"]);
      seen[String(found["custom_id"])] = {
        outcome: result.type,
        code: (details?.["error_code"] as string | undefined) ?? null,
        error: result.error?.error ?? null,
        body: result.message ?? null,
        line: found,
      };
    }
    return { id, seen };
  }
  const url = dialectPath[dialect];
  const input = await plane.upload(
    Object.entries(bodies)
      .map(([id, body]) => line(id, body, url))
      .join("\n"),
  );
  const made = await plane.json("POST", "/v1/batches", {
    input_file_id: input,
    endpoint: url,
    completion_window: "24h",
  });
  const id = String(made.body["id"]);
  const ended = await plane.ended(`/v1/batches/${id}`);
  for (const name of ["output_file_id", "error_file_id"]) {
    if (ended[name] === null) continue;
    for (const found of await plane.lines(`/v1/files/${String(ended[name])}/content`)) {
      const response = found["response"] as { status_code: number; body: Json };
      const error = found["error"] as { code: string } | null;
      expect(name === "error_file_id").toBe(error !== null);
      // Both places hold the error (dialects.md §H4).
      expect(error !== null).toBe(response.body["error"] !== null && response.body["error"] !== undefined);
      seen[String(found["custom_id"])] = {
        outcome: error === null ? "succeeded" : "errored",
        code: error?.code ?? null,
        error: error === null ? null : (response.body["error"] as Json),
        body: error === null ? response.body : null,
        line: found,
      };
    }
  }
  return { id, seen };
}

const rowSchema = z.object({
  cost: z.bigint(),
  status: z.string(),
  iterations: z.number(),
  estimated: z.boolean(),
});
const rowsOf = (id: string) =>
  plane.pool.any(sql.type(rowSchema)`
    select cost_micros as cost, status, iterations, estimated from usage
    where batch_id = ${id} and endpoint = 'batch' order by cost_micros
  `);

const tiersOf = (id: string) =>
  plane.pool.any(sql.type(z.object({ cost: z.bigint(), tier: z.string() }))`
    select cost_micros as cost, service_tier as tier from usage where batch_id = ${id}
  `);
const usage = { input: 1_000, output: 100 };

/** An object with so many levels of nesting. */
const deep = (levels: number): object =>
  JSON.parse(`${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`) as object;

const dialects = ["messages", "chat", "responses"] as const;
const withSearch = {
  messages: (more: object = {}) =>
    bodyOf.messages("What is new?", {
      tools: [{ type: "web_search_20250305", name: "web_search" }],
      ...more,
    }),
  chat: (more: object = {}) => bodyOf.chat("What is new?", { web_search_options: {}, ...more }),
  responses: (more: object = {}) =>
    bodyOf.responses("What is new?", { tools: [{ type: "web_search" }], ...more }),
};
const search: Step = {
  answer: {
    parts: [{ type: "text", text: "Let me look." }, ...searching()],
    usage: { input: 100, output: 20 },
  },
};
function searching() {
  const step = toolCall("web_search", { query: "gates" });
  return "answer" in step ? step.answer.parts : [];
}

describe.each(dialects)("%s", (dialect) => {
  const model = `upstream-${dialect}`;
  const end = dialect === "messages" ? "a result" : "a line of the error file";

  test("an answer is stored as a live one would be, and charged once", async () => {
    upstream.model(model, text("fine", { input: 1_000, output: 100 }));
    const { id, seen } = await run(dialect, { a: bodyOf[dialect]() });
    expect(seen["a"]).toMatchObject({ outcome: "succeeded", body: { model: `m-${dialect}` } });
    expect(await rowsOf(id)).toEqual([{ cost: 144_000n, status: "ok", iterations: 1, estimated: false }]);
  });

  test("billing rule 6: a batch request is one usage row, with all iterations and tool credits, no batch discount", async () => {
    upstream.model(model, [search, text("They are faster.", { input: 200, output: 10 })]);
    const { id, seen } = await run(dialect, { a: withSearch[dialect]() });
    expect(seen["a"]?.outcome).toBe("succeeded");
    expect(JSON.stringify(seen["a"]?.body)).toContain("They are faster.");
    // 300 input and 30 output tokens, and one search.
    expect(await rowsOf(id)).toEqual([
      { cost: 300n * 96n + 30n * 480n + 320_000n, status: "ok", iterations: 2, estimated: false },
    ]);
  });

  test("rule 10.2: a tier with a price goes upstream and is charged as reported, one without stays here", async () => {
    const asked = { messages: "auto", chat: "priority", responses: "priority" }[dialect];
    const [goes, stays] = [bodyOf[dialect](), bodyOf[dialect]()].map((body) => ({
      ...body,
      service_tier: asked,
    }));
    const tiers = { service_tier: "priority" };
    upstream.model(model, { answer: { parts: [{ type: "text", text: "fine" }], usage, tiers } });
    const { id } = await run(dialect, { a: { ...goes, model: `t-${dialect}` } });
    const standard = { messages: "standard_only", chat: "default", responses: "default" }[dialect];
    const sentTier = () =>
      upstream.requests.map(({ text: sent }) => (JSON.parse(sent) as Json)["service_tier"]);
    expect(sentTier()).toEqual([asked]);
    expect(await tiersOf(id)).toEqual([{ cost: 2n * 144_000n, tier: "priority" }]);
    upstream.reset();
    upstream.model(model, { answer: { parts: [{ type: "text", text: "fine" }], usage } });
    const { id: other } = await run(dialect, { a: { ...stays, model: `m-${dialect}` } });
    expect(sentTier()).toEqual([standard]);
    expect(await tiersOf(other)).toEqual([{ cost: 144_000n, tier: "standard" }]);
  });

  test(`upstream rejects at the first loop iteration: ${end}, not billed, without the provider's words`, async () => {
    upstream.model(model, { error: { status: 400, message: "acct_secret says no" } });
    const { id, seen } = await run(dialect, { a: bodyOf[dialect](), b: withSearch[dialect]() });
    expect(seen).toMatchObject({ a: { code: "invalid_request" }, b: { code: "invalid_request" } });
    expect(seen["a"]?.error?.["message"]).toBe("The request was rejected upstream.");
    expect(JSON.stringify(seen)).not.toContain("acct_secret");
    expect(await rowsOf(id)).toEqual([]);
  });

  test.each([401, 402, 403, 404])(
    "rule 4.8: an upstream's %d is upstream_error at once, not billed",
    async (status) => {
      upstream.model(model, { error: { status } });
      const { id, seen } = await run(dialect, { a: bodyOf[dialect]() });
      expect(seen).toMatchObject({ a: { code: "upstream_error" } });
      expect(upstream.requests).toHaveLength(1);
      expect(await rowsOf(id)).toEqual([]);
    },
  );

  test.each([413, 422])("rule 4.8: an upstream's %d is invalid_request", async (status) => {
    upstream.model(model, { error: { status } });
    const { seen } = await run(dialect, { a: bodyOf[dialect]() });
    expect(seen).toMatchObject({ a: { code: "invalid_request" } });
  });

  test.each([400, 422])(
    "dialects.md §A8: the error itself has the code of an upstream's %d",
    async (status) => {
      upstream.model(model, { error: { status } });
      const { seen } = await run(dialect, { a: bodyOf[dialect]() });
      expect(seen["a"]?.error).toMatchObject({ type: "invalid_request_error", code: "invalid_request" });
    },
  );

  test("dialects.md §A8: a code that an error has already stays", async () => {
    const { seen } = await run(dialect, { a: { ...bodyOf[dialect](), model: "unknown" } });
    const own = dialect === "messages" ? "invalid_request" : "model_not_found";
    expect(seen["a"]).toMatchObject({ code: "invalid_request", error: { code: own } });
  });

  test("rule 4.4: an upstream's 429, 500, 502, 503, 529 are tried again", async () => {
    const failed = new Set<string>();
    upstream.model(model, (_read, logged) => {
      const status = /status (\d+)/.exec(logged.text)?.[1] ?? "";
      if (failed.has(status)) return text("at last");
      failed.add(status);
      return { error: { status: Number(status) }, headers: { "retry-after": "1" } };
    });
    const statuses = [429, 500, 502, 503, 529];
    const bodies = Object.fromEntries(
      statuses.map((status) => [`s${status}`, bodyOf[dialect](`status ${status}`)]),
    );
    const { id, seen } = await run(dialect, bodies);
    expect(Object.values(seen).map(({ outcome }) => outcome)).toEqual(Array(5).fill("succeeded"));
    expect(failed.size).toBe(5);
    expect(await rowsOf(id)).toHaveLength(5);
  });

  test.each([
    ["that is not JSON", { raw: { body: "{nonsense" } }],
    ["that is a web page", withFaults(text("x"), { html: true })],
    ["without its mandatory parts", { raw: { body: '{"id":"x","usage":{"input_tokens":5}}' } }],
    ["that is empty", withFaults(text("x"), { empty: true })],
  ] as [string, Step][])(
    "rule 4.3: a corrupt answer %s is upstream_error, billed from an estimate",
    async (_what, step) => {
      upstream.model(model, step);
      const { id, seen } = await run(dialect, { a: bodyOf[dialect]() });
      expect(seen).toMatchObject({ a: { code: "upstream_error" } });
      const rows = await rowsOf(id);
      expect(rows).toMatchObject([{ status: "error", estimated: true }]);
      expect(rows[0]?.cost).toBeGreaterThan(0n);
      // Who asks why a request failed is told the same (rule 14.2).
      expect(told).toMatchObject([{ batchId: id, status: 502, micros: rows[0]?.cost }]);
      expect(told[0]?.inputTokens).toBeGreaterThan(0);
    },
  );

  test("rule 14.1: the record of one whose body is refused has the model that it named", async () => {
    const { id } = await run(dialect, { a: { model } });
    expect(told).toMatchObject([{ batchId: id, status: 400, model }]);
  });

  test("upstream fails after the first iteration", async () => {
    upstream.model(model, [search, { error: { status: 400, message: "acct_secret" } }]);
    const { id, seen } = await run(dialect, { a: withSearch[dialect]() });
    if (dialect === "messages")
      expect(seen).toMatchObject({ a: { outcome: "succeeded", body: { stop_reason: "pause_turn" } } });
    else
      expect(seen).toMatchObject({ a: { code: "upstream_error", line: { response: { status_code: 502 } } } });
    expect(JSON.stringify(seen)).not.toContain("acct_secret");
    const rows = await rowsOf(id);
    expect(rows).toHaveLength(1);
    expect(rows[0]?.cost).toBeGreaterThan(0n);
  });

  test("corrupt upstream answer in a later iteration: failed, billed", async () => {
    upstream.model(model, [search, { raw: { body: "{nonsense" } }]);
    const { id, seen } = await run(dialect, { a: withSearch[dialect]() });
    expect(seen).toMatchObject({ a: { code: "upstream_error" } });
    const rows = await rowsOf(id);
    expect(rows).toMatchObject([{ status: "error", estimated: true }]);
    expect(rows[0]?.cost).toBeGreaterThan(0n);
  });

  test("tool unavailable: the same code as a normal request; other requests continue", async () => {
    upstream.model(model, text("fine"));
    const hosted = {
      messages: { type: "code_execution_20250522", name: "code_execution" },
      chat: { type: "mcp" },
      responses: { type: "file_search" },
    };
    const { id, seen } = await run(dialect, {
      a: bodyOf[dialect]("Hi", { tools: [hosted[dialect]] }),
      b: bodyOf[dialect](),
    });
    expect(seen).toMatchObject({ a: { code: "unsupported_tool" }, b: { outcome: "succeeded" } });
    expect(await rowsOf(id)).toHaveLength(1);
  });

  test("rule 4.7: what is wrong inside a request fails that request alone", async () => {
    upstream.model(model, text("fine"));
    const { seen } = await run(dialect, {
      model: { ...bodyOf[dialect](), model: "unknown" },
      empty: {},
      stream: bodyOf[dialect]("Hi", { stream: true }),
      deep: bodyOf[dialect]("Hi", { metadata: deep(200) }),
      whole: bodyOf[dialect]("Hi", { stream: false }),
    });
    const invalid = { outcome: "errored", code: "invalid_request" };
    expect(seen).toMatchObject({
      model: invalid,
      empty: invalid,
      stream: invalid,
      deep: invalid,
      whole: { outcome: "succeeded" },
    });
  });

  test("rule 4.12: NUL and lone surrogates run and come back", async () => {
    upstream.model(model, (_read, logged) =>
      text(logged.text.includes("\\u0000\\ud800") ? "as it was" : "changed"),
    );
    const { seen } = await run(dialect, {
      a: JSON.parse(JSON.stringify(bodyOf[dialect]("\0\ud800"))) as object,
    });
    expect(JSON.stringify(seen["a"]?.body)).toContain("as it was");
  });
});

describe("credit", () => {
  let small: BatchPlane;
  /** A data plane whose only organization has `credit` micro-credits. */
  const withCredit = async (credit: bigint, places: number, work: () => Promise<void>) => {
    const limits = { places, placesOfOne: places };
    await using own = await freshDatabase();
    // A Redis of its own too: the shared plane tells its Redis about its own accounts again and again.
    await using ownRedis = await freshRedis();
    const shared = plane;
    small = await BatchPlane.open(
      { redisUrl: ownRedis.url, postgresUrl: own.url },
      { upstreamUrl: upstream.url, runTool, waitMs: 50, worker: { limits } },
    );
    await makeOrganization(small.pool, "org_acme", credit);
    plane = small;
    try {
      await work();
      expect(await small.broken()).toEqual([]);
    } finally {
      plane = shared;
      await small.close();
    }
  };

  test.each(dialects)(
    "%s: balance runs out: the rest fails with insufficient_quota, the batch still ends",
    async (dialect) => {
      upstream.model(`upstream-${dialect}`, text("fine", { input: 10_000, output: 1 }));
      // About two answers' worth.
      await withCredit(1_500_000n, 2, async () => {
        const bodies = Object.fromEntries(
          Array.from({ length: 12 }, (_, index) => [
            `i${index}`,
            bodyOf[dialect]("Hi", dialect === "responses" ? { max_output_tokens: 20 } : { max_tokens: 20 }),
          ]),
        );
        const { id, seen } = await run(dialect, bodies);
        const codes = Object.values(seen).map(({ code }) => code);
        expect(codes).toHaveLength(12);
        expect(codes.filter((code) => code === "insufficient_quota").length).toBeGreaterThan(0);
        expect(codes.filter((code) => code === null).length).toBeGreaterThan(0);
        expect(codes.every((code) => code === null || code === "insufficient_quota")).toBe(true);
        if (dialect === "messages") {
          const failed = Object.values(seen).find(({ code }) => code !== null);
          expect(failed?.error).toMatchObject({
            type: "billing_error",
            details: { error_code: "insufficient_quota" },
          });
        }
        expect(await rowsOf(id)).toHaveLength(codes.filter((code) => code === null).length);
        const again =
          dialect === "messages"
            ? { requests: [{ custom_id: "a", params: {} }] }
            : { input_file_id: await plane.upload("x"), endpoint: "/v1/responses", completion_window: "24h" };
        const refused = await plane.json(
          "POST",
          dialect === "messages" ? "/v1/messages/batches" : "/v1/batches",
          again,
        );
        expect(refused.status).toBe(402);
      });
    },
  );

  test.each(dialects)("%s: credits run out inside a server-tool loop: still succeeded", async (dialect) => {
    upstream.model(`upstream-${dialect}`, {
      answer: { parts: searching(), usage: { input: 1_000, output: 20 } },
    });
    await withCredit(600_000n, 2, async () => {
      const { seen } = await run(dialect, {
        a: withSearch[dialect](
          dialect === "chat"
            ? { max_tokens: 100 }
            : dialect === "responses"
              ? { max_output_tokens: 100 }
              : {},
        ),
      });
      expect(seen["a"]?.outcome).toBe("succeeded");
      const stopped = {
        messages: { stop_reason: "pause_turn" },
        chat: { choices: [{ finish_reason: "length" }] },
        responses: { status: "incomplete", incomplete_details: { reason: "max_tool_calls" } },
      }[dialect];
      expect(seen["a"]?.body).toMatchObject(stopped);
    });
  });

  test("rule 4.1: an item that finds all credit held by others waits and tries again", async () => {
    upstream.model(
      "upstream-messages",
      withFaults(text("fine", { input: 10, output: 5 }), { delayHeadersMs: 150 }),
    );
    // Each holds up to all of it; together they cost far less.
    await withCredit(40_000n, 64, async () => {
      const bodies = Object.fromEntries(
        Array.from({ length: 3 }, (_, index) => [`i${index}`, bodyOf.messages("Hi", { max_tokens: 1_000 })]),
      );
      const { seen } = await run("messages", bodies);
      expect(Object.values(seen).map(({ outcome }) => outcome)).toEqual(Array(3).fill("succeeded"));
    });
  });
});
