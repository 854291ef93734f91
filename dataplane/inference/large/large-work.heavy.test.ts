/** A body that another thread works on gives the same bytes as in this thread (rule 7.3). */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test, vi } from "vitest";
import { routeTo, upstreamOf } from "../../../test/fakes/inference.ts";
import { leastOf, LoopTurns } from "../../../test/fakes/loop-turns.ts";
import { dialects, type Dialect } from "../../dialects/dialect.ts";
import { COMPACTED_PREFIX } from "../../dialects/responses/compaction.ts";
import { SEALED_PREFIX } from "../../dialects/reasoning.ts";
import { ApiError } from "../../lib/api-error.ts";
import { Cancellation } from "../../lib/cancellation.ts";
import { sealing } from "../../lib/seal.ts";
import { WorkNotDone, type WorkerPool } from "../../lib/worker-pool.ts";
import type { NextCall } from "../../loop/next-request.ts";
import { conversationKey } from "../request/conversation-key.ts";
import { noTiers } from "../../dialects/tiers.ts";
import { conversionFacts } from "../request/conversion.ts";
import { pathNeeds } from "../request/choose-path.ts";
import { callOf, snapshotOf } from "../../../test/fakes/inference.ts";
import { estimateWork, usualInputTokens } from "../estimate.ts";
import { refersToItems } from "../request/item-references.ts";
import { firstWishes } from "../with-tools/open-loop.ts";
import { checkServerTools, declaredServerTools, refuse } from "../request/refuse.ts";
import { edited, openBody, type RequestBody } from "../request/request-body.ts";
import { rememberRefused } from "../refused-call.ts";
import { newRequestSummary } from "../../telemetry/request-summary.ts";
import { newLargePool } from "./large-body.ts";

const keys = [{ id: "k1", key: Buffer.alloc(32, 7) }];
const sealer = sealing(keys)("org_a");
const pool = newLargePool(keys);
afterAll(() => pool.close());

const route = routeTo([]);
const filler = "All work and no play makes Jack a dull boy. ".repeat(4_000);
const sealed = SEALED_PREFIX + sealer.seal(JSON.stringify({ from: "chat" }));
const hit = sealer.seal(
  JSON.stringify({ url: "https://a.example/x", title: "A", text: "a text", age: null }),
);

const bodies: Record<Dialect, Record<string, object>> = {
  messages: {
    text: {
      messages: [{ role: "user", content: filler }],
      metadata: { user_id: "u" },
      stop_sequences: ["END"],
    },
    thinking: {
      thinking: { type: "enabled", budget_tokens: 2000 },
      tools: [{ name: "a tool with an odd name: ✓", input_schema: { type: "object" } }],
      messages: [
        { role: "user", content: [{ type: "text", text: filler, cache_control: { type: "ephemeral" } }] },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "hm", signature: "sig" },
            { type: "thinking", thinking: "hm", signature: sealed },
            { type: "tool_use", id: "odd id!", name: "a tool with an odd name: ✓", input: { big: 1 } },
          ],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "odd id!", content: "done" }] },
      ],
    },
    turns: {
      tools: [{ type: "web_search_20250305", name: "web_search" }],
      messages: [
        { role: "user", content: filler },
        {
          role: "system",
          content: [
            {
              type: "tool_addition",
              tool: {
                type: "tool_definition",
                definition: { name: "a turn's tool with an odd name: ✓", input_schema: { type: "object" } },
              },
            },
          ],
        },
        { role: "user", content: "And now?" },
      ],
    },
    search: {
      tools: [
        { type: "web_search_20250305", name: "web_search", max_uses: 3 },
        { name: "own", input_schema: {} },
      ],
      messages: [
        { role: "user", content: `${filler} see https://b.example/page` },
        {
          role: "assistant",
          content: [
            { type: "server_tool_use", id: "s1", name: "web_search", input: { query: "q" } },
            {
              type: "web_search_tool_result",
              tool_use_id: "s1",
              content: [
                { type: "web_search_result", url: "https://a.example/x", title: "A", encrypted_content: hit },
              ],
            },
            { type: "text", text: "There is a text." },
          ],
        },
        { role: "user", content: "go on" },
      ],
    },
  },
  chat: {
    text: {
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: filler },
        { role: "system", content: "in between" },
      ],
      stream: true,
      store: true,
    },
    tools: {
      tools: [{ type: "function", function: { name: "f".repeat(70), parameters: { type: "object" } } }],
      messages: [
        { role: "user", content: filler },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "1", type: "function", function: { name: "f".repeat(70), arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "1", content: "ok" },
      ],
      reasoning_effort: "high",
    },
    search: {
      web_search_options: {},
      messages: [{ role: "user", content: `${filler} https://b.example/` }],
      stop: ["1", "2", "3", "4", "5"],
    },
  },
  responses: {
    text: { input: filler, instructions: "be brief", store: false },
    reasoning: {
      input: [
        { role: "user", content: filler },
        { type: "reasoning", id: "rs_1", summary: [], encrypted_content: sealed },
        { type: "reasoning", id: "rs_2", summary: [] },
        { type: "function_call", call_id: "c", name: "f", arguments: '{"a":1}' },
        { type: "function_call_output", call_id: "c", output: "ok" },
      ],
      include: ["reasoning.encrypted_content"],
      tools: [{ type: "function", name: "f", parameters: {}, strict: false }],
    },
    search: { tools: [{ type: "web_search" }], input: [{ role: "user", content: filler }] },
    compaction: {
      tools: [{ type: "web_search" }],
      tool_choice: "required",
      input: [
        {
          type: "compaction",
          encrypted_content: COMPACTED_PREFIX + sealer.seal(`${COMPACTED_PREFIX}They met.`),
        },
        { role: "user", content: filler },
        { type: "compaction_trigger" },
      ],
    },
  },
};

