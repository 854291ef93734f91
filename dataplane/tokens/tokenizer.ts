/**
 * Counts a text's tokens in time linear in its length, whatever the text. A byte-pair encoder that merges pairs one
 * by one takes the square of a piece's length, and one that caches pieces is as slow as its cache is full. This one goes
 * through a piece from left to right, takes the longest token that can follow the one before, and goes a step back where
 * none can; no place is left twice. The result is that of the merges, token for token (Neubeck and van Antwerpen, "So many
 * tokens, so little time", GitHub 2024).
 */
import { longestToken, NONE, stayApart, type Vocabulary } from "./vocabulary.ts";

/** Longer texts are cut, so that a piece and the regular expression's state for it stay small. */
export const SEGMENT_CHARACTERS = 16 * 1024;
/** Most bytes of a UTF-16 unit in UTF-8. */
const MAX_UNIT_BYTES = 3;
/** Size of the cache of pairs: 128 KB. Each pair has only one place, so that no text makes it slow. */
const KNOWN_BITS = 14;
const KNOWN_SHIFT = 32 - KNOWN_BITS;

export class Tokenizer {
  readonly #vocabulary: Vocabulary;
  /** The vocabulary's own expression that cuts a text into words before merging. */
  readonly #words: RegExp;
  readonly #encoder = new TextEncoder();
  readonly #bytes = new Uint8Array(SEGMENT_CHARACTERS * MAX_UNIT_BYTES);
  /** The tokens of a piece so far. */
  readonly #chosen = new Int32Array(SEGMENT_CHARACTERS * MAX_UNIT_BYTES);
  /** Places of a piece where no token can begin. */
  readonly #closed = new Uint8Array(SEGMENT_CHARACTERS * MAX_UNIT_BYTES + 1);

  /** Cached results for pairs: the first token, and the second one, or its complement if the two would merge. */
  readonly #known = new Int32Array(2 * 2 ** KNOWN_BITS).fill(NONE);

  constructor(vocabulary: Vocabulary, words: RegExp) {
    this.#vocabulary = vocabulary;
    // A copy, as its `lastIndex` must be this tokenizer's alone.
    this.#words = new RegExp(words, "gu");
  }

  /** Counts a text's tokens. Lone surrogates count as the replacement character. Special tokens are text like any other. */
  count(text: string): number {
    let tokens = 0;
    for (let start = 0; start < text.length;) {
      const end = segmentEnd(text, start);
      tokens += this.#countSegment(text.slice(start, end));
      start = end;
    }
    return tokens;
  }

  #countSegment(text: string): number {
    this.#encoder.encodeInto(text, this.#bytes);
    const words = this.#words;
    words.lastIndex = 0;
    let tokens = 0;
    let from = 0;
    let at = 0;
    // The expression matches at each place, so that the words are the whole text.
    while (at < text.length && words.test(text)) {
      const to = from + utf8Length(text, at, words.lastIndex);
      tokens += this.#countPiece(from, to);
      from = to;
      at = words.lastIndex;
    }
    return tokens;
  }

  /** `stayApart` with a cache: a run of one character asks for the same few pairs again and again. */
  #stayApart(first: number, second: number): boolean {
    const known = this.#known;
    const at = 2 * ((Math.imul(first, 0x9e3779b1) ^ Math.imul(second, 0x85ebca6b)) >>> KNOWN_SHIFT);
    if (known[at] === first && known[at + 1] === second) return true;
    if (known[at] === first && known[at + 1] === ~second) return false;
    const apart = stayApart(this.#vocabulary, first, second);
    known[at] = first;
    known[at + 1] = apart ? second : ~second;
    return apart;
  }

  #countPiece(from: number, to: number): number {
    const vocabulary = this.#vocabulary;
    const { lengths, shorter } = vocabulary;
    const bytes = this.#bytes;
    let token = longestToken(vocabulary, bytes, from, to);
    // A piece that equals a token is that token, even if no merges lead to it.
    if (from + (lengths[token] ?? 0) === to) return 1;
    const chosen = this.#chosen;
    const closed = this.#closed.fill(0, 0, to - from + 1);
    let count = 0;
    let at = from;
    while (token !== NONE) {
      const last = count === 0 ? NONE : (chosen[count - 1] ?? NONE);
      while (token !== NONE) {
        const end = at + (lengths[token] ?? 0);
        if (closed[end - from] === 0 && (last === NONE || this.#stayApart(last, token))) break;
        token = shorter[token] ?? NONE;
      }
      if (token !== NONE) {
        chosen[count] = token;
        count += 1;
        at += lengths[token] ?? 0;
        token = longestToken(vocabulary, bytes, at, to);
      } else if (last !== NONE) {
        closed[at - from] = 1;
        count -= 1;
        at -= lengths[last] ?? 0;
        token = last;
      }
    }
    return count;
  }
}

/** Returns where a segment ends: not between the halves of a character. */
function segmentEnd(text: string, start: number): number {
  const end = start + SEGMENT_CHARACTERS;
  if (end >= text.length) return text.length;
  return isHighSurrogate(text.charCodeAt(end - 1)) ? end - 1 : end;
}

const isHighSurrogate = (unit: number) => unit >= 0xd800 && unit <= 0xdbff;
const isLowSurrogate = (unit: number) => unit >= 0xdc00 && unit <= 0xdfff;

/** Returns the bytes that `TextEncoder` writes for a part of a text that splits no character. */
function utf8Length(text: string, from: number, to: number): number {
  let bytes = 0;
  for (let at = from; at < to; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800) bytes += 2;
    else if (isHighSurrogate(unit) && at + 1 < to && isLowSurrogate(text.charCodeAt(at + 1))) {
      bytes += 4;
      at += 1;
    } else bytes += 3;
  }
  return bytes;
}
