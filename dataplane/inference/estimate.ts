import type { EstimatedWork } from "../billing/prices/price.ts";
import type { Route } from "../config/schema.ts";
import type { Dialect } from "../dialects/dialect.ts";
import { tokensOfBytes } from "../dialects/output-estimate.ts";
import { OUTPUT_TOKENS_MIN } from "../dialects/responses/write-request.ts";
import type { ExpectedTiers } from "../dialects/tiers.ts";
import type { ExpectedMedia, PossibleUsage } from "../dialects/usage.ts";
import { estimateInputTokens, type InputSize } from "../tokens/estimate.ts";
import type { Facts } from "./inspect/body.ts";

/** Usual tokens, not the most: an answer whose upstream reported nothing is charged by them. */
const USUAL_IMAGE_TOKENS = 1_500;
const USUAL_DOCUMENT_TOKENS = 5_000;

/** Bytes of base64 for one token of audio: 0.1 s of the poorest MP3 (8 kbit/s), and of a usual recording. */
const LEAST_AUDIO_BYTES = 130;
const USUAL_AUDIO_BYTES = 1_000;

const textBytes = ({ bodyBytes, content }: Facts): number => Math.max(0, bodyBytes - content.mediaBytes);

/** Estimates the most that a request may use, for its hold. No tokenizer on the hot path. */
export function estimateWork(look: Facts, route: Route): EstimatedWork {
  const { images, documents, audioBytes } = look.content;
  const most = route.limits.maxOutputTokens;
  return {
    audioInput: Math.min(Math.ceil(audioBytes / LEAST_AUDIO_BYTES), route.limits.contextTokens),
    speaks: look.speaks,
    draws: look.draws,
    compacts: mayCompact(look, route),
    inputTokens: estimateInputTokens({ textBytes: textBytes(look), images, documents }),
    maxOutputTokens: Math.min(askedOutput(look) ?? most, most),
    n: look.choices,
  };
}

/** Whether an upstream may compact the conversation before it answers: only those of Messages know how. */
export const mayCompact = ({ compacts }: Facts, { upstreams }: Pick<Route, "upstreams">): boolean =>
  compacts && upstreams.some(({ dialect }) => dialect === "messages");

/** The least output limit that an upstream of this dialect takes: smaller ones are raised to it (rule 2.6). */
const leastOutput = (dialect: Dialect): number => (dialect === "responses" ? OUTPUT_TOKENS_MIN : 0);

/** Returns an output limit as it may be raised for one of the route's upstreams. */
export const raisedOutput = (limit: number, { upstreams }: Pick<Route, "upstreams">): number =>
  limit >= OUTPUT_TOKENS_MIN
    ? limit
    : Math.max(limit, ...upstreams.map(({ dialect }) => leastOutput(dialect)));

/**
 * Returns the most that one upstream call can use (rule 7.9).
 * @param limit the call's output limit; undefined: it names none.
 */
export function possibleUsage(
  { limits }: Pick<Route, "limits">,
  dialect: Dialect,
  limit: number | undefined,
  choices: number,
  tiers: ExpectedTiers | undefined,
): PossibleUsage {
  const most = limits.maxOutputTokens;
  const output = Math.max(leastOutput(dialect), Math.min(limit ?? most, most)) * choices;
  return { input: limits.contextTokens, output, ...(tiers !== undefined && { tiers }) };
}

/** Returns the output limit that the client names; undefined: none. */
export const askedOutput = ({ limits }: Facts): number | undefined =>
  limits.length === 0 ? undefined : Math.max(...limits.map(({ value }) => value));

const audioTokens = (bytes: number): number => Math.ceil(bytes / USUAL_AUDIO_BYTES);

/** Returns the media of a request that have prices of their own; undefined: it has to do with text alone. */
export function expectedMedia({ content, speaks, draws }: Facts): ExpectedMedia | undefined {
  if (content.audioBytes === 0 && !speaks && !draws) return undefined;
  return {
    audioInput: audioTokens(content.audioBytes),
    outputs: [...(speaks ? (["audioOutput"] as const) : []), ...(draws ? (["imageOutput"] as const) : [])],
  };
}

/** Returns the input tokens to charge when the upstream reports none; never more than what was held. */
export function usualInputTokens(look: Facts): number {
  const { images, documents, audioBytes } = look.content;
  return usualTokensOf({ textBytes: textBytes(look), images, documents }) + audioTokens(audioBytes);
}

/** Returns the usual input tokens of a part of a request. */
export const usualTokensOf = ({ textBytes: bytes, images, documents }: InputSize): number =>
  tokensOfBytes(bytes) + images * USUAL_IMAGE_TOKENS + documents * USUAL_DOCUMENT_TOKENS;
