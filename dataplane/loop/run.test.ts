import { describe, expect, test, vi } from "vitest";
import { loopRules } from "../../test/fakes/loop-rules.ts";
import type { Bill, FinalUsage, Observed } from "../billing/meter.ts";
import type { Micros } from "../billing/credits.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { INSTRUCTION_MARK } from "../dialects/instructions.ts";
import { wholeBlock } from "../dialects/messages/events.ts";
import type {
  ContentBlock,
  MessagesEvent,
  MessagesRequest,
  MessagesUsage,
  StopReason,
} from "../dialects/messages/types.ts";
import { ApiError } from "../lib/api-error.ts";
import { CitedSources } from "../tools/links.ts";
import type { LoopRules, ToolCall } from "./loop.ts";
import { BrokenAnswer } from "./model-answer.ts";
import type { ToolOutcome } from "./results.ts";
import { nextRequest } from "./next-request.ts";
import { runLoop, type LoopInput } from "./run.ts";

const text = (value: string): ContentBlock => ({ type: "text", text: value });
const search = (query: string): ContentBlock => ({
  type: "tool_use",
  id: `call_${query}`,
  name: "web_search",
  input: { query },
});
const own = (id: string): ContentBlock => ({ type: "tool_use", id, name: "mine", input: { a: 1 } });

/** One upstream answer: its blocks, or the error it fails with, at once or after the blocks. */
interface Scripted {
  readonly blocks?: readonly ContentBlock[];
  readonly stop?: StopReason;
  readonly output?: number;
  readonly refuse?: ApiError;
  readonly cut?: ApiError;
}

function eventsOf({ blocks = [], stop, output = 5, cut }: Scripted): (MessagesEvent | ApiError)[] {
  const calls = blocks.some(({ type }) => type === "tool_use");
  return [
    {
      type: "message_start",
      message: {
        id: "msg_1",
        type: "message",
        role: "assistant",
        model: "m",
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: 10, output_tokens: 0 },
      },
    },
    ...blocks.flatMap((block, index) =>
      block.type === "text" ? textEvents(block.text, index) : wholeBlock(block, index),
    ),
    ...(cut === undefined
      ? ([
          {
            type: "message_delta",
            delta: { stop_reason: stop ?? (calls ? "tool_use" : "end_turn"), stop_sequence: null },
            usage: { output_tokens: output },
          },
          { type: "message_stop" },
        ] as const)
      : [cut]),
  ];
}

const textEvents = (value: string, index: number): MessagesEvent[] => [
  { type: "content_block_start", index, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index, delta: { type: "text_delta", text: value } },
  { type: "content_block_stop", index },
];

interface Told {
  readonly rules?: Partial<LoopRules>;
  readonly input?: Partial<LoopInput>;
  readonly upstream?: Dialect;
  readonly tool?: (call: ToolCall) => Promise<ToolOutcome>;
  /** Answers of `advance`, in order; true afterwards. */
  readonly credit?: boolean[];
  /** What `spend` answers; a call costs 10. */
  readonly left?: (spent: Observed) => Micros;
  readonly signal?: AbortSignal;
  readonly pingMs?: number;
}

const hit: ToolOutcome = {
  kind: "hits",
  hits: [{ url: "https://a.example/", title: "A", text: "snippet", age: null }],
  posts: 0,
  profiles: 0,
};

