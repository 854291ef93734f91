/** Rule 7.2: a whole answer's bytes are counted as they come, as those of a long event are, and one for which there is no room is refused and charged for what came. */
import { expect, test, vi } from "vitest";
import {
  callOf,
  declaredSearch,
  routeTo,
  snapshotOf,
  toolPolicy,
  upstreamOf,
} from "../../test/fakes/inference.ts";
import { bodyOf, serveOneUpstream } from "../../test/fakes/one-upstream.ts";
import { answerOf } from "../../test/fakes/large/answers.ts";
import type { Route } from "../config/schema.ts";
import { ItemLease } from "../batches/worker/item-lease.ts";
import { dialects, type Dialect } from "../dialects/dialect.ts";
import { ApiError } from "../lib/api-error.ts";
import { ByteBudget } from "../lib/byte-budget.ts";
import { UNCOUNTED_BYTES } from "../upstream/limits.ts";
import { UpstreamCall } from "../upstream/send.ts";
import type { BodyLease } from "./call.ts";

const { callTo, fake, serve } = await serveOneUpstream();

const MIB = 1024 * 1024;
/** A busy machine may take long to write so much. */
const patient = { connectMs: 30_000, firstByteMs: 60_000, streamIdleMs: 60_000, requestMs: 60_000 };
const LENGTH = 4 * MIB;
const longAnswer = (dialect: Dialect): string => {
  const short = answerOf(dialect, "a short text").toString();
  return `{"filler":"${"a".repeat(LENGTH - short.length - 12)}",${short.slice(1)}`;
};

/** Serves one answer of 4 MiB. */
async function served(
  lease: BodyLease,
  from: Dialect = "chat",
  to: Dialect = "chat",
  timeouts: Route["timeouts"] = patient,
) {
  fake.next({ raw: { body: longAnswer(to) } });
  const call = {
    ...callTo(from, bodyOf(from), { upstream: { dialect: to }, route: { timeouts } }),
    bodyLease: lease,
  };
  const error = await serve(call).catch((thrown: unknown) => thrown);
  return { call, error };
}

test.each(dialects.flatMap((from) => [[from, "chat"] as const, [from, from] as const]))(
  "%s from %s: without room it is refused as this service's own want",
  async (from, to) => {
    const bodies = new ByteBudget(8 * MIB);
    const others = bodies.lease("org_other");
    others.take(6 * MIB);
    const lease = bodies.lease("org_a");
    const { call, error } = await served(lease, from, to);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ code: "unavailable", retryAfterSeconds: 1 });
    // The upstream charges for it: so it costs its prompt and what came.
    expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
    expect(call.meter.settled[0]?.tokens.input).toBeGreaterThan(0);
    expect(call.meter.settled[0]?.tokens.output).toBeLessThan(3 * MIB);
    expect(call.summary.calls).toMatchObject([{ fault: "exhausted" }]);
    expect([lease.bytes, bodies.used]).toEqual([0, 6 * MIB]);
    others.release();
    const alone = await served(bodies.lease("org_a"), from, to);
    expect(alone.error).toBeUndefined();
    expect(bodies.used).toBe(0);
  },
);

test("an organization that has its share gets no more while others have theirs", async () => {
  const bodies = new ByteBudget(16 * MIB);
  const [own, others] = [bodies.lease("org_a"), bodies.lease("org_other")];
  own.take(4 * MIB);
  others.take(5 * MIB);
  const { error } = await served(bodies.lease("org_a"));
  expect(error).toMatchObject({ code: "rate_limited", retryAfterSeconds: 1 });
  expect((await served(bodies.lease("org_b"))).error).toBeUndefined();
});

test("of many at once there are never more bytes than there is room for", async () => {
  let most = 0;
  const bodies = new ByteBudget(16 * MIB, {
    used: (bytes) => void (most = Math.max(most, bytes)),
    refused: () => undefined,
  });
  const all = await Promise.all(
    Array.from({ length: 24 }, (_, index) => served(bodies.lease(`org_${index}`))),
  );
  const ended = all.map(({ call, error }) => [error === undefined, call.meter.settled.length]);
  expect(ended.every(([, settled]) => settled === 1)).toBe(true);
  expect(ended.some(([isServed]) => isServed)).toBe(true);
  expect(most).toBeLessThanOrEqual(16 * MIB);
  expect(bodies.used).toBe(0);
});

