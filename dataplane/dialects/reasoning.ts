/**
 * How reasoning survives a change of dialect (dialects.md §D2), so that a client that resends its conversation
 * gives the upstream back what the upstream made.
 *
 * In the hub every piece of reasoning is a `thinking` or `redacted_thinking` block. A `thinking` block's
 * `signature` is one of three:
 *   - a Messages upstream's own signature, untouched;
 *   - `""`: text of unknown origin (a Chat client's `reasoning_content`);
 *   - a *mark*: `gapura:reasoning:` and JSON that says which other dialect it came from and holds what that
 *     dialect needs back: `{"from":"responses","id":"rs_…","encrypted":"…"|null}` or `{"from":"chat"}`.
 * Marks never leave the process in the clear. At the client's edge they are sealed to the organization:
 *   - Messages clients get `signature` = `gapura_r1_` + seal(mark);
 *   - Responses clients get `encrypted_content` = `gapura_r1_` + seal(JSON), where the JSON is the mark's, or
 *     `{"from":"messages","thinking":"…","signature":"…"}`, or `{"from":"messages","data":"…"}` (redacted);
 *   - Chat clients get `reasoning_content` alone: Chat has no place for a signature.
 * Whatever comes back and does not open is dropped with its block, never an error (rule 2.17).
 */
import type { Sealer } from "./codecs.ts";
import { objectOf, parseJson } from "./fields.ts";
import type { JsonObject, RedactedThinkingBlock, ThinkingBlock } from "./messages/types.ts";

/** Begins every sealed reasoning blob; a body that holds it must not be relayed as it is. */
export const SEALED_PREFIX = "gapura_r1_";
const MARK_PREFIX = "gapura:reasoning:";

/** Where a piece of reasoning came from, when it was not a Messages upstream. */
export type ReasoningMark =
  | { readonly from: "responses"; readonly id: string; readonly encrypted: string | null }
  | { readonly from: "chat" };

/** The hub signature of reasoning that a Chat or Responses upstream made. */
export const markReasoning = (mark: ReasoningMark): string => MARK_PREFIX + JSON.stringify(mark);

/** The mark behind a hub signature; null for a Messages signature and for an empty one. */
export function readMark(signature: string): ReasoningMark | null {
  return signature.startsWith(MARK_PREFIX) ? markOf(parse(signature.slice(MARK_PREFIX.length))) : null;
}

/** A hub signature as a Messages client may see it. */
export const sealSignature = (signature: string, sealer: Sealer): string =>
  signature.startsWith(MARK_PREFIX)
    ? SEALED_PREFIX + sealer.seal(signature.slice(MARK_PREFIX.length))
    : signature;

/** A Messages client's signature as the hub knows it; null when its block has to be dropped. */
export function openSignature(signature: string, sealer: Sealer): string | null {
  // A mark in the clear is nothing that we ever gave out.
  if (signature.startsWith(MARK_PREFIX)) return null;
  if (!signature.startsWith(SEALED_PREFIX)) return signature;
  const mark = markOf(parse(sealer.open(signature.slice(SEALED_PREFIX.length))));
  return mark === null ? null : markReasoning(mark);
}

/** A hub block as the `encrypted_content` of a Responses client's `reasoning` item. */
export function sealReasoning(block: ThinkingBlock | RedactedThinkingBlock, sealer: Sealer): string {
  if (block.type === "redacted_thinking")
    return SEALED_PREFIX + sealer.seal(JSON.stringify({ from: "messages", data: block.data }));
  const mark = readMark(block.signature);
  const kept = mark ?? { from: "messages", thinking: block.thinking, signature: block.signature };
  return SEALED_PREFIX + sealer.seal(JSON.stringify(kept));
}

/**
 * The hub block behind a Responses client's `reasoning` item; null when it has to be dropped. `summary` is the
 * item's joined summary text, which is the text of reasoning that no Messages upstream signed.
 */
export function openReasoning(
  encrypted: string,
  summary: string,
  sealer: Sealer,
): ThinkingBlock | RedactedThinkingBlock | null {
  if (!encrypted.startsWith(SEALED_PREFIX)) return null;
  const kept = parse(sealer.open(encrypted.slice(SEALED_PREFIX.length)));
  const mark = markOf(kept);
  if (mark !== null) return { type: "thinking", thinking: summary, signature: markReasoning(mark) };
  if (kept?.["from"] !== "messages") return null;
  const { data, thinking, signature } = kept;
  if (typeof data === "string") return { type: "redacted_thinking", data };
  if (typeof thinking !== "string" || typeof signature !== "string") return null;
  return { type: "thinking", thinking, signature };
}

function markOf(kept: JsonObject | null): ReasoningMark | null {
  if (kept?.["from"] === "chat") return { from: "chat" };
  if (kept?.["from"] !== "responses" || typeof kept["id"] !== "string") return null;
  const encrypted = kept["encrypted"];
  return { from: "responses", id: kept["id"], encrypted: typeof encrypted === "string" ? encrypted : null };
}

const parse = (json: string | null): JsonObject | null => (json === null ? null : objectOf(parseJson(json)));
