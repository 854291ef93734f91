/** Rule 7.12: what a provider hands out to be sent back passes a relay sealed to the organization. */
import { describe, expect, test } from "vitest";
import { callOf, routeTo, snapshotOf, upstreamOf, type TestCall } from "../../../test/fakes/inference.ts";
import {
  bodyOf,
  hello,
  sealedData,
  sealedEncrypted,
  sealedSignature,
  sealerOf,
  serveOneUpstream,
} from "../../../test/fakes/one-upstream.ts";
import type { Step } from "../../../test/fakes/upstream/script.ts";
import type { Upstream } from "../../config/schema.ts";
import { SEALED_PREFIX, sealReasoning, sealSignature } from "../../dialects/reasoning.ts";
import { ApiError } from "../../lib/api-error.ts";
import { boundedSealer, MAX_OPENED_BYTES } from "./sealed-reasoning.ts";

const { callTo, fake, refusal, serve } = await serveOneUpstream();

const raw = (body: string, contentType?: string, chunkBytes?: number): Step => ({
  raw: { body, ...(contentType === undefined ? {} : { contentType }) },
  ...(chunkBytes === undefined ? {} : { faults: { chunkBytes } }),
});
interface WireEvent {
  readonly type: string;
  readonly [key: string]: unknown;
}
const events = (...list: readonly WireEvent[]) =>
  list.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

/** The text with every seal opened: by what the blob was. */
const unsealed = (text: string) =>
  text.replaceAll(/gapura_r1_[\w-]+/g, (sealed) => {
    const plain = sealerOf("org_a").open(sealed.slice(SEALED_PREFIX.length));
    const { signature, data, encrypted } = JSON.parse(plain ?? "{}") as Record<string, string>;
    return signature ?? data ?? encrypted ?? "does not open";
  });
const seals = (text: string) => text.match(/gapura_r1_[\w-]+/g) ?? [];

const start = {
  type: "message_start",
  message: {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "upstream-model",
    content: [],
    usage: { input_tokens: 5, output_tokens: 1 },
  },
} as const;
const delta = (index: number, of: object) => ({ type: "content_block_delta", index, delta: of }) as const;
const stop = (index: number) => ({ type: "content_block_stop", index }) as const;
const begin = (index: number, block: object) =>
  ({ type: "content_block_start", index, content_block: block }) as const;
const end = [
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 9 } },
  { type: "message_stop" },
] as const;