const bytesOf = (body: object) =>
  Buffer.from(JSON.stringify({ model: "public-model", max_tokens: 100, ...body }));

async function open(dialect: Dialect, body: Buffer, where: WorkerPool | null): Promise<RequestBody> {
  return openBody(dialect, body, { pool: where, organizationId: "org_a", closed: new Cancellation() });
}

/** Runs every kind of work on a request's body; bodies and errors are returned as text. */
async function everything(dialect: Dialect, body: Buffer, where: WorkerPool | null) {
  const call = callOf(dialect, snapshotOf([route]), "");
  const tell = async (ask: () => unknown) => {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof ApiError) return `${error.code} ${error.message} ${error.param}`;
      throw error;
    }
  };
  const text = (written: { body: Buffer }) => ({ ...written, body: written.body.toString() });
  const requestBody = await open(dialect, Buffer.from(body), where);
  const { inspected } = requestBody;
  const facts = conversionFacts(call, inspected, route, noTiers);
  const told: Record<string, unknown> = {
    where: where === null ? null : inspected.remote === null,
    needs: pathNeeds(inspected),
    key: conversationKey(inspected, "org_a", undefined),
    work: estimateWork(inspected, route),
    usual: usualInputTokens(inspected),
    refersToItems: refersToItems(inspected),
    declared: [...declaredServerTools(inspected)],
    refusal: await tell(() => refuse(inspected)),
    tools: await tell(() => checkServerTools(inspected, route, undefined)),
  };
  for (const to of dialects) {
    const upstream = upstreamOf("http://127.0.0.1:9", to, { model: "upstream-model" });
    if (to === dialect)
      told["relay"] = await tell(async () =>
        text(
          await requestBody.relay(
            route,
            upstream,
            { strict: false, encryptedReasoning: true, tiers: noTiers },
            sealer,
          ),
        ),
      );
    told[`convert to ${to}`] = await tell(async () => {
      const conversion = await requestBody.read(facts, sealer, undefined);
      const hoisted = conversion.hoistSystemTurns();
      const { stops } = conversion.reading(upstream);
      const { compacts } = conversion.carry;
      return { ...text(await conversion.write(upstream, true)), hoisted, stops, compacts };
    });
    told[`loop to ${to}`] = await tell(async () => {
      const loop = await requestBody.openLoop({ ...facts, mayOpen: true }, sealer, undefined);
      const next = { added: [], maxTokens: 50, toolChoice: undefined, instructed: true };
      return {
        ...text(await loop.write(upstream, next, firstWishes)),
        beginning: loop.beginning,
        stops: loop.reading(upstream).stops,
        cited: loop.sources.find("https://a.example/x#y"),
        size: loop.sources.size,
        open: [
          "https://b.example/",
          "https://b.example/page",
          "https://a.example/x",
          "https://c.example/",
        ].map((url) => loop.prior.has(url)),
        context: { ...loop.context, newId: null, sealer: null },
      };
    });
  }
  told["forget"] = (await requestBody.withoutReasoning())?.body.toString();
  if (dialect === "messages") {
    told["for count"] = (
      await requestBody.forCount(
        route,
        upstreamOf("http://127.0.0.1:9", "messages", { model: "other" }),
        sealer,
      )
    ).toString();
    told["count"] = await tell(() => requestBody.countTokens());
  }
  told["edited"] = (await edited(requestBody, [{ start: 1, end: 1, text: '"zzz":1,' }])).body.toString();
  return told;
}

