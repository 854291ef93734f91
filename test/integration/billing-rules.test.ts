/**
 * The rules of service.md "Prices and billing rules", and those of rules.md §1, Money, that are seen over HTTP,
 * each in its own words. Batches (rule 6): batches-outcomes.test.ts. Prices and rounding: billing/prices/price.test.ts.
 */
import { sql } from "slonik";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { usualRhythm } from "../../dataplane/billing/holds/upkeep.ts";
import { dialectPath, dialects, type Dialect } from "../../dataplane/dialects/dialect.ts";
import { metrics } from "../../dataplane/telemetry/metrics.ts";
import { priceDefaults } from "../../operator/api/price-table.ts";
import { declaredSearch } from "../fakes/inference.ts";
import { text, type Step } from "../fakes/upstream/script.ts";
import { request, usage as usageOf } from "./money-world.ts";
import { organization, startToolsWorld, type ToolsWorld } from "./tools-world.ts";

let world: ToolsWorld;
beforeAll(async () => {
  world = await startToolsWorld();
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});
beforeEach(() => world.upstream.reset());

const rowSchema = z.object({
  cost: z.bigint(),
  input: z.bigint(),
  output: z.bigint(),
  searches: z.bigint(),
  fetches: z.bigint(),
  posts: z.bigint(),
  profiles: z.bigint(),
  iterations: z.number(),
  status: z.string(),
  estimated: z.boolean(),
});
type Row = z.infer<typeof rowSchema>;

/** Every row of the request, once there is one: the drainer takes some time. */
async function rowsOf(id: string, on = world): Promise<readonly Row[]> {
  await expect.poll(async () => (await storedRows(id, on)).length).toBeGreaterThan(0);
  return await storedRows(id, on);
}

async function storedRows(id: string, on: ToolsWorld): Promise<readonly Row[]> {
  return await on.plane.pool.any(sql.type(rowSchema)`
    select cost_micros as cost, input_tokens as input, output_tokens as output, web_searches as searches,
      web_fetches as fetches, x_posts as posts, x_profiles as profiles, iterations, status, estimated
    from usage where id = ${id}
  `);
}

const bodies: Readonly<Record<Dialect, (question: string) => object>> = {
  messages: (content) => ({ max_tokens: 100, messages: [{ role: "user", content }] }),
  chat: (content) => ({ messages: [{ role: "user", content }] }),
  responses: (input) => ({ input }),
};
interface Asked {
  readonly id: string;
  readonly response: Response;
  readonly body: string;
}
async function ask(dialect: Dialect, more: object = {}, on = world): Promise<Asked> {
  const response = await on.server.fetch(dialectPath[dialect], {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m-messages", ...bodies[dialect](`Read ${on.pages}/page`), ...more }),
  });
  const body = await response.text().catch(() => "");
  return { id: response.headers.get("request-id") ?? "", response, body };
}

/** Asks a stream of an upstream of the same dialect, and leaves at its first bytes. @returns the request's id. */
async function leave(dialect: Dialect, more: object): Promise<string> {
  const leaving = new AbortController();
  const response = await world.server.fetch(dialectPath[dialect], {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: `m-${dialect}`, ...bodies[dialect]("hello"), ...more }),
    signal: leaving.signal,
  });
  await response.body?.getReader().read();
  leaving.abort();
  return response.headers.get("request-id") ?? "";
}

/** Micro-credits of tokens at the sample prices. */
const tokens = (input: number, output: number) => BigInt(input * 96 + output * 480);
const SEARCH = 320_000n;
const calling = (name: string, input: object, usage = { input: 100, output: 10 }): Step => ({
  answer: { parts: [{ type: "tool", name, input }], usage },
});
const search = calling("web_search", { query: "gates" });