describe("Messages answers", () => {
  const whole = `{ "id":"msg_1","type":"message","role":"assistant","model":"public-model","content":[
    {"type":"thinking","thinking":"hm \\"signature\\"","signature":"Eq\\/QB==","more":1.0},
    {"type":"redacted_thinking", "data":"opaque=="}, {"type":"text","text":"\\"signature\\":\\"x\\""},
    {"type":"tool_use","id":"t","name":"n","input":{"signature":"mine","data":"mine"}}],
    "stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":9}}`;

  test("a whole one: the blobs are sealed, and no other byte changes", async () => {
    fake.next(raw(whole));
    const call = callTo("messages", bodyOf("messages"));
    await serve(call);
    expect(seals(call.sink.text)).toHaveLength(2);
    expect(unsealed(call.sink.text)).toBe(whole.replace("\\/", "/"));
  });

  const streamed = events(
    start,
    begin(0, { type: "thinking", thinking: "", signature: "" }),
    delta(0, { type: "thinking_delta", thinking: 'hm "signature_delta"' }),
    delta(0, { type: "thinking_delta", thinking: "signature_delta" }),
    delta(0, { type: "signature_delta", signature: "EqQB==" }),
    stop(0),
    begin(1, { type: "redacted_thinking", data: "opaque==" }),
    stop(1),
    begin(2, { type: "compaction", content: null, encrypted_content: null }),
    delta(2, { type: "compaction_delta", content: "so far", encrypted_content: "compacted==" }),
    stop(2),
    begin(3, { type: "text", text: "" }),
    delta(3, { type: "text_delta", text: "signature_delta" }),
    stop(3),
    ...end,
  ).replaceAll("upstream-model", "public-model");

  test.each([1, 7, 100_000])("a streamed one, in pieces of %i bytes: the same", async (chunkBytes) => {
    fake.next(raw(streamed, "text/event-stream", chunkBytes));
    const call = callTo("messages", bodyOf("messages", { stream: true }));
    await serve(call);
    expect(seals(call.sink.text)).toHaveLength(3);
    expect(unsealed(call.sink.text)).toBe(streamed);
  });

  test("a signature in pieces is one, before the block's end; pings do not end it", async () => {
    const pieces = ["Eq", "QB", "=="];
    const inPieces = events(
      start,
      begin(0, { type: "thinking", thinking: "", signature: "" }),
      delta(0, { type: "thinking_delta", thinking: "hm" }),
      ...pieces.flatMap((signature) => [delta(0, { type: "signature_delta", signature }), { type: "ping" }]),
      stop(0),
      ...end,
    );
    fake.next(raw(inPieces, "text/event-stream"));
    const call = callTo("messages", bodyOf("messages", { stream: true }));
    await serve(call);
    const names = [...call.sink.text.matchAll(/signature_delta|content_block_stop(?=\n)/g)].map(String);
    expect(names).toEqual(["signature_delta", "content_block_stop"]);
    expect(unsealed(call.sink.text)).toContain('{"type":"signature_delta","signature":"EqQB=="}');
  });

  test.each([
    ["a signature", '{"type":"signature_delta","signature":"one==","signature":"two=="}'],
    ["one that is empty then", '{"type":"signature_delta","signature":"one==","signature":""}'],
    ["a delta", '{"type":"signature_delta","signature":"one=="},"delta":{"type":"text_delta","text":"hm"}'],
    [
      "encrypted content",
      '{"type":"compaction_delta","encrypted_content":"one==","encrypted_content":"two=="}',
    ],
  ])("what stands twice in a delta is sealed wherever it stands: %s", async (_, twice) => {
    const type = twice.includes("compaction") ? "compaction" : "thinking";
    const sent = events(start, begin(0, { type }), delta(0, {}), stop(0), ...end);
    fake.next(raw(sent.replace("{}}", `${twice}}`), "text/event-stream"));
    const call = callTo("messages", bodyOf("messages", { stream: true }));
    await serve(call);
    expect(seals(call.sink.text).length).toBeGreaterThan(0);
    expect(call.sink.text).not.toMatch(/one==|two==/);
  });

  test("an event without a name, of several lines of data, and with a foreign model's name", async () => {
    const lines = (event: object) =>
      `data: ${JSON.stringify(event, null, 1).replaceAll("\n", "\ndata: ")}\n\n`;
    const block = begin(0, { type: "redacted_thinking", data: "opaque==" });
    const message = { ...start.message, content: [{ type: "redacted_thinking", data: "first==" }] };
    fake.next(
      raw(events({ ...start, message }) + lines(block) + events(stop(0), ...end), "text/event-stream"),
    );
    const call = callTo("messages", bodyOf("messages", { stream: true }));
    await serve(call);
    expect(unsealed(call.sink.text)).toContain(
      '"model":"public-model","content":[{"type":"redacted_thinking","data":"first=="}]',
    );
    expect(unsealed(call.sink.text)).toContain('data:   "data": "opaque=="');
    expect(seals(call.sink.text)).toHaveLength(2);
  });

  test("an account of the organization's own: nothing is sealed", async () => {
    fake.next(raw(streamed, "text/event-stream"), raw(whole));
    for (const [stream, expected] of [
      [true, streamed],
      [false, whole],
    ] as const) {
      const call = callTo("messages", bodyOf("messages", { stream }), { upstream: { dedicatedTo: "org_a" } });
      await serve(call);
      expect(call.sink.text).toBe(expected);
    }
  });
});

