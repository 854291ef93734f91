/**
 * Bodies that are as hard to take as a stranger can make them: wide, deep, long, compressed. Each is made when it is
 * first asked for, as many are of tens of megabytes, and is the same in every run.
 */
import { gzipSync, zstdCompressSync } from "node:zlib";

export const MiB = 1024 * 1024;

/** A value that is made when it is first asked for. */
export function lazily<T>(make: () => T): () => T {
  let made: { readonly value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}

/** Numbers from 0 below 1, the same in every run (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** `count` items between `open` and `close`, without making each of them an object. */
export function listed(open: string, item: string | ((n: number) => string), count: number, close: string) {
  if (typeof item === "string") return `${open}${`${item},`.repeat(count - 1)}${item}${close}`;
  return open + Array.from({ length: count }, (_, n) => item(n)).join(",") + close;
}

/** One user message around a JSON value. */
export const asked = (model: string, content: string, more = "") =>
  `{"model":"${model}","max_tokens":16,"messages":[{"role":"user","content":${content}}]${more}}`;

/** A conversation of so many turns. */
export const conversation = (model: string, turns: number) =>
  `{"model":"${model}","max_tokens":16,"messages":${listed(
    "[",
    (n) => (n % 2 === 0 ? '{"role":"user","content":"a"}' : '{"role":"assistant","content":"b"}'),
    turns | 1,
    "]",
  )}}`;

/** A conversation of so many calls of a client's tool, each with its result, in Messages form. */
export const toolHistory = (model: string, calls: number) =>
  `{"model":"${model}","max_tokens":16,"messages":[{"role":"user","content":"go"},${listed(
    "",
    (n) =>
      `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_${n}","name":"f","input":{"n":${n}}}]},` +
      `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_${n}","content":"ok"}]}`,
    calls,
    "",
  )}]}`;

export const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

/** A JSON string of so many characters. */
export const quoted = (piece: string, length: number) =>
  `"${piece.repeat(Math.ceil(length / piece.length)).slice(0, Math.floor(length / piece.length) * piece.length)}"`;

export const gzipped = (text: string | Buffer) => gzipSync(text, { level: 6 });
export const zstandard = (text: string | Buffer) => zstdCompressSync(text);

/** Words that no vocabulary has. */
export function randomWords(characters: number, seed = 1): string {
  const random = seeded(seed);
  const words: string[] = [];
  for (let length = 0; length < characters;) {
    const size = 3 + Math.floor(random() * 9);
    const word = Array.from({ length: size }, () => String.fromCharCode(97 + Math.floor(random() * 26))).join(
      "",
    );
    words.push(word);
    length += word.length + 1;
  }
  return words.join(" ");
}

/** Runs of every class of characters that a tokenizer treats in a way of its own. */
export const runs: Readonly<Record<string, string>> = {
  "one letter": "a",
  space: " ",
  "line feeds": "\n",
  "no-break and thin spaces": "\u00a0\u2009",
  "zero width": "\u200b",
  "zero width and combining": " \u200b\u0301",
  combining: "e\u0301",
  emoji: "😀",
  "emoji joined": "👩‍👩‍👧‍👦",
  flags: "🇮🇩",
  CJK: "漢字仮名",
  Hangul: "한글",
  Thai: "ภาษาไทย",
  punctuation: "!?.,;:",
  digits: "1234567890",
  apostrophes: "'s't're",
  "lone high surrogates": "\\ud800",
  base64: "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo",
  "mixed case": "aB",
  controls: "\\u0001\\u0002",
};

/** A form of one file field. */
export function form(file: Buffer, fields = 0): { readonly type: string; readonly body: Buffer } {
  const boundary = "abuse-boundary";
  const head = Array.from(
    { length: fields },
    (_, n) => `--${boundary}\r\ncontent-disposition: form-data; name="f${n}"\r\n\r\nx\r\n`,
  ).join("");
  const disposition = 'content-disposition: form-data; name="file"; filename="a.bin"';
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    body: Buffer.concat([
      Buffer.from(`${head}--${boundary}\r\n${disposition}\r\ncontent-type: application/octet-stream\r\n\r\n`),
      file,
      Buffer.from(`\r\n--${boundary}--\r\n`),
    ]),
  };
}
