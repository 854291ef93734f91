/**
 * Fields that a request has by our own doing, or that it loses without a loss (rule 2.2), and that a server of its dialect
 * may refuse: an upstream that does is asked again without them (docs/dialects.md).
 */
import type { JsonObject } from "./messages/types.ts";

const names = ["service_tier", "stream_options", "max_completion_tokens", "user"] as const;
export type OwnField = (typeof names)[number];

/** How upstreams name them when they refuse them. */
const named: Readonly<Record<OwnField, RegExp>> = {
  service_tier: /service_tier/,
  stream_options: /stream_options|include_usage/,
  max_completion_tokens: /max_completion_tokens/,
  // The word alone is a role. Validators name it by its place: `["body","user"]`.
  user: /["']body\\?["'],\s*\\?["']user\\?["']/,
};
/** How they say that they do not know a field. A limit may also be too large, and that the client has to know. */
const unknownField =
  /extra|unknown|unsupported|unrecogni[sz]ed|unexpected|not (?:supported|permitted|allowed)/i;

/**
 * Those that an upstream may have refused.
 * @param words all that it said.
 * @param held what the request had of them.
 */
export const refusedFields = (words: string, held: readonly OwnField[]): OwnField[] =>
  held.filter(
    (name) => named[name].test(words) && (name !== "max_completion_tokens" || unknownField.test(words)),
  );

/**
 * Takes out of a Chat request what its upstream does not know; the limit goes by its older name.
 * @returns what the request has of such fields now.
 */
export function withoutUnknown(body: JsonObject, unknown: readonly OwnField[]): OwnField[] {
  const { max_completion_tokens: limit } = body;
  for (const name of ["stream_options", "user"] as const) if (unknown.includes(name)) delete body[name];
  if (unknown.includes("max_completion_tokens") && limit !== undefined) {
    delete body["max_completion_tokens"];
    body["max_tokens"] = limit;
  }
  return names.filter((name) => name !== "service_tier" && body[name] !== undefined);
}