describe("Responses answers", () => {
  const reasoning = { id: "rs_1", type: "reasoning", summary: [], encrypted_content: "gAAA==" };
  const message = {
    id: "msg_1",
    type: "message",
    role: "assistant",
    content: [{ type: "output_text", text: '{"encrypted_content":"x"}' }],
  };
  const compaction = { encrypted_content: "compacted==", type: "compaction", id: "cmp_1" };
  const response = {
    id: "resp_1",
    object: "response",
    status: "completed",
    model: "public-model",
    metadata: { encrypted_content: "the client's" },
    output: [reasoning, message, compaction],
    usage: { input_tokens: 5, output_tokens: 9 },
  };
  const done = (item: object, index: number) =>
    ({ type: "response.output_item.done", output_index: index, item }) as const;
  const stream = events(
    { type: "response.created", response: { ...response, output: [] } },
    {
      type: "response.output_item.added",
      output_index: 0,
      item: { ...reasoning, encrypted_content: "begun==" },
    },
    done(reasoning, 0),
    done(message, 1),
    done(compaction, 2),
    { type: "response.completed", response },
  );

  test("a whole one: items are sealed with their id, and no other byte changes", async () => {
    const body = JSON.stringify(response, null, 2);
    fake.next(raw(body));
    const call = callTo("responses", bodyOf("responses"));
    await serve(call);
    expect(seals(call.sink.text)).toHaveLength(2);
    expect(unsealed(call.sink.text)).toBe(body);
    const [first] = seals(call.sink.text);
    expect(JSON.parse(sealerOf("org_a").open(first?.slice(SEALED_PREFIX.length) ?? "") ?? "")).toEqual({
      from: "responses",
      id: "rs_1",
      encrypted: "gAAA==",
    });
  });

  test.each([1, 100_000])("a streamed one, in pieces of %i bytes: the same in every event", async (bytes) => {
    fake.next(raw(stream, "text/event-stream", bytes));
    const call = callTo("responses", bodyOf("responses", { stream: true }));
    await serve(call);
    const found = seals(call.sink.text);
    expect(found).toHaveLength(5);
    // Added, twice done, and the whole again at the end: with the same seals.
    expect(found.slice(3)).toEqual(found.slice(1, 3));
    expect(unsealed(call.sink.text)).toBe(stream);
  });

  test.each([true, false])(
    "of a member that an item has twice the last is kept (stream: %s)",
    async (streamed) => {
      const odd = `{"type":"reasoning","id":"no","id":"rs_1","summary":[{"type":"a","text":"x","type":"summary_text"}],"encrypted_content":"one==","encrypted_content":"two=="}`;
      const all = JSON.stringify(reasoning);
      fake.next(
        streamed
          ? raw(stream.replaceAll(all, odd), "text/event-stream")
          : raw(JSON.stringify(response).replace(all, odd)),
      );
      const kept = new Map<string, string>();
      const items = {
        keep: (id: string, json: Buffer | string) => void kept.set(id, json.toString()),
        find: async () => [],
      };
      const call: TestCall = { ...callTo("responses", bodyOf("responses", { stream: streamed })), items };
      await serve(call);
      expect(unsealed(kept.get("rs_1") ?? "")).toBe(
        '{"type":"reasoning","id":"rs_1","summary":[{"text":"x","type":"summary_text"}],"encrypted_content":"two=="}',
      );
    },
  );

  test.each([null, "batch_1"])(
    "reasoning is asked for whole, to be sent back (batch: %s)",
    async (batchId) => {
      const items = { keep: () => undefined, find: async () => [] };
      for (const store of [{}, { store: false }]) {
        fake.next(raw(JSON.stringify(response)));
        await serve({ ...callTo("responses", bodyOf("responses", store)), items, batchId });
        const asked = fake.requests.at(-1)?.text.includes('"include":["reasoning.encrypted_content"]');
        expect(asked).toBe(!("store" in store));
      }
    },
  );

  test.each([true, false])("items are kept as the client got them (stream: %s)", async (streamed) => {
    fake.next(streamed ? raw(stream, "text/event-stream") : raw(JSON.stringify(response)));
    const kept = new Map<string, string>();
    const items = {
      keep: (id: string, json: Buffer | string) => void kept.set(id, json.toString()),
      find: async () => [],
    };
    const call: TestCall = {
      ...callTo("responses", bodyOf("responses", { stream: streamed })),
      items,
    };
    await serve(call);
    expect(unsealed(kept.get("rs_1") ?? "")).toBe(JSON.stringify(reasoning));
    expect(call.sink.text).toContain(kept.get("rs_1"));
  });

  test("an account of the organization's own: nothing is sealed", async () => {
    fake.next(raw(stream, "text/event-stream"));
    const call = callTo("responses", bodyOf("responses", { stream: true }), {
      upstream: { dedicatedTo: "org_a" },
    });
    await serve(call);
    expect(call.sink.text).toBe(stream);
  });
});

