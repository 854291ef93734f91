import { expect, test } from "vitest";
import { countTokens } from "./count.ts";
import { DOCUMENT_TOKENS, estimateInputTokens, IMAGE_TOKENS } from "./estimate.ts";

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

test("counting lets other work run in between", async () => {
  await countTokens(user("warm"));
  let longest = 0;
  let last = performance.now();
  const beat = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  const words = Array.from({ length: 60_000 }, (_, n) => `word${n} `).join("");
  await countTokens(user(words));
  clearInterval(beat);
  expect(longest).toBeLessThan(200);
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

test("very long texts are counted by ratio, close to the truth", async () => {
  const sentence = "The quick brown fox jumps over the lazy dog. ";
  const short = await countTokens(user(sentence.repeat(1000)));
  const long = await countTokens(user(sentence.repeat(100_000)));
  expect(Math.abs(long / short / 100 - 1)).toBeLessThan(0.02);
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