describe.each(dialects)("Prices and billing rules, %s", (dialect) => {
  test("1: one request is billed once: the tokens of all iterations plus its tools, with tool results as input", async () => {
    world.upstream.next(search, calling("web_search", { query: "more" }, { input: 700, output: 20 }));
    world.upstream.next(text("They are faster.", { input: 1_500, output: 30 }));
    const { id, response } = await ask(dialect, declaredSearch[dialect]);
    expect(response.status).toBe(200);
    expect(await rowsOf(id)).toEqual([
      {
        cost: tokens(2_300, 60) + 2n * SEARCH,
        input: 2_300n,
        output: 60n,
        searches: 2n,
        fetches: 0n,
        posts: 0n,
        profiles: 0n,
        iterations: 3,
        status: "ok",
        estimated: false,
      },
    ]);
    // The input that the upstream counted holds what the first search brought.
    expect(world.upstream.requests[1]?.text).toContain("Gates are now faster.");
  });

  test("4: credit is held per iteration; if the balance cannot cover the next iteration the loop stops", async () => {
    await using poor = await startToolsWorld({ granted: tokens(100, 10) + SEARCH + 1n });
    poor.upstream.next(search, text("never asked for"));
    const { id, body } = await ask(dialect, declaredSearch[dialect], poor);
    const stop = { messages: '"pause_turn"', chat: '"length"', responses: '"incomplete"' }[dialect];
    expect(body).toContain(stop);
    expect(poor.upstream.requests).toHaveLength(1);
    expect(await rowsOf(id, poor)).toMatchObject([{ cost: tokens(100, 10) + SEARCH, iterations: 1 }]);
  });

  test("5: failure after the first iteration: the finished one stays billed, the rejected one is not, one row with status error", async () => {
    world.upstream.next(search, { error: { status: 400, message: "no" } });
    const { id } = await ask(dialect, declaredSearch[dialect]);
    expect(await rowsOf(id)).toMatchObject([
      { cost: tokens(100, 10) + SEARCH, iterations: 1, status: "error", estimated: false },
    ]);
  });

  test("5: an iteration that streamed and was cut is billed from observed usage or an estimate", async () => {
    world.upstream.next(search, { ...text("one two three four"), faults: { cutAtEvent: 4 } });
    const { id } = await ask(dialect, { ...declaredSearch[dialect], stream: true });
    const [row, ...more] = await rowsOf(id);
    expect([row?.status, more]).toEqual(["error", []]);
    expect(row?.cost).toBeGreaterThan(tokens(100, 10) + SEARCH);
    // Never the output limit.
    expect(row?.output).toBeLessThan(60n);
  });

  test("5: a corrupt answer is billed from an estimate", async () => {
    world.upstream.next({ ...text("fine", { input: 50, output: 5 }), faults: { malformed: true } });
    const { id, response } = await ask(dialect);
    expect(response.status).toBe(502);
    const [row] = await rowsOf(id);
    expect(row).toMatchObject({ status: "error", estimated: true });
    expect(row?.cost).toBeGreaterThan(0n);
    // Never the output limit.
    expect(row?.output).toBeLessThan(100n);
  });

  test("rule 1.8: balance not above 0: 402; credit there but held by others: 429 after a wait, retry-after 1", async () => {
    await using poor = await startToolsWorld({ granted: 1_000n });
    const other = await poor.plane.holds.open(request(organization), 1_000n);
    const reserved = await ask(dialect, {}, poor);
    expect(reserved.response.status).toBe(429);
    expect(reserved.response.headers.get("retry-after")).toBe("1");
    expect(reserved.body).toContain("credit is reserved by running requests");
    expect(reserved.body).not.toContain("insufficient_quota");
    await other.settle(usageOf(1_000));
    const empty = await ask(dialect, {}, poor);
    expect(empty.response.status).toBe(402);
    expect(empty.response.headers.get("x-should-retry")).toBe("false");
    expect(empty.body).toContain(dialect === "messages" ? "Credit balance is too low" : "insufficient_quota");
    expect(poor.upstream.requests).toEqual([]);
    await poor.plane.drained();
    expect(await storedRows(empty.id, poor)).toEqual([]);
  });

  test("rule 1.11: a disconnected client pays what the upstream reports a moment later", async () => {
    const answer = text("one two three four five", { input: 1_234, output: 56 });
    world.upstream.next({
      ...answer,
      faults: { delayBetweenEventsMs: 20, delayAtEvent: { event: 5, ms: 300 } },
    });
    const id = await leave(dialect, { stream: true });
    expect(await rowsOf(id)).toMatchObject([
      { status: "cancelled", estimated: false, input: 1_234n, output: 56n, cost: tokens(1_234, 56) },
    ]);
  });

  test("rule 1.11: without a report in two seconds it pays its prompt and what was seen", async () => {
    world.upstream.next({
      ...text("one two three four five", { input: 1_234, output: 56 }),
      faults: { delayBetweenEventsMs: 20, delayAtEvent: { event: 5, ms: 60_000 } },
    });
    const id = await leave(dialect, { stream: true });
    const [row] = await rowsOf(id);
    expect(row).toMatchObject({ status: "cancelled", estimated: true });
    // Only Messages reports its input at the beginning; the others report nothing before their end.
    if (dialect === "messages") expect(row?.input).toBe(1_234n);
    else expect(row?.input).toBeGreaterThan(5n);
    expect(row?.output).toBeLessThan(56n);
    await expect.poll(() => world.upstream.requests[0]?.outcome).toBe("aborted");
  });

  test("rule 7.9: an upstream that reports 1e30 tokens costs what is possible, and the row says so", async () => {
    world.upstream.next(text("ok", { input: 1e30, output: 1e30 }));
    const { id, response } = await ask(dialect, {}, world);
    expect(response.status).toBe(200);
    const [row] = await rowsOf(id);
    const limit = dialect === "messages" ? 100n : undefined;
    if (limit !== undefined) expect(row?.output).toBeLessThanOrEqual(limit + 10n);
    const flagged = sql.type(z.object({ implausible: z.boolean(), fits: z.boolean() }))`
      select implausible, input_tokens = context_tokens as fits from usage where id = ${id}
    `;
    expect(await world.plane.pool.one(flagged)).toEqual({ implausible: true, fits: true });
  });

  test("rule 1.15: the credits counter counts credits charged; the token series of one answer sum to input + output", async () => {
    const model = "m-messages";
    const of = async (metric: "credits" | "tokens") =>
      (await metrics[metric].get()).values
        .filter(({ labels }) => labels["model"] === model)
        .reduce((sum, { value }) => sum + value, 0);
    const before = [await of("credits"), await of("tokens")] as const;
    world.upstream.next(
      text("fine", {
        input: 100,
        cacheRead: 30,
        cacheWrite5m: 20,
        cacheWrite1h: 7,
        output: 10,
        reasoning: 4,
      }),
    );
    const { id } = await ask(dialect);
    const [row] = await rowsOf(id);
    expect(((await of("credits")) - before[0]) * 1e6).toBeCloseTo(Number(row?.cost), 0);
    expect((await of("tokens")) - before[1]).toBe(100 + 30 + 20 + 7 + 10);
  });
});