/** What the upstream got of a conversation. */
async function sent(
  dialect: "messages" | "responses",
  turns: readonly object[],
  own: Partial<Upstream> = {},
) {
  fake.next(hello);
  const more = dialect === "messages" ? { messages: turns } : { input: turns };
  const call = callTo(dialect, bodyOf(dialect, { model: "alias", ...more }), { upstream: own });
  await serve(call);
  expect(call.summary.servingPath).toBe("relay");
  const body = fake.requests.at(-1)?.json() as Record<"messages" | "input", unknown>;
  return dialect === "messages" ? body.messages : body.input;
}

const user = { role: "user", content: "And?" };
const thinking = (signature: string) => ({ type: "thinking", thinking: "hm", signature });
const redacted = (data: string) => ({ type: "redacted_thinking", data });
const call = { type: "tool_use", id: "toolu_1", name: "n", input: { data: "mine", signature: "mine" } };
const result = { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "4" }] };
const assistant = (...content: object[]) => ({ role: "assistant", content });
const item = (encrypted_content: string) => ({
  type: "reasoning",
  id: "rs_1",
  summary: [],
  encrypted_content,
});
const chatMark = sealSignature('gapura:reasoning:{"from":"chat"}', sealerOf("org_a"));

describe("what a Messages client sends back", () => {
  test("our own seals are opened where they stand", async () => {
    const turns = [
      user,
      assistant(thinking(sealedSignature("Eq/QB==")), redacted(sealedData("opaque==")), call),
      result,
    ];
    expect(await sent("messages", turns)).toEqual([
      user,
      assistant(thinking("Eq/QB=="), redacted("opaque=="), call),
      result,
    ]);
  });

  test.each([
    ["another organization's", sealedSignature("EqQB", "org_b")],
    ["what was never sealed", "EqQB"],
    ["a damaged one", `${sealedSignature("EqQB")}A`],
    ["what another dialect's upstream made", chatMark],
  ])("rule 2.17: %s is left out, never 400", async (_, signature) => {
    const turns = [user, assistant(thinking(signature), call), result];
    expect(await sent("messages", turns)).toEqual([user, assistant(call), result]);
    expect(fake.requests.at(-1)?.text).not.toContain("EqQB");
  });

  test("a turn that would be left empty goes; reasoning without a signature is nobody's secret", async () => {
    const unsigned = { type: "thinking", thinking: "hm", signature: "" };
    const turns = [user, assistant(thinking("EqQB"), redacted("x")), user, assistant(unsigned), user];
    expect(await sent("messages", turns)).toEqual([user, user, assistant(unsigned), user]);
  });

  test("blobs within one another, in the instructions, and compactions", async () => {
    const odd = { ...thinking("EqQB"), content: [thinking(sealedSignature("inner"))] };
    const compaction = (blob: string) => ({ type: "compaction", content: "so far", encrypted_content: blob });
    const sealedCompaction = SEALED_PREFIX + sealerOf("org_a").seal('{"from":"messages","encrypted":"c=="}');
    const turns = [
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: "t", content: [odd, thinking("EqQB")] }],
      },
      assistant(compaction(sealedCompaction), call),
    ];
    expect(await sent("messages", turns)).toEqual([
      { role: "user", content: [{ type: "tool_result", tool_use_id: "t", content: [] }] },
      assistant(compaction("c=="), call),
    ]);
  });

  const compacted = (blob: string) => ({ type: "compaction", content: "so far", encrypted_content: blob });
  test.each([
    ["another provider's", compacted("c=="), "encrypted_content"],
    ["another account's", compacted(sealedSignature("c==", "org_b")), "encrypted_content"],
    ["a damaged one", compacted(`${SEALED_PREFIX}x`), "encrypted_content"],
    [
      "one with a foreign signature",
      { type: "compaction", content: "so far", signature: "EqQB" },
      "signature",
    ],
  ])("a compaction stands for all before it, so that it is not left out: %s", async (_, block, field) => {
    const refusal = {
      code: "invalid_request_error",
      param: `messages.0.content.0.${field}`,
      message: expect.stringContaining("this compaction is damaged") as string,
    };
    const turns = [assistant(block), user];
    await expect(sent("messages", turns)).rejects.toMatchObject(refusal);
    const converted = callTo("messages", bodyOf("messages", { messages: turns }), {
      upstream: { dialect: "chat" },
    });
    await expect(serve(converted)).rejects.toMatchObject(refusal);
  });

  test("a compaction that failed holds nothing", async () => {
    const failed = assistant({ type: "compaction", content: null, encrypted_content: null });
    expect(await sent("messages", [user, failed, user])).toEqual([user, failed, user]);
  });

  test("an account of the organization's own gets both, what is sealed and what is not", async () => {
    const turns = [user, assistant(thinking("EqQB"), thinking(sealedSignature("EqQC")), call), result];
    expect(await sent("messages", turns, { dedicatedTo: "org_a" })).toEqual([
      user,
      assistant(thinking("EqQB"), thinking("EqQC"), call),
      result,
    ]);
  });
});

