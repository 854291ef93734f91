/** A request's size in tokens, for the hot path: bytes divided by a constant, without a tokenizer (rule 1.8). */

/** The size of a request body, by kind of content. */
export interface InputSize {
  /** Bytes of text, base64 of images and documents left out. */
  readonly textBytes: number;
  readonly images: number;
  readonly documents: number;
}

/** Bytes of UTF-8 text for one token, chosen low: English has 4 to 5, Chinese about 3, code about 3. */
const BYTES_PER_TOKEN = 3;
/** Tokens of a large image; the providers' own figures run from 85 to about 1,600. */
export const IMAGE_TOKENS = 1_600;
/** Tokens of a PDF of some ten pages: its text and an image of each page. */
export const DOCUMENT_TOKENS = 20_000;

/** Estimates the input tokens for a hold: a request will hardly exceed them. */
export function estimateInputTokens({ textBytes, images, documents }: InputSize): number {
  return Math.ceil(textBytes / BYTES_PER_TOKEN) + images * IMAGE_TOKENS + documents * DOCUMENT_TOKENS;
}
