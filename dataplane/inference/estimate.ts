import type { EstimatedWork } from "../billing/price.ts";
import type { Route } from "../config/schema.ts";
import { estimateInputTokens } from "../tokens/estimate.ts";
import type { Look } from "./look.ts";

/** What a text really takes, about; for charging an answer whose upstream reported nothing. */
const USUAL_BYTES_PER_TOKEN = 4;
const USUAL_IMAGE_TOKENS = 1_500;
const USUAL_DOCUMENT_TOKENS = 5_000;

const textBytes = ({ body, content }: Look): number => Math.max(0, body.length - content.mediaBytes);

/** The most that a request may use, for its hold. No tokenizer on the hot path. */
export function estimateWork(look: Look, route: Route): EstimatedWork {
  const { images, documents } = look.content;
  const most = route.limits.maxOutputTokens;
  const limit = look.limits.length === 0 ? most : Math.max(...look.limits.map(({ value }) => value));
  return {
    inputTokens: estimateInputTokens({ textBytes: textBytes(look), images, documents }),
    maxOutputTokens: Math.min(limit, most),
    n: look.choices,
  };
}

/** Input tokens to charge when the upstream reports none; never more than what was held. */
export function usualInputTokens(look: Look): number {
  const { images, documents } = look.content;
  return (
    Math.ceil(textBytes(look) / USUAL_BYTES_PER_TOKEN) +
    images * USUAL_IMAGE_TOKENS +
    documents * USUAL_DOCUMENT_TOKENS
  );
}