test.each<[Dialect, Dialect, boolean]>([
  ["chat", "chat", true],
  ["messages", "chat", true],
  ["chat", "chat", false],
])("an unfinished event of a stream, %s from %s, after others: %s", async (from, to, begun) => {
  const chunk = (content: string) =>
    `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"${content}"},"finish_reason":null}]}\n\n`;
  const body = `${begun ? chunk("Hello") : ""}${chunk("a".repeat(LENGTH))}data: [DONE]\n\n`;
  let most = 0;
  const bodies = new ByteBudget(8 * MIB, {
    used: (bytes) => void (most = Math.max(most, bytes)),
    refused: () => undefined,
  });
  const serveStream = async () => {
    fake.next({ raw: { body, contentType: "text/event-stream" } });
    const around = { upstream: { dialect: to }, route: { timeouts: patient } };
    const call = {
      ...callTo(from, bodyOf(from, { stream: true }), around),
      bodyLease: bodies.lease("org_a"),
    };
    return { call, error: await serve(call).catch((thrown: unknown) => thrown) };
  };
  const alone = await serveStream();
  expect(alone.error).toBeUndefined();
  expect(alone.call.sink.text).toContain("a".repeat(LENGTH));
  expect(most).toBeGreaterThan(LENGTH / 2);
  expect(bodies.used).toBe(0);
  bodies.lease("org_other").take(7 * MIB);
  const { call, error } = await serveStream();
  if (begun) {
    expect(call.sink.text).toContain("The service holds as many bytes of requests and answers as it can");
    expect(call.meter.settled).toMatchObject([{ status: "error", estimated: true }]);
  } else {
    expect(error).toMatchObject({ code: "unavailable" });
    expect(call.meter.released).toBe(1);
  }
  expect(call.summary.calls).toMatchObject([{ fault: "exhausted" }]);
  expect(bodies.used).toBe(7 * MIB);
});

test.each<[Dialect, string, object]>([
  [
    "messages",
    "content_block_delta",
    { index: 0, delta: { type: "signature_delta", signature: "a".repeat(LENGTH) } },
  ],
  ["responses", "response.output_text.delta", { sequence_number: 1, delta: "a".repeat(LENGTH) }],
])("an event that a relay keeps, %s", async (dialect, type, fields) => {
  const before: Record<string, object> = {
    messages: {
      message_start: { message: { id: "m", model: "m", content: [], usage: {} } },
      content_block_start: { index: 0, content_block: { type: "thinking", thinking: "", signature: "" } },
    },
    responses: { "response.created": { response: { id: "r", model: "m" } } },
  };
  const events = Object.entries({ ...before[dialect], [type]: fields });
  const body = events
    .map(([name, more]) => `event: ${name}\ndata: ${JSON.stringify({ type: name, ...more })}\n\n`)
    .join("");
  const lastUsed: number[] = [];
  const bodies = new ByteBudget(32 * MIB, {
    used: (bytes) => lastUsed.push(bytes),
    refused: () => undefined,
  });
  const padding = `: ${"a".repeat(512 * 1024)}\n\n`;
  fake.next({ raw: { body: body + padding, contentType: "text/event-stream" } });
  const call = {
    ...callTo(dialect, bodyOf(dialect, { stream: true }), { route: { timeouts: patient } }),
    bodyLease: bodies.lease("org_a"),
  };
  await serve(call);
  // The event counts until the end, beside what comes behind it.
  expect(lastUsed.at(-2)).toBeGreaterThan(LENGTH);
  expect(lastUsed.at(-1)).toBe(0);
});

