import type { IncomingHttpHeaders } from "node:http";
import { readTags } from "../lib/tags.ts";

const kept = ["anthropic-version", "anthropic-beta", "x-gapura-strict", "x-gapura-tags"] as const;

/** The headers of a batch's creation that count for every item of it. @throws ApiError 400 for tags that are none. */
export function itemHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    kept.flatMap((name) => {
      const given = headers[name];
      const value = name === "x-gapura-tags" && typeof given === "string" ? readTags(given, name) : given;
      return typeof value === "string" ? [[name, value.slice(0, 1_000)]] : [];
    }),
  );
}
