import type { IncomingHttpHeaders } from "node:http";

const kept = ["anthropic-version", "anthropic-beta", "x-gapura-strict"] as const;

/** The headers of a batch's creation that count for every item of it. */
export function itemHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    kept.flatMap((name) => {
      const value = headers[name];
      return typeof value === "string" ? [[name, value.slice(0, 1_000)]] : [];
    }),
  );
}