async function run(answers: readonly Scripted[], told: Told = {}) {
  const asked: MessagesRequest[] = [];
  const emitted: MessagesEvent[] = [];
  const bills: { settled: FinalUsage[]; released: number; advanced: Observed[]; spent: Observed[] } = {
    settled: [],
    spent: [],
    released: 0,
    advanced: [],
  };
  const credit = [...(told.credit ?? [])];
  let ended = false;
  const once = (end: () => void) => {
    if (!ended) end();
    ended = true;
  };
  const bill: Bill = {
    headers: {},
    settled: null,
    charged: null,
    observe: () => undefined,
    advance: async (spent) => {
      bills.advanced.push(spent);
      return credit.shift() ?? true;
    },
    spend: async (spent) => {
      bills.spent.push(spent);
      return told.left?.(spent) ?? 1_000n;
    },
    settle: async (usage) => once(() => bills.settled.push(usage)),
    release: async () => once(() => (bills.released += 1)),
  };
  let ids = 0;
  const first: MessagesRequest = { model: "m", messages: [{ role: "user", content: "hi" }] };
  const failure = await runLoop(
    {
      rules: loopRules(told.rules),
      model: "m",
      pending: [],
      serverTools: new Set(["web_search", "web_fetch", "x_search"]),
      parallelCalls: 4,
      citePages: false,
      citeDocuments: false,
      streamed: true,
      sources: new CitedSources(),
      ...told.input,
    },
    {
      ask: async (build) => {
        asked.push(nextRequest(first, build(told.upstream ?? "messages")));
        const answer = answers[asked.length - 1] ?? { blocks: [text("done")] };
        if (answer.refuse !== undefined) throw answer.refuse;
        let usage: MessagesUsage = { input_tokens: 0, output_tokens: 0 };
        return {
          upstream: "u",
          dialect: told.upstream ?? "messages",
          get usage() {
            return usage;
          },
          events: (async function* () {
            for (const event of eventsOf(answer)) {
              if (event instanceof ApiError) {
                usage = { ...usage, output_tokens: 3, estimated: true };
                throw new BrokenAnswer(event, { upstream: "u", usage, corrupt: false });
              }
              if (event.type === "message_start") usage = event.message.usage;
              if (event.type === "message_delta") usage = { ...usage, ...event.usage };
              yield [event];
            }
          })(),
        };
      },
      judge: () => Promise.resolve(),
      runTool: told.tool ?? (async () => hit),
      brought: () => Promise.resolve(),
      emit: async (events) => void emitted.push(...events),
      estimate: () => 1n,
      fee: () => 10n,
      bill,
      sealer: { seal: (plain) => `sealed:${plain}`, open: () => null },
      newId: (prefix) => `${prefix}_${(ids += 1)}`,
      signal: told.signal ?? new AbortController().signal,
      pingMs: told.pingMs ?? 10_000,
      span: null,
    },
  ).then(
    () => null,
    (error: unknown) => error,
  );
  const starts = emitted.flatMap((event) => (event.type === "content_block_start" ? [event] : []));
  const end = emitted.find((event) => event.type === "message_delta");
  return { asked, emitted, failure, starts, end, ...bills };
}

const upstreamDown = new ApiError("upstream_error", "the upstream failed");

