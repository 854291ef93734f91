import { expect, test } from "vitest";
import { LoopTurns } from "../../test/fakes/loop-turns.ts";
import { refusedFor } from "../../test/fakes/refused-requests.ts";
import { countSample } from "./count.ts";
import { DOCUMENT_TOKENS, estimateInputTokens, IMAGE_TOKENS } from "./estimate.ts";
import type { CountableRequest } from "./request-texts.ts";
import { sampledTexts } from "./sample.ts";

const countFor = async (request: CountableRequest, owner: string, signal: AbortSignal) =>
  countSample(sampledTexts(request), owner, signal);
const countTokens = (request: CountableRequest, signal = new AbortController().signal) =>
  countFor(request, "org_1", signal);
const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
/** What stands around one user message. */
const around = 4 + 3;

test("an English sentence counts as the tokenizer says, whichever way it is written", async () => {
  const sentence = "The quick brown fox jumps over the lazy dog.";
  expect(await countTokens(user(sentence))).toBe(10 + around);
  expect(await countTokens(user([{ type: "text", text: sentence }]))).toBe(10 + around);
  expect(await countTokens({ ...user("x"), system: sentence })).toBe(10 + 1 + around);
});

test("base64 is not counted as text (rule 2.18)", async () => {
  const data = "A".repeat(500_000);
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data } };
  const pdf = { type: "document", source: { type: "base64", media_type: "application/pdf", data } };
  expect(await countTokens(user([image]))).toBe(IMAGE_TOKENS + around);
  expect(await countTokens(user([pdf]))).toBe(DOCUMENT_TOKENS + around);
  const inResult = { type: "tool_result", tool_use_id: "t", content: [image, { type: "text", text: "x" }] };
  expect(await countTokens(user([inResult]))).toBe(IMAGE_TOKENS + 1 + around);
});

test("a text document counts by its text, tools by their declarations", async () => {
  const document = { type: "document", source: { type: "text", media_type: "text/plain", data: "x" } };
  expect(await countTokens(user([document]))).toBe(1 + around);
  const tools = [
    { name: "get_weather", description: "Weather of a city.", input_schema: { type: "object" } },
  ];
  const withTools = await countTokens({ ...user("x"), tools });
  expect(withTools).toBeGreaterThan(1 + around + 15);
  expect(withTools).toBeLessThan(1 + around + 40);
});

test("200 kB of one letter answers within a second (rule 2.18)", async () => {
  await countTokens(user("warm"));
  const started = performance.now();
  const letters = await countTokens(user("x".repeat(200_000)));
  expect(performance.now() - started).toBeLessThan(1000);
  expect(letters).toBeGreaterThan(5_000);
});

/** Runs `work` and tells the longest time that nothing else in this thread had its turn, in milliseconds. */
async function longestHold(work: () => Promise<unknown>): Promise<number> {
  const turns = new LoopTurns();
  await work();
  return turns.stop();
}

/** Several times what is meant: the machine does other things, too. */
const HOLD_MS = 100;
/** Texts of larger bodies are gathered in another thread. */
const BYTES = 64 * 1024;
const list = (value: unknown): unknown[] =>
  Array(Math.floor(BYTES / (JSON.stringify(value).length + 1))).fill(value);

test.each<[string, CountableRequest]>([
  ["many words", user(Array.from({ length: 6_000 }, (_, n) => `word${n} `).join(""))],
  ["many messages", { messages: list(user("a").messages[0]) }],
  ["a long list", { tools: [{ enum: list(1) }], messages: [] }],
  ["one long text", user("模型网关 计费 ".repeat(3_000))],
  ["a long text in a tool", { tools: [{ description: 'quoted "text"\n'.repeat(4_000) }] }],
  ["depth", user(JSON.parse(`${"[".repeat(30_000)}"x"${"]".repeat(30_000)}`))],
])("counting holds up nobody, the vocabulary's first use included: %s", async (_, request) => {
  expect(await longestHold(() => countTokens(request))).toBeLessThan(HOLD_MS);
});

/** Of the longest text that is tokenized whole. */
const longest = user(Array.from({ length: 32_000 }, (_, n) => `w${n} `).join(""));

test("whoever leaves is not counted for any longer", async () => {
  const gone = new AbortController();
  const counting = Array.from({ length: 30 }, () => countTokens(longest, gone.signal));
  const left = performance.now();
  gone.abort(new Error("left"));
  const ended = await Promise.allSettled(counting);
  expect(ended.every(({ status }) => status === "rejected")).toBe(true);
  expect(performance.now() - left).toBeLessThan(1_000);
  await expect(countTokens(user("x"), gone.signal)).rejects.toThrow("left");
});

test("one organization's counts do not hold up another's", async () => {
  const gone = new AbortController();
  const order: string[] = [];
  const flood = Array.from({ length: 30 }, () =>
    countFor(longest, "org_1", gone.signal).then(
      () => order.push("flood"),
      () => undefined,
    ),
  );
  await countFor(user("hello"), "org_2", new AbortController().signal);
  expect(order.length).toBeLessThan(2);
  gone.abort();
  await Promise.all(flood);
});

test("special tokens, lone surrogates, emoji at the cut and odd shapes never fail", async () => {
  const odd = [
    "<|endoftext|>",
    "\ud800",
    `${"x".repeat(999)}😀${"y".repeat(10)}`,
    null,
    7,
    [],
    [null, 1, { type: "unknown", text: "x" }, { type: "image" }, { type: "document" }, { type: "tool_use" }],
  ];
  for (const content of odd) expect(await countTokens(user(content))).toBeGreaterThan(0);
  for (const body of [{}, { messages: "x" }, { messages: [1] }, { tools: {} }, { system: 5 }]) {
    expect(await countTokens(body)).toBeGreaterThan(0);
  }
});

test("the hot path's estimate is at least the count for ordinary text (rule 1.8)", async () => {
  const texts = [
    "The quick brown fox jumps over the lazy dog. ",
    "模型网关计费系统与推理",
    "export function readText(value: unknown): string { return String(value); }\n",
  ];
  for (const text of texts) {
    const long = text.repeat(50);
    const estimate = estimateInputTokens({ textBytes: Buffer.byteLength(long), images: 0, documents: 0 });
    expect(estimate).toBeGreaterThanOrEqual((await countTokens(user(long))) - around);
  }
  expect(estimateInputTokens({ textBytes: 10, images: 2, documents: 1 })).toBe(
    4 + 2 * IMAGE_TOKENS + DOCUMENT_TOKENS,
  );
});

test("a count beyond those that may wait is refused, and counted as such", async () => {
  const before = await refusedFor("counting");
  const left = new AbortController();
  // One is counted, and a thousand wait.
  const some = Array.from({ length: 1_001 }, () => countFor(user("some words"), "org_many", left.signal));
  const last = countFor(user("some words"), "org_many", left.signal);
  await expect(last).rejects.toMatchObject({ code: "rate_limited", retryAfterSeconds: 1 });
  left.abort();
  await Promise.allSettled(some);
  // Those whose clients left were not refused.
  expect((await refusedFor("counting")) - before).toBe(1);
});
