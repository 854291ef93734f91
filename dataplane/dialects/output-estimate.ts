/**
 * The tokens of an output that nobody reported (rule 10.6): a token is 4 characters, or 1.5 Chinese, Japanese or
 * Korean ones. Texts are weighed in twelfths of a token, so that sums over any pieces of a text are exact.
 */
import { BACKSLASH, QUOTE } from "../lib/json-bytes.ts";

/** Weight of most characters: a quarter of a token. */
const LATIN = 3;
/** Weight of a Chinese, Japanese or Korean character: two thirds of a token. */
const CJK = 8;
const TOKEN = 12;

/** Base64 characters of audio for one token: streamed speech (PCM, 24,000 samples of 16 bits a second) has 20 tokens a second. */
const AUDIO_LENGTH = 3_200;
/** Tokens of a generated image, whatever its size. */
const IMAGE_TOKENS = 1_300;

/** An output that was counted here, in tokens. */
export interface CountedOutput {
  /** All tokens, those of `media` included. */
  readonly tokens: number;
  /** Tokens that have prices of their own (rule 10.5). */
  readonly media?: { readonly audioOutput: number; readonly imageOutput: number };
}

export const writtenText = (weight: number): CountedOutput => ({ tokens: tokensOfWeight(weight) });

/** Counts text by its weight (with the transcript of speech), audio by the length of its base64, and images. */
export function writtenWith(weight: number, audioLength: number, images: number): CountedOutput {
  if (audioLength + images === 0) return writtenText(weight);
  const audioOutput = Math.ceil(audioLength / AUDIO_LENGTH);
  const imageOutput = images * IMAGE_TOKENS;
  return {
    tokens: tokensOfWeight(weight) + audioOutput + imageOutput,
    media: { audioOutput, imageOutput },
  };
}

export const tokensOfWeight = (weight: number): number => Math.ceil(weight / TOKEN);

/** Estimates the tokens of bytes that are not read as text: those of a request, or of a body that is no answer. */
export const tokensOfBytes = (bytes: number): number => tokensOfWeight(bytes * LATIN);

export type WeighText = (text: string) => number;

/** The weight of a text; half a surrogate pair weighs nothing. */
export function weightOf(text: string): number {
  let weight = 0;
  for (let at = 0; at < text.length; at += 1) weight += weightOfUnit(text.charCodeAt(at));
  return weight;
}

/** Weighs a UTF-16 code unit: the first half of a surrogate pair weighs what the pair does. */
function weightOfUnit(unit: number): number {
  if (unit < 0x2e80) return LATIN;
  if (unit <= 0x9fff) return CJK;
  if (unit < 0xac00) return LATIN;
  if (unit <= 0xd7ff) return CJK;
  if (unit <= 0xdbff) return unit >= 0xd840 && unit <= 0xd8bf ? CJK : LATIN;
  if (unit <= 0xdfff) return 0;
  return (unit >= 0xf900 && unit <= 0xfaff) || (unit >= 0xff00 && unit <= 0xffbf) ? CJK : LATIN;
}

const LOWER_U = 0x75;

/** Weighs the text inside of a JSON string, from its bytes, up to its closing quote or `end`. */
export function weightOfJson(bytes: Buffer, start: number, end: number): number {
  let weight = 0;
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] as number;
    if (byte === QUOTE) return weight;
    if (byte === BACKSLASH) {
      at += 1;
      if (bytes[at] !== LOWER_U) weight += LATIN;
      else {
        weight += weightOfUnit(Number.parseInt(bytes.toString("latin1", at + 1, at + 5), 16) || 0);
        at += 4;
      }
    } else if (byte < 0x80) weight += LATIN;
    else if (byte >= 0xc0) weight += weightOfLead(byte, bytes[at + 1] as number);
  }
  return weight;
}

/** Weighs a UTF-8 character of several bytes, by its first two. */
function weightOfLead(lead: number, second: number): number {
  switch (lead) {
    case 0xe2:
      return second >= 0xba ? CJK : LATIN;
    case 0xea:
      return second >= 0xb0 ? CJK : LATIN;
    case 0xef:
      return (second >= 0xa4 && second <= 0xab) || (second >= 0xbc && second <= 0xbe) ? CJK : LATIN;
    case 0xf0:
      return second >= 0xa0 ? CJK : LATIN;
    default:
      return lead >= 0xe3 && lead <= 0xed ? CJK : LATIN;
  }
}

/** Weighs the arguments of a tool call: a text as a rule, an object from some servers. */
export function weightOfArguments(value: unknown, weighText: WeighText = weightOf): number {
  if (typeof value === "string") return weighText(value);
  return typeof value === "object" && value !== null ? weightOf(JSON.stringify(value)) : 0;
}