describe("one answer over several iterations", () => {
  test("one message, contiguous indexes, calls and results whole, cumulative usage", async () => {
    const { starts, emitted, end, settled, asked } = await run([
      { blocks: [text("let me see"), search("x")] },
      { blocks: [text("found")] },
    ]);
    expect(starts.map(({ index, content_block: block }) => [index, block.type])).toEqual([
      [0, "text"],
      [1, "server_tool_use"],
      [2, "web_search_tool_result"],
      [3, "text"],
    ]);
    expect(emitted.filter(({ type }) => type === "message_start")).toHaveLength(1);
    expect(end).toMatchObject({
      delta: { stop_reason: "end_turn" },
      usage: { input_tokens: 20, output_tokens: 10, server_tool_use: { web_search_requests: 1 } },
    });
    expect(emitted.at(-1)).toEqual({ type: "message_stop" });
    expect(settled).toMatchObject([
      { status: "ok", iterations: 2, tools: { webSearches: 1 }, tokens: { input: 20, output: 10 } },
    ]);
    expect(asked[1]?.messages.slice(1)).toMatchObject([
      {
        role: "assistant",
        content: [{ type: "text" }, { type: "tool_use", id: "srvtoolu_1", name: "web_search" }],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "srvtoolu_1" }] },
    ]);
  });

  test("the end leaves only after the charge", async () => {
    const order: string[] = [];
    const { emitted } = await run([{ blocks: [text("x")] }]);
    for (const event of emitted) order.push(event.type);
    expect(order.slice(-2)).toEqual(["message_delta", "message_stop"]);
  });

  test("a server tool and a client tool in one turn: the server tool runs first, then tool_use", async () => {
    const { starts, end, asked } = await run([{ blocks: [own("toolu_1"), search("x")] }], {
      rules: { clientFunctions: true },
    });
    expect(starts.map(({ content_block: block }) => block.type)).toEqual([
      "server_tool_use",
      "web_search_tool_result",
      "tool_use",
    ]);
    expect(end).toMatchObject({ delta: { stop_reason: "tool_use" } });
    expect(asked).toHaveLength(1);
  });

  test.each(["messages", "chat", "responses"] as const)(
    "%s: a call of a tool that nobody has is an error for the model, and nothing for the client",
    async (dialect) => {
      const stray = { type: "tool_use", id: "c", name: "functions.open", input: {} } as const;
      const { starts, end, asked } = await run(
        [{ blocks: [text("Let me look."), stray] }, { blocks: [search("x"), stray] }],
        { rules: { dialect } },
      );
      expect(starts.map(({ content_block: block }) => block.type)).toEqual([
        "text",
        ...(dialect === "messages" ? [] : ["server_tool_use"]),
        "server_tool_use",
        "web_search_tool_result",
        "text",
      ]);
      expect(end).toMatchObject({ delta: { stop_reason: "end_turn" } });
      expect(asked[1]?.messages.slice(1)).toMatchObject([
        { content: [{ type: "text" }, { type: "tool_use", id: "toolu_1", name: "functions_open" }] },
        {
          content: [{ type: "tool_result", tool_use_id: "toolu_1", is_error: true }],
        },
      ]);
      expect(asked[2]?.messages[4]?.content).toMatchObject([
        { type: "tool_result", content: [{ type: "search_result" }] },
        { type: "tool_result", is_error: true },
      ]);
    },
  );

  test("results stand in call order, at most four run at once", async () => {
    let running = 0;
    let most = 0;
    const calls = ["a", "b", "c", "d", "e", "f"].map((query) => search(query));
    const { starts } = await run([{ blocks: calls }], {
      tool: async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, 5 * Math.random()));
        running -= 1;
        return hit;
      },
    });
    expect(most).toBe(4);
    const results = starts.flatMap(({ content_block: block }) =>
      block.type === "web_search_tool_result" ? [block.tool_use_id] : [],
    );
    expect(results).toEqual([
      "srvtoolu_1",
      "srvtoolu_2",
      "srvtoolu_3",
      "srvtoolu_4",
      "srvtoolu_5",
      "srvtoolu_6",
    ]);
  });

  test("thinking goes back with its signature before its call", async () => {
    const thinking: ContentBlock = { type: "thinking", thinking: "hm", signature: "sig" };
    const { asked } = await run([{ blocks: [thinking, search("x")] }]);
    expect(asked[1]?.messages[1]).toMatchObject({
      content: [{ type: "thinking", signature: "sig" }, { type: "tool_use" }],
    });
  });
});