describe.each(dialects)("%s", (dialect) => {
  test.each(Object.entries(bodies[dialect]))("%s", { timeout: 60_000 }, async (_, body) => {
    const bytes = bytesOf(body);
    const { where, ...remote } = await everything(dialect, bytes, pool);
    const { where: _where, ...here } = await everything(dialect, bytes, null);
    expect(where).toBe(false);
    expect(remote).toEqual(here);
  });
});

test("what an answer is written with", { timeout: 60_000 }, async () => {
  const prepare = async (dialect: Dialect, body: object, where: WorkerPool | null) => {
    const requestBody = await open(dialect, bytesOf(body), where);
    const call = callOf(dialect, snapshotOf([route]), "");
    return { requestBody, facts: conversionFacts(call, requestBody.inspected, route, noTiers) };
  };
  const read = async (dialect: Dialect, body: object, where: WorkerPool | null) => {
    const { requestBody, facts } = await prepare(dialect, body, where);
    return (await requestBody.read(facts, sealer, undefined)).carry;
  };
  const openLoop = async (dialect: Dialect, body: object, where: WorkerPool | null) => {
    const { requestBody, facts } = await prepare(dialect, body, where);
    return (await requestBody.openLoop({ ...facts, mayOpen: true }, sealer, undefined)).carry;
  };
  for (const [begin, dialect, name] of [
    [read, "messages", "thinking"],
    [read, "messages", "turns"],
    [openLoop, "messages", "turns"],
    [read, "chat", "tools"],
  ] as const) {
    const body = bodies[dialect][name] ?? {};
    const [remote, here] = await Promise.all([begin(dialect, body, pool), begin(dialect, body, null)]);
    for (const [alias, original] of remote.aliases) expect(here.aliases.get(alias)).toBe(original);
    expect([...remote.aliases.values()].some((original) => original.length > 20)).toBe(true);
  }
  const body = { ...bodies.responses["reasoning"], metadata: { a: "b" }, text: { verbosity: "low" } };
  const remote = await read("responses", body, pool);
  expect(remote.request).toMatchObject({
    metadata: { a: "b" },
    include: ["reasoning.encrypted_content"],
    text: { verbosity: "low" },
  });
  expect(remote.request["tools"]).toHaveLength(1);
  expect(remote.request["input"]).toBeUndefined();
  // Instructions as long as a book are not repeated with every answer.
  const book = await read("responses", { input: "x", instructions: filler.repeat(3), user: "u" }, pool);
  expect(book.request).toEqual({ user: "u" });
});

test(
  "a body of more than a MiB is handed over and comes back, or its errors do",
  { timeout: 60_000 },
  async () => {
    const large = Buffer.from(
      JSON.stringify({ model: "m", messages: [{ role: "user", content: filler.repeat(20) }] }),
    );
    const again = Buffer.from(large);
    const requestBody = await open("chat", large, pool);
    expect(large.length).toBe(0);
    expect(requestBody.body.equals(again)).toBe(true);
    const upstream = upstreamOf("http://127.0.0.1:9", "chat", { model: "m" });
    const relayed = await requestBody.relay(
      route,
      upstream,
      { strict: false, encryptedReasoning: false, tiers: noTiers },
      sealer,
    );
    expect(relayed.body.equals(again)).toBe(true);
    expect(requestBody.body.equals(again)).toBe(true);
    const bad = Buffer.from(`{"model":"m","messages":[${"{},".repeat(600_000)}]}`);
    await expect(open("chat", bad, pool)).rejects.toThrow("messages: more than 100000 messages");
  },
);

test("more objects and arrays than may be parsed are refused before that", { timeout: 60_000 }, async () => {
  const bytes = Buffer.from(
    `{"model":"m","messages":[{"role":"user","content":"x"}],"x":[${"[],".repeat(1_000_000)}[]]}`,
  );
  const requestBody = await open("chat", bytes, pool);
  const call = callOf("chat", snapshotOf([route]), "");
  await expect(
    (async () =>
      requestBody.read(conversionFacts(call, requestBody.inspected, route, noTiers), sealer, undefined))(),
  ).rejects.toThrow("The request body: more than 1000000 objects and arrays");
});