describe("Prices and billing rules", () => {
  test("2: default tool prices: 0.32 credit a search, 0 a fetch, 0.16 a post, 0.32 a profile", async () => {
    const perUnit = Object.values(priceDefaults.tools.Credit).map((price) => Number(price) / 1_000);
    expect(perUnit).toEqual([0.32, 0, 0.16, 0.32]);
    const dollars = Object.values(priceDefaults.tools.USD).map(
      (price) => (Number(price) * Number(priceDefaults.creditsPerUSD)) / 1_000,
    );
    expect(dollars).toEqual(perUnit);
    const tools = [
      { type: "web_search_20250305", name: "web_search" },
      { type: "web_fetch_20250910", name: "web_fetch" },
      { type: "x_search_20261005", name: "x_search" },
    ];
    world.upstream.next(
      search,
      calling("web_fetch", { url: `${world.pages}/page` }),
      calling("x_search", { query: "gates" }),
      text("done", { input: 100, output: 10 }),
    );
    const { id } = await ask("messages", { tools });
    expect(await rowsOf(id)).toMatchObject([
      {
        searches: 1n,
        fetches: 1n,
        posts: 1n,
        profiles: 1n,
        cost: tokens(400, 40) + 320_000n + 0n + 160_000n + 320_000n,
      },
    ]);
  });

  test("3: model tokens used by the service's own search engine are not billed to the client", async () => {
    await using searched = await startToolsWorld({
      policy: { webSearch: { engine: { type: "model", model: "m-chat" }, timeoutMs: 15_000 } },
    });
    searched.upstream.model(
      "upstream-chat",
      text("[Gates](https://gates.example/)", { input: 9_000, output: 900 }),
    );
    searched.upstream.model("upstream-messages", [search, text("done", { input: 100, output: 10 })]);
    const { id } = await ask("messages", declaredSearch.messages, searched);
    expect(searched.upstream.requests.map(({ path }) => path)).toContain("/v1/chat/completions");
    expect(await rowsOf(id, searched)).toMatchObject([{ input: 200n, output: 20n, iterations: 2 }]);
    const { used } = await searched.plane.holds.standing.credit(organization);
    expect(used).toBe(tokens(200, 20) + SEARCH);
  });
});

test("rule 1.9: dead holds are settled within 90 s", () => {
  // The last heartbeat was a whole beat after the last look; then the sweep's and the drainer's turns.
  const { heartbeatMs, staleMs, sweepMs, drainMs } = usualRhythm;
  expect(heartbeatMs + staleMs + sweepMs + drainMs).toBeLessThanOrEqual(90_000);
});
