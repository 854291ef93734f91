import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { countSample } from "./count.ts";
import type { CountableRequest } from "./request-texts.ts";
import { sampledTexts } from "./sample.ts";

const countTokens = async (request: CountableRequest) =>
  countSample(sampledTexts(request), "org_1", new AbortController().signal);
const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
/** What stands around one user message. */
const around = 4 + 3;

describe("of very long texts the count is an estimate within 15% (rule 7.5)", () => {
  const english = readFileSync(new URL("../../docs/tools.md", import.meta.url), "utf8");
  const code = readFileSync(new URL("../tools/web-fetch/extract/scan.ts", import.meta.url), "utf8");
  const chinese = "模型网关计费系统与推理服务按组织分配额度,每个请求在回答结束之前完成结算。".repeat(40);
  const numbers = Array.from({ length: 3_000 }, (_, n) => `${n},${n * 7919},row ${n}\n`).join("");
  const repeated = (text: string, length: number) => text.repeat(Math.ceil(length / text.length));
  const long = 2_000_000;

  test.each([
    ["English", repeated(english, long)],
    ["code", repeated(code, long)],
    ["Chinese", repeated(chinese, long)],
    ["a table", repeated(numbers, long)],
    ["mixed", repeated(english + code + chinese, long)],
    ["English, then Chinese", repeated(english, long) + repeated(chinese, long)],
    ["code, then a table", repeated(code, long) + repeated(numbers, long / 10)],
  ])("%s", async (_, text) => {
    // Messages of less than 256 Ki characters are counted as they are.
    let exact = 0;
    for (let start = 0; start < text.length; start += 200_000)
      exact += (await countTokens(user(text.slice(start, start + 200_000)))) - around;
    const estimate = (await countTokens(user(text))) - around;
    expect(Math.abs(estimate / exact - 1)).toBeLessThan(0.15);
    expect(await countTokens(user(text))).toBe(estimate + around);
    // Spread over many messages it is the same text.
    const parts = Array.from({ length: 2_000 }, (__, n) => text.slice(n * 2_000, (n + 1) * 2_000));
    const spread = await countTokens({ messages: parts.map((content) => ({ role: "user", content })) });
    const share = Math.min(text.length, 4_000_000) / text.length;
    expect(Math.abs((spread - 4 * parts.length) / (exact * share) - 1)).toBeLessThan(0.15);
  });
});
