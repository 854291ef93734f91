/** Texts to count, most of them hard for a tokenizer; counting is free. */
import type { Attack } from "../attack.ts";
import { asked, conversation, MiB, quoted, randomWords, runs } from "../bodies.ts";
import { keys } from "../world.ts";
import { BUSY, count, various } from "./make.ts";

export const counted: readonly Attack[] = [
  ...Object.entries(runs).map(([name, piece]) =>
    count(`a mebibyte of ${name}, without credit`, () => asked("m-messages", quoted(piece, MiB)), {
      key: keys.poor,
      // Line feeds are no JSON in a string.
      expected: [name === "line feeds" ? 400 : 200, ...BUSY],
      short: name.startsWith("zero width"),
    }),
  ),
  {
    // Each has words of its own, so that whatever remembers words is filled first.
    ...various(
      "count_tokens: words that nobody has seen, without credit",
      { key: keys.poor, parallel: 4, expected: [200, ...BUSY] },
      (n) => ({
        path: "/v1/messages/count_tokens",
        body: asked("m-messages", JSON.stringify(randomWords(256 * 1024, n))),
      }),
    ),
  },
  count(
    "30 MiB of natural text",
    () => asked("m-messages", quoted("The quick brown fox jumps. ", 30 * MiB)),
    {
      key: keys.poor,
      expected: [200, ...BUSY],
      short: true,
    },
  ),
  count("99,999 messages", () => conversation("m-messages", 99_999), {
    key: keys.poor,
    expected: [200, ...BUSY],
  }),
];
