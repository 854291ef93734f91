/**
 * Chooses what is tokenized of a request's texts: all of them up to 256 Ki characters, of more only windows spread evenly
 * over the whole. The choice depends on the texts alone, so that a count is the same each time. Pure.
 */
import { requestTexts, type CountableRequest } from "./request-texts.ts";

/** Most characters that one count tokenizes (rule 7.5). */
export const MAX_SAMPLE_CHARACTERS = 256 * 1024;
/** Long enough that the words cut at its edges do not matter, short enough that there are many windows. */
const WINDOW_CHARACTERS = 1024;
const MAX_WINDOWS = MAX_SAMPLE_CHARACTERS / WINDOW_CHARACTERS;

/** The input of a request's count: plain data, which is quickly passed to another thread. */
export interface SampledTexts {
  /** The texts to tokenize, joined, and their lengths. */
  readonly text: string;
  readonly lengths: Uint32Array;
  /** All texts' tokens divided by those of `text`. */
  readonly factor: number;
  /** Tokens of what is no text. */
  readonly fixed: number;
}

/** Samples a whole request in one go. */
export function sampledTexts(request: CountableRequest): SampledTexts {
  const sample = new TextSample();
  let fixed = 0;
  for (const part of requestTexts(request)) {
    if (typeof part === "number") fixed += part;
    else sample.add(part);
  }
  return sample.sampled(fixed);
}

export class TextSample {
  /** Texts or windows; no word continues from one to the next. */
  #kept: string[] = [];
  /** Windows numbered by a multiple of this are kept; 0: all texts are, whole. */
  #stride = 0;
  #characters = 0;

  /** Characters of all texts. */
  get characters(): number {
    return this.#characters;
  }

  get kept(): readonly string[] {
    return this.#kept;
  }

  /** The length of all texts divided by that of the kept ones. */
  get factor(): number {
    return this.#stride === 0
      ? 1
      : this.#characters / this.#kept.reduce((sum, { length }) => sum + length, 0);
  }

  /** @param fixed tokens of what is no text. */
  sampled(fixed: number): SampledTexts {
    const lengths = Uint32Array.from(this.#kept, ({ length }) => length);
    return { text: this.#kept.join(""), lengths, factor: this.factor, fixed };
  }

  /** Adds a text, at a cost that grows only with what is kept of it. */
  add(text: string): void {
    if (text === "") return;
    if (this.#stride > 0) return this.#addWindows(text);
    this.#kept.push(text);
    this.#characters += text.length;
    if (this.#characters <= MAX_SAMPLE_CHARACTERS) return;
    const whole = this.#kept;
    this.#kept = [];
    this.#stride = 1;
    this.#characters = 0;
    for (const earlier of whole) this.#addWindows(earlier);
  }

  #addWindows(text: string): void {
    const start = this.#characters;
    this.#characters += text.length;
    let number = Math.floor(start / WINDOW_CHARACTERS);
    // The present window, if it is one that is kept, or the next such window.
    number = Math.ceil(number / this.#stride) * this.#stride;
    while (number * WINDOW_CHARACTERS < this.#characters) {
      const from = number * WINDOW_CHARACTERS - start;
      const part = text.slice(Math.max(0, from), from + WINDOW_CHARACTERS);
      const place = number / this.#stride;
      this.#kept[place] = (this.#kept[place] ?? "") + part;
      if (this.#kept.length > MAX_WINDOWS) this.#thinOut();
      number = (Math.floor(number / this.#stride) + 1) * this.#stride;
    }
  }

  /** Drops every other window. */
  #thinOut(): void {
    this.#kept = this.#kept.filter((_, place) => place % 2 === 0);
    this.#stride *= 2;
  }
}
