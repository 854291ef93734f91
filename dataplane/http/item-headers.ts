import type { IncomingHttpHeaders } from "node:http";
import { ApiError } from "../lib/api-error.ts";
import { readTags } from "../lib/tags.ts";

const kept = ["anthropic-version", "anthropic-beta", "x-gapura-strict", "x-gapura-tags"] as const;

/** Most characters of each: they are read with every item, and real ones have a tenth of it. */
const MOST_CHARACTERS = 8 * 1024;

/**
 * The headers of a batch's creation that apply to every item of it, as they came.
 * @throws ApiError 400 for malformed tags, and for a header that is too long.
 */
export function itemHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    kept.flatMap((name) => {
      const value = headers[name];
      if (typeof value !== "string") return [];
      if (value.length > MOST_CHARACTERS) {
        const message = `${name} has at most ${MOST_CHARACTERS} characters when it makes a batch.`;
        throw new ApiError("invalid_value", message, { param: name });
      }
      return [[name, name === "x-gapura-tags" ? readTags(value, name) : value]];
    }),
  );
}
