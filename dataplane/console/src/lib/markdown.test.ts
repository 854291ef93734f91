import type { Token } from "marked";
import { expect, test } from "vitest";
import { readMarkdown } from "./markdown.ts";

const SIZE = 100_000;
const repeated = (text: string) => text.repeat(SIZE / text.length);
const around = (open: string, close: string) => {
  const times = SIZE / (open.length + close.length);
  return `${open.repeat(times)}x${close.repeat(times)}`;
};
const depth = (tokens: readonly Token[]): number =>
  tokens.length === 0
    ? 0
    : 1 +
      tokens.reduce((most, token) => {
        const inner =
          "items" in token ? (token.items as Token[]) : ((token as { tokens?: Token[] }).tokens ?? []);
        return Math.max(most, depth(inner));
      }, 0);

test.for([
  ["quotes", repeated(">")],
  ["spaced quotes", repeated("> ")],
  ["quotes and lists", repeated("> - ")],
  ["lists on one line", repeated("* 1. ")],
  ["lists", Array.from({ length: 440 }, (_, level) => `${" ".repeat(2 * level)}- x`).join("\n")],
  ["strong", around("**a ", " b**")],
  ["struck emphasis", around("~~*a ", " b*~~")],
  ["brackets", around("[", "](b)")],
])("deeply nested %s become a shallow tree, soon", ([, text = ""]) => {
  const before = performance.now();
  const tokens = readMarkdown(text);
  // Without the limit these overflow the stack, or take up to thirteen seconds.
  expect(performance.now() - before).toBeLessThan(4_000);
  expect(depth(tokens)).toBeLessThan(100);
});

test("what people write is read as ever", () => {
  const [quote, , list] = readMarkdown("> a **b**\n\n- one\n  - two\n    1. three");
  expect(quote).toMatchObject({ type: "blockquote", tokens: [{ type: "paragraph" }] });
  expect(list).toMatchObject({ type: "list", items: [{ tokens: [{ type: "text" }, { type: "list" }] }] });
});