test(
  "a small request that pages have made long is written elsewhere, to the byte",
  { timeout: 60_000 },
  async () => {
    const id = "srvtoolu_1";
    const page = (data: string): NextCall => ({
      added: [
        {
          turn: [{ type: "tool_use", id, name: "web_fetch", input: { url: "https://a.example/" } }],
          results: [
            {
              type: "tool_result",
              tool_use_id: id,
              content: [
                {
                  type: "document",
                  source: { type: "text", media_type: "text/plain", data },
                  title: "A page",
                },
              ],
            },
          ],
        },
      ],
      maxTokens: 50,
      toolChoice: undefined,
      instructed: true,
    });
    const body = {
      messages: [{ role: "user", content: "Open https://a.example/" }],
      tools: [{ type: "web_fetch_20250910", name: "web_fetch" }],
    };
    const written = async (next: NextCall, to: Dialect, where: WorkerPool | null) => {
      const requestBody = await open("messages", bytesOf(body), where);
      const call = callOf("messages", snapshotOf([route]), "");
      const facts = { ...conversionFacts(call, requestBody.inspected, route, noTiers), mayOpen: true };
      const loop = await requestBody.openLoop(facts, sealer, undefined);
      const turns = new LoopTurns();
      const { body: bytes, ...more } = await loop.write(
        upstreamOf("http://127.0.0.1:9", to),
        next,
        firstWishes,
      );
      // The turn of the loop that wrote it has ended by now.
      await sleep(10);
      return { longest: turns.stop(), text: bytes.toString(), ...more };
    };
    const jobs = vi.spyOn(pool, "run");
    const long = page('"a page"\n'.repeat(1_000_000));
    let asked = 0;
    for (const to of dialects) {
      const { longest: _longest, ...here } = await written(long, to, null);
      const least = await leastOf(50, async () => {
        asked += 1;
        const { longest, ...remote } = await written(long, to, pool);
        expect(remote.text.length).toBeGreaterThan(9_000_000);
        expect(remote.text === here.text).toBe(true);
        expect({ ...remote, text: "" }).toEqual({ ...here, text: "" });
        return longest;
      });
      expect(least).toBeLessThan(50);
    }
    expect(jobs).toHaveBeenCalledTimes(asked);
    await written(page("short"), "messages", pool);
    expect(jobs).toHaveBeenCalledTimes(asked);
    // Earlier iterations have cost already: a call that is not very long is written here when no thread has time for it.
    const [some, told] = [page("a page ".repeat(20_000)), vi.fn()];
    const { longest: _longest, ...expected } = await written(some, "chat", null);
    jobs.mockImplementation(() => Promise.reject(new WorkNotDone("busy_owner")));
    expect(await written(some, "chat", pool)).toMatchObject(expected);
    await written(long, "chat", pool).catch(told);
    expect(told).toHaveBeenCalledWith(expect.objectContaining({ code: "rate_limited" }));
    jobs.mockRestore();
  },
);

test("a body that was handed over and refused is recorded with the model that it names", async () => {
  const body = Buffer.from(`{"model": "m", "system": "${filler.repeat(8)}", "messages": `);
  const closed = new Cancellation();
  await expect(openBody("messages", body, { pool, organizationId: "org_a", closed })).rejects.toThrow(
    ApiError,
  );
  expect(body.length).toBe(0);
  const summary = newRequestSummary(null);
  rememberRefused({ body, headers: {}, summary });
  expect(summary.askedModel).toBe("m");
});

test("whoever leaves is not worked for", async () => {
  const opened = async (closed: Cancellation) =>
    openBody("chat", bytesOf({ messages: [{ role: "user", content: filler }] }), {
      pool,
      organizationId: "org_a",
      closed,
    });
  const before = [1, 2, 3].map(async () => opened(new Cancellation()));
  const closed = new Cancellation();
  const waiting = opened(closed);
  closed.abort();
  await expect(waiting).rejects.toThrow("cancelled");
  await Promise.all(before);
});

test("a body that is relayed is looked at once, unless its reasoning has to be opened or it is very large", async () => {
  const jobs = vi.spyOn(pool, "run");
  const wishes = { strict: false, encryptedReasoning: true, tiers: noTiers };
  const jobsOf = async (dialect: Dialect, body: Buffer) => {
    jobs.mockClear();
    const opened = await open(dialect, body, pool);
    await opened.relay(route, upstreamOf("http://a.example", dialect), wishes, sealer);
    return jobs.mock.calls.length;
  };
  for (const dialect of dialects)
    expect(await jobsOf(dialect, bytesOf(bodies[dialect]["text"] ?? {}))).toBe(1);
  expect(await jobsOf("responses", bytesOf(bodies.responses["reasoning"] ?? {}))).toBe(2);
  expect(await jobsOf("chat", bytesOf({ messages: [{ role: "user", content: filler.repeat(30) }] }))).toBe(2);
});
