/**
 * Finds providers' blobs that clients send back: signatures of thinking, redacted thinking, encrypted content (rule
 * 7.12). request/sealed-reasoning.ts decides whose they are.
 */
import type { BlobPlace } from "../../dialects/reasoning.ts";
import type { JsonReader, Span } from "../../lib/json-reader.ts";
import type { ContentFacts, Path, ReasoningBlob } from "./content.ts";
import { blobAhead, isOurReasoning, refuseStray } from "./walk.ts";

/** Fields of Messages blocks that hold a blob, by the block's type. */
const blobFields: Readonly<Record<string, Readonly<Record<string, BlobPlace["field"]>>>> = {
  thinking: { signature: "signature" },
  redacted_thinking: { data: "data" },
  compaction: { signature: "signature", encrypted_content: "encrypted" },
};

/** The key of encrypted content, as it stands in JSON. Inside a text the quotes would be escaped. */
export const ENCRYPTED_KEY = '"encrypted_content"';

/** Whether a key may hold a blob, whatever the type of its block. */
export const isBlobKey = (key: string): boolean =>
  key === "signature" || key === "data" || key === "encrypted_content";

/** A string of a Messages block that may be a blob. */
export interface BlockBlob {
  readonly key: string;
  readonly span: Span;
  /** Whether we sealed it: then it is a blob in a block of any type. */
  readonly ours: boolean;
}

/**
 * Reads the string ahead under such a key; null for an empty one.
 * @throws ApiError 400 for the sealed result of a server tool, which has no place here.
 */
export function readBlockBlob(
  reader: JsonReader,
  facts: ContentFacts,
  key: string,
  path: Path,
): BlockBlob | null {
  const ours = isOurReasoning(reader);
  if (key === "encrypted_content" && !ours) refuseStray(reader, facts, [...path, key]);
  const span = blobAhead(reader);
  return span === null ? null : { key, span, ours };
}

/** Keeps those of a block's strings that are blobs in a block of its type. */
export function keepBlockBlobs(
  found: readonly BlockBlob[],
  type: string | undefined,
  entryStart: number,
  blobs: ReasoningBlob[],
  path: Path = [],
): void {
  if (found.length === 0) return;
  const fields = blobFields[type ?? ""] ?? {};
  for (const { key, span, ours } of found) {
    const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
    const compaction = type === "compaction" ? { compaction: [...path, key] } : {};
    if (field !== undefined) blobs.push({ ...span, field, entryStart, ...compaction });
    // Sealed by us: opened for the account that made it, or left out with its block.
    else if (ours) blobs.push({ ...span, field: "signature", entryStart });
  }
}