describe("end states", () => {
  const endless = Array.from({ length: 12 }, (_, index) => ({ blocks: [search(`q${index}`)] }));

  test("Messages: 8 iterations, the last one's calls run, then pause_turn", async () => {
    const { asked, end, starts } = await run(endless);
    expect(asked).toHaveLength(8);
    expect(end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
    expect(starts.at(-1)?.content_block.type).toBe("web_search_tool_result");
  });

  test.each(["chat", "responses"] as const)(
    "%s: one final call with tool_choice none, whose calls are dropped",
    async (dialect) => {
      const { asked, end, starts } = await run(endless, { rules: { dialect } });
      expect(asked).toHaveLength(9);
      expect(asked[8]?.tool_choice).toEqual({ type: "none" });
      expect(end).toMatchObject({ delta: { stop_reason: "end_turn" } });
      expect(starts.filter(({ content_block: block }) => block.type === "server_tool_use")).toHaveLength(8);
    },
  );

  test("credit too low for the next iteration → pause_turn, what was done is charged", async () => {
    const { end, asked, settled } = await run(endless, { credit: [true, false] });
    expect(asked).toHaveLength(2);
    expect(end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
    expect(settled).toMatchObject([{ status: "ok", iterations: 2 }]);
  });

  test.each(["messages", "chat", "responses"] as const)(
    "%s: a pause behind calls of tools that nobody has ends in a failed call for a Messages client",
    async (dialect) => {
      const stray = { type: "tool_use", id: "c", name: "functions.open", input: {} } as const;
      const { starts, end, asked, settled } = await run(
        [{ blocks: [search("x")] }, { blocks: [text("Hm."), stray] }],
        {
          rules: { dialect },
          credit: [true, false],
        },
      );
      expect(asked).toHaveLength(2);
      expect(end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
      const shown = starts.map(({ content_block: block }) => block).slice(3);
      const result = { type: "web_search_tool_result_error", error_code: "invalid_tool_input" };
      expect(shown).toMatchObject(
        dialect === "messages"
          ? [
              { type: "server_tool_use", name: "web_search", input: {} },
              { type: "web_search_tool_result", content: result },
            ]
          : [{ type: "server_tool_use", name: "" }],
      );
      expect(settled).toMatchObject([{ status: "ok", iterations: 2 }]);
    },
  );

  test("a failure at the first iteration is free and has nothing emitted", async () => {
    const { failure, emitted, released, settled } = await run([{ refuse: upstreamDown }]);
    expect(failure).toBe(upstreamDown);
    expect({ emitted, released, settled }).toEqual({ emitted: [], released: 1, settled: [] });
  });

  test("Messages, whole: upstream fails after the first iteration → pause_turn, one row with status error", async () => {
    const { end, settled } = await run([{ blocks: [search("x")] }, { refuse: upstreamDown }], {
      input: { streamed: false },
    });
    expect(end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
    expect(settled).toMatchObject([{ status: "error", iterations: 1, tokens: { input: 10, output: 5 } }]);
  });

  test.each(["messages", "chat", "responses"] as const)(
    "%s, streamed: an error in the stream; the rejected iteration is not billed",
    async (dialect) => {
      const { failure, end, settled } = await run([{ blocks: [search("x")] }, { refuse: upstreamDown }], {
        rules: { dialect },
      });
      expect(failure).toMatchObject({ code: "upstream_error", retry: false });
      expect(end).toBeUndefined();
      expect(settled).toMatchObject([{ status: "error", tokens: { input: 10, output: 5 } }]);
    },
  );

  test("an iteration that streamed and was cut is billed from what was seen", async () => {
    const { settled } = await run([
      { blocks: [search("x")] },
      { blocks: [text("0123456789ab")], cut: upstreamDown },
    ]);
    expect(settled).toMatchObject([{ status: "error", estimated: true, tokens: { input: 20, output: 8 } }]);
  });

  test("a client that goes away pays for finished iterations, not for the tool under way", async () => {
    const gone = new AbortController();
    const { settled } = await run([{ blocks: [search("x")] }], {
      signal: gone.signal,
      tool: async () => {
        gone.abort();
        return hit;
      },
    });
    expect(settled).toMatchObject([
      { status: "cancelled", tokens: { input: 10, output: 5 }, tools: { webSearches: 0 } },
    ]);
  });
});

describe("calls that are not run", () => {
  test("beyond max_uses the result is max_uses_exceeded and the model continues", async () => {
    const { starts, asked } = await run([{ blocks: [search("a"), search("b")] }], {
      rules: { maxUses: { web_search: 1, web_fetch: null, x_search: null } },
    });
    expect(starts[3]?.content_block).toMatchObject({
      content: { type: "web_search_tool_result_error", error_code: "max_uses_exceeded" },
    });
    expect(JSON.stringify(asked[1]?.messages)).toContain("max_uses_exceeded: ");
  });

  test("arguments that are no object give invalid_tool_input", async () => {
    const broken: ContentBlock = {
      type: "tool_use",
      id: "c",
      name: "web_search",
      input: [] as unknown as Record<string, never>,
    };
    const { starts } = await run([{ blocks: [broken] }]);
    expect(starts[1]?.content_block).toMatchObject({ content: { error_code: "invalid_tool_input" } });
  });

  test("rule 3.6: calls of a resent conversation run first, their results open the answer", async () => {
    const { starts, asked, emitted } = await run([{ blocks: [text("so")] }], {
      input: { pending: [{ id: "srvtoolu_old", name: "web_search", input: { query: "q" } }] },
    });
    expect(emitted[0]?.type).toBe("message_start");
    expect(starts.map(({ index, content_block: block }) => [index, block.type])).toEqual([
      [0, "web_search_tool_result"],
      [1, "text"],
    ]);
    expect(asked[0]?.messages.at(-1)).toMatchObject({
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "srvtoolu_old" },
        { type: "text", text: "hi" },
      ],
    });
  });
});

test("rule 3.6: block indexes run on through further iterations after resent calls", async () => {
  const { starts } = await run([{ blocks: [search("x")] }, { blocks: [text("so")] }], {
    input: { pending: [{ id: "srvtoolu_old", name: "web_search", input: { query: "q" } }] },
  });
  expect(starts.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
});

test("a stream whose resent calls take long begins by itself, so that it can ping", async () => {
  vi.useFakeTimers();
  try {
    const going = run([{ blocks: [text("so")] }], {
      pingMs: 10_000,
      input: { pending: [{ id: "srvtoolu_old", name: "web_search", input: { query: "q" } }] },
      tool: () => new Promise((resolve) => setTimeout(() => resolve(hit), 15_000)),
    });
    await vi.advanceTimersByTimeAsync(16_000);
    const { emitted, starts } = await going;
    expect(emitted.slice(0, 3).map(({ type }) => type)).toEqual([
      "message_start",
      "ping",
      "content_block_start",
    ]);
    expect(emitted.filter(({ type }) => type === "message_start")).toHaveLength(1);
    expect(starts.map(({ index }) => index)).toEqual([0, 1]);
  } finally {
    vi.useRealTimers();
  }
});

describe("rule 7.10: calls that a resent conversation leaves pending", () => {
  const forged = (count: number): ToolCall[] =>
    Array.from({ length: count }, (_, index) => ({
      id: `srvtoolu_${index}`,
      name: "web_search",
      input: { query: `q${index}` },
    }));
  const codes = (starts: Awaited<ReturnType<typeof run>>["starts"]) =>
    starts.flatMap(({ content_block: block }) =>
      block.type !== "web_search_tool_result"
        ? []
        : [Array.isArray(block.content) ? "ok" : block.content.error_code],
    );

  test("count under max_uses like new ones", async () => {
    const { starts } = await run([{ blocks: [search("another")] }], {
      rules: { maxUses: { web_search: 2, web_fetch: null, x_search: null } },
      input: { pending: forged(4) },
    });
    expect(codes(starts)).toEqual(["ok", "ok", ...Array.from({ length: 3 }, () => "max_uses_exceeded")]);
  });

  test.each([1, 4])(
    "run only while credit is left, %i at a time; then the turn pauses, whole",
    async (parallelCalls) => {
      let most = 0;
      let running = 0;
      const { starts, asked, settled, end, emitted } = await run([], {
        input: { pending: forged(100), parallelCalls },
        left: ({ tools }) => 35n - 10n * BigInt(tools.webSearches),
        tool: async () => {
          most = Math.max(most, (running += 1));
          await new Promise((done) => setTimeout(done, 1));
          running -= 1;
          return hit;
        },
      });
      expect(codes(starts)).toEqual([
        ...Array.from({ length: 4 }, () => "ok"),
        ...Array.from({ length: 96 }, () => "unavailable"),
      ]);
      expect(most).toBe(parallelCalls);
      expect(asked).toEqual([]);
      expect(end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
      expect([emitted[0]?.type, emitted.at(-1)?.type]).toEqual(["message_start", "message_stop"]);
      expect(settled).toMatchObject([{ status: "ok", iterations: 0, tools: { webSearches: 4 } }]);
    },
  );

  test("so do those of a model's own turn", async () => {
    const { starts, settled } = await run([{ blocks: forged(20).map(({ id }) => search(id)) }], {
      left: ({ tools }) => 25n - 10n * BigInt(tools.webSearches),
      credit: [false],
    });
    expect(codes(starts).filter((code) => code === "ok")).toHaveLength(3);
    expect(settled).toMatchObject([{ tools: { webSearches: 3 } }]);
  });

  test("are charged as they finish, not in their order", async () => {
    const first = Promise.withResolvers<ToolOutcome>();
    const going = run([], {
      input: { pending: forged(4) },
      left: ({ tools }) => {
        if (tools.webSearches === 3) first.resolve(hit);
        return 1_000n;
      },
      tool: ({ id }) => (id === "srvtoolu_0" ? first.promise : Promise.resolve(hit)),
    });
    const { spent } = await going;
    expect(spent.map(({ tools }) => tools.webSearches)).toContain(3);
  });

  test("are charged when the client leaves: forty that finished, and none of those under way", async () => {
    const gone = new AbortController();
    let begun = 0;
    const { settled, released } = await run([], {
      signal: gone.signal,
      input: { pending: forged(100), parallelCalls: 1 },
      tool: async () => {
        begun += 1;
        if (begun === 41) gone.abort();
        return hit;
      },
    });
    expect([begun, released]).toEqual([41, 0]);
    expect(settled).toMatchObject([{ status: "cancelled", iterations: 0, tools: { webSearches: 40 } }]);
  });

  test("are the client's though the first iteration fails: a whole answer pauses, a stream is not repeated", async () => {
    const failing = [{ blocks: [], refuse: upstreamDown }];
    const input = { pending: forged(2) };
    const whole = await run(failing, { input: { ...input, streamed: false } });
    expect(whole.failure).toBeNull();
    expect(codes(whole.starts)).toEqual(["ok", "ok"]);
    expect(whole.end).toMatchObject({ delta: { stop_reason: "pause_turn" } });
    const streamed = await run(failing, { input });
    expect(streamed.failure).toMatchObject({ code: "upstream_error", retry: false });
    expect(streamed.emitted[0]?.type).toBe("message_start");
    expect(codes(streamed.starts)).toEqual(["ok", "ok"]);
    expect(streamed.end).toBeUndefined();
    for (const { settled } of [whole, streamed])
      expect(settled).toMatchObject([{ status: "error", tools: { webSearches: 2 } }]);
  });
});

describe("instruction and citations", () => {
  test("Responses and Chat get the marked instruction once; a Messages client over a Messages upstream none", async () => {
    const chat = await run([{ blocks: [search("x")] }], { rules: { dialect: "chat" } });
    expect(JSON.stringify(chat.asked[1]?.system).split(INSTRUCTION_MARK)).toHaveLength(2);
    expect((await run([])).asked[0]?.system).toBeUndefined();
    expect(JSON.stringify((await run([], { upstream: "chat" })).asked[0]?.system)).toContain(
      INSTRUCTION_MARK,
    );
  });

  test("links of a model without citations of its own become web_search_result_location", async () => {
    const { emitted } = await run(
      [{ blocks: [search("x")] }, { blocks: [text("see [A](https://a.example/)")] }],
      { upstream: "chat" },
    );
    expect(emitted).toContainEqual({
      type: "content_block_delta",
      index: 2,
      delta: {
        type: "citations_delta",
        citation: expect.objectContaining({
          type: "web_search_result_location",
          url: "https://a.example/",
          cited_text: "snippet",
        }) as unknown,
      },
    });
  });
});

test("a ping every interval while a tool runs", async () => {
  vi.useFakeTimers();
  try {
    const going = run([{ blocks: [text("wait"), search("x")] }], {
      pingMs: 10_000,
      tool: () => new Promise((resolve) => setTimeout(() => resolve(hit), 25_000)),
    });
    await vi.advanceTimersByTimeAsync(26_000);
    expect((await going).emitted.filter(({ type }) => type === "ping")).toHaveLength(2);
  } finally {
    vi.useRealTimers();
  }
});