describe("what a Responses client sends back", () => {
  test("our own seals are opened where they stand, also a conversion's", async () => {
    const mark = 'gapura:reasoning:{"from":"responses","id":"rs_1","encrypted":"gAAA=="}';
    const converted = sealReasoning({ type: "thinking", thinking: "hm", signature: mark }, sealerOf("org_a"));
    const turns = [user, item(sealedEncrypted("rs_1", "gAAA==")), item(converted), user];
    expect(await sent("responses", turns)).toEqual([user, item("gAAA=="), item("gAAA=="), user]);
  });

  test.each([
    ["another organization's", item(sealedEncrypted("rs_1", "gAAA==", "org_b"))],
    ["what was never sealed", item("gAAA==")],
    ["what was never sealed, by an escaped name", null],
    ["what a Messages upstream made", item(sealedSignature("gAAA=="))],
    [
      "parts of other items",
      { type: "agent_message", content: [{ type: "x", encrypted_content: "gAAA==" }] },
    ],
    ["unknown places", { type: "future", deep: [{ er: { encrypted_content: "gAAA==" } }] }],
    [
      "a bare item with one inside",
      { type: "reasoning", id: "r", summary: [{ encrypted_content: "gAAA==" }] },
    ],
    ["an item whose content is null", { type: "reasoning", id: "r", summary: [], encrypted_content: null }],
    ["one whose content is a number", { type: "reasoning", id: "r", summary: [], encrypted_content: 12345 }],
  ])("rule 2.17: %s are left out, never 400", async (_, given) => {
    fake.next(hello);
    const input = JSON.stringify([user, given ?? item("gAAA=="), user]);
    const text = given === null ? input.replace("encrypted_content", "encrypt\\u0065d_content") : input;
    const one = callTo("responses", `{"model":"public-model","input":${text}}`);
    await serve(one);
    expect(fake.requests.at(-1)?.text).not.toContain("gAAA");
    expect(fake.requests.at(-1)?.json()).toMatchObject({ input: [user, user] });
  });

  test("an item that goes with a tool that goes inside of it", async () => {
    const odd = {
      type: "additional_tools",
      tools: [{ type: "web_search", external_web_access: false }],
      encrypted_content: "gAAA==",
    };
    expect(await sent("responses", [odd, user])).toEqual([user]);
  });
});

