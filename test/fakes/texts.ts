/** Texts of many kinds of characters, the same in every run. */
import { readdirSync, readFileSync } from "node:fs";

/** A repeatable stream of numbers below `most`. */
function numbers(seed: number): (most: number) => number {
  let state = seed;
  return (most) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * most);
  };
}

export function randomText(alphabet: string, length: number, seed = 1): string {
  const random = numbers(seed);
  const characters = Array.from(alphabet);
  let text = "";
  while (text.length < length) text += characters[random(characters.length)] ?? "";
  return text;
}

const docs = new URL("../../docs/", import.meta.url);
/** The pages of the documentation. */
export const english = readdirSync(docs)
  .filter((name) => name.endsWith(".md"))
  .map((name) => readFileSync(new URL(name, docs), "utf8"))
  .join("\n");
export const letters = "abcdefghijklmnopqrstuvwxyz";
export const alphabets = {
  letters,
  capitals: letters + letters.toUpperCase(),
  words: `${letters}      `,
  base64: `${letters}${letters.toUpperCase()}0123456789+/`,
  digits: "0123456789",
  punctuation: ".,;:!?-_=+*/\\|<>()[]{}'\"",
  cjk: "模型网关计费系统与推理的一是不了人我在有他这中大来上国",
  hangul: "가나다라마바사한국어입니다",
  arabic: "ابتثجحخدذرزسش",
  emoji: "😀👍🏽👨‍👩‍👧🎉❤️🇩🇪",
  "white space": " \t\n\r\u00a0\u3000",
  "zero-width": " \u200b\u0301",
  "combining marks": "e\u0301\u0300\u0308",
  "two letters": "ab",
} as const;