test.each<[Dialect, Dialect]>([
  ["chat", "chat"],
  ["messages", "chat"],
])("what a slow client has not taken of a stream, %s from %s", async (from, to) => {
  const chunk = (finish_reason: string | null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: { content: "Hello" }, finish_reason }] })}\n\n`;
  const body = `${chunk(null)}${chunk("stop")}data: [DONE]\n\n`;
  fake.next({ raw: { body, contentType: "text/event-stream" } });
  const bodies = new ByteBudget(8 * MIB);
  const around = { upstream: { dialect: to }, route: { timeouts: patient } };
  const call = { ...callTo(from, bodyOf(from, { stream: true }), around), bodyLease: bodies.lease("org_a") };
  call.sink.waitingBytes = MIB;
  call.sink.accept = () => false;
  const over = serve(call);
  await expect.poll(() => bodies.used).toBe(MIB);
  call.sink.accept = () => true;
  call.sink.drain();
  await over;
  expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
  expect(bodies.used).toBe(0);
});

/** What a client of each dialect has to be told once more at the end, and what a loop adds to the conversation. */
test.each<[string, Dialect, object, object]>([
  ["texts for Responses", "responses", {}, { content: "a".repeat(8_192) }],
  ["calls", "messages", {}, { tool_calls: [{ index: 0, function: { arguments: "a".repeat(8_192) } }] }],
  ["texts of a loop", "messages", declaredSearch.messages, { content: "a".repeat(8_192) }],
  ["texts of a loop for Chat", "chat", declaredSearch.chat, { content: "a".repeat(8_192) }],
])("what is kept of a stream until its end: %s", async (_, from, request, delta) => {
  const chunk = (content: object, finish_reason: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: content, finish_reason }] })}\n\n`;
  const call = { index: 0, id: "call_1", function: { name: "f", arguments: '{"a":"' } };
  const [begin, end] = "tool_calls" in delta ? [{ tool_calls: [call] }, "tool_calls"] : [{}, "stop"];
  const last = "tool_calls" in delta ? { tool_calls: [{ index: 0, function: { arguments: '"}' } }] } : {};
  const body = `${chunk(begin)}${chunk(delta).repeat(LENGTH / 8_192)}${chunk(last, end)}data: [DONE]\n\n`;
  let most = 0;
  const bodies = new ByteBudget(16 * MIB, {
    used: (bytes) => void (most = Math.max(most, bytes)),
    refused: () => undefined,
  });
  const serveStream = async () => {
    fake.next({ raw: { body, contentType: "text/event-stream" } });
    const routes = [routeTo([upstreamOf(fake.url, "chat")], { toolPolicy: "p", timeouts: patient })];
    const snapshot = snapshotOf(routes, ["*"], { "test/key": "upstream-secret" }, { p: toolPolicy });
    const asked = callOf(from, snapshot, bodyOf(from, { stream: true, ...request }));
    const kept = { ...asked, bodyLease: bodies.lease("org_a") };
    await serve(kept).catch((thrown: unknown) => thrown);
    return kept;
  };
  const alone = await serveStream();
  expect(alone.meter.settled).toMatchObject([{ status: "ok" }]);
  expect(most).toBeGreaterThan(LENGTH);
  expect(bodies.used).toBe(0);
  const others = bodies.lease("org_other");
  others.take(13 * MIB);
  const crowded = await serveStream();
  expect(crowded.sink.text).toContain("The service holds as many bytes of requests and answers as it can");
  expect(crowded.meter.settled).toMatchObject([{ status: "error" }]);
  expect(crowded.meter.settled[0]?.tokens.output).toBeGreaterThan(10_000);
  expect(bodies.used).toBe(13 * MIB);
});

test.each([
  [
    "signatures",
    { type: "thinking", thinking: "", signature: "" },
    { type: "signature_delta", signature: "" },
  ],
  ["compactions", { type: "compaction", content: "" }, { type: "compaction_delta", content: "" }],
])("%s that a loop keeps", async (_, content_block, delta) => {
  const framed = (event: { type: string }) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  const kept = "a".repeat(64 * 1024);
  const filled = "signature" in delta ? { ...delta, signature: kept } : { ...delta, content: kept };
  const blocks = Array.from({ length: 64 }, (_each, index) =>
    [
      { type: "content_block_start", index, content_block },
      { type: "content_block_delta", index, delta: filled },
      { type: "content_block_stop", index },
    ].map(framed),
  );
  const message = { id: "m", type: "message", role: "assistant", model: "m", content: [], usage: {} };
  const body = [
    framed({ type: "message_start", message } as { type: string }),
    ...blocks.flat(),
    framed({ type: "message_delta", delta: { stop_reason: "end_turn" } } as { type: string }),
    framed({ type: "message_stop" }),
  ];
  fake.next({ raw: { body: body.join(""), contentType: "text/event-stream" } });
  let most = 0;
  const bodies = new ByteBudget(64 * MIB, {
    used: (bytes) => void (most = Math.max(most, bytes)),
    refused: () => undefined,
  });
  const routes = [routeTo([upstreamOf(fake.url, "messages")], { toolPolicy: "p", timeouts: patient })];
  const snapshot = snapshotOf(routes, ["*"], { "test/key": "upstream-secret" }, { p: toolPolicy });
  const asked = callOf(
    "messages",
    snapshot,
    bodyOf("messages", { stream: true, ...declaredSearch.messages }),
  );
  await serve({ ...asked, bodyLease: bodies.lease("org_a") });
  expect(asked.meter.settled).toMatchObject([{ status: "ok" }]);
  expect(most).toBeGreaterThan(LENGTH);
  expect(bodies.used).toBe(0);
});