test("what is sealed for one upstream and comes back to another account is asked again without", async () => {
  fake.next({ error: { status: 400, message: "The encrypted content could not be verified." } }, hello);
  const one = callTo(
    "responses",
    bodyOf("responses", { input: [item(sealedEncrypted("rs_1", "gA")), user] }),
  );
  await serve(one);
  expect(fake.requests.map(({ text }) => text.includes('"gA"'))).toEqual([true, false]);
});

test("through a conversion the same seals come and go", async () => {
  // A Messages client whose earlier answer was relayed, now with a Responses upstream: not its own, so left out.
  fake.next(hello);
  const turns = [user, assistant(thinking(sealedSignature("EqQB")), { type: "text", text: "A" }), user];
  const route = routeTo([upstreamOf(fake.url, "responses")]);
  await serve(callOf("messages", snapshotOf([route]), bodyOf("messages", { messages: turns })));
  expect(fake.requests.at(-1)?.text).not.toContain("EqQB");
  expect(fake.requests.at(-1)?.text).not.toContain(SEALED_PREFIX);
});

describe("an upstream that is dedicated to one organization", () => {
  const shared = (more: Partial<Upstream>) => upstreamOf(fake.url, "chat", { name: "shared", ...more });
  const own = (organization: string, more: Partial<Upstream> = {}) =>
    upstreamOf(fake.url, "chat", { name: `of_${organization}`, dedicatedTo: organization, ...more });
  const upstreamOfCall = async (upstreams: Upstream[]) => {
    fake.next(hello);
    const one = callOf("chat", snapshotOf([routeTo(upstreams)]), bodyOf("chat"));
    await serve(one);
    return one.summary.upstream;
  };

  test("serves that one, and no other's requests go there, whatever its priority", async () => {
    expect(await upstreamOfCall([own("org_b", { priority: 0 }), shared({ priority: 1 })])).toBe("shared");
    expect(await upstreamOfCall([own("org_a", { priority: 0 }), shared({ priority: 1 })])).toBe("of_org_a");
  });

  test("is not asked when all others are out, nor when they fail", async () => {
    const route = routeTo([own("org_b"), shared({ url: "http://127.0.0.1:9/v1/chat/completions" })], {
      retries: { attempts: 5, retryOn: ["connect"] },
    });
    const one = callOf("chat", snapshotOf([route]), bodyOf("chat"));
    for (let time = 0; time < 3; time += 1) expect((await refusal(one)).kind.status).toBe(502);
    expect(fake.requests).toHaveLength(0);
  });

  test("a route that has no other is no route for others", async () => {
    const one = callOf("chat", snapshotOf([routeTo([own("org_b")])]), bodyOf("chat"));
    expect((await refusal(one)).code).toBe("model_not_found");
  });
});

describe("limits", () => {
  test("one small seal sent many times does not unpack without end: 413", async () => {
    const large = sealedEncrypted("rs_1", "A".repeat(MAX_OPENED_BYTES / 8));
    const input = Array.from({ length: 12 }, () => item(large));
    const error = await refusal(callTo("responses", bodyOf("responses", { input })));
    expect(error.kind.status).toBe(413);
    expect(fake.requests).toHaveLength(0);
  });

  test("the same for what a conversion opens", () => {
    const sealer = sealerOf("org_a");
    const sealed = sealer.seal("A".repeat(MAX_OPENED_BYTES / 4));
    const bounded = boundedSealer(sealer);
    const open = () => Array.from({ length: 6 }, () => bounded.open(sealed));
    expect(open).toThrow(ApiError);
  });

  test("bytes are counted, and not the units of a text", () => {
    const sealer = sealerOf("org_a");
    const sealed = sealer.seal("€".repeat(MAX_OPENED_BYTES / 8));
    const bounded = boundedSealer(sealer);
    expect(() => Array.from({ length: 4 }, () => bounded.open(sealed))).toThrow(ApiError);
  });

  test("nearly a hundred thousand blobs that do not open are all left out", async () => {
    const turns = [...Array.from({ length: 99_999 }, () => item("gAAA")), user];
    expect(await sent("responses", turns)).toEqual([user]);
  });
});
