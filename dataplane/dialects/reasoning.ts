/**
 * How reasoning comes back to whoever made it (dialects.md §D2, rule 7.12): through another dialect, and never
 * through another organization.
 *
 * What a provider hands out to be sent back (a signature, redacted thinking, encrypted content) opens in the
 * provider's account for whoever holds it, and organizations may share that account. So on every path, relayed and
 * converted, a client gets it as `gapura_r1_` + seal(JSON), sealed to the organization. The JSON is one of
 *   - `{"from":"messages","signature":"…"}`, for Responses clients with the `thinking` text that it signs;
 *   - `{"from":"messages","data":"…"}` (redacted), `{"from":"messages","encrypted":"…"}` (compaction);
 *   - `{"from":"responses","id":"rs_…","encrypted":"…"|null}`, `{"from":"chat"}`.
 * It stands where the dialect has a place for it: `signature` and `data` in Messages, `encrypted_content` in
 * Responses; Chat clients get `reasoning_content` alone. What was sealed on one path opens on the other.
 *
 * In the hub every piece of reasoning is a `thinking` or `redacted_thinking` block. A `thinking` block's `signature`
 * (and a redacted one's `data`, as far as it applies) is one of four:
 *   - a Messages upstream's own signature, opened;
 *   - `""`: text of unknown origin (a Chat client's `reasoning_content`);
 *   - a *mark*: `gapura:reasoning:` and JSON that says which other dialect it came from;
 *   - the mark `{"from":"raw",…}`: a client sent it unsealed, so that whose it is nobody knows. Only an upstream whose
 *     account serves this organization alone (`dedicatedTo`) gets it.
 * Marks never leave the process in the clear. Whatever comes back and does not open is dropped with its block, never
 * an error (rule 2.17).
 */
import type { ApiError } from "../lib/api-error.ts";
import type { Sealer } from "./codecs.ts";
import { fieldError, type PathStyle } from "./cursor.ts";
import type { Dialect } from "./dialect.ts";
import { objectOf, parseJson } from "./fields.ts";
import type { JsonObject, RedactedThinkingBlock, ThinkingBlock } from "./messages/types.ts";

/** Begins every sealed reasoning blob. */
export const SEALED_PREFIX = "gapura_r1_";
const MARK_PREFIX = "gapura:reasoning:";

/** Where a piece of reasoning came from, when it was not a Messages upstream. */
export type ReasoningMark =
  | { readonly from: "responses"; readonly id: string; readonly encrypted: string | null }
  | { readonly from: "chat" };

/** A blob as a client of `dialect` sent it, unsealed. `id`: its item's, in Responses. */
interface RawBlob {
  readonly from: "raw";
  readonly dialect: Dialect;
  readonly id: string;
  readonly blob: string;
}

/** The hub signature of reasoning that a Chat or Responses upstream made. */
export const markReasoning = (mark: ReasoningMark): string => MARK_PREFIX + JSON.stringify(mark);

/** The hub signature of a blob that is not sealed. */
const markRaw = (dialect: Dialect, blob: string, id = ""): string =>
  MARK_PREFIX + JSON.stringify({ from: "raw", dialect, id, blob } satisfies RawBlob);

/** The mark behind a hub signature; null for a Messages signature and for an empty one. */
export function readMark(signature: string): ReasoningMark | RawBlob | null {
  if (!signature.startsWith(MARK_PREFIX)) return null;
  const mark = parse(signature.slice(MARK_PREFIX.length));
  return mark?.["from"] === "raw" ? (mark as unknown as RawBlob) : markOf(mark);
}

/** Seals a hub signature, or redacted data, for a Messages client. */
export function sealSignature(
  signature: string,
  sealer: Sealer,
  field: "signature" | "data" = "signature",
): string {
  if (signature === "") return "";
  if (signature.startsWith(MARK_PREFIX))
    return SEALED_PREFIX + sealer.seal(signature.slice(MARK_PREFIX.length));
  return sealBlob({ dialect: "messages", field, id: "" }, signature, sealer);
}

/**
 * Opens a Messages client's signature, or redacted data, to the hub's form; null when its block has to be dropped.
 * Reasoning of other dialects comes back in a signature.
 */
export function openSignature(
  signature: string,
  sealer: Sealer,
  field: "signature" | "data" = "signature",
): string | null {
  // The gateway never sends a mark unsealed.
  if (signature.startsWith(MARK_PREFIX)) return null;
  if (signature === "") return "";
  if (!signature.startsWith(SEALED_PREFIX)) return markRaw("messages", signature);
  const kept = openKept(signature, sealer);
  if (kept?.["from"] === "messages") return textIn(kept, field);
  const mark = markOf(kept);
  return mark === null ? null : markReasoning(mark);
}

/**
 * Returns a hub signature, or redacted data, for an upstream's Messages or Responses body; null when an upstream of
 * that dialect did not make it.
 * @param ownAccount the upstream serves this organization alone.
 */