test("a batch item's is never refused, and counts as far as its organization's share of the budget goes", async () => {
  let most = 0;
  const bodies = new ByteBudget(8 * MIB, {
    used: (bytes) => void (most = Math.max(most, bytes)),
    refused: () => undefined,
  });
  const others = bodies.lease("org_other");
  others.take(5 * MIB);
  const lease = () => new ItemLease(bodies, "org_a", () => Promise.resolve(true));
  const one = await served(lease());
  expect(one.error).toBeUndefined();
  expect(one.call.meter.settled).toMatchObject([{ status: "ok" }]);
  expect(most).toBe(5 * MIB + Math.min(LENGTH - UNCOUNTED_BYTES, 2 * MIB));
  expect(bodies.used).toBe(5 * MIB);
  // Others' requests still have room while many of one organization's items get long answers.
  const [first, second] = [lease(), lease()];
  first.receive(3 * MIB);
  second.receive(3 * MIB);
  expect(bodies.used).toBe(7 * MIB);
  const live = bodies.lease("org_b");
  live.take(MIB);
  for (const held of [first, second, live]) held.release();
  expect(bodies.used).toBe(5 * MIB);
});

test("answers of batch items beyond their organization's share come one after the other, while others wait for a bounded time", async () => {
  const bodies = new ByteBudget(8 * MIB);
  const lease = () => new ItemLease(bodies, "org_a", () => Promise.resolve(true));
  const [first, second, third] = [lease(), lease(), lease()];
  expect(first.receive(MIB)).toBe(MIB);
  expect(first.mayReadOn()).toBeNull();
  expect(second.receive(3 * MIB)).toBe(MIB);
  // The share is used up: one goes on.
  expect(second.mayReadOn()).toBeNull();
  expect(second.receive(MIB)).toBe(0);
  expect(second.mayReadOn()).toBeNull();
  const turns: string[] = [];
  expect(third.receive(MIB)).toBe(0);
  const waiting = third.mayReadOn();
  expect(third.mayReadOn()).toBe(waiting);
  const thirdWaits = waiting?.then(() => turns.push("third"));
  first.receive(MIB);
  const firstWaits = first.mayReadOn()?.then(() => turns.push("first"));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(turns).toEqual([]);
  // Another organization's are not concerned.
  const other = new ItemLease(bodies, "org_b", () => Promise.resolve(true));
  expect(other.receive(MIB)).toBe(MIB);
  expect(other.mayReadOn()).toBeNull();
  second.release();
  await thirdWaits;
  third.release();
  await firstWaits;
  expect(turns).toEqual(["third", "first"]);
  for (const held of [first, other]) held.release();
  expect(bodies.used).toBe(0);
});

test("an upstream is paused while the answer of a batch item waits", async () => {
  const bodies = new ByteBudget(8 * MIB);
  const lease = () => new ItemLease(bodies, "org_a", () => Promise.resolve(true));
  const others = lease();
  others.receive(3 * MIB);
  expect(others.mayReadOn()).toBeNull();
  const paused = vi.spyOn(UpstreamCall.prototype, "pause");
  const item = lease();
  const over = served(item);
  await expect.poll(() => paused.mock.calls.length).toBeGreaterThan(0);
  const settled = vi.fn();
  over.then(settled, settled);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(settled).not.toHaveBeenCalled();
  others.release();
  const { call, error } = await over;
  expect(error).toBeUndefined();
  expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
  item.release();
  expect(bodies.used).toBe(0);
  paused.mockRestore();
});

test("its time-out stands still meanwhile", async () => {
  const bodies = new ByteBudget(8 * MIB);
  const lease = () => new ItemLease(bodies, "org_a", () => Promise.resolve(true));
  const others = lease();
  others.receive(3 * MIB);
  expect(others.mayReadOn()).toBeNull();
  const item = lease();
  const over = served(item, "chat", "chat", { ...patient, requestMs: 1_500 });
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  others.release();
  const { call, error } = await over;
  expect(error).toBeUndefined();
  expect(call.meter.settled).toMatchObject([{ status: "ok" }]);
  expect(call.summary.calls).toMatchObject([{ fault: null }]);
  item.release();
  expect(bodies.used).toBe(0);
});

test("it waits no longer than ten seconds", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const bodies = new ByteBudget(8 * MIB);
  const lease = () => new ItemLease(bodies, "org_a", () => Promise.resolve(true));
  const [first, second] = [lease(), lease()];
  first.receive(3 * MIB);
  expect(first.mayReadOn()).toBeNull();
  second.receive(MIB);
  const waits = second.mayReadOn();
  expect(waits).not.toBeNull();
  await vi.advanceTimersByTimeAsync(10_000);
  await waits;
  second.receive(MIB);
  expect(second.mayReadOn()).toBeNull();
  vi.useRealTimers();
});
