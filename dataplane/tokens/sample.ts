/**
 * What is tokenized of a request's texts: all of them up to 256 Ki characters, of more only windows spread evenly
 * over the whole. Which windows depends on the texts alone, so that a count is the same each time. Pure.
 */
import { requestTexts, type CountableRequest } from "./request-texts.ts";

/** No count costs more than this much tokenizing (rule 7.5). */
export const MAX_SAMPLE_CHARACTERS = 256 * 1024;
/** Long enough that the cut words at its edges weigh nothing, short enough that there are many places. */
const WINDOW_CHARACTERS = 1024;
const MAX_WINDOWS = MAX_SAMPLE_CHARACTERS / WINDOW_CHARACTERS;

/** What a request's count is made of: plain data, which crosses to another thread at once. */
export interface SampledTexts {
  /** What is tokenized, in one string, and the lengths of its parts. */
  readonly text: string;
  readonly lengths: Uint32Array;
  /** How many times as many tokens as those of `text` all texts have. */
  readonly factor: number;
  /** Tokens of what is no text. */
  readonly fixed: number;
}

/** Of a whole request, in one go. */
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
  /** Texts or windows; words do not go from one to the next. */
  #kept: string[] = [];
  /** Windows numbered by a multiple of this are kept; 0: all texts are, whole. */
  #stride = 0;
  #characters = 0;

  /** Of all texts. */
  get characters(): number {
    return this.#characters;
  }

  get kept(): readonly string[] {
    return this.#kept;
  }

  /** How many times as long all texts are as what is kept of them. */
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

  /** Costs the same whatever the text's length, but for what is kept of it. */
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
    // The kept window at hand or the next one.
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

  /** Every other window goes. */
  #thinOut(): void {
    this.#kept = this.#kept.filter((_, place) => place % 2 === 0);
    this.#stride *= 2;
  }
}