export function signatureFor(signature: string, dialect: Dialect, ownAccount: boolean): string | null {
  const mark = readMark(signature);
  if (mark === null) return dialect === "messages" && signature !== "" ? signature : null;
  if (mark.from === "raw") return ownAccount && mark.dialect === dialect ? mark.blob : null;
  return mark.from === "responses" && dialect === "responses" ? mark.encrypted : null;
}

/** Seals a hub block into the `encrypted_content` of a Responses client's `reasoning` item. */
export function sealReasoning(block: ThinkingBlock | RedactedThinkingBlock, sealer: Sealer): string {
  if (block.type === "redacted_thinking")
    return SEALED_PREFIX + sealer.seal(JSON.stringify({ from: "messages", data: block.data }));
  const mark = readMark(block.signature);
  const kept = mark ?? { from: "messages", thinking: block.thinking, signature: block.signature };
  return SEALED_PREFIX + sealer.seal(JSON.stringify(kept));
}

/** A Responses client's `reasoning` item. */
export interface ReasoningItem {
  readonly id: string;
  readonly encrypted: string;
  /** Its joined summary text, which is the text of reasoning that no Messages upstream signed. */
  readonly summary: string;
}

/** Opens a Responses client's `reasoning` item into a hub block; null when it has to be dropped. */
export function openReasoningItem(
  { id, encrypted, summary }: ReasoningItem,
  sealer: Sealer,
): ThinkingBlock | RedactedThinkingBlock | null {
  if (!encrypted.startsWith(SEALED_PREFIX))
    return { type: "thinking", thinking: summary, signature: markRaw("responses", encrypted, id) };
  const kept = openKept(encrypted, sealer);
  const mark = markOf(kept);
  if (mark !== null) return { type: "thinking", thinking: summary, signature: markReasoning(mark) };
  if (kept?.["from"] !== "messages") return null;
  const { data, thinking, signature } = kept;
  if (typeof data === "string") return { type: "redacted_thinking", data };
  if (typeof signature !== "string") return null;
  return { type: "thinking", thinking: typeof thinking === "string" ? thinking : summary, signature };
}

/** The place of a blob in a body, which says what the blob is. */
export interface BlobPlace {
  readonly dialect: "messages" | "responses";
  /** In Responses all are `encrypted`. */
  readonly field: "signature" | "data" | "encrypted";
  /** Id of the Responses item that holds it; "" where there is none. */
  readonly id: string;
}

/** Fields of a Messages upstream's `compaction` block that only its account can read, each with its `BlobPlace` field. */
export const compactionFields = [
  ["encrypted_content", "encrypted"],
  ["signature", "signature"],
] as const;

/**
 * Makes the 400 for a compaction that does not open, or that its upstream could not open. Reasoning is left out then,
 * but without its summary a conversation has no memory at all.
 */
export const unreadCompaction = (style: PathStyle, path: string): ApiError =>
  fieldError(
    style,
    path,
    "this compaction is damaged, belongs to another account or was made by another model's provider",
    "invalid_request_error",
  );

/** Seals an upstream's blob for a client of its own dialect. */
export const sealBlob = ({ dialect, field, id }: BlobPlace, blob: string, sealer: Sealer): string =>
  SEALED_PREFIX +
  sealer.seal(
    JSON.stringify(
      dialect === "messages" ? { from: dialect, [field]: blob } : { from: dialect, id, encrypted: blob },
    ),
  );

/** A client's blob. `raw`: it was never sealed. `blob` is null when it does not open, or was made elsewhere. */
export interface OpenedBlob {
  readonly raw: boolean;
  readonly blob: string | null;
}

/** Opens a client's blob for an upstream of the client's dialect. */
export function openBlob({ dialect, field }: BlobPlace, sealed: string, sealer: Sealer): OpenedBlob {
  if (sealed.startsWith(MARK_PREFIX)) return { raw: false, blob: null };
  if (!sealed.startsWith(SEALED_PREFIX)) return { raw: true, blob: sealed };
  const kept = openKept(sealed, sealer);
  return { raw: false, blob: kept?.["from"] === dialect ? textIn(kept, field) : null };
}

function markOf(kept: JsonObject | null): ReasoningMark | null {
  if (kept?.["from"] === "chat") return { from: "chat" };
  if (kept?.["from"] !== "responses" || typeof kept["id"] !== "string") return null;
  const encrypted = kept["encrypted"];
  return { from: "responses", id: kept["id"], encrypted: typeof encrypted === "string" ? encrypted : null };
}

const textIn = (kept: JsonObject, key: string): string | null => {
  const text = kept[key];
  return typeof text === "string" && text !== "" ? text : null;
};

const openKept = (sealed: string, sealer: Sealer): JsonObject | null => {
  const json = sealer.open(sealed.slice(SEALED_PREFIX.length));
  return json === null ? null : parse(json);
};

const parse = (json: string): JsonObject | null => objectOf(parseJson(json));
